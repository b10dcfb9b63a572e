package format

import (
	"bytes"
	"testing"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// reflectedCold is a packed without its own way of reading.
type reflectedCold packed

// What is read of the cold part of a head is what msgpack reads of it by itself, nil and empty told apart. A row with a
// field more or less is refused.
func TestColdBytes(t *testing.T) {
	text, texts := rapid.String(), rapid.OneOf(rapid.Just[[]string](nil), rapid.SliceOfN(rapid.String(), 0, 5))
	part := rapid.Custom(func(t *rapid.T) store.Part {
		return store.Part{Type: text.Draw(t, "type"), Text: text.Draw(t, "text"), URL: text.Draw(t, "url")}
	})
	call := rapid.Custom(func(t *rapid.T) store.ToolCall {
		return store.ToolCall{ID: text.Draw(t, "id"), Arguments: text.Draw(t, "arguments")}
	})
	ref := rapid.Custom(func(t *rapid.T) store.Ref {
		return store.Ref{Scope: text.Draw(t, "scope"), ID: text.Draw(t, "id"), Version: rapid.Uint32().Draw(t, "version")}
	})
	rapid.Check(t, func(t *rapid.T) {
		c := packed{
			Role: text.Draw(t, "role"), Name: text.Draw(t, "name"), ToolCalls: rapid.SliceOfN(call, 0, 2).Draw(t, "calls"),
			ToolCallID: text.Draw(t, "call"), Parts: rapid.SliceOfN(part, 0, 3).Draw(t, "parts"),
			PartBytes: rapid.SliceOfN(rapid.IntRange(0, 1<<30), 0, 3).Draw(t, "bytes"), Source: text.Draw(t, "source"),
			Stamp: text.Draw(t, "stamp"), SourceHash: rapid.Uint64().Draw(t, "hash"), SourceAt: rapid.Int64().Draw(t, "at"),
			GroupName: text.Draw(t, "group"), Subject: text.Draw(t, "subject"), DerivedFrom: rapid.SliceOfN(ref, 0, 3).Draw(t, "from"),
			Supersedes: texts.Draw(t, "supersedes"), Tags: texts.Draw(t, "tags"), Meta: texts.Draw(t, "meta"),
			Relevance: rapid.Ptr(rapid.Float64(), true).Draw(t, "relevance"), Actor: text.Draw(t, "actor"), Counter: text.Draw(t, "counter"),
		}
		row, err := msgpack.Marshal(&c)
		require.NoError(t, err)
		var want reflectedCold
		require.NoError(t, msgpack.Unmarshal(row, &want))
		require.Equal(t, packed(want), c, "control: the row says all")
		var got packed
		require.NoError(t, codec.Unpack(row, &got))
		require.Equal(t, c, got)

		at := rapid.IntRange(0, len(row)-1).Draw(t, "cut")
		require.Error(t, codec.Unpack(row[:at], new(packed)))
		require.Error(t, (&packed{}).DecodeMsgpack(msgpack.NewDecoder(bytes.NewReader(row[:at]))), "unscanned")
	})
	for _, fields := range []byte{packedFields - 1, packedFields + 1} {
		row := append([]byte{0xdc, 0, fields}, make([]byte, fields)...)
		require.ErrorContains(t, codec.Unpack(row, new(packed)), "fields, expected 19")
	}
}
