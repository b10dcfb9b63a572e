package talk

import (
	"testing"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/session"
	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// reflected is a turnRow as the general encoding writes it.
type reflected struct {
	//lint:ignore U1000 msgpack looks for it
	_msgpack      struct{} `msgpack:",as_array"`
	Hash, Content uint64
	Counter       string
	Sizes         []int
	Made          uint8
	Traits        uint16
	Title         string
	Hashes        []byte
	Signals       struct {
		//lint:ignore U1000 msgpack looks for it
		_msgpack                            struct{} `msgpack:",as_array"`
		Source                              string
		Version                             uint64
		Call                                string
		Stale, Failed, Refetchable, Finding bool
		Closed, Keep                        bool
		LastRead                            int64
	}
	Level   uint8
	Because string
	Pinned  bool
}

// The row of a turn is what msgpack makes of its fields by itself, byte for byte, and is read back as it was.
func TestTurnRowBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, flag := rapid.String(), rapid.Bool()
		r := TurnRow{
			Hash: rapid.Uint64().Draw(t, "hash"), Content: rapid.Uint64().Draw(t, "content"), Counter: text.Draw(t, "counter"),
			Made: rapid.Uint8().Draw(t, "made"), Traits: rapid.Uint16().Draw(t, "traits"), Title: text.Draw(t, "title"),
			Hashes: rapid.SliceOfN(rapid.Uint64(), 0, 40).Draw(t, "hashes"), Level: rapid.Uint8Max(uint8(session.Cold)).Draw(t, "level"),
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
		w := reflected{
			Hash: r.Hash, Content: r.Content, Counter: r.Counter, Sizes: r.Sizes[:], Made: r.Made, Traits: r.Traits, Title: r.Title,
			Hashes: packHashes(r.Hashes), Level: r.Level, Because: r.Because, Pinned: r.Pinned,
		}
		s := &w.Signals
		s.Source, s.Version, s.Call, s.Stale, s.Failed = r.Signals.Source, r.Signals.Version, r.Signals.Call, r.Signals.Stale, r.Signals.Failed
		s.Refetchable, s.Finding, s.Closed, s.Keep = r.Signals.Refetchable, r.Signals.Finding, r.Signals.Closed, r.Signals.Keep
		s.LastRead = r.Signals.LastRead
		want, err := msgpack.Marshal(&w)
		require.NoError(t, err)
		got, err := r.encode()
		require.NoError(t, err)
		require.Equal(t, want, got)
		var back TurnRow
		require.NoError(t, codec.Unpack(got, &back))
		require.Equal(t, r, back)

		r.Yielded = flag.Draw(t, "yielded")
		place, err := r.encodePlace()
		require.NoError(t, err)
		moved := TurnRow{
			Hash: r.Hash, Content: r.Content, Counter: r.Counter, Traits: r.Traits, Title: r.Title, Hashes: r.Hashes,
			Sizes: session.Sizes{1, 2, 3}, Made: ^r.Made, Signals: r.Signals, Pinned: !r.Pinned, Because: "before",
		}
		moved.Signals.LastRead++
		require.NoError(t, moved.decodePlace(place))
		r.moved = true
		require.Equal(t, r, moved, "a place is all that may change of a turn")
		require.Error(t, new(TurnRow).decodePlace(place[:rapid.IntRange(0, len(place)-1).Draw(t, "place cut")]))
		require.Error(t, new(TurnRow).decodePlace(got), "a turn is no place")
		require.Error(t, codec.Unpack(place, new(TurnRow)), "nor a place a turn")

		cut := rapid.IntRange(0, len(got)-1).Draw(t, "cut")
		require.Error(t, codec.Unpack(got[:cut], new(TurnRow)))
		w.Level = uint8(session.Cold) + 1
		far, err := msgpack.Marshal(&w)
		require.NoError(t, err)
		require.Error(t, codec.Unpack(far, new(TurnRow)), "a level there is not")
		w.Level, w.Hashes = 0, append(w.Hashes, 1)
		odd, err := msgpack.Marshal(&w)
		require.NoError(t, err)
		require.Error(t, codec.Unpack(odd, new(TurnRow)), "half a token")
		w.Hashes, w.Sizes = nil, w.Sizes[:4]
		short, err := msgpack.Marshal(&w)
		require.NoError(t, err)
		require.Error(t, codec.Unpack(short, new(TurnRow)), "a size too few")
	})
}
