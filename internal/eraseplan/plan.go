// Package eraseplan finds everything that an erase must take: what was asked for, what holds its content besides, what was
// derived from it, and which contexts showed it. It reads a store and writes nothing.
//
//	artefacts   every version of every artefact is looked at once; then what was derived is followed       artefacts.go
//	rows        sessions, directives, recorded directories, drafts                                         rows.go
//	held        batches that wait for review, or were decided                                              rows.go
//	asked       the names that a request asks for, or an earlier erase whose receipt is repeated            asked.go
//	audit       contexts that showed it, what was committed from them, questions                           audit.go
//
// The audit also says which artefacts an operator promoted to an ancestor scope, and has names that no row has any more. If
// it names more of what goes, the search begins again and takes that, too.
package eraseplan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// Plan lists what an erase takes.
type Plan struct {
	Report ops.Report
	Job    store.EraseJob

	promoted []store.Ref // copies that go with what was asked for
}

// Run finds what a request asks for and erases it, or with DryRun tells it. ErrNotFound: nothing is held of it.
func Run(ctx context.Context, st store.Store, req *ops.Request) (*ops.Report, error) {
	return run(ctx, st, newFinder(req))
}

// run carries out what a finder looks for. The request of an erase that is repeated stands in its receipt, even if the
// names are lost.
func run(ctx context.Context, st store.Store, f *finder) (*ops.Report, error) {
	req := f.req
	plan, err := f.find(ctx, st)
	if err != nil {
		return nil, err
	}
	plan.Job.Asked, plan.Job.Cascade = asked(f.secret, req, plan.promoted), string(cmp.Or(req.Cascade, ops.Keep))
	if f.was != nil {
		plan.Job.Asked = f.was.Asked
	}
	rep := &plan.Report
	switch {
	case req.DryRun:
		return rep, nil
	case rep.Empty():
		return rep, goOn(ctx, st, plan, req.Progress)
	}
	done, err := st.Maintain(ctx, store.Job{Kind: store.JobErase, Erase: &plan.Job}, req.Progress)
	if done.Erase.Trace != "" {
		rep.Done = &done.Erase
	}
	return rep, err
}

// goOn finishes erases that were interrupted after their commits: what they took is no longer found, and still in the files. The
// plan gets the report of the one that was asked for. Without it the error says that nothing is held.
func goOn(ctx context.Context, st store.Store, plan *Plan, progress store.Progress) error {
	none := fmt.Errorf("%w: nothing is held of what is to be erased", store.ErrNotFound)
	waiting, err := interrupted(ctx, st)
	if err != nil || len(waiting) == 0 {
		return cmp.Or(err, none)
	}
	_, err = st.Maintain(ctx, store.Job{Kind: store.JobCompact}, progress)
	switch {
	case errors.Is(err, store.ErrInvalid): // a store without files, which finishes its erases in another way
		return none
	case err != nil:
		return err
	}
	done, err := Finished(ctx, st)
	if err != nil {
		return err
	}
	for _, d := range slices.Backward(done) {
		if waiting[d.Trace] && slices.Equal(d.Asked, plan.Job.Asked) {
			plan.Report.Done = &d
			return nil
		}
	}
	return none
}

// StateKind says what a store must know of the rows that say how far an erase has come.
func StateKind() store.StateKind { return store.StateKind{Prefix: format.EraseRows, Stays: true} }

// Find searches a store for what a request asks for. Nothing is found: the report is empty.
func Find(ctx context.Context, st store.Store, req *ops.Request) (*Plan, error) {
	return newFinder(req).find(ctx, st)
}

func (f *finder) find(ctx context.Context, st store.Store) (*Plan, error) {
	info, err := st.Info(ctx)
	if err != nil {
		return nil, err
	}
	f.ctx, f.st, f.secret = ctx, st, info.Secret
	for _, step := range []func() error{f.begin, f.earlierRuns, f.artefacts, f.state, f.held, f.collectNames, f.audit} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if wider := f.wider(); wider != nil {
		return wider.find(ctx, st)
	}
	return f.plan(), nil
}

// begin checks the request and notes its names. Those of an erase that is repeated are known by their digests.
func (f *finder) begin() error {
	if f.was != nil {
		digests := map[string]bool{}
		for _, d := range f.was.Asked {
			digests[d] = true
		}
		f.among, f.known = digested(f.secret, digests), len(f.matched)
		return nil
	}
	if err := f.req.Check(); err != nil {
		return err
	}
	for _, n := range namesOf(f.req) {
		f.matched[n] = true
	}
	return nil
}

// wider is a search for more than this one: promoted copies of what goes, and names that were found too late. nil: this one
// looked at all of it.
func (f *finder) wider() *finder {
	promoted := f.promotedCopies()
	if len(promoted) <= len(f.promoted) && !(f.was != nil && f.req.Names && len(f.matched) > f.known) { // a search for more takes no less
		return nil
	}
	wider := newFinder(f.req)
	wider.was, wider.promoted, wider.matched = f.was, promoted, f.matched
	return wider
}

// newFinder is a search that has not begun.
func newFinder(req *ops.Request) *finder {
	f := &finder{
		req: req, progress: req.Progress, cascade: cmp.Or(req.Cascade, ops.Keep), matched: map[name]bool{}, whole: map[string]bool{}, arts: map[artefact]*found{}, nums: map[uint64]bool{},
		sessions: map[session]bool{}, touched: map[session]bool{}, emptied: map[session]bool{}, contexts: map[string]bool{}, drafts: map[string][]draft{}, scopes: map[string]bool{}, failed: map[string]bool{}, waiting: map[artefact]bool{},
	}
	if f.progress == nil {
		f.progress = func(string, uint64, uint64) {}
	}
	return f
}

type artefact struct{ scope, id string }

type session struct{ scope, id string }

// directory is one that a scope has recorded.
type directory struct {
	scope string
	freshness.Recorded
}

// finder is a search under way.
type finder struct {
	ctx      context.Context
	st       store.Store
	req      *ops.Request
	progress store.Progress
	cascade  ops.Cascade

	secret  []byte          // of the database: receipts have digests under it
	among   func(name) bool // whether a name is among digests that were asked for; nil: matched has all names
	matched map[name]bool   // that were asked for, as far as they are known
	known   int             // of matched, when the search began
	whole   map[string]bool // of scopes that were looked at: they go

	arts     map[artefact]*found // that go
	linked   []*found            // that were made from others, and may follow them
	packets  []*found            // pages of packets that sessions received
	nums     map[uint64]bool     // pages of arts
	sessions map[session]bool    // that go as a whole
	touched  map[session]bool    // that lose turns
	emptied  map[session]bool    // with Names: that lose all of them
	drafts   map[string][]draft  // by trace of the context that showed them
	contexts map[string]bool     // traces that showed one of nums
	scopes   map[string]bool
	waiting  map[artefact]bool // of those asked for by name: of which a draft or a held batch has something

	report ops.Report
	job    store.EraseJob

	bodies    []uint64 // leaves whose bodies go
	allScopes []string // that were seen

	dirs   []directory        // that are recorded and stay
	copies []*manifest.Record // leaves of backups
	failed map[string]bool    // traces of those that failed
	names  *format.NameSet    // of what goes; nil: they stay

	runs map[string]bool // with Names: earlier erases of the same, by trace

	promotions []promotion             // that the audit tells of
	promoted   map[store.Ref]store.Ref // versions that are copies of what goes, and what they were promoted from

	was *store.EraseReport // the erase that is repeated, as a receipt has it; nil: none is
}

// found is an artefact with what all of its versions say.
type found struct {
	artefact
	kind     store.Kind
	bare     bool // nothing is left of it but names
	versions uint32
	nums     []uint64
	sessions []string // groups of its messages
	parents  []store.Ref
	replaced []store.Ref // with Names: what its versions superseded
	words    []store.Ref // of parents: those whose words it has, because a version is a summary or has them as its source
	packet   string      // of a page of a packet that a session received: the id of the packet
	files    []string    // sources of its versions that are files
	from     store.Ref   // the session that handed it on, if the page says so
	handed   []artefact  // the turns that it names
	why      string
}

// plan puts together what was found, in an order that depends on nothing else.
func (f *finder) plan() *Plan {
	r := &f.report
	for _, a := range slices.SortedFunc(maps.Keys(f.arts), compare) {
		x := f.arts[a]
		ref := store.Ref{Scope: a.scope, ID: a.id}
		f.job.Refs = append(f.job.Refs, ref)
		r.Erased = append(r.Erased, ops.Item{Ref: ref.String(), Kind: x.kind.String(), Versions: x.versions, Why: x.why})
		f.scopes[a.scope] = true
	}
	for _, ref := range f.req.Refs {
		if a := (artefact{ref.Scope, ref.ID}); f.arts[a] == nil && !f.waiting[a] && !slices.Contains(r.Missing, ref.String()) {
			r.Missing = append(r.Missing, ref.String())
		}
	}
	for s := range f.touched {
		r.Sessions = append(r.Sessions, s.scope+"/"+s.id)
		f.scopes[s.scope] = true
	}
	slices.Sort(r.Sessions)
	sort.Slice(f.job.State, func(i, j int) bool { return f.job.State[i].Key < f.job.State[j].Key })
	r.Scopes = slices.Sorted(maps.Keys(f.scopes))
	r.Questions, r.Rows, r.DryRun = len(f.job.Questions), len(f.job.State), f.req.DryRun
	f.takeNames()
	f.job.By, f.job.Reason, f.job.Backups = f.req.By, f.req.Reason, f.backups()
	r.Backups, r.Files = f.job.Backups, notNil(f.comeBack())
	r.Erased, r.Derived, r.Held, r.Contexts = notNil(r.Erased), notNil(r.Derived), notNil(r.Held), notNil(r.Contexts)
	r.Answers, r.Sessions, r.Scopes, r.Backups = notNil(r.Answers), notNil(r.Sessions), notNil(r.Scopes), notNil(r.Backups)
	return &Plan{Report: *r, Job: f.job, promoted: f.copiesTaken()}
}

// notNil returns a list that JSON does not write as null.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func compare(a, b artefact) int {
	return cmp.Or(cmp.Compare(a.scope, b.scope), cmp.Compare(a.id, b.id))
}
