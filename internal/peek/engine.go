package peek

import "github.com/ctxpage/ctxpage/store"

// Engine is what package engine lends to the tests of this module. Engine fills it in when it is linked, so its own
// interface has nothing that only a test calls. e is an *engine.Engine: this package lies below it.
var Engine struct {
	// Bounds are how many outcomes the rows keep, and how many versions and pages one commit of gc drops.
	Bounds func() Bounds
	// Numbers are the highest numbers of artefacts, pages and groups that were given.
	Numbers func(e any) (arts, pages, groups, scopes uint64)
	// Gone makes the catalogue say that a page is gone, against its rows. undo takes it back.
	Gone func(e any, num uint64) (undo func())
	// Outcomes is how many outcomes the rows have, by an engine.RowCounts.
	Outcomes func(counts any) int
	// Detach gives an engine that has no log rows to read. They are an engine.Rows.
	Detach func(e, rows any)
	// WriteOverlay writes into rows what a checkpoint would write. They are an engine.Writer.
	WriteOverlay func(e, rows any) error

	// EditHead gives a head row with what change made of it, and with its proof as it was: what somebody who has the file
	// could write.
	EditHead func(row []byte, change func(h *store.Head, scope *uint32)) ([]byte, error)
	// EditHeld is EditHead for the row of a held batch.
	EditHeld func(row []byte, change func(*store.HeldBatch)) ([]byte, error)
	// EditState gives a stored state row another value, with its proof as it was.
	EditState func(key, sealed, value []byte) ([]byte, error)
	// MoveState gives a stored state row the checksum of another key.
	MoveState func(key, sealed, to []byte) ([]byte, error)
	// EditOutcome gives the row of an outcome with what change made of it.
	EditOutcome func(row []byte, change func(*store.Outcome)) ([]byte, error)
}

// Bounds are what an engine keeps, and drops in one commit.
type Bounds struct {
	Outcomes     int // of batch ids in the rows
	DropVersions int // in one commit of gc
	DropPages    int // likewise
}
