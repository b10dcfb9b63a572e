package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// ErrNoFile is the answer to a backup: there is no file to copy.
var ErrNoFile = errors.New("storetest: the reference store has no file to copy")

// Append: see store.Store.
func (m *Memory) Append(ctx context.Context, leaves []*manifest.Record, _ store.Durability) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx); err != nil {
		return err
	}
	for _, l := range leaves {
		if err := m.append(l); err != nil {
			return err
		}
	}
	return nil
}

func (m *Memory) append(leaf *manifest.Record) error {
	index := m.log.Size()
	if leaf.Question != "" && !leaf.QuestionKept {
		salt := [store.DigestSaltSize]byte{}
		rand.Read(salt[:])
		d := store.SaltedDigest(salt[:], leaf.Question)
		leaf.Query, leaf.QuestionKept = d[:], true
		if m.asked == nil {
			m.asked = map[uint64]string{}
		}
		m.asked[index] = leaf.Question
	}
	body, err := manifest.Encode(leaf)
	if err == nil {
		err = m.log.Add(index, body)
	}
	leaf.Index = index
	if err != nil {
		return fmt.Errorf("storetest: leaf: %w", err)
	}
	return nil
}

func (m *Memory) question(_ context.Context, leaf *manifest.Record) (string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if text, ok := m.asked[leaf.Index]; ok {
		return text, nil
	}
	return "", manifest.ErrNoQuestion
}

// Audit: see store.Store.
func (m *Memory) Audit() store.Audit { return audit{m.log.Reader(m.question), m.info.ID} }

// audit is the log under the id of the database, which the log itself reads from files only.
type audit struct {
	*manifest.Reader
	id string
}

func (a audit) DB() string { return a.id }

func (a audit) Head(size uint64, now int64) (manifest.Head, error) {
	h, err := a.Reader.Head(size, now)
	h.DB = a.id
	return h, err
}

// Head: see store.Store.
func (m *Memory) Head(ctx context.Context) (manifest.Head, error) {
	if err := m.usable(ctx); err != nil {
		return manifest.Head{}, err
	}
	return m.Audit().Head(m.log.Size(), m.cfg.Now().UnixMicro())
}

// Maintain: see store.Store. A checkpoint has nothing to do.
func (m *Memory) Maintain(ctx context.Context, job store.Job, _ store.Progress) (rep store.JobReport, err error) {
	if err := m.usable(ctx); err != nil {
		return rep, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch job.Kind {
	case store.JobBackup:
		return rep, ErrNoFile
	case store.JobGC, store.JobGCPlan:
		rep.GC, err = m.collect(job.GC, job.Kind == store.JobGCPlan)
	}
	rep.Applied = m.lsn
	return rep, err
}

// ended is a version that no longer stands, or whose time has passed.
type ended struct {
	*store.Head
	why  string
	at   int64 // unix µs
	by   uint64
	kept string
}

// collect drops versions that ended and that nothing names.
func (m *Memory) collect(job *store.GCJob, dry bool) (rep store.GCReport, err error) {
	rep.DryRun = dry
	now := m.cfg.Now()
	id, err := store.NewID(now, m.cfg.Rand)
	if err != nil {
		return rep, err
	}
	b := &store.Batch{ID: id, Scope: store.OperatorScope, Now: now, Leaf: manifest.Record{Type: manifest.TypeGC, By: job.By}}
	leaf := leafOf(b, verdict{}, m.lsn+1)
	leaf.Type = manifest.TypeGC
	gone, kept := map[string]*store.GCTally{}, map[string]*store.GCTally{}
	named := m.named()
	for _, a := range m.arts {
		if job.Scope != "" && job.Scope != a.scope {
			continue
		}
		for _, v := range m.versions(a, job, named) {
			tally := gone
			reason := v.why
			if v.kept != "" {
				tally, reason = kept, v.kept
			}
			m.count(tally, reason, v)
			if v.kept != "" {
				continue
			}
			rep.Refs = append(rep.Refs, store.Ref{Scope: v.Scope, ID: v.ID, Version: v.Version})
			if !dry {
				m.drop(a, v, b, leaf)
			}
		}
	}
	rep.Reasons, rep.Kept = tallies(gone), tallies(kept)
	for _, t := range rep.Reasons {
		rep.Dropped.Versions, rep.Dropped.Pages, rep.Dropped.Bytes = rep.Dropped.Versions+t.Versions, rep.Dropped.Pages+t.Pages, rep.Dropped.Bytes+t.Bytes
	}
	m.past(job, now.UnixMicro()-job.KeepFor.Microseconds(), dry, &rep)
	if len(leaf.Writes) == 0 {
		return rep, nil
	}
	m.lsn++
	m.tell()
	rep.Trace = id.String()
	return rep, m.append(leaf)
}

// versions are those of an artefact that ended, oldest first, each with what keeps it.
func (m *Memory) versions(a *art, job *store.GCJob, named map[uint64]string) (vs []*ended) {
	now := m.cfg.Now()
	for i, h := range a.heads {
		v := &ended{Head: h}
		switch {
		case h.Gone || len(h.Rows) == 0:
			continue
		case i < len(a.heads)-1:
			next := a.heads[i+1]
			if v.why, v.at, v.by = store.GoneSuperseded, next.PutAt.UnixMicro(), next.LSN; next.Deleted {
				v.why = store.GoneDeleted
			}
		case expired(h, now):
			v.why, v.at = store.GoneExpired, h.ExpiresAt.UnixMicro()
		default:
			v.kept = "it stands"
		}
		vs = append(vs, v)
	}
	for i, v := range vs {
		newer := len(vs) - 1 - i
		switch {
		case v.kept != "":
		case newer < job.KeepVersions:
			v.kept = store.KeptNewest
		case v.why == store.GoneExpired && !job.Expired:
			v.kept = store.KeptExpired
		case v.at > now.Add(-job.KeepFor).UnixMicro():
			v.kept = store.KeptYoung
		default:
			v.kept = m.inUse(v, job, named)
		}
	}
	for i := len(vs) - 1; i > 0; i-- { // a page is known by the newest version that has it: that stays with any of them
		for _, older := range vs[:i] {
			if older.kept != "" && vs[i].kept == "" && slices.ContainsFunc(older.Rows, func(r store.PageRow) bool { return has(vs[i].Head, m.pages[r.Num-1]) }) {
				vs[i].kept = store.KeptShared
			}
		}
	}
	return slices.DeleteFunc(vs, func(v *ended) bool { return v.why == "" })
}

func (m *Memory) inUse(v *ended, job *store.GCJob, named map[uint64]string) string {
	var nums []uint64
	for _, r := range v.Rows {
		if why := named[r.Num]; why != "" {
			return why
		}
		nums = append(nums, r.Num)
	}
	if job.InUse != nil && job.InUse(v.by, v.at, nums) {
		return store.KeptInUse
	}
	return ""
}

// named is the pages that something still names: a held batch, a state row, what a live artefact was made from.
func (m *Memory) named() map[uint64]string {
	out := map[uint64]string{}
	refs := func(refs []store.Ref, why string) {
		for _, r := range refs {
			if a := m.byID[name{r.Scope, r.ID}]; a != nil && r.Version > 0 && r.Version <= uint32(len(a.heads)) {
				for _, row := range a.heads[r.Version-1].Rows {
					out[row.Num] = why
				}
			}
		}
	}
	for _, a := range m.arts {
		if !a.newest().Deleted {
			refs(a.newest().DerivedFrom, store.KeptParent)
		}
	}
	for key, v := range m.state {
		for _, k := range m.cfg.State {
			if k.Names != nil && strings.HasPrefix(key, k.Prefix) {
				nums, _ := k.Names(v)
				for _, n := range nums {
					out[n] = store.KeptSession
				}
			}
		}
	}
	for _, h := range m.held {
		if h.Decided != "" {
			continue
		}
		for _, c := range h.Batch.Context {
			out[c.Num] = store.KeptHeld
		}
		for i := range h.Batch.Puts {
			refs(h.Batch.Puts[i].Artefact.DerivedFrom, store.KeptHeld)
		}
	}
	return out
}

func (m *Memory) count(by map[string]*store.GCTally, reason string, v *ended) {
	if by[reason] == nil {
		by[reason] = &store.GCTally{Reason: reason}
	}
	t := by[reason]
	t.Versions++
	for _, r := range v.Rows {
		if m.pages[r.Num-1].head.Version == v.Version {
			t.Pages, t.Bytes = t.Pages+1, t.Bytes+int64(r.Bytes)
		}
	}
	t.Nearest = append(t.Nearest, store.Ref{Scope: v.Scope, ID: v.ID, Version: v.Version})
}

func tallies(by map[string]*store.GCTally) (out []store.GCTally) {
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		out = append(out, *by[reason])
	}
	return out
}

// drop leaves of a version what names it. Pages that no newer version has lose their text, their words and vectors.
func (m *Memory) drop(a *art, v *ended, b *store.Batch, leaf *manifest.Record) {
	if v.Head == a.newest() { // it expired: it is deleted first
		m.lsn++
		var out store.Outcome
		m.delete(a, b, &out, &manifest.Record{})
		m.lsn--
	}
	for _, r := range v.Rows {
		if p := m.pages[r.Num-1]; p.head == v.Head {
			p.gone, p.text, p.ended = true, "", m.lsn+1
			m.index.Remove(p.num)
			maps.DeleteFunc(m.vectors, func(k vector, _ []float32) bool { return k.num == p.num })
		}
	}
	h := v.Head
	*h = store.Head{
		Artefact: store.Artefact{ID: h.ID, Kind: h.Kind, Provenance: h.Provenance, Supersedes: h.Supersedes},
		Scope:    h.Scope, Art: h.Art, Version: h.Version, LSN: h.LSN, PutAt: h.PutAt, GroupNum: h.GroupNum, Rows: h.Rows, Gone: true, GoneBy: b.ID.String(),
	}
	ref := store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}
	leaf.Writes = append(leaf.Writes, manifest.Write{Num: h.Rows[0].Num, Ref: ref.String(), Version: h.Version, Gone: true})
}

// past drops decided reviews, and state rows that serve only the past.
func (m *Memory) past(job *store.GCJob, limit int64, dry bool, rep *store.GCReport) {
	if job.Scope != "" {
		return
	}
	for id, h := range m.held {
		if h.Decided != "" && h.At.UnixMicro() <= limit {
			if rep.Reviews++; !dry {
				delete(m.held, id)
			}
		}
	}
	for key := range m.state {
		for _, k := range m.cfg.State {
			if k.Past == nil || !strings.HasPrefix(key, k.Prefix) {
				continue
			}
			at, of := k.Past(key)
			a := m.byID[name{of.Scope, of.ID}]
			if at != 0 && at <= limit || a != nil && a.newest().Deleted && a.newest().PutAt.UnixMicro() <= limit {
				if rep.Drafts++; !dry {
					delete(m.state, key)
				}
			}
		}
	}
}

// Stat: see store.Store.
func (m *Memory) Stat(ctx context.Context) (store.StoreStats, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	st := store.StoreStats{ID: m.info.ID, LSN: m.lsn, Applied: m.lsn, Scopes: len(m.scopes), Leaves: m.log.Size()}
	for _, a := range m.arts {
		if n := len(a.newest().Rows); n > 0 && !a.newest().Gone {
			st.Artefacts, st.Pages = st.Artefacts+1, st.Pages+n
		}
	}
	for _, p := range m.pages {
		if !p.gone {
			st.PageVersions++
		}
	}
	for _, h := range m.held {
		if h.Decided == "" {
			st.Held++
		}
	}
	return st, m.usable(ctx)
}

// Close ends the handle; Reopen gives another one. A second Close does nothing.
func (m *Memory) Close() error {
	m.closed.Store(true)
	return nil
}

// newLog is an audit log without an archive: read-only, so that it opens no file for writing, and below a file system
// that has none.
func newLog() (*manifest.Log, error) {
	log, _, err := manifest.Open(context.Background(), "memory", noFiles{}, manifest.Options{ReadOnly: true})
	return log, err
}

type noFiles struct{}

func (noFiles) missing(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

func (f noFiles) OpenFile(name string, _ int, _ os.FileMode) (manifest.File, error) {
	return nil, f.missing("open", name)
}
func (f noFiles) ReadDir(dir string) ([]string, error)     { return nil, f.missing("readdir", dir) }
func (f noFiles) Remove(name string) error                 { return f.missing("remove", name) }
func (f noFiles) Rename(old, _ string) error               { return f.missing("rename", old) }
func (f noFiles) MkdirAll(dir string, _ os.FileMode) error { return f.missing("mkdir", dir) }
func (f noFiles) SyncDir(dir string) error                 { return f.missing("sync", dir) }
func (f noFiles) Stat(name string) (fs.FileInfo, error)    { return nil, f.missing("stat", name) }

// noRows is an index without segments: all of it is in memory.
type noRows struct{}

func (noRows) Get([]byte) []byte                   { return nil }
func (noRows) Scan([]byte, func(_, _ []byte) bool) {}
