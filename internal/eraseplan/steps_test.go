package eraseplan_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/eraseplan"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

var ctx = context.Background()

// walk is one random sequence of calls, made to a database and to its model.
type walk struct {
	*state
	dice
	seed   uint64
	key    []byte // nil: it is not encrypted
	dir    string
	path   string
	db     *ctxpage.DB
	now    time.Time
	random io.Reader // ids and salts
	n      int       // words so far
	defect defect
	copies []copied
	erased []*ops.Receipt // all of them, oldest first
	asked  []ops.Request
	steps  []string
	done   map[string]int // steps that did something
}

// copied is a backup and the model of it.
type copied struct {
	path  string
	model *state
	after int // erasures that it has
}

// defect spoils an erase job on its way to the store: a control.
type defect func(*store.EraseJob)

// spoiled is a store that erases less than it is asked to.
type spoiled struct {
	*filestore.Store
	defect defect
}

func (s spoiled) Maintain(ctx context.Context, job store.Job, p store.Progress) (store.JobReport, error) {
	if job.Kind == store.JobErase && s.defect != nil {
		less := *job.Erase
		s.defect(&less)
		job.Erase = &less
	}
	return s.Store.Maintain(ctx, job, p)
}

func openAt(path string, key []byte, clock func() time.Time, random io.Reader, d defect) (*ctxpage.DB, error) {
	st, err := filestore.Open(filestore.Options{Path: path, Key: key, Now: clock, Rand: random, NoSync: true, State: ctxpage.StateKinds(), Columns: 1})
	if err != nil {
		return nil, err
	}
	db, err := ctxpage.Open(path, ctxpage.Options{Store: spoiled{st, d}, Clock: clock, Rand: random})
	if err != nil {
		err = errors.Join(err, st.Close())
	}
	return db, err
}

func (w *walk) clock() time.Time { return w.now }

func (w *walk) open() (err error) {
	w.db, err = openAt(w.path, w.key, w.clock, w.random, w.defect)
	return err
}

func (w *walk) word() string {
	w.n++
	word := fmt.Sprintf("zq%dx%dx", w.seed, w.n)
	w.steps = append(w.steps, word)
	return word
}

func (w *walk) scope() string { return w.one("acme/ann", "acme/bob") }

// talkOf is the session of a scope.
func talkOf(scope string) string { return "talk" + filepath.Base(scope) }

// step makes one random call.
func (w *walk) step() error {
	c := w.draw([]call{
		{"put", 10, w.putFact}, {"derive", 4, w.putDerived}, {"delete", 3, w.remove}, {"append", 5, w.turn}, {"note", 2, w.note}, {"pass", 1, w.pass},
		{"direct", 1, w.direct}, {"assemble", 6, w.assemble}, {"hold", 4, w.hold}, {"review", 2, w.review}, {"gc", 3, w.gc}, {"retention", 2, w.retain},
		{"checkpoint", 1, w.checkpoint}, {"reopen", 2, w.reopen}, {"compact", 1, w.compact}, {"time", 3, w.wait}, {"backup", 1, w.backup}, {"restore", 1, w.restore},
		{"erase", 5, w.eraseSome},
	})
	if err := c.do(); err != nil {
		return fmt.Errorf("%v, %s: %w", w.steps, c.name, err)
	}
	w.steps = append(w.steps, c.name)
	w.done[c.name]++
	return nil
}

func (w *walk) store(a *art, b ctxpage.Artefact) error {
	b.ID, b.Kind, b.Subject = a.id, a.kind, a.subject
	word := w.word()
	b.Text, b.Tags, b.Meta = "kettle "+word, []string{word}, map[string]string{"note": word}
	ref, err := w.db.Scope(a.scope).Put(ctx, b)
	if err != nil {
		return err
	}
	return w.put(a, ref, word, b.Text, w.now)
}

func (w *walk) putFact() error {
	id := fmt.Sprint("a", w.IntN(4))
	return w.store(&art{name: name{w.scope(), id}, kind: store.KindFact, subject: subjectOf(id)}, ctxpage.Artefact{})
}

// putDerived puts what is made from an artefact that is there.
func (w *walk) putDerived() error {
	a := &art{name: name{w.scope(), w.one("child", "sum")}, kind: store.KindFact, parent: "a2"}
	if a.id == "sum" {
		a.kind = store.KindSummary
	}
	p := w.arts[name{a.scope, a.parent}]
	if p == nil || !p.live {
		return nil
	}
	return w.store(a, ctxpage.Artefact{DerivedFrom: []store.Ref{{Scope: a.scope, ID: a.parent, Version: uint32(len(p.versions))}}})
}

func (w *walk) remove() error {
	a := w.arts[name{w.scope(), fmt.Sprint("a", w.IntN(4))}]
	if a == nil || !a.live {
		return nil
	}
	w.deleted(a)
	return w.db.Scope(a.scope).Delete(ctx, a.id)
}

func (w *walk) talk(scope string) *talk {
	k := name{scope, talkOf(scope)}
	if w.talks[k] == nil {
		w.talks[k] = &talk{}
	}
	return w.talks[k]
}

func (w *walk) turn() error {
	scope, word := w.scope(), w.word()
	a := &art{name: name{scope, fmt.Sprint("turn", w.n)}, kind: store.KindMessage, session: talkOf(scope)}
	text := "kettle " + word
	refs, err := w.db.Scope(scope).Session(a.session).Append(ctx, ctxpage.Turn{ID: a.id, Role: "user", Text: text})
	if err != nil {
		return err
	}
	w.talk(scope)
	return w.put(a, refs[0], word, text, w.now)
}

func (w *walk) note() error {
	scope, word := w.scope(), w.word()
	if w.talks[name{scope, talkOf(scope)}] == nil {
		return nil
	}
	t := w.talk(scope)
	t.words = append(t.words, word)
	return w.db.Scope(scope).Session(talkOf(scope)).Record(ctx, session.Notes{Text: word, Done: []string{word}})
}

func (w *walk) pass() error {
	scope, word := w.scope(), w.word()
	turns, err := loop.Collect(w.db.Scope(scope).Session(talkOf(scope)).Turns(ctx, 0, ctxpage.AtMost(1, "", nil)))
	if errors.Is(err, store.ErrNotFound) || err == nil && len(turns) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	t := w.talk(scope)
	t.words = append(t.words, word)
	_, err = w.db.Scope(scope).Session(talkOf(scope)).Pass(ctx, session.PassQuery{Keywords: []string{word}})
	return err
}

func (w *walk) direct() error {
	scope, word := w.scope(), w.word()
	w.directives[scope] = append(w.directives[scope], word)
	_, err := w.db.Scope(scope).Directives().Step(ctx, "use "+word)
	return err
}

// shown notes an assembly.
func (w *walk) shown(c assembled, a *ctxpage.Assembly) error {
	c.id, c.at, c.text, c.asked = a.Manifest.Trace, w.now, a.Text(), true
	var err error
	if c.leaf, err = leafOf(w.db, c.id); err != nil {
		return err
	}
	for _, b := range a.Blocks {
		p := page{ref: b.Ref, version: -1}
		if a := w.arts[name{b.Ref.Scope, b.Ref.ID}]; a != nil && int(b.Ref.Version) <= len(a.versions) && b.Ref.Version > 0 {
			p.version = a.versions[b.Ref.Version-1]
			if v := w.versions[p.version]; !a.live || !v.readable() {
				return fmt.Errorf("context %s shows %s, which is not there", c.id, b.Ref)
			}
		}
		c.pages = append(c.pages, p)
	}
	w.contexts = append(w.contexts, c)
	return nil
}

// leafOf is the leaf of an assembly.
func leafOf(db *ctxpage.DB, trace string) (*manifest.Record, error) {
	leaves, err := db.Manifests().ByTrace(ctx, trace)
	for _, l := range leaves {
		if l.Type == manifest.TypeAssemble && l.Trace == trace {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no leaf of the assembly among %d: %w", len(leaves), err)
}

func (w *walk) assemble() error {
	c := assembled{name: name{scope: w.scope()}, word: w.word()}
	if k := (name{c.scope, talkOf(c.scope)}); w.talks[k] != nil && w.IntN(3) == 0 {
		c.session = k.id
	}
	a, err := w.db.Scope(c.scope).Assemble(ctx, ctxpage.Query{Text: "kettle " + c.word, Budget: 2000, Session: c.session})
	if c.session != "" && errors.Is(err, store.ErrNotFound) { // it has no turns any more
		return nil
	}
	if err != nil {
		return err
	}
	return w.shown(c, a)
}

// hold writes what the gate holds, at times from a context that showed its draft.
func (w *walk) hold() error {
	id := fmt.Sprint("a", w.IntN(4))
	h := held{name: name{w.scope(), id}, subject: subjectOf(id), word: w.word(), waits: true}
	h.text = "kettle held " + h.word
	tx, err := w.db.Scope(h.scope, ctxpage.WithActor("agent")).Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := tx.Put(ctx, ctxpage.Artefact{ID: h.id, Text: h.text, Subject: h.subject, Tags: []string{h.word}}); err != nil {
		return err
	}
	if w.IntN(2) == 0 {
		c := assembled{name: name{scope: h.scope}, word: w.word(), draft: &h.name, drafted: h.word}
		a, err := tx.Assemble(ctx, ctxpage.Query{Text: "kettle " + c.word, Budget: 2000})
		if err != nil {
			return err
		}
		if err := w.shown(c, a); err != nil {
			return err
		}
		for _, p := range w.contexts[len(w.contexts)-1].pages {
			h.seen = append(h.seen, name{p.ref.Scope, p.ref.ID})
		}
	}
	var he *store.HeldError
	if err := tx.Commit(ctx, ctxpage.Verdict{Confidence: 0.1, By: "judge"}); !errors.As(err, &he) {
		return fmt.Errorf("not held: %w", err)
	}
	h.batch = he.Batch
	w.batches = append(w.batches, h)
	return nil
}

// review decides a batch that waits. What was written meanwhile may be in the way of an approval.
func (w *walk) review() error {
	at := slices.IndexFunc(w.batches, func(h held) bool { return h.waits })
	if at < 0 {
		return nil
	}
	h := &w.batches[at]
	if w.IntN(2) == 0 {
		h.waits = false
		_, err := w.db.Review().Reject(ctx, h.batch, "operator", "no")
		return err
	}
	out, err := w.db.Review().Approve(ctx, h.batch, ctxpage.Approval{By: "operator"})
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrStaleContext) {
		return nil
	}
	if err != nil {
		return err
	}
	h.waits = false
	return w.put(&art{name: h.name, kind: store.KindFact, subject: h.subject}, out.Refs[0], h.word, h.text, w.now)
}

func (w *walk) checkpoint() error {
	_, err := w.db.Admin().Checkpoint(ctx)
	return err
}

func (w *walk) compact() error {
	_, err := w.db.Admin().Compact(ctx, w.IntN(2) == 0, nil)
	return err
}

func (w *walk) wait() error {
	w.now = w.now.Add(time.Duration(1+w.IntN(60)) * time.Hour)
	return nil
}

func (w *walk) head() error {
	h, err := w.db.Head(ctx)
	w.heads = append(w.heads, h)
	return err
}

func (w *walk) reopen() error {
	if err := errors.Join(w.head(), w.db.Close()); err != nil {
		return err
	}
	return w.open()
}

func (w *walk) gc() error {
	rep, err := w.db.Admin().GC(ctx, ctxpage.GCOptions{KeepFor: -1, KeepRecords: w.IntN(3) - 1, KeepNames: w.IntN(3) - 1})
	if err != nil {
		return err
	}
	own := 0 // pages of directives, which the model does not follow
	for _, r := range rep.Refs {
		if strings.HasPrefix(r.ID, directivelog.Reserved) {
			own++
		}
	}
	if err := w.swept(w.db, rep.Dropped.Versions-own); err != nil {
		return fmt.Errorf("%w: %v", err, rep.Refs)
	}
	return nil
}

func (w *walk) retain() error {
	k := w.db.Admin().Retention()
	p := ops.Policy{Kinds: map[string]ops.Age{"fact": ops.Age(modelAge)}, Versions: ops.Day, Prune: ops.Age(modelPrune)}
	if err := k.Set(ctx, "", p, "operator"); err != nil {
		return err
	}
	if _, err := k.Run(ctx, ops.RunOptions{By: "keeper"}); err != nil {
		return err
	}
	for _, a := range w.arts {
		if a.live && a.kind == store.KindFact && !a.at.After(w.now.Add(-modelAge)) {
			w.deleted(a)
		}
	}
	for i := range w.contexts {
		if c := &w.contexts[i]; c.pruned == "" && !c.at.After(w.now.Add(-modelPrune)) {
			c.pruned, c.asked = "keeper", false
		}
	}
	return w.swept(w.db, -1)
}

func (w *walk) backup() error {
	c := copied{path: filepath.Join(w.dir, fmt.Sprint("copies-", w.n), "backup.ctx"), model: w.state.clone(), after: len(w.erased)}
	if err := os.Mkdir(filepath.Dir(c.path), 0o700); err != nil {
		return err
	}
	w.n++
	_, err := w.db.Admin().Backup(ctx, c.path, nil)
	w.copies = append(w.copies, c)
	return err
}

// restore restores a backup with the receipts of what was erased after it, and compares it with its model.
func (w *walk) restore() error {
	if len(w.copies) == 0 {
		return nil
	}
	c := w.copies[len(w.copies)-1]
	w.copies = w.copies[:len(w.copies)-1]
	defer os.RemoveAll(filepath.Dir(c.path))
	to := filepath.Join(w.dir, "restored")
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(to)
	if w.key != nil { // the keyring of now: what was erased since opens no more
		ring, err := os.ReadFile(w.path + ".keys")
		if err == nil {
			err = os.WriteFile(c.path+".keys", ring, 0o600)
		}
		if err != nil {
			return err
		}
	}
	var again []*ops.Report
	opts := filestore.RestoreOptions{Clock: w.clock, Key: w.key, Prepare: func(ctx context.Context, st store.Store) (err error) {
		again, err = eraseplan.Repeat(ctx, st, w.erased, false, nil)
		return err
	}}
	if _, err := filestore.Restore(ctx, c.path, filepath.Join(to, "agent.ctx"), opts); err != nil {
		return err
	}
	if err := c.model.again(w.asked[c.after:], again); err != nil {
		return err
	}
	db, err := openAt(filepath.Join(to, "agent.ctx"), w.key, w.clock, w.random, nil)
	if err != nil {
		return err
	}
	return errors.Join(c.model.check(db, to), db.Close())
}

// again applies to the model of a backup the requests that were made after it. Of each, the reports say what a restore did;
// one that found nothing has none, or an empty one.
func (s *state) again(reqs []ops.Request, reps []*ops.Report) error {
	for i := range reqs {
		rep := &ops.Report{}
		for j, r := range reps {
			if r.Done != nil && r.Done.Reason == reqs[i].Reason {
				rep, reps = r, reps[j+1:]
				break
			}
		}
		if err := s.erase(&reqs[i], rep); err != nil {
			return fmt.Errorf("again: %w", err)
		}
	}
	return nil
}

// request is a random one.
func (w *walk) request() ops.Request {
	req := ops.Request{By: w.one("desk", "office"), Reason: fmt.Sprint("request ", len(w.asked)), Names: w.IntN(4) == 0, Cascade: ops.Cascade(w.one("keep", "rederive", "erase"))}
	scope := w.scope()
	switch w.IntN(8) {
	case 0:
		req.Scope = scope
	case 1, 2:
		if req.Subject = w.one("annsubject", "bobsubject"); w.IntN(2) == 0 {
			req.Scope = scope // those of one scope, and of those below it
		}
	case 3:
		req.Session = store.Ref{Scope: scope, ID: talkOf(scope)}
	case 4:
		for _, a := range w.sorted() {
			if a.session != "" {
				req.Refs = append(req.Refs, store.Ref{Scope: a.scope, ID: a.id})
			}
		}
		if len(req.Refs) > 0 {
			req.Refs = req.Refs[:1]
			break
		}
		fallthrough
	default:
		req.Refs = []store.Ref{{Scope: scope, ID: fmt.Sprint("a", w.IntN(4))}}
	}
	return req
}

func (w *walk) eraseSome() error {
	req := w.request()
	if err := w.head(); err != nil {
		return err
	}
	w.steps = append(w.steps, fmt.Sprintf("%+v", req))
	rep, err := w.db.Admin().Erase(ctx, req)
	missing := errors.Is(err, store.ErrNotFound)
	if err != nil && !missing {
		return err
	}
	if missing {
		rep = &ops.Report{}
	}
	if err := w.erase(&req, rep); err != nil {
		return err
	}
	if missing {
		return nil
	}
	h, err := w.db.Head(ctx)
	if err != nil {
		return err
	}
	r, err := ops.NewReceipt(ctx, w.db.Manifests(), *rep.Done, h)
	if err != nil {
		return err
	}
	w.erased, w.asked = append(w.erased, r), append(w.asked, req)
	return w.check(w.db, filepath.Dir(w.path))
}
