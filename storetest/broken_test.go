package storetest_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
)

// commits is a store whose Commit is another one.
type commits struct {
	store.Store
	commit func(context.Context, store.Batch) (store.Outcome, error)
}

func (c commits) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	return c.commit(ctx, b)
}

// cut is a store whose listings end with their first page.
type cut struct{ store.Store }

func (c cut) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	page, err := c.Store.Scan(ctx, q)
	page.Next = ""
	return page, err
}

// terse is a store whose brief listings leave out the commits.
type terse struct{ store.Store }

func (t terse) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	page, err := t.Store.Scan(ctx, q)
	for _, h := range page.Heads {
		if q.Brief {
			h.LSN = 0
		}
	}
	return page, err
}

// unfiltered is a store that filters what it proposed, and not what it chooses from.
type unfiltered struct{ store.Store }

func (u unfiltered) Candidates(ctx context.Context, q store.CandidateQuery) (store.Candidates, error) {
	f := q.Filter
	q.Filter = nil
	out, err := u.Store.Candidates(ctx, q)
	if f == nil || err != nil {
		return out, err
	}
	all := out.Hits
	out.Hits = nil
	for _, c := range all {
		heads, err := u.Load(ctx, q.Scopes, []store.PageKey{c.Key}, store.WantHead)
		if err == nil && heads[0].Head != nil && f.Match(heads[0].Head) {
			out.Hits = append(out.Hits, c)
		}
	}
	out.Excluded = append(out.Excluded, store.Excluded{Reason: triage.Filtered, Count: len(all) - len(out.Hits)})
	return out, nil
}

// wordy is a store that does not know of vectors.
type wordy struct{ store.Store }

func (w wordy) Candidates(ctx context.Context, q store.CandidateQuery) (store.Candidates, error) {
	q.Near = nil
	return w.Store.Candidates(ctx, q)
}

// lax is a store that applies floor and filter to what words find, and not to what is near.
type lax struct{ store.Store }

func (l lax) Candidates(ctx context.Context, q store.CandidateQuery) (store.Candidates, error) {
	if q.Near != nil {
		q.Floor, q.Filter, q.Kinds = 0, nil, nil
	}
	return l.Store.Candidates(ctx, q)
}

// greedy is a store that lists all pages as without a vector.
type greedy struct{ store.Store }

func (g greedy) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	if q.What == store.ScanUnembedded {
		q.Model = "a model that nobody has"
	}
	return g.Store.Scan(ctx, q)
}

// unordered is a store that lists by id whatever is asked.
type unordered struct{ store.Store }

func (u unordered) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	q.Newest = false
	return u.Store.Scan(ctx, q)
}

// newest is a store that gives each state row the LSN of the last commit.
type newest struct{ store.Store }

func (n newest) State(ctx context.Context, key string) (store.StateRow, error) {
	row, err := n.Store.State(ctx, key)
	row.LSN = n.Mark().LSN
	return row, err
}

// forgetful is a store that holds nothing.
type forgetful struct{ store.Store }

func (forgetful) Hold(context.Context, store.Moment) (store.Ticket, error) { return 1, nil }

// unsure is a store that knows no outcome.
type unsure struct{ store.Store }

func (unsure) Outcome(_ context.Context, id ulid.ULID) (store.Outcome, error) {
	return store.Outcome{}, store.ErrNotFound
}

// eager is a store that says it has come as far as it is asked to.
type eager struct{ store.Store }

func (e eager) Refresh(_ context.Context, atLeast uint64) (store.Mark, error) {
	return store.Mark{LSN: max(atLeast, e.Mark().LSN)}, nil
}

// deaf is a store that keeps no questions.
type deaf struct{ store.Store }

func (d deaf) Append(ctx context.Context, leaves []*manifest.Record, how store.Durability) error {
	for _, l := range leaves {
		l.Question = ""
	}
	return d.Store.Append(ctx, leaves, how)
}

// silent is a store that loses the audit of reads.
type silent struct{ store.Store }

func (silent) Append(context.Context, []*manifest.Record, store.Durability) error { return nil }

// hasty is a store that shows leaves to those who wait before they are kept: a sync keeps them, and a crash takes them.
type hasty struct {
	store.Store
	late *lateLeaves
}

// lateLeaves are leaves that were shown and are not kept yet.
type lateLeaves struct {
	mu   sync.Mutex
	list []*manifest.Record
}

func (l *lateLeaves) add(leaves []*manifest.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, leaves...)
}

func (l *lateLeaves) take() []*manifest.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.list
	l.list = nil
	return list
}

func (l *lateLeaves) count() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(len(l.list))
}

func (h hasty) Append(ctx context.Context, leaves []*manifest.Record, how store.Durability) error {
	if how == store.Written {
		h.late.add(leaves)
		return ctx.Err()
	}
	return h.Store.Append(ctx, append(h.late.take(), leaves...), how)
}

func (h hasty) Audit() store.Audit { return hastyAudit{h.Store.Audit(), h.late} }

type hastyAudit struct {
	store.Audit
	late *lateLeaves
}

func (a hastyAudit) Wait(ctx context.Context, size uint64, wait time.Duration) (uint64, error) {
	late := a.late.count()
	if n, err := a.Size(ctx); err != nil || late > 0 {
		return n + late, err
	}
	return a.Audit.Wait(ctx, size, wait)
}

// sleepy is a store whose waits see nothing new.
type sleepy struct{ store.Store }

func (s sleepy) Audit() store.Audit { return sleepyAudit{s.Store.Audit()} }

type sleepyAudit struct{ store.Audit }

func (a sleepyAudit) Wait(ctx context.Context, size uint64, _ time.Duration) (uint64, error) {
	time.Sleep(50 * time.Millisecond)
	return size, context.Cause(ctx)
}

// resolves, loads, asks, scans and jobs are stores with another Resolve, Load, Candidates, Scan or Maintain: each is given
// the answer to change it.
type resolves struct {
	store.Store
	change func(store.Ref, *store.Located, *error)
}

func (r resolves) Resolve(ctx context.Context, scopes store.Scopes, ref store.Ref) (store.Located, error) {
	l, err := r.Store.Resolve(ctx, scopes, ref)
	r.change(ref, &l, &err)
	return l, err
}

type loads struct{ store.Store }

// Load knows no version 0.
func (l loads) Load(ctx context.Context, scopes store.Scopes, keys []store.PageKey, want store.Want) ([]store.Loaded, error) {
	out, err := l.Store.Load(ctx, scopes, keys, want)
	for i, k := range keys {
		if k.Version == 0 {
			out[i].Err = store.ErrGone
		}
	}
	return out, err
}

type asks struct {
	store.Store
	change func(*store.CandidateQuery, *store.Candidates)
}

func (a asks) Candidates(ctx context.Context, q store.CandidateQuery) (store.Candidates, error) {
	out, err := a.Store.Candidates(ctx, q)
	a.change(&q, &out)
	return out, err
}

type scans struct {
	store.Store
	change func(*store.Head)
}

func (s scans) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	page, err := s.Store.Scan(ctx, q)
	for _, h := range page.Heads {
		s.change(h)
	}
	return page, err
}

type jobs struct{ store.Store }

// Maintain names a run that no leaf has.
func (j jobs) Maintain(ctx context.Context, job store.Job, p store.Progress) (store.JobReport, error) {
	rep, err := j.Store.Maintain(ctx, job, p)
	if rep.GC.Trace != "" {
		rep.GC.Trace = ulid.Make().String()
	}
	return rep, err
}

// refuses is a store that refuses some batches with an error.
func refuses(st store.Store, why error, batch func(*store.Batch) bool) store.Store {
	return commits{st, func(ctx context.Context, b store.Batch) (store.Outcome, error) {
		if batch(&b) {
			return store.Outcome{}, why
		}
		return st.Commit(ctx, b)
	}}
}

func changed(st store.Store, change func(*store.Batch)) store.Store {
	return commits{st, func(ctx context.Context, b store.Batch) (store.Outcome, error) {
		change(&b)
		return st.Commit(ctx, b)
	}}
}

// halves commits each put of a batch by itself.
func halves(st store.Store) store.Store {
	return commits{st, func(ctx context.Context, b store.Batch) (out store.Outcome, err error) {
		puts := b.Puts
		for i := range puts {
			b.Puts = puts[i : i+1]
			if out, err = st.Commit(ctx, b); err != nil {
				return out, err
			}
			b.ID[15]++
			time.Sleep(time.Millisecond)
		}
		return out, err
	}}
}

// fill enters an id, and is true.
func fill(ids map[string]bool, id string) bool {
	ids[id] = true
	return true
}

// broken are stores that break the contract, with the clause that must find it.
var broken = map[string]struct {
	clause string
	wrap   func(store.Store) store.Store
}{
	"loses updates": {"LostUpdate", func(st store.Store) store.Store { return changed(st, func(b *store.Batch) { b.Expect = nil }) }},
	"loses state": {"LostState", func(st store.Store) store.Store {
		return changed(st, func(b *store.Batch) { b.ExpectState = nil })
	}},
	"tells the newest LSN of every state row": {"ExpectState", func(st store.Store) store.Store { return newest{st} }},
	"serves half a batch":                     {"HalfBatch", halves},
	"forgets ids": {"SameID", func(st store.Store) store.Store {
		return changed(st, func(b *store.Batch) { b.ID = ulid.MustNew(b.ID.Time(), ulid.DefaultEntropy()) })
	}},
	"binds no content": {"IDBound", func(st store.Store) store.Store {
		return changed(st, func(b *store.Batch) { b.Bound = []byte("same") })
	}},
	"forgets what was seen": {"Stale", func(st store.Store) store.Store {
		return changed(st, func(b *store.Batch) { b.Context = nil })
	}},
	"shows what is held": {"Held", func(st store.Store) store.Store {
		return changed(st, func(b *store.Batch) {
			if b.Action == store.ActHold {
				b.Action = store.ActApply
			}
		})
	}},
	"ends listings early":                {"Scans", func(st store.Store) store.Store { return cut{st} }},
	"says too little in brief":           {"Brief", func(st store.Store) store.Store { return terse{st} }},
	"drops what is read":                 {"Hold", func(st store.Store) store.Store { return forgetful{st} }},
	"knows no outcome":                   {"Outcome", func(st store.Store) store.Store { return unsure{st} }},
	"promises what is not":               {"Refresh", func(st store.Store) store.Store { return eager{st} }},
	"filters too late":                   {"Filter", func(st store.Store) store.Store { return unfiltered{st} }},
	"lists by id only":                   {"Newest", func(st store.Store) store.Store { return unordered{st} }},
	"keeps no questions":                 {"Questions", func(st store.Store) store.Store { return deaf{st} }},
	"loses leaves":                       {"Audit", func(st store.Store) store.Store { return silent{st} }},
	"shows leaves that it does not keep": {"AuditWait", func(st store.Store) store.Store { return hasty{st, new(lateLeaves)} }},
	"tells of no leaf":                   {"AuditWait", func(st store.Store) store.Store { return sleepy{st} }},
	"writes an artefact twice": {"OneID", func(st store.Store) store.Store {
		return changed(st, func(b *store.Batch) { // the last write counts
			ids := map[string]bool{}
			b.Puts = slices.DeleteFunc(slices.Clone(b.Puts), func(p store.Put) bool { return ids[p.Artefact.ID] || !fill(ids, p.Artefact.ID) })
			b.Deletes = slices.DeleteFunc(slices.Clone(b.Deletes), func(id string) bool { return ids[id] || !fill(ids, id) })
		})
	}},
	"takes what nobody has for stale": {"SeenUnknown", func(st store.Store) store.Store {
		return refuses(st, store.ErrStaleContext, func(b *store.Batch) bool {
			return slices.ContainsFunc(b.Context, func(s store.Seen) bool { return s.Num > 1000 })
		})
	}},
	"trusts its own clock alone": {"IDAhead", func(st store.Store) store.Store {
		return refuses(st, store.ErrInvalid, func(b *store.Batch) bool { return ulid.Time(b.ID.Time()).After(b.Now.Add(time.Hour)) })
	}},
	"shows a deletion": {"NamedDeletion", func(st store.Store) store.Store {
		return resolves{st, func(ref store.Ref, l *store.Located, err *error) {
			if *err != nil {
				l.Version = ref.Version
			}
		}}
	}},
	"carries versions of now": {"Carry", func(st store.Store) store.Store {
		return changed(st, func(b *store.Batch) {
			b.Carry = slices.Clone(b.Carry)
			for i := range b.Carry {
				b.Carry[i].Head.PutAt = b.Now
			}
		})
	}},
	"brings back what is gone": {"CarryGone", func(st store.Store) store.Store {
		return changed(st, func(b *store.Batch) {
			b.Carry = slices.DeleteFunc(slices.Clone(b.Carry), func(c store.Carried) bool { return c.Head.Gone })
			for i := range b.Carry {
				b.Carry[i].Head.Version = 1
			}
		})
	}},
	"lets what was decided wait": {"CarryHold", func(st store.Store) store.Store {
		return changed(st, func(b *store.Batch) { b.Hold = nil })
	}},
	"knows no version 0": {"AnyVersion", func(st store.Store) store.Store { return loads{st} }},
	"names no run of gc": {"GCCommits", func(st store.Store) store.Store { return jobs{st} }},
	"lets nobody delete for gc": {"GCDeletion", func(st store.Store) store.Store {
		return scans{st, func(h *store.Head) {
			if h.Deleted {
				h.Actor = ""
			}
		}}
	}},
	"counts words of the past": {"StatsAsOf", func(st store.Store) store.Store {
		return asks{st, func(q *store.CandidateQuery, out *store.Candidates) {
			if q.AsOf != 0 {
				out.Stats.Pages = 1
			}
		}}
	}},
	"counts the pages of a match alone": {"CandidatePages", func(st store.Store) store.Store {
		return asks{st, func(_ *store.CandidateQuery, out *store.Candidates) {
			for i := range out.Hits {
				out.Hits[i].Pages = 1
			}
		}}
	}},
	"counts without what is masked": {"MaskedCount", func(st store.Store) store.Store {
		return asks{st, func(q *store.CandidateQuery, out *store.Candidates) {
			if len(q.Mask) > 0 {
				out.Excluded = nil
			}
		}}
	}},
	"knows words alone":            {"Near", func(st store.Store) store.Store { return wordy{st} }},
	"applies rules to words alone": {"NearRules", func(st store.Store) store.Store { return lax{st} }},
	"embeds everything":            {"Unembedded", func(st store.Store) store.Store { return greedy{st} }},
	"names no way to what is left out": {"NearestVia", func(st store.Store) store.Store {
		return asks{st, func(_ *store.CandidateQuery, out *store.Candidates) {
			for _, e := range out.Excluded {
				for i := range e.Nearest {
					e.Nearest[i].Lexical.Via = 0
				}
			}
		}}
	}},
}

// wrapped breaks each store that is opened.
type wrapped struct {
	storetest.Database
	wrap func(store.Store) store.Store
}

func (w wrapped) Open(t testing.TB) store.Store { return w.wrap(w.Database.Open(t)) }

const breaks = "STORETEST_BREAK"

// The suite finds what is broken. It fails the test that runs it, so a process of its own does.
func TestBrokenStoresFail(t *testing.T) {
	if how := os.Getenv(breaks); how != "" {
		storetest.Run(t, func(t testing.TB, cfg storetest.Config) storetest.Database {
			return wrapped{newInMemory(t, cfg), broken[how].wrap}
		})
		return
	}
	t.Parallel()
	for how, b := range broken {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run", "^TestBrokenStoresFail$/^"+b.clause+"$", "-test.v")
			cmd.Env = append(os.Environ(), breaks+"="+how)
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "the suite did not find it:\n%s", out)
			require.Contains(t, string(out), "--- FAIL: TestBrokenStoresFail/"+b.clause+" ", "%s", out)
			require.Contains(t, string(out), "the contract: ")
		})
	}
}
