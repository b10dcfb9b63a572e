package remote

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/ctxpage/ctxpage/lexical"
)

// What crosses the socket is the plain data of package store, as msgpack. A struct is a map of its fields by name without
// those that are zero, so that either side may have fields that the other does not know. Nil and empty differ, as they do
// for a state row. A time is its seconds and nanoseconds and comes back in UTC. An error keeps its types (errors.go).
//
// The struct tags of package store are not asked: they say what is stored, and a stored batch leaves out what a sent one
// needs (Batch.Bound), and has one name for two fields (Head.Unknown).

var (
	timeType     = reflect.TypeFor[time.Time]()
	errorType    = reflect.TypeFor[error]()
	analysisType = reflect.TypeFor[*lexical.Analysis]() // derived data: the other side makes it anew
)

// member is a field of a struct that is sent.
type member struct {
	name  string
	index int
}

var members sync.Map // by reflect.Type: []member

func membersOf(t reflect.Type) []member {
	if known, ok := members.Load(t); ok {
		return known.([]member)
	}
	var out []member
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() && f.Type != analysisType {
			out = append(out, member{f.Name, i})
		}
	}
	members.Store(t, out)
	return out
}

// pack encodes a value.
func pack(v any) ([]byte, error) {
	var b bytes.Buffer
	if err := put(msgpack.NewEncoder(&b), reflect.ValueOf(v)); err != nil {
		return nil, fmt.Errorf("ctxpage: encode for the socket: %w", err)
	}
	return b.Bytes(), nil
}

// unpack decodes what pack made into what v points to.
func unpack(b []byte, v any) error {
	r := bytes.NewReader(b)
	if err := get(msgpack.NewDecoder(r), reflect.ValueOf(v).Elem()); err != nil {
		return fmt.Errorf("ctxpage: decode from the socket: %w", err)
	}
	if r.Len() > 0 {
		return fmt.Errorf("ctxpage: decode from the socket: %d bytes follow the value", r.Len())
	}
	return nil
}

func put(e *msgpack.Encoder, v reflect.Value) error {
	switch v.Type() {
	case timeType:
		t := v.Interface().(time.Time)
		return errors.Join(e.EncodeArrayLen(2), e.EncodeInt(t.Unix()), e.EncodeInt(int64(t.Nanosecond())))
	case errorType:
		if v.IsNil() {
			return e.EncodeNil()
		}
		return putError(e, v.Interface().(error), 0)
	}
	switch v.Kind() {
	case reflect.Bool:
		return e.EncodeBool(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return e.EncodeInt(v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return e.EncodeUint(v.Uint())
	case reflect.Float32:
		return e.EncodeFloat32(float32(v.Float()))
	case reflect.Float64:
		return e.EncodeFloat64(v.Float())
	case reflect.String:
		return e.EncodeString(v.String())
	case reflect.Pointer:
		if v.IsNil() {
			return e.EncodeNil()
		}
		return put(e, v.Elem())
	case reflect.Slice, reflect.Array:
		return putList(e, v)
	case reflect.Map:
		return putMap(e, v)
	case reflect.Struct:
		return putStruct(e, v)
	}
	return fmt.Errorf("a %s is no plain data", v.Type())
}

func putList(e *msgpack.Encoder, v reflect.Value) error {
	if v.Kind() == reflect.Slice && v.IsNil() {
		return e.EncodeNil()
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		b := make([]byte, v.Len()) // never nil, which would be sent as nil
		reflect.Copy(reflect.ValueOf(b), bytesOf(v))
		return e.EncodeBytes(b)
	}
	if err := e.EncodeArrayLen(v.Len()); err != nil {
		return err
	}
	for i := range v.Len() {
		if err := put(e, v.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

// bytesOf gives an array or slice of bytes of whatever named type as []byte.
func bytesOf(v reflect.Value) reflect.Value {
	if v.Kind() == reflect.Slice {
		return reflect.ValueOf(v.Bytes())
	}
	b := make([]byte, v.Len())
	for i := range b {
		b[i] = byte(v.Index(i).Uint())
	}
	return reflect.ValueOf(b)
}

// putMap writes a map in the order of its keys.
func putMap(e *msgpack.Encoder, v reflect.Value) error {
	if v.IsNil() {
		return e.EncodeNil()
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int {
		if a.Kind() == reflect.String {
			return cmp.Compare(a.String(), b.String())
		}
		return cmp.Compare(a.Uint(), b.Uint())
	})
	if err := e.EncodeMapLen(len(keys)); err != nil {
		return err
	}
	for _, k := range keys {
		if err := errors.Join(put(e, k), put(e, v.MapIndex(k))); err != nil {
			return err
		}
	}
	return nil
}

func putStruct(e *msgpack.Encoder, v reflect.Value) error {
	all := membersOf(v.Type())
	n := 0
	for _, m := range all {
		if !v.Field(m.index).IsZero() {
			n++
		}
	}
	if err := e.EncodeMapLen(n); err != nil {
		return err
	}
	for _, m := range all {
		f := v.Field(m.index)
		if f.IsZero() {
			continue
		}
		if err := e.EncodeString(m.name); err != nil {
			return err
		}
		if err := put(e, f); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

func get(d *msgpack.Decoder, v reflect.Value) error {
	switch v.Type() {
	case timeType:
		return getTime(d, v)
	case errorType:
		err, bad := getError(d, 0)
		if bad == nil && err != nil {
			v.Set(reflect.ValueOf(err))
		}
		return bad
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if code, err := d.PeekCode(); err != nil {
			return err
		} else if code == msgpcode.Nil {
			v.SetZero()
			return d.DecodeNil()
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return get(d, v.Elem())
	case reflect.Slice, reflect.Array:
		return getList(d, v)
	case reflect.Map:
		return getMap(d, v)
	case reflect.Struct:
		return getStruct(d, v)
	}
	return getScalar(d, v)
}

func getScalar(d *msgpack.Decoder, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Bool:
		b, err := d.DecodeBool()
		v.SetBool(b)
		return err
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := d.DecodeInt64()
		if v.OverflowInt(n) {
			return fmt.Errorf("%d does not fit a %s", n, v.Type())
		}
		v.SetInt(n)
		return err
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		n, err := d.DecodeUint64()
		if v.OverflowUint(n) {
			return fmt.Errorf("%d does not fit a %s", n, v.Type())
		}
		v.SetUint(n)
		return err
	case reflect.Float32:
		f, err := d.DecodeFloat32()
		v.SetFloat(float64(f))
		return err
	case reflect.Float64:
		f, err := d.DecodeFloat64()
		v.SetFloat(f)
		return err
	case reflect.String:
		s, err := d.DecodeString()
		v.SetString(s)
		return err
	}
	return fmt.Errorf("a %s is no plain data", v.Type())
}

func getTime(d *msgpack.Decoder, v reflect.Value) error {
	n, err := d.DecodeArrayLen()
	if err != nil {
		return err
	}
	if n != 2 {
		return fmt.Errorf("a time of %d numbers, expected 2", n)
	}
	sec, err1 := d.DecodeInt64()
	nsec, err2 := d.DecodeInt64()
	v.Set(reflect.ValueOf(time.Unix(sec, nsec).UTC()))
	return errors.Join(err1, err2)
}

// atOnce bounds what is reserved for a list by its announced length, before its elements came.
const atOnce = 4096

func getList(d *msgpack.Decoder, v reflect.Value) error {
	t := v.Type()
	if t.Elem().Kind() == reflect.Uint8 {
		b, err := d.DecodeBytes()
		if err != nil {
			return err
		}
		if t.Kind() == reflect.Slice {
			v.SetBytes(append([]byte{}, b...))
			return nil
		}
		if len(b) != t.Len() {
			return fmt.Errorf("%d bytes for a %s", len(b), t)
		}
		reflect.Copy(v, reflect.ValueOf(b).Convert(reflect.SliceOf(t.Elem())))
		return nil
	}
	n, err := d.DecodeArrayLen()
	if err != nil {
		return err
	}
	if t.Kind() == reflect.Array {
		if n != t.Len() {
			return fmt.Errorf("%d elements for a %s", n, t)
		}
		for i := range n {
			if err := get(d, v.Index(i)); err != nil {
				return err
			}
		}
		return nil
	}
	out := reflect.MakeSlice(t, 0, min(n, atOnce))
	for range n {
		el := reflect.New(t.Elem()).Elem()
		if err := get(d, el); err != nil {
			return err
		}
		out = reflect.Append(out, el)
	}
	v.Set(out)
	return nil
}

func getMap(d *msgpack.Decoder, v reflect.Value) error {
	n, err := d.DecodeMapLen()
	if err != nil {
		return err
	}
	t := v.Type()
	v.Set(reflect.MakeMapWithSize(t, min(n, atOnce)))
	for range n {
		key, el := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		if err := get(d, key); err != nil {
			return err
		}
		if err := get(d, el); err != nil {
			return err
		}
		v.SetMapIndex(key, el)
	}
	return nil
}

// getStruct reads the fields that this program knows and skips the others.
func getStruct(d *msgpack.Decoder, v reflect.Value) error {
	n, err := d.DecodeMapLen()
	if err != nil {
		return err
	}
	all := membersOf(v.Type())
	at := 0 // fields come in their order, mostly
	for range n {
		name, err := d.DecodeString()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all[at:], func(m member) bool { return m.name == name }) + at
		if i < at {
			if i = slices.IndexFunc(all, func(m member) bool { return m.name == name }); i < 0 {
				if err := d.Skip(); err != nil {
					return err
				}
				continue
			}
		}
		if err := get(d, v.Field(all[i].index)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		at = i + 1
	}
	return nil
}
