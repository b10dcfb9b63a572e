package mcpserver

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A client of an older revision gets a session: without one it could not be asked in the middle of a call.
func TestOlderClientsGetASession(t *testing.T) {
	t.Parallel()
	s := must(New(Config{DB: memory(t), Scope: "acme"}))(t)
	srv := httptest.NewServer(Handler(s, ""))
	defer srv.Close()
	body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}`
	req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+HTTPPath, strings.NewReader(body)))(t)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	res := must(http.DefaultClient.Do(req))(t)
	defer res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.NotEmpty(t, res.Header.Get("Mcp-Session-Id"))
}
