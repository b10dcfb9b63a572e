package systest_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/systest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// Short names for what other tests of the whole use too.
var (
	openOver    = systest.OpenOver
	openTest    = systest.OpenTest
	openChecked = systest.OpenChecked
	storeOf     = systest.StoreOf
	newID       = systest.NewID
	hitsOf      = systest.HitsOf
	textOf      = systest.TextOf
	filesHave   = systest.FilesHave
	together    = systest.Together
)

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

var ctx = context.Background()
