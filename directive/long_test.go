package directive_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/directivetext"
)

// TestLongInputs: whoever types a megabyte keeps nobody waiting for long, or the machine is slow: then a sixteenth of it takes about
// a sixteenth. What looks at the whole text for each rune takes minutes for one of these, and its time grows with the square.
func TestLongInputs(t *testing.T) {
	takes := func(in string) time.Duration {
		start := time.Now()
		directive.Step(directive.Session{}, in)
		directivetext.IsAnswer(in)
		return time.Since(start)
	}
	for _, s := range []string{"\uFFFD", "\xff", "\u0327\u0301", "e\u0301", ".\u03a3'", "\u0130", "J\u030c", "the ", "dont ", "`"} {
		in := "use a" + strings.Repeat(s, 1<<20/len(s))
		if took := takes(in); took > 20*time.Second && took > 64*takes("use a"+strings.Repeat(s, 1<<16/len(s))) {
			t.Errorf("%+q: %v", s, took)
		}
	}
}
