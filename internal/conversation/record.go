package conversation

import (
	"fmt"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/vmihailenco/msgpack/v5"
)

// What the database keeps of a session beside its pages, as state rows (FORMAT.md names their keys). A row of a turn
// holds what a pass and a plan need of it, so that neither pages a text in; everything in it but level and pin can be
// made again from the page, and is, when the page changed or another counter counts.

// The keys of the rows, and what follows in them. A commit of a session expects its change row to be as it was when the session was
// read, and writes it: two processes cannot overwrite what the other one decided.
const (
	SessionRowKey = "session/state/"  // SCOPE \0 SESSION
	TurnRowKey    = "session/turn/"   // SCOPE \0 SESSION \0 ID
	PlaceRowKey   = "session/place/"  // SCOPE \0 SESSION \0 ID
	PassRowKey    = "session/pass/"   // SCOPE \0 SESSION \0 NUMBER
	ChangeRowKey  = "session/change/" // SCOPE \0 SESSION
	NoteRowKey    = "session/note/"   // SCOPE \0 SESSION
	WatchRowKey   = "session/watch/"  // SCOPE \0 SESSION
)

// KeptVerdicts is how many passes back the verdicts are kept, and so how far back an undo reaches.
const KeptVerdicts = 32

// sessionRow is the state of a session.
type sessionRow struct {
	//lint:ignore U1000 msgpack looks for it
	_msgpack struct{} `msgpack:",as_array"`
	Created  int64
	Pass     uint64   // number of the last pass of either kind
	InForce  uint64   // the pass whose verdicts hold; 0: none
	Kept     []uint64 // passes whose verdicts are stored, oldest first
	Key      uint64   // of window.Judge
	Config   *session.Config
	Ratio    int64 // of the calibration, parts per million; 0: none
}

// NewSession returns the row that lists a session which nothing was decided about yet.
func NewSession(scope, id string, now time.Time) (store.StateRow, error) {
	raw, err := msgpack.Marshal(&sessionRow{Created: codec.Micros(now)})
	if err != nil {
		return store.StateRow{}, fmt.Errorf("ctxpage: encode session %s: %w", id, err)
	}
	return store.StateRow{Key: SessionRowKey + scope + "\x00" + id, Value: raw}, nil
}

// Key is the key of a row of the session.
func (c *Turns) Key(kind string) string { return RowKey(kind, c.Scope, c.ID) }

// RowKey is the key of a row of a session.
func RowKey(kind, scope, id string) string { return kind + scope + "\x00" + id }

// TurnKey is the key of a row of one turn.
func (c *Turns) TurnKey(kind, id string) string {
	return kind + c.Scope + "\x00" + c.ID + "\x00" + id
}

// PassKey is the key of the record of a pass.
func (c *Turns) PassKey(n uint64) string { return fmt.Sprintf("%s\x00%016x", c.Key(PassRowKey), n) }
