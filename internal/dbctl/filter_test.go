package dbctl

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFilters(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "agent.ctx")
	for _, c := range []struct {
		args string
		code int
		says string // on either stream
		not  string // not on standard output
	}{
		{"init F", exitOK, "made", ""},
		{"put F acme a/1 refund-one --tag open --subject Ada --meta rank=2", exitOK, "wrote", ""},
		{"put F acme a/2 refund-one --tag closed --meta rank=10", exitOK, "wrote", ""},
		{"ls F acme --tag open", exitOK, "a/1", "a/2"},
		{"ls F acme --any-tag open --any-tag closed --newest", exitOK, "a/1", "never"},
		{"ls F acme --meta rank>9", exitOK, "a/2", "a/1"},
		{"ls F acme --meta rank!=10", exitOK, "a/1", "a/2"},
		{"ls F acme --meta !rank", exitOK, "none", "a/1"},
		{"ls F acme --since 1d --only-kind fact", exitOK, "a/1", "none"},
		{"ls F acme --written-until 2001-01-01", exitOK, "none", "a/1"},
		{"ls F acme --newest --limit 1", exitOK, "a/2", "a/1"},
		{"search F acme refund --subject Ada", exitOK, "acme:a%2F1", "acme:a%2F2"},
		{"search F acme refund --id-prefix a/2", exitOK, "acme:a%2F2", "acme:a%2F1"},
		{"search F acme refund --subject Bob", exitOK, "nothing found", "a%2F1"},
		{"assemble F acme refund --meta rank<=2", exitOK, "excluded by the filter", "a%2F2"},
		{"ls F acme --meta =x", exitUsage, "expected a key, or a key, an operator", ""},
		{"ls F acme --meta rank=>9", exitUsage, "expected one of the operators", ""},
		{"ls F acme --meta rank==9", exitUsage, "expected one of the operators", ""},
		{"ls F acme --meta from=<ann>", exitOK, "none", "a/1"},
		{"ls F acme --since yesterday", exitUsage, "a duration ago like 7d", ""},
		{"ls F acme --since 2026-02-01 --until 2026-01-01", exitUsage, "filter.until", ""},
		{"ls F acme --only-kind nonsense", exitUsage, "one of", ""},
		{"ls F --newest", exitUsage, "needs a scope", ""},
		{"ls F acme --newest --cursor bHM6YS8x", exitUsage, "a cursor that this listing printed", ""},
	} {
		r := dbctl("", strings.Fields(strings.ReplaceAll(c.args, "F", file))...)
		require.Equal(t, c.code, r.code, "dbctl %s\n%s%s", c.args, r.out, r.err)
		require.Contains(t, r.out+r.err, c.says, "dbctl %s", c.args)
		if c.not != "" {
			require.NotContains(t, r.out, c.not, "dbctl %s", c.args)
		}
	}
}

// The audit shows what a read was restricted to, not only how much was excluded.
func TestManifestShowsTheFilter(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "a", "refunds", "--tag", "open")
	trace := asJSON(t, "", "assemble", file, "acme", "refunds", "--tag", "closed")["trace"].(string)
	require.Regexp(t, `(?m)^filter +\{"tags_all":\["closed"\]\}$`, ok(t, "", "manifest", "show", file, trace))
	trace = asJSON(t, "", "assemble", file, "acme", "refunds")["trace"].(string)
	require.NotContains(t, ok(t, "", "manifest", "show", file, trace), "filter", "control: nothing was restricted")
}
