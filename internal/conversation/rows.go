package conversation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
)

// The fields of the rows of a session, beside those of its turns. Tags are never given twice.

// rowVersion is the version of all of them.
const rowVersion = 1

// readRow decodes a row.
func readRow[T any](of *codec.Record[T], raw []byte) (v T, err error) {
	err = codec.ReadRow(of, raw, rowVersion, &v)
	return v, err
}

// sessionRow is the state of a session.
type sessionRow struct {
	Created int64
	Pass    uint64         // number of the last pass of either kind
	InForce uint64         // the pass whose verdicts hold; 0: none
	Kept    []uint64       // passes whose verdicts are stored, oldest first
	Key     uint64         // of Judge
	Config  session.Config // without a Total: there is no window
	Ratio   int64          // of the calibration, parts per million; 0: none
}

// limited reports whether the session has a window.
func (s *sessionRow) limited() bool { return s.Config.Total != 0 }

var sessionFields = codec.Record[sessionRow]{Name: "the state of a session", Fields: []codec.Field[sessionRow]{
	codec.Int(1, "Created", func(s *sessionRow) *int64 { return &s.Created }),
	codec.Uint(2, "Pass", func(s *sessionRow) *uint64 { return &s.Pass }),
	codec.Uint(3, "InForce", func(s *sessionRow) *uint64 { return &s.InForce }),
	{Tag: 4, Name: "Kept",
		Write: func(e *codec.Encoder, s *sessionRow) {
			for _, n := range s.Kept {
				e.Uvarint(n)
			}
		},
		Read: func(d *codec.Decoder, s *sessionRow) {
			for len(d.B) > 0 && d.Err == nil {
				s.Kept = append(s.Kept, d.Uvarint())
			}
		}},
	codec.Fixed64(5, "Key", func(s *sessionRow) *uint64 { return &s.Key }),
	codec.Inner(6, "Config", &configFields, func(s *sessionRow) *session.Config { return &s.Config }),
	codec.Int(7, "Ratio", func(s *sessionRow) *int64 { return &s.Ratio }),
}}

var configFields = codec.Record[session.Config]{Name: "a window", Fields: []codec.Field[session.Config]{
	codec.Int(1, "Total", func(c *session.Config) *int { return &c.Total }),
	codec.Int(2, "Reserve", func(c *session.Config) *session.PPM { return &c.Reserve }),
	codec.Int(3, "Band", func(c *session.Config) *session.PPM { return &c.Band }),
	codec.Int(4, "WarnBand", func(c *session.Config) *session.PPM { return &c.WarnBand }),
	codec.Int(5, "Target", func(c *session.Config) *session.PPM { return &c.Target }),
	codec.Int(6, "MinRefill", func(c *session.Config) *session.PPM { return &c.MinRefill }),
	codec.Int(7, "MinGainPass", func(c *session.Config) *session.PPM { return &c.MinGainPass }),
	codec.Int(8, "MinGainTokens", func(c *session.Config) *int { return &c.MinGainTokens }),
	codec.Int(9, "MinGainShare", func(c *session.Config) *session.PPM { return &c.MinGainShare }),
	codec.Int(10, "OutputReserve", func(c *session.Config) *int { return &c.OutputReserve }),
	codec.Int(11, "UsableCap", func(c *session.Config) *int { return &c.UsableCap }),
	codec.Int(12, "KeepLast", func(c *session.Config) *int { return &c.KeepLast }),
	codec.Int(13, "KeepShare", func(c *session.Config) *session.PPM { return &c.KeepShare }),
	codec.Int(14, "UserCap", func(c *session.Config) *int { return &c.UserCap }),
	codec.Int(15, "UserShare", func(c *session.Config) *session.PPM { return &c.UserShare }),
	codec.Int(16, "StubShare", func(c *session.Config) *session.PPM { return &c.StubShare }),
	codec.Flag(17, "AllowHigh", func(c *session.Config) *bool { return &c.AllowHigh }),
	codec.Text(18, "Recency", func(c *session.Config) *string { return (*string)(&c.Recency) }),
	codec.Int(19, "HalfLife", func(c *session.Config) *time.Duration { return &c.HalfLife }),
	codec.Float(20, "Weights[0]", func(c *session.Config) *float64 { return &c.Weights[0] }),
	codec.Float(21, "Weights[1]", func(c *session.Config) *float64 { return &c.Weights[1] }),
	codec.Float(22, "Weights[2]", func(c *session.Config) *float64 { return &c.Weights[2] }),
	codec.Float(23, "Weights[3]", func(c *session.Config) *float64 { return &c.Weights[3] }),
	codec.Int(24, "BackOffMin", func(c *session.Config) *time.Duration { return &c.BackOffMin }),
	codec.Int(25, "BackOffMax", func(c *session.Config) *time.Duration { return &c.BackOffMax }),
	codec.Int(26, "RefetchTokens", func(c *session.Config) *int { return &c.RefetchTokens }),
	codec.Int(27, "UnreadTurns", func(c *session.Config) *int64 { return &c.UnreadTurns }),
	codec.Text(28, "Mode", func(c *session.Config) *string { return (*string)(&c.Mode) }),
	codec.List(29, "Allocation", &capFields, func(c *session.Config) *[]session.Cap { return &c.Allocation }),
}}

var capFields = codec.Record[session.Cap]{Name: "a cap of a window", Fields: []codec.Field[session.Cap]{
	codec.Text(1, "Kind", func(c *session.Cap) *string { return &c.Kind }),
	codec.Int(2, "Share", func(c *session.Cap) *session.PPM { return &c.Share }),
	codec.Int(3, "Tokens", func(c *session.Cap) *int { return &c.Tokens }),
}}

// PassRow is the record of one pass.
type PassRow struct {
	Number   uint64
	Kind     string
	At       int64
	Actor    string
	Key      uint64 // of Judge
	Keywords []string
	Tokens   int // of the intent
	IR       []byte
	Params   session.Params
	Previous uint64 // pass whose verdicts held before
	Count    [3]int // turns by action
	Items    []PassItem
	Undone   bool
	Verdicts []byte // of a pager's pass; nil: they are no longer kept
}

// DecodePass reads the record of a pass.
func DecodePass(raw []byte) (PassRow, error) { return readRow(&passFields, raw) }

var passFields = codec.Record[PassRow]{Name: "a pass", Fields: []codec.Field[PassRow]{
	codec.Uint(1, "Number", func(p *PassRow) *uint64 { return &p.Number }),
	codec.Text(2, "Kind", func(p *PassRow) *string { return &p.Kind }),
	codec.Int(3, "At", func(p *PassRow) *int64 { return &p.At }),
	codec.Text(4, "Actor", func(p *PassRow) *string { return &p.Actor }),
	codec.Fixed64(5, "Key", func(p *PassRow) *uint64 { return &p.Key }),
	codec.Texts(6, "Keywords", func(p *PassRow) *[]string { return &p.Keywords }),
	codec.Int(7, "Tokens", func(p *PassRow) *int { return &p.Tokens }),
	codec.Blob(8, "IR", func(p *PassRow) *[]byte { return &p.IR }),
	codec.Inner(9, "Params", &paramsFields, func(p *PassRow) *session.Params { return &p.Params }),
	codec.Uint(10, "Previous", func(p *PassRow) *uint64 { return &p.Previous }),
	codec.Int(11, "Count[retain]", func(p *PassRow) *int { return &p.Count[session.Retain] }),
	codec.Int(12, "Count[page]", func(p *PassRow) *int { return &p.Count[session.Page] }),
	codec.Int(13, "Count[evict]", func(p *PassRow) *int { return &p.Count[session.Evict] }),
	codec.List(14, "Items", &itemFields, func(p *PassRow) *[]PassItem { return &p.Items }),
	codec.Flag(15, "Undone", func(p *PassRow) *bool { return &p.Undone }),
	codec.Blob(16, "Verdicts", func(p *PassRow) *[]byte { return &p.Verdicts }),
}}

var paramsFields = codec.Record[session.Params]{Name: "the parameters of a pass", Fields: []codec.Field[session.Params]{
	codec.Float(1, "Alpha", func(p *session.Params) *float64 { return &p.Alpha }),
	codec.Float(2, "Beta", func(p *session.Params) *float64 { return &p.Beta }),
	codec.Float(3, "RetainCut", func(p *session.Params) *float64 { return &p.RetainCut }),
	codec.Float(4, "EvictCut", func(p *session.Params) *float64 { return &p.EvictCut }),
	codec.Int(5, "KeepLast", func(p *session.Params) *int { return &p.KeepLast }),
	codec.Flag(6, "UserFloor", func(p *session.Params) *bool { return &p.UserFloor }),
	codec.Int(7, "MinEvictAge", func(p *session.Params) *int64 { return &p.MinEvictAge }),
	codec.Flag(8, "ClampFuture", func(p *session.Params) *bool { return &p.ClampFuture }),
}}

// PassItem is one unit that a pass compacted.
type PassItem struct {
	ID          string
	From, To    uint8
	FromBecause string
	Because     string
	Before      int
	After       int
	Unpinned    bool // a pin of it gave way
}

var itemFields = codec.Record[PassItem]{Name: "a unit that a pass compacted", Fields: []codec.Field[PassItem]{
	codec.Text(1, "ID", func(i *PassItem) *string { return &i.ID }),
	codec.Uint(2, "From", func(i *PassItem) *uint8 { return &i.From }),
	codec.Uint(3, "To", func(i *PassItem) *uint8 { return &i.To }),
	codec.Text(4, "FromBecause", func(i *PassItem) *string { return &i.FromBecause }),
	codec.Text(5, "Because", func(i *PassItem) *string { return &i.Because }),
	codec.Int(6, "Before", func(i *PassItem) *int { return &i.Before }),
	codec.Int(7, "After", func(i *PassItem) *int { return &i.After }),
	codec.Flag(8, "Unpinned", func(i *PassItem) *bool { return &i.Unpinned }),
}}

// KeptEvents is the number of watcher events that a session keeps for its followers.
const KeptEvents = 16

// WatchRow is the state of the watcher of a session, so that any process can continue or follow it.
type WatchRow struct {
	Holder   string // the process that was asked to run it, by the id of its open database; "": the owner
	Name     string // of the holder, for people
	Progress Progress
	Events   []session.Event // the newest, oldest first
}

// Add notes events.
func (r *WatchRow) Add(events []session.Event) {
	r.Events = append(r.Events, events...)
	r.Events = r.Events[max(len(r.Events)-KeptEvents, 0):]
}

// Encode returns the row as stored.
func (r *WatchRow) Encode() []byte { return codec.Row(&watchFields, rowVersion, r, 512) }

// DecodeWatch reads a stored row; nil: there is none.
func DecodeWatch(raw []byte) (r WatchRow, err error) {
	if raw == nil {
		return r, nil
	}
	return readRow(&watchFields, raw)
}

var watchFields = codec.Record[WatchRow]{Name: "the watch of a session", Fields: []codec.Field[WatchRow]{
	codec.Text(1, "Holder", func(w *WatchRow) *string { return &w.Holder }),
	codec.Text(2, "Name", func(w *WatchRow) *string { return &w.Name }),
	codec.Inner(3, "Progress", &progressFields, func(w *WatchRow) *Progress { return &w.Progress }),
	codec.List(4, "Events", &eventFields, func(w *WatchRow) *[]session.Event { return &w.Events }),
}}

var progressFields = codec.Record[Progress]{Name: "the progress of a watch", Fields: []codec.Field[Progress]{
	codec.Uint(1, "Phase", func(p *Progress) *Phase { return &p.Phase }),
	codec.Int(2, "Floor", func(p *Progress) *int { return &p.Floor }),
	codec.Int(3, "Shown", func(p *Progress) *int { return &p.Shown }),
	codec.Flag(4, "Warned", func(p *Progress) *bool { return &p.Warned }),
	codec.Flag(5, "Mourned", func(p *Progress) *bool { return &p.Mourned }),
	codec.Int(6, "BackOff", func(p *Progress) *int64 { return (*int64)(&p.BackOff) }),
	codec.Moment(7, "Blocked", func(p *Progress) *time.Time { return &p.Blocked }),
	codec.Moment(8, "Retry", func(p *Progress) *time.Time { return &p.Retry }),
	codec.Uint(9, "Seen", func(p *Progress) *uint64 { return &p.Seen }),
	codec.Uint(10, "Seq", func(p *Progress) *uint64 { return &p.Seq }),
	codec.Int(11, "Counters.Warnings", func(p *Progress) *int { return &p.Counters.Warnings }),
	codec.Int(12, "Counters.Plans", func(p *Progress) *int { return &p.Counters.Plans }),
	codec.Int(13, "Counters.Passes", func(p *Progress) *int { return &p.Counters.Passes }),
	codec.Int(14, "Counters.Freed", func(p *Progress) *int { return &p.Counters.Freed }),
	codec.Int(15, "Counters.Blocked", func(p *Progress) *int { return &p.Counters.Blocked }),
	codec.Int(16, "Counters.Undone", func(p *Progress) *int { return &p.Counters.Undone }),
	codec.Int(17, "Counters.Expanded", func(p *Progress) *int { return &p.Counters.Expanded }),
}}

var eventFields = codec.Record[session.Event]{Name: "an event of a watch", Fields: []codec.Field[session.Event]{
	codec.Uint(1, "Seq", func(e *session.Event) *uint64 { return &e.Seq }),
	codec.Moment(2, "At", func(e *session.Event) *time.Time { return &e.At }),
	codec.Text(3, "Kind", func(e *session.Event) *string { return (*string)(&e.Kind) }),
	codec.Uint(4, "Pass", func(e *session.Event) *uint64 { return &e.Pass }),
	codec.Int(5, "Actual", func(e *session.Event) *int { return &e.Actual }),
	codec.Int(6, "Usable", func(e *session.Event) *int { return &e.Usable }),
	codec.Int(7, "Total", func(e *session.Event) *int { return &e.Total }),
	codec.Int(8, "Headroom", func(e *session.Event) *session.PPM { return &e.Headroom }),
	codec.Int(9, "Freed", func(e *session.Event) *int { return &e.Freed }),
	codec.Int(10, "Items", func(e *session.Event) *int { return &e.Items }),
	codec.Text(11, "Reason", func(e *session.Event) *string { return &e.Reason }),
}}

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
	return store.StateRow{Key: SessionRowKey + scope + "\x00" + id, Value: codec.Row(&sessionFields, rowVersion, &sessionRow{Created: codec.Micros(now)}, 16)}
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
