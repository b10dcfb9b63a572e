package ctxpage

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/health"
	"github.com/ctxpage/ctxpage/internal/folder"
	"github.com/ctxpage/ctxpage/internal/listing"
	"github.com/ctxpage/ctxpage/internal/talk"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Listings come in two forms. A cursor suits a program that shows one part and ends (dbctl, MCP). A sequence suits a
// loop. A sequence reads the parts of the cursor form by these rules, which internal/listing implements:
//
//   - It reads nothing until it is ranged over, and each range reads again from the start.
//   - Breaking out of the loop reads no further part.
//   - An error is yielded once, as the last pair, with a zero value. The items before it are valid. The end of ctx is
//     such an error.
//   - Each part is a snapshot, the whole list is not: what others write meanwhile may or may not be listed. No item is
//     listed twice, and none is missed that was there from start to end.

// listedAtOnce is how many items a sequence reads at a time.
const listedAtOnce = 256

// sequenceOf makes the sequence of a listing by cursor. A part with both a cursor and an error left damaged items out.
func sequenceOf[T any](ctx context.Context, read func(cursor string) ([]T, string, error)) iter.Seq2[T, error] {
	return listing.All(ctx, "", func(cursor string) ([]T, string, bool, error) {
		part, next, err := read(cursor)
		return part, next, next != "", err
	})
}

func badCursor(cursor string) error {
	return store.Invalid("cursor", strconv.Quote(cursor), "a cursor from the page before, of the same listing in the same order")
}

// newestPlace is where a listing by the newest goes on: behind the version of an id in the order that stood when it began.
// What was replaced since has moved to the front, so it is looked for among the changes.
type newestPlace struct {
	from uint64 // the LSN at which the listing began
	seen uint64 // up to this LSN the changes have been listed
	lsn  uint64 // the place
	id   string
	next string // the store's cursor; "": only changes are left
}

func (p newestPlace) String() string {
	return fmt.Sprintf("%d.%d.%d.%d.%s%s", p.from, p.seen, p.lsn, len(p.next), p.next, p.id)
}

func (p *newestPlace) parse(text string) bool {
	var n int
	if got, err := fmt.Sscanf(text, "%d.%d.%d.%d.", &p.from, &p.seen, &p.lsn, &n); got != 4 || err != nil {
		return false
	}
	rest := strings.SplitN(text, ".", 5)[4]
	if n < 0 || n > len(rest) {
		return false
	}
	p.next, p.id = rest[:n], rest[n:]
	return true
}

// listNewest lists artefacts by the commits of their newest versions. An artefact that was not listed yet and got a new
// version since the part before is listed next, so that none is missed and none comes twice.
func (s *Scope) listNewest(ctx context.Context, q store.ScanQuery, cursor string) ([]*Version, string, error) {
	limit := q.Limit
	if limit <= 0 {
		limit = 100
	}
	var at newestPlace
	if cursor != "" {
		text, ok := listing.Bound(cursor, s.name, "newest", q.Prefix)
		if !ok || !at.parse(text) {
			return nil, "", badCursor(cursor)
		}
	}
	out := func(heads []*store.Head) ([]*Version, string, error) {
		if at.next == "" {
			return versionsOf(heads), "", nil
		}
		return versionsOf(heads), listing.Bind(at.String(), s.name, "newest", q.Prefix), nil
	}
	var changed []*store.Head
	for try := 0; ; try++ {
		q.Limit, q.Cursor = max(limit-len(changed), 1), at.next
		page, err := s.db.store.Scan(ctx, q)
		if err != nil {
			return nil, "", err
		}
		seen := page.LSN
		if cursor == "" {
			at.from = page.LSN
		} else if changed, seen, err = s.changedSince(ctx, q, at, page.LSN, limit); err != nil {
			return nil, "", err
		}
		if len(changed) >= limit {
			at.seen = seen
			return out(changed)
		}
		if len(changed)+len(page.Heads) > limit && try < 2 { // leave room, as of the commits since
			continue
		}
		if at.seen, at.next = seen, page.Next; len(page.Heads) > 0 {
			last := page.Heads[len(page.Heads)-1]
			at.lsn, at.id = last.LSN, last.ID
		}
		return out(append(changed, page.Heads...))
	}
}

// changedSince returns the artefacts behind a place that got a new version after at.seen and up to an LSN, oldest change
// first, and the LSN up to which they are complete: they end with the commit that reaches limit.
func (s *Scope) changedSince(ctx context.Context, q store.ScanQuery, at newestPlace, upTo uint64, limit int) (out []*store.Head, seen uint64, err error) {
	type change struct {
		head *store.Head
		lsn  uint64
	}
	var changes []change
	q.Limit, q.Cursor = listedAtOnce, ""
	for more := true; more; more = more && q.Cursor != "" {
		page, err := s.db.store.Scan(ctx, q)
		if err != nil {
			return nil, 0, err
		}
		for _, h := range page.Heads {
			if more = h.LSN > at.seen; !more {
				break
			}
			lsn, err := s.waits(ctx, h.ID, at, upTo)
			if err != nil {
				return nil, 0, err
			}
			if lsn > 0 {
				changes = append(changes, change{h, lsn})
			}
		}
		q.Cursor = page.Next
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.lsn, b.lsn) })
	for i, c := range changes {
		if len(out) >= limit && c.lsn > changes[i-1].lsn {
			return out, changes[i-1].lsn, nil
		}
		out = append(out, c.head)
	}
	return out, upTo, nil
}

// waits returns the LSN of the version of an artefact that stood at upTo, if it is newer than at.seen and the version
// before it stood behind the place, so that it was not listed; else 0.
func (s *Scope) waits(ctx context.Context, id string, at newestPlace, upTo uint64) (lsn uint64, err error) {
	q := store.ScanQuery{What: store.ScanHistory, Scopes: s.chain[:1], ID: id, Limit: listedAtOnce}
	for {
		page, err := s.db.store.Scan(ctx, q)
		if err != nil {
			return 0, err
		}
		for _, old := range page.Heads {
			switch {
			case old.LSN > upTo:
			case old.LSN > at.seen:
				lsn = max(lsn, old.LSN)
			case !old.Deleted && old.LSN <= at.from && (old.LSN < at.lsn || old.LSN == at.lsn && old.ID > at.id):
				return lsn, nil
			default:
				return 0, nil
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return 0, nil // it is new
		}
	}
}

// Artefacts ranges over the scope's own live artefacts whose ids begin with prefix, by id, without their text: List as
// a sequence. An error is yielded once, last. Artefacts that are put or deleted meanwhile may or may not be listed; no
// id comes twice. It leaves no manifest.
func (s *Scope) Artefacts(ctx context.Context, prefix string) iter.Seq2[*Version, error] {
	return sequenceOf(ctx, func(cursor string) ([]*Version, string, error) {
		return s.List(ctx, prefix, cursor, listedAtOnce)
	})
}

// Versions ranges over the versions of an artefact, newest first, without their text: History as a sequence. An error
// is yielded once, last; ErrNotFound if no visible scope has the artefact. Versions that are put meanwhile are not
// listed, even in a nearer scope.
func (s *Scope) Versions(ctx context.Context, id string) iter.Seq2[*Version, error] {
	return sequenceOf(ctx, func(cursor string) ([]*Version, string, error) { return s.History(ctx, id, cursor, listedAtOnce) })
}

// Health reports which pages of the scope itself are stored twice, contradict each other, are never served or no longer
// answer anything, and names the command that mends each. It reads every text of the scope and writes nothing. The
// report names artefacts and has no contents, so it leaves no manifest.
// Options.Now is set to the clock.
func (s *Scope) Health(ctx context.Context, o health.Options) (*health.Report, error) {
	if err := s.hostOnly("Health"); err != nil {
		return nil, err
	}
	o.Now = s.db.opts.Clock()
	return health.Look(ctx, s.db.store, s.name, o)
}

// Leaves ranges over the audit leaves that pass a filter, newest first, with the texts of the questions that were kept
// (Record.Question). It reads every leaf of the audit. An error is yielded once, last. Leaves that are written meanwhile
// are not listed. It serves no page contents and leaves no manifest.
func (db *DB) Leaves(ctx context.Context, f manifest.Filter) iter.Seq2[*manifest.Record, error] {
	return func(yield func(*manifest.Record, error) bool) {
		for r, err := range store.Records(ctx, db.Manifests(), 0, math.MaxUint64, true) {
			if err == nil && !f.Match(r) {
				continue
			}
			if err == nil && len(r.Query) > 0 {
				r.Question, err = db.asked(ctx, r)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// AllScopes ranges over the scopes that were written to, by name: Scopes as a sequence. An error is yielded once, last.
// Scopes that are first written to meanwhile may or may not be listed.
func (db *DB) AllScopes(ctx context.Context, prefix string) iter.Seq2[store.ScopeInfo, error] {
	return sequenceOf(ctx, func(cursor string) ([]store.ScopeInfo, string, error) {
		return db.Scopes(ctx, prefix, cursor, 4*listedAtOnce) // each part sorts all names
	})
}

// AllSessions ranges over the sessions of the scope, by name: those with turns or a window: Sessions as a sequence, which holds one
// part of the list in memory at a time. An error is yielded once, last. Sessions that begin meanwhile may or may not be
// listed; no name comes twice. It serves no content and leaves no manifest.
func (s *Scope) AllSessions(ctx context.Context) iter.Seq2[string, error] {
	prefix := talk.SessionRowKey + s.name + "\x00"
	return stateRows(ctx, s, prefix, func(r store.StateRow) (string, error) { return strings.TrimPrefix(r.Key, prefix), nil })
}

// AllDirectories ranges over the directories recorded for the scope, by prefix and path: Directories as a sequence. An
// error is yielded once, last. Directories that are recorded meanwhile may or may not be listed.
func (s *Scope) AllDirectories(ctx context.Context) iter.Seq2[Directory, error] {
	return stateRows(ctx, s, folder.RowsOf(s.name), directoryOf)
}

// stateRows makes the sequence of the state rows of a scope that begin with prefix.
func stateRows[T any](ctx context.Context, s *Scope, prefix string, read func(store.StateRow) (T, error)) iter.Seq2[T, error] {
	return sequenceOf(ctx, func(cursor string) (out []T, next string, err error) {
		if s.err != nil {
			return nil, "", s.err
		}
		page, err := s.db.store.Scan(ctx, store.ScanQuery{What: store.ScanState, Prefix: prefix, Cursor: cursor, Limit: listedAtOnce})
		if err != nil {
			return nil, "", err
		}
		for _, row := range page.State {
			x, err := read(row)
			if err != nil {
				return out, "", err
			}
			out = append(out, x)
		}
		return out, page.Next, nil
	})
}

// Batches ranges over held batches, oldest first: List as a sequence, with the same parameters. An error is yielded
// once, last. Damaged batches are left out; the error, an ErrCorrupt, names them after all the others. The loop may
// approve and reject the batches it gets.
func (r *Review) Batches(ctx context.Context, scope string, all bool) iter.Seq2[Held, error] {
	return sequenceOf(ctx, func(cursor string) ([]Held, string, error) {
		return r.List(ctx, scope, all, cursor, listedAtOnce)
	})
}

// Entries ranges over the versions of the scope's own directives, newest first: History as a sequence. An error is
// yielded once, last. Versions that are made meanwhile are not listed.
func (d *Directives) Entries(ctx context.Context) iter.Seq2[DirectiveEntry, error] {
	return sequenceOf(ctx, func(cursor string) ([]DirectiveEntry, string, error) {
		return d.History(ctx, cursor, listedAtOnce)
	})
}

// Turns ranges over the turns of the session, whole, starting at a sequence number: Read as a sequence. An error is
// yielded once, last. Turns that are appended before the loop ends are listed. Each part that is read is in the
// manifest as an export, even if the loop breaks before its end.
func (c *Session) Turns(ctx context.Context, from int64) iter.Seq2[*Version, error] {
	return listing.All(ctx, from, func(from int64) ([]*Version, int64, bool, error) {
		part, err := c.Read(ctx, from, listedAtOnce)
		if err != nil || len(part) < listedAtOnce {
			return part, 0, false, err
		}
		return part, part[len(part)-1].Seq + 1, true, nil
	})
}
