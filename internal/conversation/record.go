package conversation

import (
	"fmt"
	"slices"
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
	SessionRowKey = "session/state/"    // SCOPE \0 SESSION
	TurnRowKey    = "session/turn/"     // SCOPE \0 SESSION \0 ID
	PlaceRowKey   = "session/place/"    // SCOPE \0 SESSION \0 ID
	PassRowKey    = "session/pass/"     // SCOPE \0 SESSION \0 NUMBER
	VerdictRowKey = "session/verdicts/" // SCOPE \0 SESSION \0 NUMBER
	ChangeRowKey  = "session/change/"   // SCOPE \0 SESSION
	NoteRowKey    = "session/note/"     // SCOPE \0 SESSION
	WatchRowKey   = "session/watch/"    // SCOPE \0 SESSION
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
	Key      uint64   // its session.PassKey
	Config   *session.Config
	Ratio    int64 // of the calibration, parts per million; 0: none
}

// PassRow is the record of one pass.
type PassRow struct {
	//lint:ignore U1000 msgpack looks for it
	_msgpack struct{} `msgpack:",as_array"`
	Number   uint64
	Kind     string
	At       int64
	Actor    string
	Key      uint64
	History  uint64
	Intent   uint64
	Keywords []string
	Tokens   int // of the intent
	IR       []byte
	Params   session.Params
	Previous uint64 // pass whose verdicts held before
	Count    [3]int
	Sum      [3]int
	Items    []PassItem
	Undone   bool
}

// PassItem is one unit that a watcher's pass compacted.
type PassItem struct {
	//lint:ignore U1000 msgpack looks for it
	_msgpack    struct{} `msgpack:",as_array"`
	ID          string
	From, To    uint8
	FromBecause string
	Because     string
	Before      int
	After       int
	Unpinned    bool // a pin of it gave way
}

// Verdict computes the score again from what is stored; it is the same on every machine.
func (p *PassRow) Verdict(id string, at int, v Verdict) session.Verdict {
	out := session.Verdict{Index: at, ID: id, Action: v.Action, Reason: v.reason, Hits: v.hits, Delta: v.delta}
	if p.Tokens > 0 {
		out.Similarity = float64(v.hits) / float64(p.Tokens)
	}
	out.Recency = session.RecencyOf(v.delta)
	out.R = session.Score(p.Params.Alpha, p.Params.Beta, out.Similarity, out.Recency)
	return out
}

// Info is the record as users see it.
func (p *PassRow) Info() session.PassInfo {
	out := session.PassInfo{
		Number: p.Number, Kind: p.Kind, At: codec.FromMicros(p.At), Actor: p.Actor, Keywords: p.Keywords, Undone: p.Undone, Items: len(p.Items),
		Retained: p.Count[session.Retain], Paged: p.Count[session.Page], Evicted: p.Count[session.Evict],
	}
	for _, it := range p.Items {
		out.Freed += it.Before - it.After
	}
	return out
}

// Freed is the tokens that the pass took out of the window.
func (p *PassRow) Freed() (n int) {
	for _, it := range p.Items {
		n += it.Before - it.After
	}
	return n
}

// JoinItems is two passes as one.
func JoinItems(items, more []PassItem) []PassItem {
	if len(items) == 0 {
		return more
	}
	for _, it := range more {
		if k := slices.IndexFunc(items, func(x PassItem) bool { return x.ID == it.ID }); k >= 0 {
			items[k].To, items[k].Because, items[k].After, items[k].Unpinned = it.To, it.Because, it.After, items[k].Unpinned || it.Unpinned
		} else {
			items = append(items, it)
		}
	}
	return items
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
func (c *Conversation) Key(kind string) string { return RowKey(kind, c.Scope, c.ID) }

// RowKey is the key of a row of a session.
func RowKey(kind, scope, id string) string { return kind + scope + "\x00" + id }

// TurnKey is the key of a row of one turn.
func (c *Conversation) TurnKey(kind, id string) string {
	return kind + c.Scope + "\x00" + c.ID + "\x00" + id
}

// PassKey is the key of a row of one pass.
func (c *Conversation) PassKey(kind string, n uint64) string {
	return c.Key(kind) + "\x00" + fmt.Sprintf("%016x", n)
}
