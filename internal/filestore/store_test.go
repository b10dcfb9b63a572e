package filestore

import (
	"reflect"
	"testing"

	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// TestStoreHidesItsEngine: a Store has the methods of store.Store, the call of those who follow commits without a goroutine, and a look
// inside for tests of this module. Nobody else reaches the log, the tree or what is visible.
func TestStoreHidesItsEngine(t *testing.T) {
	seam, is := reflect.TypeFor[store.Store](), reflect.TypeFor[*Store]()
	require.True(t, is.Implements(seam))
	for i := range is.NumMethod() {
		name := is.Method(i).Name
		if _, ok := seam.MethodByName(name); !ok && name != "AfterTold" && name != "Peek" {
			t.Errorf("method %s is not one of store.Store", name)
		}
	}
	for i := range is.Elem().NumField() {
		if f := is.Elem().Field(i); f.IsExported() {
			t.Errorf("field %s is exported", f.Name)
		}
	}
}
