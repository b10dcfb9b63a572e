package conversation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
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

// KeptVerdicts is the number of passes whose verdicts are kept. An undo reaches that far back.
const KeptVerdicts = 32

// NewSession returns the row that lists a session which nothing was decided about yet.
func NewSession(scope, id string, now time.Time) store.StateRow {
	return store.StateRow{Key: SessionRowKey + scope + "\x00" + id, Value: sessionFields.Row(rowVersion, &sessionRow{Created: codec.Micros(now)}, 16)}
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

// StateKinds describes the rows of sessions to a store.
func StateKinds() []store.StateKind {
	return []store.StateKind{
		{Prefix: TurnRowKey, Scope: ScopeOf, Past: turnPast(TurnRowKey), Check: checked(func(c *Turns, raw []byte) error { return c.TakeTurn("", raw) })},
		{Prefix: PlaceRowKey, Scope: ScopeOf, Past: turnPast(PlaceRowKey), Check: checked(func(c *Turns, raw []byte) error { return c.TakePlace("", raw) })},
		{Prefix: PassRowKey, Scope: ScopeOf, Names: judgedPages, Renumber: renumber, Check: checked(func(_ *Turns, raw []byte) error { _, err := DecodePass(raw); return err }), Journal: &store.StateJournal{Keep: KeptVerdicts, Entry: passEntry, At: passAt, Head: passHead, Needs: passNeeds}},
		{Prefix: ChangeRowKey, Scope: ScopeOf, Told: true},
		{Prefix: WatchRowKey, Scope: ScopeOf, Told: true, Stays: true},
		{Prefix: NoteRowKey, Scope: ScopeOf},
		{Prefix: SessionRowKey, Scope: ScopeOf, Check: checked((*Turns).Reset), Lost: "what was decided about the turns of sessions", Why: "it names pages by their old numbers; the turns themselves are artefacts"},
	}
}

// checked returns the check of a row that take reads.
func checked(take func(*Turns, []byte) error) func(string, []byte) error {
	return func(_ string, raw []byte) error {
		c := &Turns{counter: token.Default(), Rows: map[string]*TurnRow{}}
		return take(c, raw)
	}
}

// ScopeOf is the scope of a session by the key of one of its rows: session/KIND/SCOPE, 0, and more.
func ScopeOf(key string) string {
	if part := strings.SplitN(key, "/", 3); len(part) == 3 {
		scope, _, _ := strings.Cut(part[2], "\x00")
		return scope
	}
	return ""
}

// turnPast: a turn that is deleted is in no window any more.
func turnPast(prefix string) func(key string) (int64, store.Ref) {
	return func(key string) (int64, store.Ref) {
		if part := strings.SplitN(strings.TrimPrefix(key, prefix), "\x00", 3); len(part) == 3 {
			return 0, store.Ref{Scope: part[0], ID: part[2]}
		}
		return 0, store.Ref{}
	}
}

// passEntry returns the session of the record of a pass, and its number.
func passEntry(key string) (journal string, number uint64) {
	key = strings.TrimPrefix(key, PassRowKey)
	at := strings.LastIndexByte(key, 0)
	if at < 0 {
		return "", 0
	}
	number, err := strconv.ParseUint(key[at+1:], 16, 64)
	if err != nil {
		return "", 0
	}
	return key[:at], number
}

func passAt(row []byte) (int64, error) {
	p, err := DecodePass(row)
	return p.At, err
}

func passHead(journal string) string { return SessionRowKey + journal }

// passNeeds are the passes that an undo may come back to, and the one in force.
func passNeeds(head []byte) ([]uint64, error) {
	s, err := readRow(&sessionFields, head)
	if err != nil {
		return nil, err
	}
	return append(slices.Clone(s.Kept), s.InForce), nil
}
