package ctxpage

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	_ = flag.Set("rapid.checks", "30") // the random tests here open databases; .ci/run makes 100 of each
	dbtest.CollectLess()
	code := dbtest.InMemory(m.Run)
	if err := dbtest.Leaks(func() error { return goleak.Find() }); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
