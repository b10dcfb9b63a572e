package remote

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"sort"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// The plain data of package store crosses the socket as msgpack. What is stored (an artefact, a put,
// a leaf) is a byte string of its fields by number, from the same list as its row (codec.Record). A
// list of candidates has a form of its own (candidate.go). Every other struct is a map of its fields by name without
// those that are zero, so that either side may have fields that the other does not know. Nil and
// empty differ. A time is its seconds and nanoseconds and comes back in UTC. An error keeps its types
// (errors.go).

var (
	timeType     = reflect.TypeFor[time.Time]()
	errorType    = reflect.TypeFor[error]()
	analysisType = reflect.TypeFor[*lexical.Analysis]() // derived data: the other side makes it anew
)

// record is a type that crosses as the fields of its list.
type record struct {
	write func(e *codec.Encoder, v reflect.Value)
	read  func(d *codec.Decoder, v reflect.Value)
}

// recordOf makes a record of a list of fields.
func recordOf[T any](write func(*codec.Encoder, *T), read func(*codec.Decoder, *T)) record {
	return record{
		write: func(e *codec.Encoder, v reflect.Value) {
			if !v.CanAddr() {
				at := reflect.New(v.Type()).Elem()
				at.Set(v)
				v = at
			}
			write(e, v.Addr().Interface().(*T))
		},
		read: func(d *codec.Decoder, v reflect.Value) { read(d, v.Addr().Interface().(*T)) },
	}
}

var recordTypes = map[reflect.Type]record{
	reflect.TypeFor[store.Artefact]():  recordOf(format.ArtefactFields.Append, format.ArtefactFields.Read),
	reflect.TypeFor[store.Put]():       recordOf(format.PutFields.Append, format.PutFields.Read),
	reflect.TypeFor[manifest.Record](): recordOf(archive.AppendRecord, archive.ReadRecord),
}

// putRecord writes a record as a byte string.
func putRecord(e *writer, r record, v reflect.Value) {
	e.record.B = e.record.B[:0]
	r.write(&e.record, v)
	e.bytes(e.record.B)
}

// getRecord reads what putRecord wrote; v is zero before. A record copies what it takes, so its bytes are borrowed.
func getRecord(d *reader, r record, v reflect.Value) error {
	b, err := d.borrow()
	if err != nil {
		return err
	}
	d.record = codec.Decoder{B: b}
	r.read(&d.record, v)
	return d.record.Done()
}

// member is a field of a struct that is sent.
type member struct {
	name  string
	index int
}

var members sync.Map // by reflect.Type: []member

// membersOf returns the fields of a struct type that are sent, found by reflection once for each
// type. Two goroutines may make the list of a type at once; both lists are the same, and either may
// stay.
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
func pack(v any) ([]byte, error) { return packBehind(0, v) }

// packBehind encodes a value behind room for n bytes.
func packBehind(n int, v any) ([]byte, error) {
	w := writers.Get().(*writer)
	defer w.done()
	w.b.Write(make([]byte, n))
	if err := put(w, reflect.ValueOf(v)); err != nil {
		return nil, fmt.Errorf("ctxpage: encode for the socket: %w", err)
	}
	return bytes.Clone(w.b.Bytes()), w.err
}

// packFrame encodes a value as a message in frames, the last of a kind.
func packFrame(kind byte, v any) ([]byte, error) {
	b, err := packBehind(frameHeader, v)
	if err != nil {
		return nil, err
	}
	if n := len(b) - frameHeader; n <= MaxFrame { // one frame
		b[0] = kind
		binary.BigEndian.PutUint32(b[1:], uint32(n))
		return b, nil
	}
	return framed(kind, b[frameHeader:]), nil
}

// unpack decodes what pack made into what v points to. Bytes behind the value are an error: they
// mean that the message is not what its reader takes it for.
func unpack(b []byte, v any) error { return unpackInto(b, v, nil) }

// unpackInto is unpack with memory for a list of candidates.
func unpackInto(b []byte, v any, room []store.Candidate) error {
	r := newReader(b)
	defer r.done()
	r.room = room
	err := get(r, reflect.ValueOf(v).Elem())
	if err == nil && r.in.Len() > 0 {
		err = fmt.Errorf("%d bytes follow the value", r.in.Len())
	}
	if err != nil {
		return fmt.Errorf("ctxpage: decode from the socket: %w", err)
	}
	return nil
}

// put writes a value of any type of plain data: no functions, channels, or interfaces other than
// error.
func put(e *writer, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Bool:
		e.flag(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		e.int(v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		e.uint(v.Uint())
	case reflect.Float32:
		e.float32(float32(v.Float()))
	case reflect.Float64:
		e.float64(v.Float())
	case reflect.String:
		e.text(v.String())
	case reflect.Pointer:
		if v.IsNil() {
			e.null()
			return nil
		}
		return put(e, v.Elem())
	case reflect.Slice, reflect.Array:
		return putList(e, v)
	case reflect.Map:
		return putMap(e, v)
	case reflect.Struct:
		if v.Type() == timeType {
			putTime(e, v)
			return nil
		}
		if r, ok := recordTypes[v.Type()]; ok {
			putRecord(e, r, v)
			return nil
		}
		return putStruct(e, v)
	case reflect.Interface:
		if v.Type() != errorType {
			return fmt.Errorf("a %s is no plain data", v.Type())
		}
		if v.IsNil() {
			e.null()
			return nil
		}
		return putError(e, v.Interface().(error))
	default:
		return fmt.Errorf("a %s is no plain data", v.Type())
	}
	return nil
}

// putTime writes seconds and nanoseconds. The zone is lost; the time comes back in UTC.
func putTime(e *writer, v reflect.Value) {
	var t time.Time
	if v.CanAddr() { // a copy by Interface is one in memory
		t = *v.Addr().Interface().(*time.Time)
	} else {
		t = v.Interface().(time.Time)
	}
	e.list(2)
	e.int(t.Unix())
	e.int(int64(t.Nanosecond()))
}

// putList writes a list or bytes. Nil differs from empty.
func putList(e *writer, v reflect.Value) error {
	if v.Kind() == reflect.Slice && v.IsNil() {
		e.null()
		return nil
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		e.bytes(bytesOf(v))
		return nil
	}
	if v.Type() == candidatesType {
		putCandidates(e, v.Interface().([]store.Candidate))
		return nil
	}
	e.list(v.Len())
	for i := range v.Len() {
		if err := put(e, v.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

// bytesOf returns an array or slice of bytes of whatever named type as []byte, without a copy where
// that can be.
func bytesOf(v reflect.Value) []byte {
	if v.Kind() == reflect.Slice || v.CanAddr() {
		return v.Bytes()
	}
	b := make([]byte, v.Len())
	reflect.Copy(reflect.ValueOf(b), v)
	return b
}

// putMap writes a map in the order of its keys.
func putMap(e *writer, v reflect.Value) error {
	if v.IsNil() {
		e.null()
		return nil
	}
	keys := v.MapKeys()
	sort.Slice(keys, func(i, j int) bool {
		a, b := &keys[i], &keys[j]
		if a.Kind() == reflect.String {
			return a.String() < b.String()
		}
		return a.Uint() < b.Uint()
	})
	e.dict(len(keys))
	for _, k := range keys {
		if err := errors.Join(put(e, k), put(e, v.MapIndex(k))); err != nil {
			return err
		}
	}
	return nil
}

// putStruct writes the fields that are not zero. Which they are is asked once of the first 64.
func putStruct(e *writer, v reflect.Value) error {
	all := membersOf(v.Type())
	n, sent := 0, uint64(0)
	for i := range all {
		if !v.Field(all[i].index).IsZero() {
			n++
			sent |= 1 << i // beyond 64 it has no effect
		}
	}
	e.dict(n)
	for i := range all {
		m := &all[i]
		if i < 64 && sent&(1<<i) == 0 {
			continue
		}
		f := v.Field(m.index)
		if i >= 64 && f.IsZero() {
			continue
		}
		e.text(m.name)
		if err := put(e, f); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// get reads what put wrote. It takes what a peer sent for what it is: lengths are checked against
// what is there, numbers against the type, and unknown fields are skipped.
func get(d *reader, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer:
		if d.null() {
			v.SetZero()
			return nil
		}
		v.Set(reflect.New(v.Type().Elem()))
		return get(d, v.Elem())
	case reflect.Slice, reflect.Array:
		return getList(d, v)
	case reflect.Map:
		return getMap(d, v)
	case reflect.Struct:
		if v.Type() == timeType {
			return getTime(d, v)
		}
		if r, ok := recordTypes[v.Type()]; ok {
			return getRecord(d, r, v)
		}
		return getStruct(d, v)
	case reflect.Interface:
		if v.Type() != errorType {
			break
		}
		err, bad := getError(d)
		if bad == nil && err != nil {
			v.Set(reflect.ValueOf(err))
		}
		return bad
	}
	return getScalar(d, v)
}

// getScalar reads a bool, a number or a text.
func getScalar(d *reader, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Bool:
		b, err := d.flag()
		v.SetBool(b)
		return err
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := d.int()
		if v.OverflowInt(n) {
			return fmt.Errorf("%d does not fit a %s", n, v.Type())
		}
		v.SetInt(n)
		return err
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		n, err := d.uint()
		if v.OverflowUint(n) {
			return fmt.Errorf("%d does not fit a %s", n, v.Type())
		}
		v.SetUint(n)
		return err
	case reflect.Float32:
		f, err := d.float64()
		v.SetFloat(f)
		return err
	case reflect.Float64:
		f, err := d.float64()
		v.SetFloat(f)
		return err
	case reflect.String:
		s, err := d.text()
		v.SetString(s)
		return err
	}
	return fmt.Errorf("a %s is no plain data", v.Type())
}

// getTime reads a time.
func getTime(d *reader, v reflect.Value) error {
	n, err := d.list()
	if err != nil {
		return err
	}
	if n != 2 {
		return fmt.Errorf("a time of %d numbers, expected 2", n)
	}
	sec, err1 := d.int()
	nsec, err2 := d.int()
	*v.Addr().Interface().(*time.Time) = time.Unix(sec, nsec).UTC()
	return errors.Join(err1, err2)
}

// atOnce bounds what is reserved for a list by its announced length, before its elements came.
const atOnce = 4096

// getList reads a list.
func getList(d *reader, v reflect.Value) error {
	t := v.Type()
	if t.Kind() == reflect.Slice && d.null() {
		v.SetZero()
		return nil
	}
	if t.Elem().Kind() == reflect.Uint8 {
		return getBytes(d, v)
	}
	if t == candidatesType {
		list, err := getCandidates(d)
		v.Set(reflect.ValueOf(list))
		return err
	}
	n, err := d.list()
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
	return getElements(d, v, n)
}

// getBytes reads a slice or an array of bytes.
func getBytes(d *reader, v reflect.Value) error {
	b, err := d.bytes()
	if err != nil {
		return err
	}
	t := v.Type()
	if t.Kind() == reflect.Slice {
		v.SetBytes(b)
		return nil
	}
	if len(b) != t.Len() {
		return fmt.Errorf("%d bytes for a %s", len(b), t)
	}
	copy(v.Bytes(), b)
	return nil
}

// getElements reads a slice of n elements, each by reflection. Memory is taken as they come, not as
// they are announced.
func getElements(d *reader, v reflect.Value, n int) error {
	t := v.Type()
	out := reflect.MakeSlice(t, min(n, atOnce), min(n, atOnce))
	r, is := recordTypes[t.Elem()]
	for i := range n {
		if i == out.Len() {
			more := reflect.MakeSlice(t, min(n, 2*i), min(n, 2*i))
			reflect.Copy(more, out)
			out = more
		}
		var err error
		if is {
			err = getRecord(d, r, out.Index(i))
		} else {
			err = get(d, out.Index(i))
		}
		if err != nil {
			return err
		}
	}
	v.Set(out)
	return nil
}

// getMap reads a map.
func getMap(d *reader, v reflect.Value) error {
	if d.null() {
		v.SetZero()
		return nil
	}
	n, err := d.dict()
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

// getStruct reads the fields that this program knows and skips the others. A field that is absent
// keeps what v has, so v must be zero.
func getStruct(d *reader, v reflect.Value) error {
	n, err := d.dict()
	if err != nil {
		return err
	}
	all := membersOf(v.Type())
	at := 0 // fields come in their order, mostly
	for range n {
		name, err := d.name()
		if err != nil {
			return err
		}
		i := memberAt(all, at, name)
		if i < 0 {
			if err := d.skip(); err != nil {
				return err
			}
			continue
		}
		if err := get(d, v.Field(all[i].index)); err != nil {
			return fmt.Errorf("%s: %w", all[i].name, err)
		}
		at = i + 1
	}
	return nil
}

// memberAt finds a field by its name, first behind its predecessor; -1: this program does not know
// it.
func memberAt(all []member, at int, name []byte) int {
	for i := at; i < len(all); i++ {
		if all[i].name == string(name) {
			return i
		}
	}
	for i := range min(at, len(all)) {
		if all[i].name == string(name) {
			return i
		}
	}
	return -1
}
