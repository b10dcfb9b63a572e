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

	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// The plain data of package store crosses the socket as msgpack. A struct is a map of its fields by
// name without those that are zero, so that either side may have fields that the other does not
// know. Nil and empty differ, as they do for a state row. A time is its seconds and nanoseconds and
// comes back in UTC. An error keeps its types (errors.go).
//
// The struct tags of package store are ignored. They describe stored rows, which leave out a field
// that a sent batch needs (Batch.Bound) and have one name for two fields (Head.Unknown).

var (
	timeType     = reflect.TypeFor[time.Time]()
	errorType    = reflect.TypeFor[error]()
	analysisType = reflect.TypeFor[*lexical.Analysis]() // derived data: the other side makes it anew
	foundType    = reflect.TypeFor[[]store.Candidate]()
	pagesType    = reflect.TypeFor[[]manifest.Page]()
)

// member is a field of a struct that is sent.
type member struct {
	name  string
	raw   []byte // the name as msgpack
	index int
}

// maxName bounds the name of a field, also of one that this program does not know.
const maxName = 255

// member reads the name of a field, in the memory of the message.
func (d *reader) member() ([]byte, error) {
	name, err := d.shared()
	if len(name) > maxName {
		return nil, fmt.Errorf("the name of a field has %d bytes, expected at most %d", len(name), maxName)
	}
	return name, err
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
			var raw writer
			raw.text(f.Name)
			out = append(out, member{f.Name, raw.b, i})
		}
	}
	members.Store(t, out)
	return out
}

// writers are used again, and a message is copied out of one: a buffer that grows with each message
// is garbage of four times its size.
var writers = sync.Pool{New: func() any { return &writer{b: make([]byte, 0, 4<<10)} }}

// maxWriter is the size of a buffer that is used again.
const maxWriter = 1 << 20

// pack encodes a value.
func pack(v any) ([]byte, error) { return packWith(v, bytes.Clone) }

// packFrame encodes a value as a message in frames, the last of a kind.
func packFrame(kind byte, v any) ([]byte, error) {
	return packWith(v, func(message []byte) []byte { return framed(kind, message) })
}

// packWith encodes a value in a pooled buffer and gives it to out, which copies it. A writer is
// back in the pool when out has returned, so out must not keep its argument. A buffer of more than
// maxWriter bytes is left to the collector: one large answer must not stay in memory.
func packWith(v any, out func([]byte) []byte) ([]byte, error) {
	w := writers.Get().(*writer)
	defer func() {
		if cap(w.b) <= maxWriter {
			*w = writer{b: w.b[:0]}
			writers.Put(w)
		}
	}()
	if err := put(w, reflect.ValueOf(v)); err != nil {
		return nil, fmt.Errorf("ctxpage: encode for the socket: %w", err)
	}
	return out(w.b), nil
}

// unpack decodes what pack made into what v points to. Bytes behind the value are an error: they
// mean that the message is not what its reader takes it for.
func unpack(b []byte, v any) error {
	r := &reader{b: b}
	if err := get(r, reflect.ValueOf(v).Elem()); err != nil {
		return fmt.Errorf("ctxpage: decode from the socket: %w", err)
	}
	if r.left() > 0 {
		return fmt.Errorf("ctxpage: decode from the socket: %d bytes follow the value", r.left())
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

// putList writes a list, bytes, or a table. Nil differs from empty.
func putList(e *writer, v reflect.Value) error {
	if v.Kind() == reflect.Slice && v.IsNil() {
		e.null()
		return nil
	}
	switch v.Type() { // these come in hundreds
	case foundType:
		putPacked(e, candidateFields, v.Interface().([]store.Candidate))
		return nil
	case pagesType:
		putPacked(e, pageFields, v.Interface().([]manifest.Page))
		return nil
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		e.bytes(bytesOf(v))
		return nil
	}
	e.list(v.Len())
	if putScalars(e, v) {
		return nil
	}
	for i := range v.Len() {
		if err := put(e, v.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

// putScalars writes the elements of lists that are long, without asking each what it is.
func putScalars(e *writer, v reflect.Value) (known bool) {
	if v.Kind() != reflect.Slice || v.Type().Elem().Kind() == reflect.Struct {
		return false
	}
	switch list := v.Interface().(type) {
	case []bool:
		for _, el := range list {
			e.flag(el)
		}
	case []uint64:
		for _, el := range list {
			e.uint(el)
		}
	case []int64:
		for _, el := range list {
			e.int(el)
		}
	case []float64:
		for _, el := range list {
			e.float64(el)
		}
	case []string:
		for _, el := range list {
			e.text(el)
		}
	default:
		return false
	}
	return true
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
	slices.SortFunc(keys, func(a, b reflect.Value) int {
		if a.Kind() == reflect.String {
			return cmp.Compare(a.String(), b.String())
		}
		return cmp.Compare(a.Uint(), b.Uint())
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
		e.b = append(e.b, m.raw...)
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

// getList reads a list. Long lists of simple elements are read without reflection on each.
func getList(d *reader, v reflect.Value) error {
	t := v.Type()
	if t.Kind() == reflect.Slice && d.null() {
		v.SetZero()
		return nil
	}
	switch t {
	case foundType:
		return getPacked(d, candidateFields, v.Addr().Interface().(*[]store.Candidate))
	case pagesType:
		return getPacked(d, pageFields, v.Addr().Interface().(*[]manifest.Page))
	}
	if t.Elem().Kind() == reflect.Uint8 {
		return getBytes(d, v)
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
	switch list := v.Addr().Interface().(type) {
	case *[]uint64:
		*list, err = getScalars(n, d.uint)
		return err
	case *[]int64:
		*list, err = getScalars(n, d.int)
		return err
	case *[]float64:
		*list, err = getScalars(n, d.float64)
		return err
	case *[]string:
		*list, err = getScalars(n, d.repeated)
		return err
	case *[]bool:
		*list, err = getScalars(n, d.flag)
		return err
	}
	return getElements(d, v, n)
}

// getBytes reads a slice or an array of bytes.
func getBytes(d *reader, v reflect.Value) error {
	b, err := d.shared()
	if err != nil {
		return err
	}
	t := v.Type()
	if t.Kind() == reflect.Slice {
		v.SetBytes(append([]byte{}, b...))
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
	for i := range n {
		if i == out.Len() {
			more := reflect.MakeSlice(t, min(n, 2*i), min(n, 2*i))
			reflect.Copy(more, out)
			out = more
		}
		if err := get(d, out.Index(i)); err != nil {
			return err
		}
	}
	v.Set(out)
	return nil
}

// getScalars reads n elements. Memory is taken as they come, not as they are announced.
func getScalars[E any](n int, next func() (E, error)) ([]E, error) {
	list := make([]E, 0, min(n, atOnce))
	for range n {
		e, err := next()
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
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
		name, err := d.member()
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

// memberAt finds a field by its name, first behind the one before; -1: this program does not know
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
