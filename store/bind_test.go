package store

import (
	"encoding/hex"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What artefact writes by hand is what the encoder writes by reflection, for every field set alone and for many together:
// a batch that is repeated after an upgrade must have the digest that its outcome has.
func TestBindWritesWhatTheEncoderWrites(t *testing.T) {
	same := func(a *Artefact) {
		t.Helper()
		w := binders.New().(*binder)
		require.NoError(t, w.artefact(a))
		got := strings.Clone(w.said.String())
		w.said.Reset()
		require.NoError(t, w.enc.Encode(a))
		require.Equal(t, w.said.String(), got, "%+v", a)
	}
	same(&Artefact{})
	same(&Artefact{DerivedFrom: []Ref{}, Supersedes: []string{}})
	r := rand.New(rand.NewSource(1))
	fields := reflect.TypeFor[Artefact]().NumField()
	for i := range fields {
		for range 20 {
			a := Artefact{DerivedFrom: []Ref{}}
			setAny(t, r, reflect.ValueOf(&a).Elem().Field(i))
			same(&a)
		}
	}
	for range 2000 {
		a := Artefact{DerivedFrom: []Ref{}}
		for i := range fields {
			if r.Intn(4) == 0 {
				setAny(t, r, reflect.ValueOf(&a).Elem().Field(i))
			}
		}
		same(&a)
	}
}

// setAny gives a field some value that is mostly not zero.
func setAny(t *testing.T, r *rand.Rand, v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(r.Int63n(1<<33), r.Int63n(1e9))))
	case v.Type() == reflect.TypeFor[Kind]():
		v.SetUint(uint64(r.Intn(10)))
	case v.Kind() == reflect.String:
		v.SetString(strings.Repeat("é", r.Intn(40)) + strings.Repeat("x", []int{0, 1, 31, 32, 255, 256, 70_000}[r.Intn(7)]))
	case v.CanInt():
		v.SetInt(r.Int63() - 1<<62)
	case v.CanUint():
		v.SetUint(uint64(r.Intn(1 << 8)))
	case v.CanFloat():
		v.SetFloat(r.Float64())
	case v.Kind() == reflect.Bool:
		v.SetBool(r.Intn(2) > 0)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		setAny(t, r, v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.Intn(3), 4))
		for i := range v.Len() {
			setAny(t, r, v.Index(i))
		}
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.Intn(3) {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			setAny(t, r, k)
			setAny(t, r, e)
			v.SetMapIndex(k, e)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			setAny(t, r, v.Field(i))
		}
	default:
		t.Fatalf("no value for %s", v.Type())
	}
}

// The digest does not change from release to release: a batch may be repeated after an upgrade.
func TestBindOfOldBatches(t *testing.T) {
	b := Batch{
		Scope: "acme/support", Deletes: []string{"old"},
		Puts: []Put{
			{Artefact: Artefact{ID: "policy", Text: "14 days", Kind: KindChunk}, Pages: []NewPage{{Text: "14 days"}}},
			{Artefact: Artefact{ID: "call", Kind: KindMessage, Role: "assistant", Tags: []string{"a"}, DerivedFrom: []Ref{{Scope: "acme", ID: "x", Version: 3}}}},
		},
	}
	require.NoError(t, b.Bind())
	require.Equal(t, "d6614a27f4f42c2ecfbb89d7c5dc06b2", hex.EncodeToString(b.Bound))
}
