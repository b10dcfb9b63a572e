package filestore

import (
	"context"
	"time"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// served is the part of store.Store that the engine answers. A Store passes on these methods and
// nothing else of its engine: a caller that could install records, take its audit or fail it would
// separate memory from the log.
type served interface {
	Info(ctx context.Context) (store.Info, error)
	Resolve(ctx context.Context, scopes store.Scopes, ref store.Ref) (store.Located, error)
	Load(ctx context.Context, scopes store.Scopes, pages []store.PageKey, want store.Want) ([]store.Loaded, error)
	Candidates(ctx context.Context, q store.CandidateQuery) (store.Candidates, error)
	Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error)
	Commit(ctx context.Context, b store.Batch) (store.Outcome, error)
	Held(ctx context.Context, id ulid.ULID) (store.HeldBatch, error)
	Vectors(ctx context.Context, scopes store.Scopes, model string, nums []uint64) ([][]float32, error)
	PutVectors(ctx context.Context, model string, nums []uint64, vecs [][]float32) error
	State(ctx context.Context, key string) (store.StateRow, error)
	Outcome(ctx context.Context, id ulid.ULID) (store.Outcome, error)
	Mark() store.Mark
	Refresh(ctx context.Context, atLeast uint64) (store.Mark, error)
	Hold(ctx context.Context, at store.Moment) (store.Ticket, error)
	Release(t store.Ticket)
	Changes(ctx context.Context, after uint64, wait time.Duration) (store.Changes, error)
	AfterTold(lsn uint64, want func(store.StateRow) bool, fn func()) (stop func())
	Append(ctx context.Context, leaves []*manifest.Record, d store.Durability) error
	Audit() store.Audit
}
