package eraseplan

import (
	"cmp"
	"fmt"
	"sort"
	"strings"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// draft is a row of what a context showed of drafts.
type draft struct {
	key  string
	puts []store.Put
	told bool // the audit has its context
}

// state looks at the rows of state whose owner may go.
func (f *finder) state() error {
	for n := range f.matched {
		if n.kind == askedSession {
			f.touched[session{n.scope, n.id}] = true
		}
	}
	looks := f.looks()
	if f.req.Names {
		for s := range f.touched {
			empty, err := f.empties(s)
			if err != nil {
				return err
			}
			if empty {
				f.emptied[s] = true
			}
		}
		looks["quota/"], looks["retention/"] = f.policyRow, f.policyRow
	}
	for prefix, look := range looks {
		for page, err := range f.pages(store.ScanQuery{What: store.ScanState, Prefix: prefix}) {
			if err != nil {
				return err
			}
			for _, r := range page.State {
				if err := look(r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// empties reports whether all turns of a session go, so that nothing is left for its name.
func (f *finder) empties(s session) (bool, error) {
	for page, err := range f.pages(store.ScanQuery{What: store.ScanArtefacts, Scopes: store.Scopes{s.scope}, Deleted: true, Ever: &store.Ever{Group: s.id}}) {
		if err != nil {
			return false, err
		}
		for _, h := range page.Heads {
			if f.arts[artefact{h.Scope, h.ID}] == nil && h.Group == s.id {
				return false, nil
			}
		}
	}
	return true, nil
}

// looks are by prefix the rows that may go.
func (f *finder) looks() map[string]func(store.StateRow) error {
	return map[string]func(store.StateRow) error{
		"session/": f.sessionRow, directivelog.StateKind().Prefix: f.directiveRow, freshness.DirectoryRows(): f.directoryRow, rendering.DraftsKind().Prefix: f.draftRow,
	}
}

// gone notes that a row goes.
func (f *finder) gone(r store.StateRow) {
	f.job.State = append(f.job.State, store.StateRow{Key: r.Key, LSN: r.LSN})
}

// sessionRow takes the rows of a session that goes, and of a turn that goes. What was noted of a session that loses turns,
// and the words that its passes were made for, may be those of the turns.
func (f *finder) sessionRow(r store.StateRow) error {
	kind, rest := cutKind(r.Key)
	part := strings.SplitN(rest, "\x00", 3)
	if len(part) < 2 {
		return nil
	}
	s := session{part[0], part[1]}
	if f.inSession(s.scope, s.id) {
		f.touched[s] = true
		f.gone(r)
		return nil
	}
	switch {
	case kind == conversation.NoteRowKey && f.touched[s]:
		f.gone(r)
	case kind == conversation.PassRowKey && f.touched[s]:
		value, err := conversation.WithoutIntent(r.Value)
		if err != nil {
			return fmt.Errorf("ctxpage: erase: record of a pass of session %s: %w", s.id, err)
		}
		f.job.State = append(f.job.State, store.StateRow{Key: r.Key, Value: value, LSN: r.LSN})
	case (kind == conversation.TurnRowKey || kind == conversation.PlaceRowKey) && len(part) == 3 && f.arts[artefact{s.scope, part[2]}] != nil:
		f.gone(r)
	}
	return nil
}

// cutKind parts a key behind its second slash.
func cutKind(key string) (kind, rest string) {
	at := strings.IndexByte(key, '/') + 1
	at += strings.IndexByte(key[at:], '/') + 1
	return key[:at], key[at:]
}

func (f *finder) directiveRow(r store.StateRow) error {
	if f.inScope(directivelog.ScopeOf(r.Key)) {
		f.gone(r)
	}
	return nil
}

func (f *finder) directoryRow(r store.StateRow) error {
	scope := freshness.DirectoryScope(r.Key)
	if f.inScope(scope) {
		f.gone(r)
		return nil
	}
	if f.st == nil { // a row of an export, of which nobody asks for files
		return nil
	}
	d, err := freshness.ReadDirectory(r)
	f.dirs = append(f.dirs, directory{scope, d})
	return err
}

// comeBack are files of recorded directories that the next refresh would import again.
func (f *finder) comeBack() (list []ops.File) {
	for _, d := range f.dirs {
		for a, x := range f.arts {
			for _, source := range x.files {
				if _, is := d.Holds(a.id, source); is && a.scope == d.scope {
					list = append(list, ops.File{Ref: store.Ref{Scope: a.scope, ID: a.id}.String(), Path: strings.TrimPrefix(source, "file:"), Dir: d.Dir})
				}
			}
		}
	}
	sort.Slice(list, func(i, j int) bool {
		a, b := &list[i], &list[j]
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Ref, b.Ref)) < 0
	})
	return list
}

// draftRow keeps the drafts until the audit says of which scope and session their context is.
func (f *finder) draftRow(r store.StateRow) error {
	trace, puts, err := rendering.DraftsOf(r)
	if err != nil {
		return fmt.Errorf("ctxpage: erase: drafts of context %s: %w", trace, err)
	}
	f.drafts[trace] = append(f.drafts[trace], draft{key: r.Key, puts: puts})
	return nil
}

// held takes the batches that hold what goes.
func (f *finder) held() error {
	for page, err := range f.pages(store.ScanQuery{What: store.ScanHeld, All: true}) {
		if err != nil {
			return err
		}
		for i := range page.Held {
			h := &page.Held[i]
			if why := f.heldWhy(h); why != "" {
				f.job.Held = append(f.job.Held, h.Batch.ID)
				f.scopes[h.Batch.Scope] = true
				f.report.Held = append(f.report.Held, ops.HeldItem{ID: h.Batch.ID.String(), Scope: h.Batch.Scope, Actor: h.Batch.Actor, At: h.At.UTC(), Why: why})
			}
		}
	}
	if f.was == nil {
		return nil
	}
	return f.lostBatches()
}

func (f *finder) heldWhy(h *store.HeldBatch) string {
	b := &h.Batch
	if f.inScope(b.Scope) {
		return "of the scope"
	}
	for i := range b.Puts {
		if why := f.putWhy(b.Scope, &b.Puts[i].Artefact); why != "" {
			return why
		}
	}
	for _, r := range b.State {
		kind, rest := cutKind(r.Key)
		part := strings.SplitN(rest, "\x00", 3)
		if strings.HasPrefix(kind, "session/") && len(part) >= 2 && f.touched[session{part[0], part[1]}] {
			return "writes to a session that loses turns"
		}
	}
	if f.req.Names && f.batchNames(b) {
		return "it names what goes"
	}
	if f.cascade != ops.Keep {
		for _, c := range b.Context {
			if f.nums[c.Num] {
				return "written from a context that showed it"
			}
		}
	}
	return ""
}

// putWhy says why an artefact that waits, or was a draft, goes.
func (f *finder) putWhy(scope string, a *store.Artefact) string {
	switch {
	case f.isSubject(scope, a.Subject):
		return "its subject"
	case f.arts[artefact{scope, a.ID}] != nil || f.isNamed(artefact{scope, a.ID}):
		f.waiting[artefact{scope, a.ID}] = true
		return "a version of " + store.Ref{Scope: scope, ID: a.ID}.String()
	case f.inSession(scope, a.Group):
		return "of the session"
	}
	parents, copies := madeFrom(scope, a)
	if from, _ := f.split(parents); len(from) > 0 && (f.cascade != ops.Keep || copies || a.Kind == store.KindSummary) {
		return "derived from " + from[0]
	}
	return ""
}
