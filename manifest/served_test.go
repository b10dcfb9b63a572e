package manifest

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// both encodes a record by the table, and as it is encoded.
func both(t require.TestingT, r *Record) (table, now []byte, short bool) {
	w := &wire{Record: r, version: leafVersion, flags: flagsOf(r), reasons: reasonsOf(r)}
	table, err := w.appendFields(nil)
	require.NoError(t, err)
	now, err = Encode(r)
	require.NoError(t, err)
	return table, now, w.served()
}

func aRead() *Record {
	return &Record{
		Type: TypeGet, Trace: "01JD000000000000000000000A", Time: 1, Scope: "acme", Actor: "agent", LSN: 300, Tokens: 70, Counter: "est/1",
		Pages: []Page{{Num: 5, Version: 2, Tokens: 70, Reason: "dirty"}},
	}
}

// The leaf of a read has the bytes that the table of elements gives it, whatever it says.
func TestServed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord().Draw(t, "record")
		if rapid.Bool().Draw(t, "read") {
			r = &Record{
				Type: rapid.SampledFrom([]Type{TypeGet, TypeRecall}).Draw(t, "kind"), Trace: r.Trace, Parent: r.Parent, Time: r.Time, Scope: r.Scope,
				Actor: r.Actor, LSN: r.LSN, ReadOnly: r.ReadOnly, ServeStale: r.ServeStale, Session: r.Session, Tokens: r.Tokens,
				Counter: "est/1", Pages: r.Pages,
			}
		}
		table, now, _ := both(t, r)
		require.True(t, bytes.Equal(table, now))
	})
}

// A read that says anything else is not encoded as one that does not. A field that is new must be asked for in served.
func TestServedMissesNoField(t *testing.T) {
	_, _, short := both(t, aRead())
	require.True(t, short)
	for i := range reflect.TypeFor[Record]().NumField() {
		r := aRead()
		f := reflect.ValueOf(r).Elem().Field(i)
		name := reflect.TypeFor[Record]().Field(i).Name
		if !f.IsZero() {
			continue
		}
		switch x := f.Addr().Interface().(type) {
		case *Digest:
			*x = Digest{1, 2}
		case *[]Digest:
			*x = []Digest{bytes.Repeat([]byte{7}, rowDigest)}
			if name == "State" {
				*x = []Digest{bytes.Repeat([]byte{7}, StateSize)}
			}
		case *[]Span:
			*x = []Span{{1, 2}}
		case **Pruned:
			*x = &Pruned{Trace: "x"}
		default:
			switch f.Kind() {
			case reflect.String:
				f.SetString("x")
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Int, reflect.Int64:
				f.SetInt(3)
			case reflect.Uint64:
				f.SetUint(3)
			case reflect.Float64:
				f.SetFloat(.5)
			case reflect.Slice:
				f.Set(reflect.MakeSlice(f.Type(), 1, 1))
			default:
				t.Fatalf("%s is a %s: say what it is filled with", name, f.Type())
			}
		}
		table, now, _ := both(t, r)
		require.Equal(t, table, now, name)
	}
}

// Bodies that share memory do not change each other, and what one of them is appended to is a copy.
func TestBodiesShareMemory(t *testing.T) {
	var leaves []Leaf
	var want [][]byte
	for i := range 300 {
		r := aRead()
		r.Note = string(bytes.Repeat([]byte{'n'}, i*7))
		l, err := EncodeLeaf(r)
		require.NoError(t, err)
		body, err := Encode(r)
		require.NoError(t, err)
		leaves, want = append(leaves, l), append(want, body)
		_ = append(l.Body(), "behind it"...)
	}
	for i := range leaves {
		require.Equal(t, want[i], leaves[i].Body())
		require.Equal(t, LeafHash(want[i]), leaves[i].hashed().hash)
	}
}
