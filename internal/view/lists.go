package view

import (
	"reflect"
	"strings"
)

// FillLists makes the nil lists of a report empty, at any depth: in JSON a list is [] or absent, never null. v points to the report.
func FillLists(v any) { fillLists(reflect.ValueOf(v)) }

func fillLists(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fillLists(v.Elem())
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		if v.IsNil() && v.CanSet() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
		for i := range v.Len() {
			fillLists(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			empty := f.Type.Kind() == reflect.Slice && v.Field(i).IsNil()
			if f.IsExported() && !(empty && strings.Contains(f.Tag.Get("json"), ",omit")) {
				fillLists(v.Field(i))
			}
		}
	}
}
