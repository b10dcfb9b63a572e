package conversation

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A row of a turn and of its place is read back as it was; a damaged one is an error.
func TestTurnRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, flag := rapid.String(), rapid.Bool()
		r := TurnRow{
			Hash: rapid.Uint64().Draw(t, "hash"), Content: rapid.Uint64().Draw(t, "content"), Counter: text.Draw(t, "counter"),
			Made: rapid.Uint8().Draw(t, "made"), Traits: rapid.Uint16().Draw(t, "traits"),
			Level:   rapid.Uint8Max(uint8(session.Cold)).Draw(t, "level"),
			Because: text.Draw(t, "because"), Pinned: flag.Draw(t, "pinned"),
			Signals: turnSignals{
				Source: text.Draw(t, "source"), Version: rapid.Uint64().Draw(t, "version"), Call: text.Draw(t, "call"), Stale: flag.Draw(t, "stale"),
				Failed: flag.Draw(t, "failed"), Refetchable: flag.Draw(t, "refetchable"), Finding: flag.Draw(t, "finding"),
				Closed: flag.Draw(t, "closed"), Keep: flag.Draw(t, "keep"), LastRead: rapid.Int64().Draw(t, "read"),
			},
		}
		for i := range r.Sizes {
			r.Sizes[i] = rapid.IntRange(-1, 1<<40).Draw(t, "size")
		}
		got := r.encode()
		var back TurnRow
		require.NoError(t, back.decode(got))
		require.Equal(t, r, back)

		r.Yielded = flag.Draw(t, "yielded")
		place := r.encodePlace()
		moved := TurnRow{
			Hash: r.Hash, Content: r.Content, Counter: r.Counter, Traits: r.Traits,
			Sizes: Sizes{1, 2, 3}, Made: ^r.Made, Signals: r.Signals, Pinned: !r.Pinned, Because: "before",
			Yielded: !r.Yielded, Level: 1,
		}
		moved.Signals.LastRead++
		require.NoError(t, moved.decodePlace(place))
		r.moved = true
		require.Equal(t, r, moved, "a place is all that may change of a turn")

		require.Error(t, new(TurnRow).decode(nil))
		_ = new(TurnRow).decode(got[:rapid.IntRange(0, len(got)).Draw(t, "cut here")]) // the checksum finds it
		r.Level = uint8(session.Cold) + 1
		far := r.encode()
		require.Error(t, new(TurnRow).decode(far), "a level there is not")
	})
}

// fieldsOf returns the exported fields of a row, those of its signals among them, by name.
func fieldsOf(r *TurnRow) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	var walk func(prefix string, v reflect.Value)
	walk = func(prefix string, v reflect.Value) {
		for i := range v.NumField() {
			switch f := v.Type().Field(i); {
			case !f.IsExported():
			case f.Type.Kind() == reflect.Struct:
				walk(f.Name+".", v.Field(i))
			default:
				out[prefix+f.Name] = v.Field(i)
			}
		}
	}
	walk("", reflect.ValueOf(r).Elem())
	return out
}

func setAny(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(3)
	case reflect.Array:
		for i := range v.Len() {
			setAny(v.Index(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		setAny(v.Index(1))
	default:
		v.SetUint(3)
	}
}

// TestEveryFieldIsStored: a field of a turn is in the list of its row, and one of its place in the list of that, too. A new
// field that is in none is lost at the next start.
func TestEveryFieldIsStored(t *testing.T) {
	inPlace := map[string]bool{}
	for _, f := range placeFields.Fields {
		inPlace[f.Name] = true
	}
	inRow := map[string]bool{}
	for _, f := range turnFields.Fields {
		inRow[f.Name] = true
	}
	var zero TurnRow
	for name := range fieldsOf(&zero) {
		require.True(t, inRow[name] || inPlace[name], "%s is not stored", name)
		var r TurnRow
		setAny(fieldsOf(&r)[name])
		raw := r.encode()
		var back TurnRow
		require.NoError(t, back.decode(raw))
		if inRow[name] {
			require.Equal(t, r, back)
		}
		if raw = r.encodePlace(); inPlace[name] {
			back = TurnRow{}
			require.NoError(t, back.decodePlace(raw))
			r.moved = true
			require.Equal(t, r, back)
		}
		delete(inRow, name)
		delete(inPlace, name)
	}
	require.Empty(t, inRow, "named, and not there")
	require.Empty(t, inPlace, "named, and not there")
}

// TestLaterFieldsSurvive: what a later release stored of a turn is written back with the row, and a row that it says must
// not be written back is refused.
func TestLaterFieldsSurvive(t *testing.T) {
	later := []byte("\x60\x03new\x61\x01y")
	row := TurnRow{Hash: 1, unknown: later, placeUnknown: later}
	raw := row.encode()
	place := row.encodePlace()
	c := NewTurns("acme", "chat", nil)
	c.Rows = map[string]*TurnRow{}
	require.NoError(t, c.TakeTurn("t-1", raw))
	require.NoError(t, c.TakePlace("t-1", place))
	back := c.Rows["t-1"]
	require.Equal(t, later, back.unknown)
	require.Equal(t, later, back.placeUnknown)
	copied := *back // as SetRow does
	copied.Pinned = true
	rewritten := copied.encodePlace()
	require.True(t, strings.HasSuffix(string(rewritten), string(later)))
	for _, raw := range [][]byte{raw, place} {
		raw[0]++
	}
	require.ErrorIs(t, c.TakeTurn("t-2", raw), store.ErrNewerFormat)
	require.ErrorIs(t, c.TakePlace("t-1", place), store.ErrNewerFormat)
}

// A turn that leaves the session before its row was stored leaves nothing to store: the next batch has no row of it.
func TestForgottenRowIsNotStored(t *testing.T) {
	for _, moved := range []bool{false, true} {
		c := NewTurns("acme", "chat", token.Default())
		require.NoError(t, c.Reset(nil))
		c.Rows = map[string]*TurnRow{"gone": {moved: moved}}
		c.Unsaved["gone"] = true
		c.forget()
		require.Empty(t, c.Begin().Rows)
	}
}

// asHead is the head that a put becomes.
func asHead(p *store.Put, num uint64) *store.Head {
	h := &store.Head{Artefact: p.Artefact, Version: 1, Counter: p.Counter, Turn: p.Turn}
	for i := range p.Pages {
		np := &p.Pages[i]
		h.Rows = append(h.Rows, store.PageRow{Num: num + uint64(i), Version: 1, Tokens: uint32(np.Tokens), Bytes: uint32(len(np.Text)), Hash: np.Hash, Digest: np.Digest})
	}
	return h
}

// A turn that its host told nothing of is measured in its head, and read from there as it was; one that it told something of
// has a row. A program with another counter measures it anew and stores a row, which then holds.
func TestTurnInItsHead(t *testing.T) {
	c := long(t, 3, 10)
	put := come(4, store.Artefact{Name: "Eve"})
	put.Counter = c.counter.Name()
	fresh := c.FreshBlock(put, nil)
	require.NotEmpty(t, put.Turn)
	h := asHead(put, 4)

	m, yes := c.Outdated(h)
	require.False(t, yes, "%v", m)
	require.Equal(t, fresh.Row, c.Rows[h.ID])
	require.False(t, c.Unsaved[h.ID])

	bare := *h
	bare.Turn = nil
	delete(c.Rows, h.ID)
	_, yes = c.Outdated(&bare)
	require.True(t, yes, "control: a head without measures")
	bare.Turn = slices.Clone(h.Turn)
	bare.Turn[0] = turnVersion + 1
	_, yes = c.Outdated(&bare)
	require.True(t, yes, "measures of a later release are made again")

	bare.Turn, bare.Counter = h.Turn, "another"
	_, yes = c.Outdated(&bare)
	require.True(t, yes, "another counter")

	told := come(5, store.Artefact{})
	c.FreshBlock(told, &TurnRow{Signals: turnSignals{Keep: true}})
	require.Nil(t, told.Turn)
}

// What was decided of a turn that is measured in its head stands in the row of its place, and comes back with it. A row that a
// program with another counter stored gives way to the head, and is stored anew with its place.
func TestPlaceOfATurnInItsHead(t *testing.T) {
	c := long(t, 3, 10)
	put := come(4, store.Artefact{})
	put.Counter = c.counter.Name()
	measured := c.FreshBlock(put, nil).Row
	h := asHead(put, 4)

	moved := *measured
	moved.Pinned, moved.Level, moved.Because, moved.Made, moved.Signals.LastRead = true, uint8(session.Trimmed), "room", 2, 9
	moved.Sizes[session.Trimmed] = 7
	place := moved.encodePlace()
	require.NoError(t, c.TakePlace(h.ID, place))
	_, yes := c.Outdated(h)
	require.False(t, yes)
	moved.moved = true
	require.Equal(t, &moved, c.Rows[h.ID])
	require.False(t, c.Unsaved[h.ID])

	other := *measured
	other.Counter, other.Sizes = "another", Sizes{1, 2, 3, 4, 5}
	row := other.encode()
	require.NoError(t, c.TakeTurn(h.ID, row))
	require.NoError(t, c.TakePlace(h.ID, place))
	_, yes = c.Outdated(h)
	require.False(t, yes)
	require.Equal(t, measured.Sizes, c.Rows[h.ID].Sizes, "not those of the other counter")
	require.True(t, c.Rows[h.ID].Pinned)
	require.True(t, c.Unsaved[h.ID])

	gone := h.ID // the head leaves: what is stored beside it stays, and nothing else
	c.Rows[gone].filed = false
	stored := c.Rows[gone].place()
	c.forget()
	require.Equal(t, stored, c.Rows[gone])
	require.True(t, c.Rows[gone].bare)
	c.Rows[gone] = measured
	c.forget()
	require.Nil(t, c.Rows[gone])
}

// Every field of a row is stored and comes back as it was; a cut row is an error.
func TestRows(t *testing.T) {
	roundTrip(t, &sessionFields)
	roundTrip(t, &passFields)
	roundTrip(t, &watchFields)
}

func roundTrip[T any](t *testing.T, of *codec.Record[T]) {
	t.Helper()
	var full T
	dbtest.Fill(&full)
	raw := codec.Row(of, rowVersion, &full, 0)
	back := must(readRow(of, raw))(t)
	require.Equal(t, full, back)
	require.ErrorIs(t, errOf(readRow(of, raw[:len(raw)-1])), codec.ErrMalformed)
	require.ErrorIs(t, errOf(readRow(of, append([]byte{rowVersion + 1}, raw[1:]...))), codec.ErrNewer)
}

// A stored watch keeps the newest events.
func TestWatchRow(t *testing.T) {
	row := WatchRow{Holder: "h", Name: "agent (pid 7)"}
	for n := range uint64(3 * KeptEvents) {
		row.Add([]session.Event{{Seq: n, At: time.UnixMilli(1_800_000_000_123).UTC(), Kind: session.EventWarn, Actual: 7, Reason: "r"}})
	}
	require.Len(t, row.Events, KeptEvents)
	raw := row.Encode()
	require.Less(t, len(raw), 1500)
	got := must(DecodeWatch(raw))(t)
	require.Equal(t, row, got)
	got = must(DecodeWatch(nil))(t)
	require.Zero(t, got)
	of, ok := SessionOf(WatchRowKey, RowKey(WatchRowKey, "acme/a", "chat"))
	require.True(t, ok)
	require.Equal(t, [2]string{"acme/a", "chat"}, of)
}
