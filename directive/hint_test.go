package directive_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/directive"
)

// An input that is a directive but for its case passes as before, and the decision says how it is written.
func TestHint(t *testing.T) {
	for in, want := range map[string]string{
		"Use zerolog": "use zerolog", "PROHIBIT  peanuts": "prohibit peanuts", "Remove policy docker": "remove policy docker", " use docker": "use docker",
		"Use podman Instead Of docker": "use podman instead of docker", "Clear State": "clear state", "Set premise to brief": "set premise to brief",
		"Useful things": "", "hello": "", "Used docker": "", "Use docker\nand more": "", "": "",
	} {
		s, d := directive.Step(directive.Session{}, in)
		require.Equal(t, directive.Passthrough, d.Kind, in)
		require.Equal(t, want, d.Hint, in)
		require.Equal(t, 0, s.State.Len(), in)
		require.Equal(t, string(directive.Decision{}.AppendJSON(nil)), string(d.AppendJSON(nil)), "the JSON form is what it was")
		if want != "" {
			_, d = directive.Step(directive.Session{}, want)
			require.NotEqual(t, directive.Passthrough, d.Kind, want)
			require.Empty(t, d.Hint)
		}
	}
}
