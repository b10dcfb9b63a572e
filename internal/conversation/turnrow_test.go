package conversation

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// wordSets are token sets, with neighbours and both ends of the range.
var wordSets = rapid.Custom(func(t *rapid.T) []uint64 {
	one := rapid.OneOf(rapid.Uint64Max(1<<24-1), rapid.Uint64Max(100), rapid.Uint64Range(1<<24-21, 1<<24-1))
	out := rapid.SliceOfN(one, 0, 300).Draw(t, "words")
	slices.Sort(out)
	return slices.Compact(out)
})

// A row of a turn and of its place is read back as it was; a damaged one is an error.
func TestTurnRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, flag := rapid.String(), rapid.Bool()
		r := TurnRow{
			Hash: rapid.Uint64().Draw(t, "hash"), Content: rapid.Uint64().Draw(t, "content"), Counter: text.Draw(t, "counter"),
			Made: rapid.Uint8().Draw(t, "made"), Traits: rapid.Uint16().Draw(t, "traits"),
			Hashes: wordSets.Draw(t, "hashes"), Level: rapid.Uint8Max(uint8(session.Cold)).Draw(t, "level"),
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
		if len(r.Hashes) == 0 {
			r.Hashes = nil
		}
		var back TurnRow
		require.NoError(t, back.decode(got))
		if len(back.Hashes) == 0 {
			back.Hashes = nil
		}
		require.Equal(t, r, back)

		r.Yielded = flag.Draw(t, "yielded")
		place := r.encodePlace()
		moved := TurnRow{
			Hash: r.Hash, Content: r.Content, Counter: r.Counter, Traits: r.Traits, Hashes: r.Hashes,
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
