package ctxpage

import (
	"context"
	"iter"
	"math"
	"strings"

	"github.com/ctxpage/ctxpage/health"
	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/folder"
	"github.com/ctxpage/ctxpage/internal/listing"
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

// sequenceOf makes the sequence of a listing by cursor. A part with both a cursor and an error left damaged items out.
func sequenceOf[T any](ctx context.Context, read func(cursor string) ([]T, string, error)) iter.Seq2[T, error] {
	return listing.All(ctx, "", func(cursor string) ([]T, string, bool, error) {
		part, next, err := read(cursor)
		return part, next, next != "", err
	})
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
	prefix := conversation.SessionRowKey + s.name + "\x00"
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
