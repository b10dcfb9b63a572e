package conversation

import (
	"cmp"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// TurnRow keeps what was made from the text of a turn, and what was decided about it. A session of ten thousand
// turns decodes as many rows when it is first touched and writes thousands in one pass, so the fields are listed one by
// one (turnFields, placeFields): reflection took half the time of each.
type TurnRow struct {
	Hash    uint64 // of all it was made from
	Content uint64 // of the text alone, 0: none
	Counter string // that counted Sizes
	Sizes   Sizes  // estimates where Made has no bit
	Made    uint8  // levels whose derived page exists, a bit each
	Traits  uint16
	Signals turnSignals
	Level   uint8 // how far the watcher compacted its unit; on the first turn of the unit
	Because string
	Pinned  bool
	Yielded bool // the pin gave way to the newest turn, until there is room; in the row of the place alone

	// Fields that a later release stored, in the row of the turn and in that of its place; never changed in place. They are
	// written back with the row. Those of the turn go when the row is made anew from its text.
	unknown, placeUnknown []byte

	moved bool // a row of its place is stored, and holds instead of what the row above says of it
	filed bool // a row of it is stored

	words     []uint64 // prose.TokenSet of its text, once a pass asked (readWords); not stored, never changed in place
	recounted bool     // by this process, and what is stored is by another counter
	bare      bool     // only its place is known
}

// turnSignals is session.Signals without what the database knows itself.
type turnSignals struct {
	Source                              string
	Version                             uint64
	Call                                string
	Stale, Failed, Refetchable, Finding bool
	Closed, Keep                        bool
	LastRead                            int64
}

const turnVersion, placeVersion = 1, 1

// turnFields is the row of a turn. Tags are never given twice.
var turnFields = codec.Record[TurnRow]{
	Name: "a turn", Unknown: func(r *TurnRow) *[]byte { return &r.unknown },
	Fields: []codec.Field[TurnRow]{
		codec.Fixed64(1, "Hash", func(r *TurnRow) *uint64 { return &r.Hash }),
		codec.Fixed64(2, "Content", func(r *TurnRow) *uint64 { return &r.Content }),
		codec.Text(3, "Counter", func(r *TurnRow) *string { return &r.Counter }),
		sizesField(4),
		codec.Uint(5, "Made", func(r *TurnRow) *uint8 { return &r.Made }),
		codec.Uint(6, "Traits", func(r *TurnRow) *uint16 { return &r.Traits }),
		codec.Text(7, "Signals.Source", func(r *TurnRow) *string { return &r.Signals.Source }),
		codec.Fixed64(8, "Signals.Version", func(r *TurnRow) *uint64 { return &r.Signals.Version }),
		codec.Text(9, "Signals.Call", func(r *TurnRow) *string { return &r.Signals.Call }),
		codec.Flag(10, "Signals.Stale", func(r *TurnRow) *bool { return &r.Signals.Stale }),
		codec.Flag(11, "Signals.Failed", func(r *TurnRow) *bool { return &r.Signals.Failed }),
		codec.Flag(12, "Signals.Refetchable", func(r *TurnRow) *bool { return &r.Signals.Refetchable }),
		codec.Flag(13, "Signals.Finding", func(r *TurnRow) *bool { return &r.Signals.Finding }),
		codec.Flag(14, "Signals.Closed", func(r *TurnRow) *bool { return &r.Signals.Closed }),
		codec.Flag(15, "Signals.Keep", func(r *TurnRow) *bool { return &r.Signals.Keep }),
		codec.Int(16, "Signals.LastRead", func(r *TurnRow) *int64 { return &r.Signals.LastRead }),
		levelField(17),
		codec.Text(18, "Because", func(r *TurnRow) *string { return &r.Because }),
		codec.Flag(19, "Pinned", func(r *TurnRow) *bool { return &r.Pinned }),
	},
}

// placeFields are the fields that change while the text of a turn does not. A pass writes thousands of them.
var placeFields = codec.Record[TurnRow]{
	Name: "the place of a turn", Unknown: func(r *TurnRow) *[]byte { return &r.placeUnknown },
	Fields: []codec.Field[TurnRow]{
		sizesField(1),
		codec.Uint(2, "Made", func(r *TurnRow) *uint8 { return &r.Made }),
		codec.Int(3, "Signals.LastRead", func(r *TurnRow) *int64 { return &r.Signals.LastRead }),
		levelField(4),
		codec.Text(5, "Because", func(r *TurnRow) *string { return &r.Because }),
		codec.Flag(6, "Pinned", func(r *TurnRow) *bool { return &r.Pinned }),
		codec.Flag(7, "Yielded", func(r *TurnRow) *bool { return &r.Yielded }),
	},
}

// sizesField is the tokens at all levels.
func sizesField(tag uint64) codec.Field[TurnRow] {
	return codec.Field[TurnRow]{Tag: tag, Name: "Sizes",
		Write: func(e *codec.Encoder, r *TurnRow) {
			if r.Sizes == (Sizes{}) {
				return
			}
			for _, n := range r.Sizes {
				e.Varint(int64(n))
			}
		},
		Read: func(d *codec.Decoder, r *TurnRow) {
			for i := range r.Sizes {
				r.Sizes[i] = int(d.Varint())
			}
		}}
}

// levelField is a level that there is.
func levelField(tag uint64) codec.Field[TurnRow] {
	f := codec.Uint(tag, "Level", func(r *TurnRow) *uint8 { return &r.Level })
	read := f.Read
	f.Read = func(d *codec.Decoder, r *TurnRow) {
		if read(d, r); r.Level > uint8(session.Cold) {
			d.Fail()
		}
	}
	return f
}

// encode is the row, in a buffer of the right size from the start.
func (r *TurnRow) encode() []byte {
	size := 128 + len(r.Counter) + len(r.Signals.Source) + len(r.Signals.Call) + len(r.Because) + len(r.unknown)
	return codec.Row(&turnFields, turnVersion, r, size)
}

// inHead returns the part of a row just measured that the head of the turn stores, nil where it takes a row of its own. It says
// neither what the head says already (hashes, counter) nor anything that cannot be measured again: a head that another
// program writes has no measures.
func (r *TurnRow) inHead(counter string) []byte {
	if r.Signals != (turnSignals{}) || len(r.unknown) > 0 || r.Level != 0 || r.Because != "" || r.Pinned {
		return nil
	}
	said := *r
	if said.Hash, said.Content = 0, 0; said.Counter == counter {
		said.Counter = ""
	}
	return codec.Row(&turnFields, turnVersion, &said, 32)
}

// ofHead reads what inHead wrote into the head of a turn. False: there is nothing, or a later release wrote it.
func (r *TurnRow) ofHead(h *store.Head) bool {
	if len(h.Turn) == 0 || r.decode(h.Turn) != nil {
		return false
	}
	r.Counter = cmp.Or(r.Counter, h.Counter)
	r.Hash, r.Content = headHash(h), contentOf(h.Rows)
	return true
}

// place returns the row with the fields of the place alone.
func (r *TurnRow) place() *TurnRow {
	p := &TurnRow{bare: true}
	p.takeOver(r)
	p.Sizes, p.Made, p.Signals = r.Sizes, r.Made, turnSignals{LastRead: r.Signals.LastRead}
	return p
}

// takeOver takes from another row of the turn what was decided about it, and what its host told.
func (r *TurnRow) takeOver(old *TurnRow) {
	if old == nil {
		return
	}
	r.Pinned, r.Yielded, r.Level, r.Because, r.Signals = old.Pinned, old.Yielded, old.Level, old.Because, old.Signals
	r.moved, r.placeUnknown, r.filed = old.moved, old.placeUnknown, old.filed
}

// decode takes what encode wrote. The row is zero before.
func (r *TurnRow) decode(raw []byte) error { return codec.ReadRow(&turnFields, raw, turnVersion, r) }

func (r *TurnRow) encodePlace() []byte {
	return codec.Row(&placeFields, placeVersion, r, 48+len(r.Because)+len(r.placeUnknown))
}

// decodePlace takes over what encodePlace wrote: all of it, also what is zero there.
func (r *TurnRow) decodePlace(raw []byte) error {
	r.Sizes, r.Made, r.Signals.LastRead, r.Level, r.Because, r.Pinned, r.Yielded, r.placeUnknown = Sizes{}, 0, 0, 0, "", false, false, nil
	err := codec.ReadRow(&placeFields, raw, placeVersion, r)
	r.moved = err == nil
	return err
}

// settle returns the nearest level at or before l that exists: a form that was never made, or would not be shorter, does not.
func (r *TurnRow) settle(l session.Level) session.Level {
	if l == session.Stub {
		if n := r.Sizes[session.Summary]; r.Sizes[l] > 0 && (n == 0 || n > r.Sizes[l] || r.Made&(1<<session.Summary) == 0) {
			return l
		}
		l--
	}
	for ; l > session.Raw && l < session.Cold; l-- {
		if r.Sizes[l] > 0 && r.Made&(1<<l) != 0 {
			return l
		}
	}
	return l
}

// SignalsOf keeps what a host told of a turn and the database does not know itself.
func SignalsOf(s *session.Signals) turnSignals {
	return turnSignals{
		Source: s.Source, Version: s.Version, Call: s.Call, Stale: s.Stale, Failed: s.Failed, Refetchable: s.Refetchable,
		Finding: s.Finding, Closed: s.Closed, Keep: s.Keep, LastRead: s.LastRead,
	}
}
