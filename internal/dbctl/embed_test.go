package dbctl

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// aModel writes a static model in which two words of different spelling mean the same.
func aModel(t *testing.T) string {
	dir := t.TempDir()
	vocab := map[string]int{"[UNK]": 0, "food": 1, "peanuts": 2, "train": 3, "allergies": 4, "allergic": 5}
	rows := [][]float32{{0, 0, 0}, {1, 0, 0}, {.9, .1, 0}, {0, 0, 1}, {.1, 1, 0}, {.1, 1, 0}}
	var data bytes.Buffer
	for _, row := range rows {
		for _, f := range row {
			require.NoError(t, binary.Write(&data, binary.LittleEndian, math.Float32bits(f)))
		}
	}
	header := must(json.Marshal(map[string]any{"embeddings": map[string]any{"dtype": "F32", "shape": []int{6, 3}, "data_offsets": []int{0, data.Len()}}}))(t)
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), append(file, data.Bytes()...), 0o600))
	tokens := must(json.Marshal(map[string]any{"normalizer": map[string]any{"type": "BertNormalizer"}, "model": map[string]any{"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocab}}))(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), tokens, 0o600))
	return dir
}

func TestEmbed(t *testing.T) {
	t.Setenv("CTXPAGE_MODEL", "")
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "a", "Allergic to peanuts")
	ok(t, "", "put", file, "acme", "b", "The train leaves at nine")
	ok(t, "", "put", file, "other", "c", "Peanuts")
	require.Contains(t, ok(t, "", "search", file, "acme", "food"), "nothing found", "the control: by words alone")

	dir := aModel(t)
	require.Contains(t, ok(t, "", "embed", file, "--model", dir, "--dry-run"), "acme: 2 pages without a vector")
	require.Contains(t, ok(t, "", "embed", file, "--model", dir, "--scope", "acme"), "acme: 2 of 2 pages embedded")
	v := asJSON(t, "", "embed", file, "--model", dir)
	require.EqualValues(t, 1, v["made"])
	require.EqualValues(t, 0, v["left"])
	require.Contains(t, ok(t, "", "embed", file, "--model", dir), "every page has a vector by static-3@")

	out := ok(t, "", "search", file, "acme", "food", "--model", dir, "--limit", "1")
	require.Contains(t, out, "Allergic to peanuts")
	require.NotContains(t, out, "train")
	trace := asJSON(t, "", "assemble", file, "acme", "food", "--model", dir)["trace"].(string)
	require.Contains(t, ok(t, "", "why", file, trace, "a"), "near in meaning: ")
	t.Setenv("CTXPAGE_MODEL", dir)
	require.Contains(t, ok(t, "", "search", file, "acme", "food", "--limit", "1"), "Allergic", "the environment names the model")
}

func TestEmbedWithAnEndpoint(t *testing.T) {
	t.Setenv("CTXPAGE_EMBED_KEY", "sk-secret")
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "a", "Allergic to peanuts")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "Bearer sk-secret", r.Header.Get("Authorization"))
		var body struct {
			Model string
			Input []string
		}
		require.NoError(t, json.NewDecoder(r.Body).Decode(&body))
		require.Equal(t, "all-minilm", body.Model)
		data := []map[string]any{}
		for i := range body.Input {
			data = append(data, map[string]any{"object": "embedding", "index": i, "embedding": []float32{1, 2}})
		}
		require.NoError(t, json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": data}))
	}))
	defer server.Close()
	require.Contains(t, ok(t, "", "embed", file, "--model", server.URL+"/v1#all-minilm"), "acme: 1 of 1 page embedded")
	for _, c := range []struct {
		model, says string
		code        int
	}{
		{"", "--model: expected", exitUsage}, {server.URL + "/v1", "behind a #", exitUsage},
		{filepath.Join(t.TempDir(), "none"), "a model is a folder with model.safetensors", exitFailed},
	} {
		r := dbctl("", "embed", file, "--model="+c.model)
		require.Equal(t, c.code, r.code, c.model)
		require.Contains(t, r.err, c.says)
		require.NotContains(t, strings.ToLower(r.err), "sk-secret")
	}
}

// TestServersFindByMeaning: what dbctl serves to other programs finds by meaning, too, and says when it could not.
func TestServersFindByMeaning(t *testing.T) {
	t.Setenv("CTXPAGE_MODEL", "")
	file, dir := filepath.Join(t.TempDir(), "agent.ctx"), aModel(t)
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "a", "Allergic to peanuts")

	s := startServe(t, file, "--stdin")
	require.NotContains(t, s.post(t, "search", `{"query":"food"}`), "Allergic", "control: by words alone")
	require.NoError(t, s.in.Close())
	s.ends(t, "standard input ended")
	s = startServe(t, file, "--stdin", "--model", dir)
	require.Contains(t, s.post(t, "search", `{"query":"food"}`), "Allergic")
	require.Contains(t, s.post(t, "assemble", `{"query":"food","budget":500}`), "Allergic")
	require.NoError(t, s.in.Close())
	s.ends(t, "standard input ended")

	ask := func(tool string, args ...string) string {
		cmd := exec.Command(os.Args[0], append([]string{"mcp", file, "--scope", "acme"}, args...)...)
		cmd.Env = append(os.Environ(), childEnv+"=1")
		host := must(mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil))(t)
		res := must(host.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"query": "food"}}))(t)
		require.NoError(t, host.Close())
		return res.Content[0].(*mcp.TextContent).Text
	}
	require.NotContains(t, ask("search"), "Allergic", "control")
	require.Contains(t, ask("search", "--model", dir), "Allergic")
	require.Contains(t, ask("assemble", "--model", dir), "Allergic")
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, tool := range []string{"search", "assemble"} {
		require.Regexp(t, `"degraded":"[^"]*embedder gone`, ask(tool, "--model", gone.URL+"/v1#gone"))
	}

	clientHome(t)
	t.Chdir(filepath.Dir(dir))
	config := []string{"mcp", "config", "cursor", file, "--scope", "acme", "--model"}
	require.Contains(t, ok(t, "", append(config, filepath.Base(dir))...), "--model="+inJSON(dir), "a client starts it from any directory")
	require.Contains(t, ok(t, "", append(config, "http://127.0.0.1:1/v1#m")...), "--model=http://127.0.0.1:1/v1#m")
	require.Equal(t, exitFailed, dbctl("", append(config, "nowhere")...).code)
	require.Equal(t, exitUsage, dbctl("", "serve", file, "--model", "http://127.0.0.1:1/v1").code)
}
