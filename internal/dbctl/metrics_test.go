package dbctl

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/system"
)

// scrape gets a URL with a bearer token.
func scrape(t *testing.T, url, token string, how ...func(*http.Request)) (status int, body string) {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for _, f := range how {
		f(req)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res := must(client.Do(req))(t)
	defer res.Body.Close()
	b := must(io.ReadAll(res.Body))(t)
	if res.StatusCode == http.StatusOK {
		require.Equal(t, "text/plain; version=0.0.4; charset=utf-8", res.Header.Get("Content-Type"))
	}
	return res.StatusCode, string(b)
}

// waitFor scrapes until the observer, which runs beside the calls, has counted something.
func waitFor(t *testing.T, url, token, line string) string {
	t.Helper()
	for {
		status, text := scrape(t, url, token)
		require.Equal(t, http.StatusOK, status, text)
		if strings.Contains(text, line+"\n") {
			return text
		}
		require.NoError(t, t.Context().Err())
	}
}

// TestMetricsOfUI: the inspector serves metrics beside its pages, whose link works once, and its own door does not open them.
func TestMetricsOfUI(t *testing.T) {
	file := newDB(t)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600))
	i := startUI(t, file, "--metrics", "127.0.0.1:0", "--metrics-token", token)
	status, text := scrape(t, i.metrics, "0123456789abcdef")
	require.Equal(t, http.StatusOK, status, text)
	require.Regexp(t, `ctxpage_artefacts [1-9]`, text)
	status, _ = scrape(t, i.metrics, "")
	require.Equal(t, http.StatusUnauthorized, status)
	status, _ = i.get("/metrics")
	require.Equal(t, http.StatusNotFound, status)
	interrupt(t, i.cmd)
}

// TestMetrics: dbctl serve counts what callers do, at an address of its own, for who has the token of the file.
func TestMetrics(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "agent.ctx")
	s := startServe(t, file, "--metrics", "127.0.0.1:0", "--stdin")
	secret, err := os.ReadFile(file + ".metrics-token")
	require.NoError(t, err, "it is made")
	st := must(os.Stat(file + ".metrics-token"))(t)
	require.True(t, !system.Modes || st.Mode().Perm() == 0o600, st.Mode())
	token := strings.TrimSpace(string(secret))
	require.Contains(t, waitFor(t, s.Metrics, token, `ctxpage_calls_under_way{door="socket"} 0`), `ctxpage_calls_under_way{door="stream"} 0`)
	s.post(t, "put", `{"writes":[{"id":"secret-id","text":"Refunds take 14 days."}]}`, "Ctxpage-Scope: acme/secret", "Ctxpage-Role: host")
	s.post(t, "assemble", `{"query":"refunds","budget":1000}`, "Ctxpage-Scope: acme/secret")

	text := waitFor(t, s.Metrics, token, `ctxpage_operation_duration_seconds_count{operation="assemble"} 1`)
	require.Contains(t, text, `ctxpage_operation_duration_seconds_count{operation="commit"} 1`)
	require.Contains(t, text, "ctxpage_pages 1\n")
	require.Regexp(t, `ctxpage_disk_bytes\{part="audit"\} [0-9]`, text)
	require.NotContains(t, text, "secret")
	for _, bad := range []string{"", "wrong", token + "0", strings.Repeat("x", 10_000)} {
		status, text := scrape(t, s.Metrics, bad)
		require.Equal(t, http.StatusUnauthorized, status)
		require.NotContains(t, text, "ctxpage_pages")
	}
	status, _ := scrape(t, s.Metrics, token, func(r *http.Request) { r.Method = http.MethodPost })
	require.Equal(t, http.StatusMethodNotAllowed, status)
	status, _ = scrape(t, strings.TrimSuffix(s.Metrics, "/metrics")+"/v1/status", token)
	require.Equal(t, http.StatusNotFound, status, "the token reads nothing else")
	require.NoError(t, s.in.Close())
	s.ends(t, "its input ended")

	s = startServe(t, file, "--metrics", "127.0.0.1:0", "--metrics-scopes", "5", "--stdin")
	s.post(t, "assemble", `{"query":"refunds","budget":1000}`, "Ctxpage-Scope: acme/secret")
	text = waitFor(t, s.Metrics, token, `ctxpage_operation_duration_seconds_count{operation="assemble"} 1`) // the token is kept
	require.Regexp(t, `ctxpage_scope_operations_total\{scope="[0-9a-f]{16}"\} 1`, text)
	require.NotContains(t, text, "secret")
	require.NoError(t, s.in.Close())
	s.ends(t, "its input ended")
}

// TestMetricsFlags: what cannot be served is refused.
func TestMetricsFlags(t *testing.T) {
	dir := t.TempDir()
	file, short, open := newDB(t), filepath.Join(dir, "short"), filepath.Join(dir, "open")
	require.NoError(t, os.WriteFile(short, []byte("short\n"), 0o600))
	require.NoError(t, os.WriteFile(open, []byte(strings.Repeat("x", 32)), 0o644))
	for _, c := range []struct{ want, args string }{
		{"give its address", "--metrics-scopes 3"}, {"give its address", "--metrics-token " + short}, {"expected 0 to 1000", "--metrics 127.0.0.1:0 --metrics-scopes 1001"},
		{"expected a loopback address", "--metrics 0.0.0.0:0"}, {"at least 16 bytes", "--metrics 127.0.0.1:0 --metrics-token " + short},
		{"chmod 600", "--metrics 127.0.0.1:0 --metrics-token " + open},
	} {
		if c.want == "chmod 600" && !system.Modes {
			continue
		}
		for _, verb := range []string{"serve", "ui"} {
			r := dbctl("", append([]string{verb, file}, strings.Fields(c.args)...)...)
			require.Equal(t, exitUsage, r.code, "%s %s: %s%s", verb, c.args, r.out, r.err)
			require.Contains(t, r.err, c.want)
		}
	}
}
