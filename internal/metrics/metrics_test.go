package metrics

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// scraped is /metrics of a database in use.
func scraped(t *testing.T, scopes int) string {
	t.Helper()
	m := New(scopes)
	db, err := ctxpage.Open(filepath.Join(t.TempDir(), "agent.ctx"), ctxpage.Options{Observer: m, WorkingSet: -1})
	require.NoError(t, err)
	for _, scope := range []string{"acme/secret", "acme/other"} {
		s := db.Scope(scope)
		_, err = s.Put(t.Context(), ctxpage.Artefact{ID: "secret-draft", Text: "Refunds may take longer.", Provenance: store.Scratch})
		require.NoError(t, err)
		_, err = s.Put(t.Context(), ctxpage.Artefact{ID: "secret-id", Text: "Refunds take 14 days."})
		require.NoError(t, err)
		_, err = s.Get(t.Context(), "secret-id")
		require.NoError(t, err)
		_, err = s.Assemble(t.Context(), ctxpage.Query{Text: "refunds", Budget: 1000})
		require.NoError(t, err)
		_, err = s.Get(t.Context(), "secret-missing")
		require.Error(t, err)
	}
	stats, err := db.Stats(t.Context())
	require.NoError(t, err)
	require.NoError(t, db.Close()) // the observer has heard all
	var out strings.Builder
	require.NoError(t, m.Write(&out, &State{Stats: stats, Audit: 7, Version: "v0 \"\\\n", Calls: map[string]int{"socket": 3, "stream": 0}}))
	return out.String()
}

var sample = regexp.MustCompile(`^([a-z_]+)(\{[a-z]+="(?:[^"\\]|\\.)*"(?:,[a-z]+="(?:[^"\\]|\\.)*")*\})? ([-+0-9.e]+)$`)

// families are the names and types of the metrics in a text, which must be well-formed.
func families(t *testing.T, text string) map[string]string {
	t.Helper()
	types, now := map[string]string{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if rest, is := strings.CutPrefix(line, "# HELP "); is {
			name, help, _ := strings.Cut(rest, " ")
			require.NotContains(t, types, name, "each metric stands once")
			require.NotEmpty(t, help)
			now = name
			continue
		}
		if rest, is := strings.CutPrefix(line, "# TYPE "); is {
			require.Equal(t, now, strings.Fields(rest)[0])
			types[now] = strings.Fields(rest)[1]
			continue
		}
		got := sample.FindStringSubmatch(line)
		require.NotNil(t, got, line)
		name := got[1]
		if types[now] == "histogram" {
			name = regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		}
		require.Equal(t, now, name, line)
	}
	for name, kind := range types {
		require.Regexp(t, `^ctxpage_[a-z_]+$`, name)
		require.Equal(t, kind == "counter", strings.HasSuffix(name, "_total"), name)
	}
	return types
}

// TestText: the metrics of a database in use are well-formed, count what was done, and name neither pages nor scopes.
func TestText(t *testing.T) {
	text := scraped(t, 0)
	families(t, text)
	for _, line := range []string{
		`ctxpage_build_info{version="v0 \"\\\n"} 1`,
		`ctxpage_operation_duration_seconds_count{operation="get"} 4`,
		`ctxpage_operation_duration_seconds_bucket{operation="get",le="+Inf"} 4`,
		`ctxpage_operation_errors_total{operation="get",error="not_found"} 2`,
		`ctxpage_operation_pages_total{operation="get"} 2`,
		`ctxpage_operation_bytes_total{operation="commit"} 90`,
		`ctxpage_contexts_total{tier="1",match="good"} 2`,
		`ctxpage_context_budget_ratio_count 2`,
		`ctxpage_commits_total 4`, `ctxpage_scopes 2`, `ctxpage_pages 4`,
		`ctxpage_context_left_pages_total{reason="below the provenance floor"} 2`,
		`ctxpage_calls_under_way{door="socket"} 3`, `ctxpage_calls_under_way{door="stream"} 0`,
		`ctxpage_disk_bytes{part="audit"} 7`, `ctxpage_observer_dropped_events_total 0`,
	} {
		require.Contains(t, strings.Split(text, "\n"), line, text)
	}
	require.Regexp(t, `ctxpage_audit_leaves_total [1-9]`, text)
	require.Regexp(t, `ctxpage_operation_duration_seconds_count\{operation="sync"\} [1-9]`, text)
	require.NotContains(t, text, "secret")
	require.NotContains(t, text, "acme")
	require.NotContains(t, text, "ctxpage_scope_operations_total")
}

// TestScopes: scopes are counted under digests, and as many as asked.
func TestScopes(t *testing.T) {
	text := scraped(t, 1)
	require.NotContains(t, text, "acme")
	require.Equal(t, "counter", families(t, text)["ctxpage_scope_operations_total"])
	lines := regexp.MustCompile(`ctxpage_scope_operations_total\{scope="([0-9a-f]{16}|other)"\} 4\n`).FindAllStringSubmatch(text, -1)
	require.Len(t, lines, 2, text)
	require.Equal(t, other, lines[1][1])
}

// TestObserveIsBounded: however many scopes there are, the text does not grow.
func TestObserveIsBounded(t *testing.T) {
	m := New(3)
	for i := range 10_000 {
		m.Observe(context.Background(), ops.Event{Kind: "get", Scope: fmt.Sprint(i), Took: time.Duration(i) * time.Millisecond, Dropped: 1})
		m.Observe(context.Background(), ops.Event{Kind: "assemble", Left: map[string]int{fmt.Sprint("of another store ", i): 2}})
	}
	var out strings.Builder
	require.NoError(t, m.Write(&out, &State{Audit: -1}))
	require.Equal(t, 4, strings.Count(out.String(), "ctxpage_scope_operations_total{"))
	require.Contains(t, out.String(), "ctxpage_operation_duration_seconds_bucket{operation=\"get\",le=\"0.001\"} 2\n", "1 ms is in the bucket of at most 1 ms")
	require.Contains(t, out.String(), "ctxpage_observer_dropped_events_total 10000\n")
	require.NotContains(t, out.String(), `part="audit"`)
	require.Equal(t, 1, strings.Count(out.String(), "ctxpage_context_left_pages_total{"))
	require.Contains(t, out.String(), "ctxpage_context_left_pages_total{reason=\"other\"} 20000\n")
}

// TestDashboard: each metric in the queries of the Grafana dashboard exists, and the dashboard shows each metric that an operator watches.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../docs/grafana.json")
	require.NoError(t, err)
	var board struct {
		Title, UID string
		Panels     []struct {
			Title   string
			Type    string
			Targets []struct{ Expr string }
			GridPos struct{ W, H, X, Y int }
		}
	}
	require.NoError(t, json.Unmarshal(text, &board))
	require.NotEmpty(t, board.Title)
	require.Greater(t, len(board.Panels), 8)
	scrape := scraped(t, 0)
	types := families(t, scrape)
	shown := map[string]bool{}
	word := regexp.MustCompile(`ctxpage_[a-z_]+`)
	label := regexp.MustCompile(`([a-z]+)=~?"([^"]*)"`)
	for _, p := range board.Panels {
		require.NotEmpty(t, p.Targets, p.Title)
		for _, q := range p.Targets {
			names := word.FindAllString(q.Expr, -1)
			require.NotEmpty(t, names, q.Expr)
			for _, name := range names {
				base := name
				if _, is := types[base]; !is {
					base = regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
					require.Equal(t, "histogram", types[base], "%s: %s", p.Title, q.Expr)
				}
				require.Equal(t, types[base] != "gauge", regexp.MustCompile(`(rate|increase)\(`+name+`\b`).MatchString(q.Expr), "%s: what only grows is shown as a rate: %s", p.Title, q.Expr)
				shown[base] = true
			}
			for _, l := range label.FindAllStringSubmatch(q.Expr, -1) {
				if l[1] != "instance" {
					require.Contains(t, scrape, l[1]+`="`, "%s: %s", p.Title, q.Expr)
				}
			}
		}
	}
	for name := range types {
		if !slices.Contains([]string{"ctxpage_build_info", "ctxpage_artefacts", "ctxpage_operation_pages_total", "ctxpage_checkpoints_total", "ctxpage_audit_unarchived_leaves", "ctxpage_working_set_bytes"}, name) {
			require.True(t, shown[name], "%s is on no panel", name)
		}
	}
}
