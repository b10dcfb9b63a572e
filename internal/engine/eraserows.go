package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// The row of an erase says how far its run has come. Only the engine writes one (format.Admit refuses others), in a commit whose
// leaf is of that run; a row without such a leaf is passed over (erasedIn).

// Stages of a run.
const (
	eraseCommits = "commits" // some commits are missing; the row has the whole job
	erasePurge   = "purge"   // everything is committed; files may still have the content
	eraseDone    = "done"    // no file of the store has the content
)

// eraseRow is the state row of a run.
type eraseRow struct {
	Stage  string            `json:"stage"`
	Report store.EraseReport `json:"report"`
	Job    *store.EraseJob   `json:"job,omitempty"` // only while some commits are missing
	// Leaves and Names come from the job, until the files are purged. They name no person.
	Leaves []manifest.Span `json:"leaves,omitempty"`
	Names  bool            `json:"names,omitempty"`
	// Pages are numbers of the pages that go, where the rows are encrypted and none stays that has them.
	Pages []manifest.Span `json:"pages,omitempty"`
}

// encode leaves the job out once all commits are there: the job names what was erased.
func (r eraseRow) encode() ([]byte, error) {
	if r.Stage != eraseCommits {
		r.Job = nil
	}
	b, err := json.Marshal(&r)
	if err != nil {
		return nil, fmt.Errorf("ctxpage: encode the row of an erase: %w", err)
	}
	return b, nil
}

// eraseOpens notes a run of which commits are missing, with the LSN of its first commit. The caller holds cat.mu.
func (s *Engine) eraseOpens(run string, from uint64) {
	if s.eraseOpen == nil {
		s.eraseOpen = map[string]uint64{}
	}
	s.eraseOpen[run] = from
}

// eraseCloses notes that no commit of a run is missing.
func (s *Engine) eraseCloses(run string) {
	s.cat.mu.Lock()
	delete(s.eraseOpen, run)
	s.cat.mu.Unlock()
}

// eraseRowInstalled notes what the row of a run says of missing commits. The caller holds cat.mu, or is recovery.
func (s *Engine) eraseRowInstalled(key string, lsn uint64, value []byte) {
	run, ok := strings.CutPrefix(key, format.EraseRows)
	switch {
	case !ok:
	case bytes.HasPrefix(value, []byte(`{"stage":"`+eraseCommits+`"`)):
		s.eraseOpens(run, lsn)
	default:
		delete(s.eraseOpen, run)
	}
}

// loadErases notes the runs that the rows know.
func (s *Engine) loadErases(tx Reader) error {
	for k, v := range tx.From(TableState, []byte(format.EraseRows)) {
		if !bytes.HasPrefix(k, []byte(format.EraseRows)) {
			break
		}
		if codec.IsDestroyed(v) {
			continue
		}
		body, err := format.StateBodyOf(k, v)
		if err != nil {
			return s.Corrupt(fmt.Sprintf("state row %q", k), err)
		}
		r := format.StateRow(string(k), body)
		s.eraseRowInstalled(r.Key, r.LSN, r.Value)
	}
	return nil
}

// EraseRest makes the missing commits of runs that an error or a crash interrupted, and returns the runs whose files are still
// to be purged.
func (s *Engine) EraseRest(ctx context.Context) (rest []store.EraseReport, err error) {
	if err := s.gcMu.Take(ctx); err != nil { // before the rows are read: a run under way has then made its commits
		return nil, err
	}
	defer s.gcMu.Unlock()
	err = s.eraseRows(ctx, func(row *eraseRow, lsn uint64) error {
		if row.Stage == eraseDone {
			return nil
		}
		if row.Stage == eraseCommits {
			if err := s.eraseMissing(ctx, row, lsn); err != nil {
				return err
			}
		}
		rest = append(rest, row.Report)
		return s.eraseTold(ctx, &rest[len(rest)-1])
	})
	return rest, err
}

// eraseMissing makes the missing commits of a run. Its row is of its first commit, so the run is bound to the LSN of the row.
// The caller holds gcMu.
func (s *Engine) eraseMissing(ctx context.Context, row *eraseRow, lsn uint64) error {
	if err := s.eraseTold(ctx, &row.Report); err != nil { // the commits that are there
		return err
	}
	return s.eraseAll(ctx, row, lsn, func(string, uint64, uint64) {})
}

// eraseTold takes from the audit what the row of a run could not know when it was written: the
// place and counts of its commit.
func (s *Engine) eraseTold(ctx context.Context, rep *store.EraseReport) error {
	leaves, err := s.Leaves.ByTrace(ctx, rep.Trace)
	if err != nil {
		return AuditError(err)
	}
	for _, l := range leaves {
		if l.Type == manifest.TypeErase {
			rep.Leaf, rep.LSN = l.Index, l.LSN
			err = format.TakeEraseCounts(rep, l.Note)
		}
	}
	if err != nil {
		return s.Corrupt("leaf of erase "+rep.Trace, err)
	}
	return nil
}

// eraseRows shows fn the rows of all runs, oldest first, each with the LSN of the commit that wrote it. Rows that no erase wrote
// are passed over.
func (s *Engine) eraseRows(ctx context.Context, fn func(*eraseRow, uint64) error) error {
	return s.eachState(ctx, format.EraseRows, func(r store.StateRow) error {
		var row eraseRow
		err := json.Unmarshal(r.Value, &row)
		run := strings.TrimPrefix(r.Key, format.EraseRows)
		if wrote, aerr := s.erasedIn(ctx, run, &r, row.Stage); aerr != nil || !wrote {
			return aerr
		}
		if err != nil || row.Report.Trace != run || (row.Stage == eraseCommits) != (row.Job != nil) {
			return s.Corrupt(fmt.Sprintf("state row %q", r.Key), fmt.Errorf("it is no row of an erase: %w", cmp.Or(err, format.ErrEdited)))
		}
		return fn(&row, r.LSN)
	})
}

// erasedIn reports whether a row of a run is one that an erase wrote: a leaf of the run has the digest of the row, and is of an
// erase, or at the end of the run of a commit of the store. The digest is under the secret and the salt of the row.
func (s *Engine) erasedIn(ctx context.Context, run string, r *store.StateRow, stage string) (bool, error) {
	leaves, err := s.Leaves.ByTrace(ctx, run)
	if err != nil && !errors.Is(err, manifest.ErrNoLeaf) {
		return false, AuditError(err)
	}
	tag := s.stateTag([]byte(r.Key))
	return slices.ContainsFunc(leaves, func(l *manifest.Record) bool {
		return l.LSN == r.LSN && l.Parent == run && (l.Type == manifest.TypeErase || stage == eraseDone && l.Type == manifest.TypeCommit && l.Scope == store.OperatorScope) &&
			slices.ContainsFunc(l.State, func(d manifest.Digest) bool { return bytes.HasPrefix(d, tag[:]) })
	}), nil
}

// Purge says what the owner of the files removes from them for one erase run.
type Purge struct {
	Leaves []manifest.Span // the audit leaves whose bodies are pruned
	Names  bool            // the run takes names, too
	// Pages and Tags tell an encrypted store whose keys to destroy. Pages are numbers of pages of which no row stays; Tags name
	// the rows of TableState, TableHeld and TableQuestion that the run erased or wrote anew (ErasedTag). Nil if the rows are
	// not encrypted.
	Pages []uint64
	Tags  [][8]byte
}

// Purge returns what the owner of the files must remove for a run. Call it before EraseDone, whose
// row keeps none of it.
func (s *Engine) Purge(ctx context.Context, trace string) (p Purge, err error) {
	err = s.eraseRows(ctx, func(row *eraseRow, _ uint64) error {
		if row.Report.Trace != trace {
			return nil
		}
		p.Leaves, p.Names = row.Leaves, row.Names
		for _, span := range row.Pages {
			for num := span[0]; num < span[1]; num++ {
				p.Pages = append(p.Pages, num)
			}
		}
		return nil
	})
	if err == nil && s.opts.Sealed {
		p.Tags, err = s.erasedTags(ctx, trace)
	}
	return p, err
}

// EraseDone records that no file of the store still has what a run erased.
func (s *Engine) EraseDone(ctx context.Context, rep store.EraseReport) error {
	s.bodiesChanged()
	id, err := store.NewID(s.opts.Now(), s.opts.Rand)
	if err != nil {
		return err
	}
	value, err := eraseRow{Stage: eraseDone, Report: rep}.encode()
	if err != nil {
		return err
	}
	_, err = s.Submit(context.WithoutCancel(ctx), Request{Batch: store.Batch{
		ID: id, Trace: rep.Trace, Scope: store.OperatorScope, Actor: "operator", Now: s.opts.Now(),
		State: []store.StateRow{{Key: format.EraseRows + rep.Trace, Value: value}},
		Leaf:  manifest.Record{Type: manifest.TypeCommit, Action: "erase", By: rep.By, Note: "the files are written anew"},
	}})
	return err
}

// Purging makes the index rewrite every segment that has a removed page, until it is switched off.
func (s *Engine) Purging(on bool) { s.index.Purge(on) }

// An erase with Names leaves no row that has a name of what it took:
//
//	artefacts   all of their rows go, as gc forgets one                                forgets, installForget
//	scopes      as when gc finds them empty                                            unname, dropScopes
//	groups      the names of sessions and other groups, once no row is in them         ungroup, dropGroup
//	outcomes    of batches whose leaf is pruned keep status and LSN, and no reference  EraseOutcomes
//
// The bodies of leaves are the owner's of the archive (archive.Log.Prune). They go last, because
// an outcome with references is compared with the body of its leaf.

// groupGonePrefix begins the keys of state rows, always without a value, that delete the row of a
// group. The number follows in eight bytes. A program that does not know the key keeps the name.
const groupGonePrefix = "\x00group/"

// goneGroup reads such a key.
func goneGroup(key string) (num uint64, ok bool) {
	rest, ok := strings.CutPrefix(key, groupGonePrefix)
	if !ok || len(rest) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64([]byte(rest)), true
}

// groupNumbers returns the numbers of groups that are there; nil: none is.
func (s *Engine) groupNumbers(refs []store.Ref) (nums map[uint64]bool) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	for _, r := range refs {
		if num := s.cat.named[artKey{s.cat.byName[r.Scope], r.ID}]; num != 0 {
			if nums == nil {
				nums = map[uint64]bool{}
			}
			nums[num] = true
		}
	}
	return nums
}

// groupsBeside returns the groups of a job, and with Names all groups of the scopes in which it erases: a row of which gc or an
// earlier erase left little does not say of which group it was. Whether a group is empty is seen at the tail (ungroup).
func (s *Engine) groupsBeside(job *store.EraseJob) []store.Ref {
	if !job.Names {
		return job.Groups
	}
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	in := map[uint32]string{}
	for _, r := range slices.Concat(job.Refs, job.Groups) {
		in[s.cat.byName[r.Scope]] = r.Scope
	}
	delete(in, 0)
	var all []store.Ref
	for i := range s.cat.groups {
		if g := &s.cat.groups[i]; in[g.scope] != "" {
			all = append(all, store.Ref{Scope: in[g.scope], ID: g.name})
		}
	}
	return all
}

// pastGroups are groups that rows of past versions are in, as of an LSN. Such a row is proved with
// the name of its group, so the name stays as long as the row does.
type pastGroups struct {
	nums map[uint64]bool
	lsn  uint64
}

// pastGroups reads the rows of artefacts that were in more than one group; of the others the
// catalogue knows the group. It runs before the tail is taken, because it reads rows.
func (s *Engine) pastGroups(refs []store.Ref) (p pastGroups, err error) {
	p.nums = map[uint64]bool{}
	var moved []format.HeadKey
	s.cat.mu.RLock()
	p.lsn = s.cat.lsn
	scopes := map[uint32]bool{}
	for _, r := range refs {
		scopes[s.cat.byName[r.Scope]] = true
	}
	for num, a := range s.cat.arts.all() {
		if had, version := *s.cat.history.at(num - 1), s.cat.newestOf(a).version; version > 0 && scopes[a.scope] && had&historyMoved != 0 {
			moved = append(moved, format.HeadKey{Art: num, Version: version})
		}
	}
	s.cat.mu.RUnlock()
	for _, k := range moved {
		heads, err := s.heads(k.Art, k.Version)
		if err != nil {
			return p, err
		}
		for _, h := range heads {
			p.nums[h.GroupNum] = true
		}
	}
	return p, nil
}

// ungroup returns the state rows by which groups go that no row is in, and that no version left since
// past was read. The caller has the tail of the log.
func (s *Engine) ungroup(refs []store.Ref, past *pastGroups) (rows []store.StateRow) {
	s.seq.flight.Lock()
	defer s.seq.flight.Unlock()
	busy := map[uint64]bool{}
	for _, c := range s.seq.ids {
		for i := range c.record.Heads {
			busy[c.record.Heads[i].Head.GroupNum] = true
		}
	}
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	for _, a := range s.cat.arts.all() {
		busy[uint64(a.group)] = true
	}
	for _, r := range refs {
		if num := s.cat.named[artKey{s.cat.byName[r.Scope], r.ID}]; num != 0 && !busy[num] && !past.nums[num] && s.cat.groups[num-1].moved <= past.lsn {
			rows = append(rows, store.StateRow{Key: string(binary.BigEndian.AppendUint64([]byte(groupGonePrefix), num))})
		}
	}
	return rows
}

// dropGroup takes a group out of the catalogue and has its row deleted. The caller holds cat.mu, or
// is recovery.
func (s *Engine) dropGroup(num uint64) {
	c := s.cat
	if num == 0 || num > uint64(len(c.groups)) || c.groups[num-1].scope == 0 {
		return
	}
	g := &c.groups[num-1]
	delete(c.named, artKey{g.scope, g.name})
	s.overlay.noNames = append(s.overlay.noNames, format.GroupRowKey(num))
	*g = groupCol{}
}

// EraseOutcomes takes the references out of the outcomes of batches whose leaves are to be pruned.
// The rows are written with the next checkpoint. The caller must not let a checkpoint run
// meanwhile.
func (s *Engine) EraseOutcomes(leaves []manifest.Span) error {
	rows := map[ulid.ULID][]byte{}
	take := func(id ulid.ULID, row []byte) error {
		r, err := format.DecodeOutcome(row)
		if err != nil {
			return s.Corrupt("outcome of "+id.String(), err)
		}
		if !archive.Covered(leaves, r.Leaf) || len(r.Refs)+len(r.Repeats)+len(r.Stale)+len(r.Reason) == 0 {
			return nil
		}
		r.Refs, r.Repeats, r.Stale, r.Reason = nil, nil, nil, ""
		rows[id] = r.Encode()
		return nil
	}
	err := s.rows.View(func(tx Reader) error {
		return each(tx, TableTxn, func(k, v []byte) error {
			row, err := codec.Unseal('t', k, v)
			if err != nil || len(k) != len(ulid.ULID{}) {
				return s.Corrupt("outcome", err)
			}
			return take(ulid.ULID(k), row)
		})
	})
	if err != nil {
		return err
	}
	s.cat.mu.Lock()
	defer s.cat.mu.Unlock()
	for id, row := range s.overlay.result {
		if err := take(id, row); err != nil {
			return err
		}
	}
	maps.Copy(s.overlay.result, rows)
	return nil
}

// In an encrypted backup, a later erase may have destroyed the keys of some rows. The store then
// returns the remainder of each (package filestore, under.go):
//
//	head                              a row that names the version and its pages, and no more; its proof names no leaf
//	state row, held batch, question   codec.DestroyedRow: there is no row, but its checksum is counted
//
// Texts of the pages do not open either, so a read of one finds that it was erased.

// destroyed says that a proof is of a head whose key was destroyed. Such a row cannot be made
// without the keys.
func (s *Engine) destroyed(p format.Proof) bool { return s.opts.Sealed && p.Leaf == format.NoLeaf }

// DestroyedHead returns what is left of a head row once its key is destroyed, the number of its
// artefact, and the number of its first page (0: it has no page). It fails if the row is damaged.
func DestroyedHead(key, sealed []byte) (stays []byte, art, page uint64, err error) {
	row, err := codec.Unseal('m', key, sealed)
	if err != nil {
		return nil, 0, 0, err
	}
	scope := uint32(0)
	h, err := format.DecodeHead(row, func(n uint32) string { scope = n; return "" })
	if err != nil {
		return nil, 0, 0, err
	}
	left := store.Head{
		Artefact: store.Artefact{ID: h.ID, Kind: h.Kind, Provenance: h.Provenance, Supersedes: h.Supersedes, CurrentAsOf: h.CurrentAsOf, ExpiresAt: h.ExpiresAt,
			Group: h.Group}, // the session of a turn: an erase with a receipt finds the turns by it
		Art: h.Art, Version: h.Version, LSN: h.LSN, PutAt: h.PutAt, GroupNum: h.GroupNum, Deleted: h.Deleted, Gone: h.Gone, GoneBy: h.GoneBy, ErasedBy: h.ErasedBy, Floor: h.Floor,
	}
	left.Rows = make([]store.PageRow, len(h.Rows))
	for i, r := range h.Rows {
		left.Rows[i] = store.PageRow{Num: r.Num, Version: r.Version, LSN: r.LSN, Digest: r.Digest} // of a text whose salt goes
	}
	if len(h.Rows) > 0 {
		page = h.Rows[0].Num
	}
	p := format.Proof{Leaf: format.NoLeaf}
	return codec.Seal('m', key, p.AppendHead(format.EncodeHead(nil, &left, scope, format.EncodeCold(&left)))), h.Art, page, nil
}

// takeDestroyed adds to a job the state rows and questions whose keys were destroyed: an erase takes
// them from this copy too, although their names are lost. Nothing says who erased such a row, so it
// does not matter which erase takes it. Heads and held batches say so, and the caller names the ones of
// one erase (EraseReport.Numbers, Batches).
func (s *Engine) takeDestroyed(ctx context.Context, job *store.EraseJob) error {
	if !s.opts.Sealed {
		return nil
	}
	return s.rows.View(func(tx Reader) error {
		for _, t := range []Table{TableState, TableQuestion} {
			for k, v := range tx.From(t, nil) {
				switch {
				case !codec.IsDestroyed(v):
				case t == TableState:
					job.State = append(job.State, store.StateRow{Key: string(k)})
				case t == TableQuestion && len(k) == 8:
					job.Questions = append(job.Questions, binary.BigEndian.Uint64(k))
				}
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		return nil
	})
}

// ErasedTag is the tag by which leaves of erases name a row of TableState, TableHeld or
// TableQuestion.
func (s *Engine) ErasedTag(t Table, key []byte) [8]byte {
	switch t {
	case TableHeld:
		key = append([]byte(reviewGonePrefix), key...)
	case TableQuestion:
		key = append([]byte(format.QuestionGonePrefix), key...)
	}
	return s.stateTag(key)
}

// pagesOf returns the numbers of all pages of artefacts: an erase that takes names leaves no row
// that has them. The numbers are kept as spans, since pages of one artefact mostly follow each
// other.
func (s *Engine) pagesOf(refs []store.Ref) (spans []manifest.Span, err error) {
	var nums []uint64
	for _, ref := range refs {
		newest, err := s.newest(ref.Scope, ref.ID)
		if err != nil {
			return nil, err
		}
		if newest == nil {
			continue
		}
		heads, err := s.heads(newest.Art, newest.Version)
		if err != nil {
			return nil, err
		}
		for _, h := range heads {
			for i := range h.Rows {
				nums = append(nums, h.Rows[i].Num)
			}
		}
	}
	slices.Sort(nums)
	for _, num := range slices.Compact(nums) {
		if n := len(spans); n > 0 && spans[n-1][1] == num {
			spans[n-1][1]++
		} else {
			spans = append(spans, manifest.Span{num, num + 1})
		}
	}
	return spans, nil
}

// erasedTags returns the tags of the rows that a run erased or wrote anew.
func (s *Engine) erasedTags(ctx context.Context, run string) (tags [][8]byte, err error) {
	leaves, err := s.Leaves.ByTrace(ctx, run)
	if err != nil {
		return nil, AuditError(err)
	}
	for _, l := range leaves {
		if l.Type != manifest.TypeErase {
			continue
		}
		for _, d := range l.State {
			tags = append(tags, [8]byte(d))
		}
	}
	sort.Slice(tags, func(i, j int) bool { return slices.Compare(tags[i][:], tags[j][:]) < 0 })
	return slices.Compact(tags), nil
}
