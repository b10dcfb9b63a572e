package conversation

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
)

// StateKinds describes the rows of sessions to a store.
func StateKinds() []store.StateKind {
	return []store.StateKind{
		{Prefix: TurnRowKey, Scope: ScopeOf, Past: turnPast(TurnRowKey), Check: checked(func(c *Turns, raw []byte) error { return c.TakeTurn("", raw) })},
		{Prefix: PlaceRowKey, Scope: ScopeOf, Past: turnPast(PlaceRowKey), Check: checked(func(c *Turns, raw []byte) error { return c.TakePlace("", raw) })},
		{Prefix: PassRowKey, Scope: ScopeOf, Names: judgedPages, Renumber: renumber, Check: checked(func(_ *Turns, raw []byte) error { return codec.Unpack(raw, new(PassRow)) }), Journal: &store.StateJournal{Keep: KeptVerdicts, Entry: passEntry, At: passAt, Head: passHead, Needs: passNeeds}},
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
	var p PassRow
	err := codec.Unpack(row, &p)
	return p.At, err
}

func passHead(journal string) string { return SessionRowKey + journal }

// passNeeds are the passes that an undo may come back to, and the one in force.
func passNeeds(head []byte) ([]uint64, error) {
	var s sessionRow
	if err := codec.Unpack(head, &s); err != nil {
		return nil, err
	}
	return append(slices.Clone(s.Kept), s.InForce), nil
}
