package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// The row of an erase says how far its run has come. Only the engine writes one (rules.Admit refuses others), in a commit whose
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
	// Leaves and Names are those of the job, until the files are purged. They name no person.
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
	run, ok := strings.CutPrefix(key, store.EraseRows)
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
	for k, v := range tx.From(TableState, []byte(store.EraseRows)) {
		if !bytes.HasPrefix(k, []byte(store.EraseRows)) {
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

// eraseTakes returns the LSN up to which some run still takes versions; 0: none does. The caller holds cat.mu.
func (s *Engine) eraseTakes() (lsn uint64) {
	for _, from := range s.eraseOpen {
		lsn = max(lsn, from)
	}
	return lsn
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
			err = rep.TakeCounts(l.Note)
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
	for q := (store.ScanQuery{What: store.ScanState, Prefix: store.EraseRows, Limit: 100}); ; {
		page, err := s.Scan(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range page.State {
			var row eraseRow
			err := json.Unmarshal(r.Value, &row)
			if wrote, aerr := s.erasedIn(ctx, strings.TrimPrefix(r.Key, store.EraseRows), &r, row.Stage); aerr != nil {
				return aerr
			} else if !wrote {
				continue
			}
			if err != nil || row.Report.Trace != strings.TrimPrefix(r.Key, store.EraseRows) || (row.Stage == eraseCommits) != (row.Job != nil) {
				return s.Corrupt(fmt.Sprintf("state row %q", r.Key), fmt.Errorf("it is no row of an erase: %w", cmp.Or(err, format.ErrEdited)))
			}
			if err := fn(&row, r.LSN); err != nil {
				return err
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
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

// Purge is what the owner of the files removes from them for one erase run.
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
		State: []store.StateRow{{Key: store.EraseRows + rep.Trace, Value: value}},
		Leaf:  manifest.Record{Type: manifest.TypeCommit, Action: "erase", By: rep.By, Note: "the files are written anew"},
	}})
	return err
}

// Purging makes the index rewrite every segment that has a removed page, until it is switched off.
func (s *Engine) Purging(on bool) { s.index.Purge(on) }
