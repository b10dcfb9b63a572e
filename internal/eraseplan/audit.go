package eraseplan

import (
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// audit goes through the leaves, oldest first: a context comes before what was written from it.
func (f *finder) audit() error {
	a := f.st.Audit()
	size, err := a.Size(f.ctx)
	if err != nil {
		return err
	}
	if f.names != nil {
		f.job.Named.Leaves = size
	}
	err = archive.EachAhead(f.ctx, a, size, func(r *manifest.Record) error {
		if r.Index%4096 == 0 {
			f.progress("audit", r.Index, size)
		}
		f.askedIn(r)
		f.context(r)
		f.nameless(r)
		f.answer(r)
		f.copied(r)
		f.promotion(r)
		return nil
	})
	for _, list := range f.drafts {
		for _, d := range list {
			if !d.told { // a crash came before its manifest: nobody can ask for it
				f.job.State = append(f.job.State, store.StateRow{Key: d.key})
			}
		}
	}
	return err
}

// context notes a read that showed what goes, or a draft of it. Its question goes as well: it was asked about it. So does what
// was asked in a session or a scope that goes.
func (f *finder) context(r *manifest.Record) {
	if !r.Type.Reads() && r.Type != manifest.TypeHandoff {
		return
	}
	n := 0
	for i := range r.Pages {
		if f.nums[r.Pages[i].Num] || r.Pages[i].Via != 0 && f.nums[r.Pages[i].Via] {
			n++
		}
	}
	ours := f.inScope(r.Scope) || f.inSession(r.Scope, r.Session)
	if n > 0 {
		f.contexts[r.Trace] = true
		f.report.Contexts = append(f.report.Contexts, ops.Context{
			Trace: r.Trace, Type: r.Type.String(), Scope: r.Scope, Session: r.Session, Actor: r.Actor, At: time.UnixMicro(r.Time).UTC(), Pages: n,
		})
	}
	if drafts := f.draftsOf(r, ours); (n > 0 || ours || drafts) && r.QuestionKept && f.asked(r) {
		f.job.Questions = append(f.job.Questions, r.Index)
	}
}

// asked reports whether the text of a question is still there.
func (f *finder) asked(r *manifest.Record) bool {
	_, err := f.st.Audit().Question(f.ctx, r)
	return err == nil
}

// draftsOf takes the drafts that a context showed, and reports whether there were any to take.
func (f *finder) draftsOf(r *manifest.Record, ours bool) (taken bool) {
	var stay []draft
	for _, d := range f.drafts[r.Trace] {
		goes := ours || r.Pruned != nil // a leaf without its body does not say of which scope it was, and nobody can ask for its context
		d.told = true
		for i := 0; i < len(d.puts) && !goes; i++ {
			goes = f.putWhy(r.Scope, &d.puts[i].Artefact) != "" || f.cascade != ops.Keep && f.contexts[r.Trace]
		}
		if goes {
			f.job.State, taken = append(f.job.State, store.StateRow{Key: d.key}), true
		} else {
			stay = append(stay, d)
		}
	}
	if f.drafts[r.Trace] != nil {
		f.drafts[r.Trace] = stay
	}
	return taken
}

// answer notes what was written from a context that showed what goes.
func (f *finder) answer(r *manifest.Record) {
	if r.Parent == "" || !f.contexts[r.Parent] || len(r.Writes) == 0 && r.Type != manifest.TypeHeld {
		return
	}
	a := ops.Answer{Trace: r.Trace, Context: r.Parent, Status: r.Status, Refs: []string{}}
	for _, w := range r.Writes {
		a.Refs = append(a.Refs, w.Ref)
	}
	f.report.Answers = append(f.report.Answers, a)
}

// copied notes a backup that was begun, or one that failed.
func (f *finder) copied(r *manifest.Record) {
	switch {
	case r.Type != manifest.TypeBackup:
	case r.Parent != "":
		f.failed[r.Parent] = true
	default:
		f.copies = append(f.copies, r)
	}
}

// backups are those that did not fail, oldest first.
func (f *finder) backups() (list []store.Backup) {
	for _, r := range f.copies {
		if !f.failed[r.Trace] {
			list = append(list, store.Backup{Name: r.Note, At: time.UnixMicro(r.Time).UTC(), LSN: r.LSN})
		}
	}
	return list
}
