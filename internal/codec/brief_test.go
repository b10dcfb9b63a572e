package codec

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// briefs are forms: what they say, and how many state rows their commits wrote.
var briefs = rapid.Custom(func(t *rapid.T) brief {
	random := func(name string, n int) []byte { return rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, name) }
	name := rapid.SliceOfN(rapid.Byte(), 1, 20)
	s := brief{trace: random("trace", ulidBytes), scope: name.Draw(t, "scope"), id: name.Draw(t, "id"), digest: random("digest", digestBytes), version: 1}
	s.at, s.lsn, s.num = rapid.Int64().Draw(t, "at"), rapid.Uint64().Draw(t, "lsn"), rapid.Uint64().Draw(t, "num")
	if s.actor = s.scope; rapid.Bool().Draw(t, "other actor") {
		s.actor = append(s.scope[:len(s.scope):len(s.scope)], 'x')
		s.bits |= briefActor
	}
	if rapid.Bool().Draw(t, "session") {
		s.session, s.bits = name.Draw(t, "session's name"), s.bits|briefSession
		if rapid.Bool().Draw(t, "turn") {
			s.id = strconv.AppendUint(turnPrefix(nil, s.session), rapid.Uint64().Draw(t, "n"), 10)
		}
	}
	if rapid.Bool().Draw(t, "later version") {
		s.version, s.bits = rapid.Uint64Range(2, 1<<40).Draw(t, "version"), s.bits|briefVersion
	}
	s.bits |= bit(briefAppend, rapid.Bool().Draw(t, "append"))
	n := digestBytes
	if rapid.Bool().Draw(t, "state") {
		n, s.bits = n+entryBytes, s.bits|briefState
	}
	s.rows = random("rows", n)
	return s
})

// A body comes back from its form, which is shorter, under the index that it was made for. Cut or longer ones are refused, and
// changed bodies have another form or none.
func TestBriefForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, index := briefs.Draw(t, "leaf"), rapid.Uint64().Draw(t, "index")
		body := s.body(nil, int(s.bits&briefState)/briefState)
		form, ok := BriefForm([]byte("before"), index, body)
		require.True(t, ok)
		form = form[len("before"):]
		require.Less(t, len(form), len(body)-60)
		back, err := FromBrief(index, form)
		require.NoError(t, err)
		require.Equal(t, body, back)
		rows, state, err := BriefRows(form)
		require.NoError(t, err)
		require.Equal(t, 1, rows)
		require.Equal(t, s.bits&briefState != 0, state == 1)
		require.True(t, bytes.HasSuffix(form, s.rows), "digests are read at their distance from the end")

		_, err = FromBrief(index, form[:rapid.IntRange(0, len(form)-1).Draw(t, "cut")])
		require.ErrorIs(t, err, ErrMalformed)
		_, err = FromBrief(index, append(bytes.Clone(form), 0))
		require.ErrorIs(t, err, ErrMalformed)

		changed := bytes.Clone(body)
		changed[rapid.IntRange(0, len(body)-1).Draw(t, "at")] ^= rapid.ByteRange(1, 255).Draw(t, "by")
		if other, ok := BriefForm(nil, index, changed); ok {
			back, err := FromBrief(index, other)
			require.NoError(t, err)
			require.Equal(t, changed, back)
		}
	})
}

// The form is part of the format.
func TestBriefNeverChanges(t *testing.T) {
	digest := bytes.Repeat([]byte{0xd}, digestBytes)
	s := brief{
		bits: briefSession | briefAppend | briefState, trace: []byte("\x01\xa2\x28\x19\xa2\x5e0123456789"), scope: []byte("acme"), actor: []byte("acme"), session: []byte("chat"), id: []byte("block-chat-7"),
		digest: digest, rows: append(bytes.Repeat([]byte{0xe}, digestBytes), bytes.Repeat([]byte{0xf}, entryBytes)...), at: 1795969098334746, lsn: 12, num: 14, version: 1,
	}
	form, ok := BriefForm(nil, 10, s.body(nil, 1))
	require.True(t, ok)
	require.Equal(t, "\x1e"+string(s.trace)+"\xd4\x0b\x04acme\x04chat\x04\x04\x07"+string(digest)+string(s.rows), string(form))
}

// What no writer makes is an error, and never a body of which the form is another.
func FuzzFromBrief(f *testing.F) {
	s := brief{trace: make([]byte, ulidBytes), scope: []byte("a"), actor: []byte("a"), id: []byte("b"), digest: make([]byte, digestBytes), rows: make([]byte, digestBytes), version: 1, lsn: 1, num: 1}
	form, _ := BriefForm(nil, 0, s.body(nil, 0))
	for _, b := range [][]byte{form, {briefKnown}, nil, bytes.Repeat([]byte{briefKnown}, 200)} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		body, err := FromBrief(3, b)
		if err != nil {
			return
		}
		again, ok := BriefForm(nil, 3, body)
		if !ok { // numbers in more bytes than they need, an id that ends as a reference does
			return
		}
		back, err := FromBrief(3, again)
		require.NoError(t, err)
		require.Equal(t, body, back)
	})
}
