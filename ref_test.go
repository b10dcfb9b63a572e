package ctxpage_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/store"
	"pgregory.net/rapid"

	. "github.com/ctxpage/ctxpage"
)

func TestRefText(t *testing.T) {
	for text, ref := range map[string]Ref{
		"acme:policy":                {Scope: "acme", ID: "policy"},
		"acme/support:policy#3":      {Scope: "acme/support", ID: "policy", Page: 3},
		"acme:policy@2":              {Scope: "acme", ID: "policy", Version: 2},
		"acme:policy#3@2147483647":   {Scope: "acme", ID: "policy", Page: 3, Version: 2147483647},
		"a%20b:docs%2Frefund.md#1@1": {Scope: "a b", ID: "docs/refund.md", Page: 1, Version: 1},
		"a%3Ab:%231%402%25":          {Scope: "a:b", ID: "#1@2%"},
		"%C3%A4:%F0%9F%90%8C":        {Scope: "ä", ID: "🐌"},
	} {
		require.Equal(t, text, ref.String())
		got, err := ParseRef(text)
		require.NoError(t, err)
		require.Equal(t, ref, got)
	}
	for _, bad := range []string{
		"", ":", "acme", "acme:", ":x", "acme:x#", "acme:x@", "acme:x#0", "acme:x@0", "acme:x#-1", "acme:x#+1", "acme:x#01", "acme:x#1@02",
		"acme:x#1#2", "acme:x@1@2", "acme:x@1#2", "acme:x#2147483648", "acme:x@4294967296", "acme:%", "acme:%zz", "%zz:x", "acme:a:b#x", "/:x", "a//b:x",
		"acme:%00", "acme:%ff", "a%2F%2Fb:x", "acme:x# 1", "acme:" + strings.Repeat("x", store.MaxID+1),
	} {
		_, err := ParseRef(bad)
		require.ErrorIs(t, err, ErrInvalid, bad)
	}
}

func name(t *rapid.T, label string) string {
	s := rapid.StringN(1, 40, 120).Filter(func(s string) bool { return strings.ToValidUTF8(s, "") != "" }).Draw(t, label)
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return 'x'
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	return s
}

func TestRefRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var scope []string
		for range rapid.IntRange(1, 4).Draw(t, "depth") {
			n := strings.ReplaceAll(name(t, "scope"), "/", "_")
			if n == "." || n == ".." {
				n = "dot"
			}
			scope = append(scope, n)
		}
		r := Ref{
			Scope: strings.Join(scope, "/"), ID: store.Canonical(name(t, "id")), Page: rapid.IntRange(0, 1<<31-1).Draw(t, "page"),
			Version: rapid.Uint32Range(0, 1<<31-1).Draw(t, "version"),
		}
		got, err := ParseRef(r.String())
		require.NoError(t, err)
		require.Equal(t, r, got)
	})
}

// What parses, renders and parses to the same; and its rendering is plain ASCII, fit for a log or a shell.
func FuzzParseRef(f *testing.F) {
	for _, s := range []string{"acme:policy#3@2", "a%20b:docs%2Frefund.md#1@1", "a/b:x@1", "a:%23", ":", "a:b:c", "a:b#1@", "%2e:x", "a:\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRef(s)
		if err != nil {
			return
		}
		text := r.String()
		again, err := ParseRef(text)
		if err != nil || again != r {
			t.Fatalf("%q is %+v, which renders as %q and parses as %+v, %v", s, r, text, again, err)
		}
		for i := range len(text) {
			if text[i] <= ' ' || text[i] >= 0x7f {
				t.Fatalf("%q renders as %q", s, text)
			}
		}
	})
}
