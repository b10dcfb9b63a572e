package dbtest

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Fill sets all exported fields below v, a pointer, to values that are not zero and differ from each other where their type
// allows it: enumerations get 1, slices and maps one entry, times whole microseconds in UTC. Fields that own names by
// "Struct.Field" it leaves alone.
func Fill(v any, leave ...string) {
	f := filler{leave: map[string]bool{}}
	for _, name := range leave {
		f.leave[name] = true
	}
	f.set(reflect.ValueOf(v).Elem(), "value")
}

type filler struct {
	leave map[string]bool
	n     int64
}

func (f *filler) set(v reflect.Value, name string) {
	f.n++
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.UnixMicro(1_700_000_000_000_000 + f.n).UTC()))
		return
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if field.IsExported() && !f.leave[v.Type().Name()+"."+field.Name] {
				f.set(v.Field(i), field.Name)
			}
		}
		return
	case v.Kind() == reflect.Uint8:
		v.SetUint(1)
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("%s-%d", strings.ToLower(name), f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(f.n)
	case reflect.Uint, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.n))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1 / float64(f.n+1))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.set(v.Elem(), name)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.set(v.Index(0), name)
	case reflect.Array:
		for i := range v.Len() {
			f.set(v.Index(i), name)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.set(key, name)
		f.set(value, name)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	default:
		panic("filled: a field of type " + v.Type().String())
	}
}
