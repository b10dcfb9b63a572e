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
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

func TestGC(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "a", "zebra one")
	trace := asJSON(t, "", "assemble", file, "acme", "zebra")["trace"].(string)
	ok(t, "", "put", file, "acme", "a", "zebra two")
	ok(t, "", "put", file, "acme", "old", "violin", "--expires", "2020-01-01")

	require.Contains(t, ok(t, "", "gc", file), "dropped 0 versions", "after 30 days")
	dry := ok(t, "", "gc", file, "--keep-for", "0s", "--dry-run")
	require.Contains(t, dry, "would drop 1 version, 1 page, 9 bytes of text")
	require.Contains(t, dry, "expired, which was not asked for")
	require.Contains(t, ok(t, "", "replay", file, trace), "zebra one", "a dry run drops nothing")
	require.Contains(t, ok(t, "", "gc", file, "--keep-for", "0s", "--keep-versions", "2"), "among the newest versions")
	require.Contains(t, ok(t, "", "gc", file, "--keep-for", "0s", "--scope", "other"), "dropped 0 versions")
	done := ok(t, "", "gc", file, "--keep-for", "0s", "--expired", "--by", "ann")
	require.Contains(t, done, "dropped 2 versions")
	require.Contains(t, done, "dropped acme:a@1\ndropped acme:old@1\n")

	r := dbctl("", "get", file, "acme", "a", "--version", "1", "--json")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, `"kind":"gone"`)
	require.Contains(t, r.err, "acme:a@1, dropped by gc ")
	r = dbctl("", "replay", file, trace)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "acme:a#1@1, dropped by gc ")
	require.Contains(t, ok(t, "", "why", file, trace, "a"), "fit: in")
	require.Contains(t, ok(t, "", "history", file, "acme", "a"), "gone")
	ls := ok(t, "", "manifest", "ls", file, "--type", "gc")
	require.Contains(t, ls, "gc")
	require.Contains(t, ok(t, "", "manifest", "show", file, asJSON(t, "", "manifest", "ls", file, "--type", "gc")["leaves"].([]any)[0].(map[string]any)["trace"].(string)), "version 1, dropped")
	require.Contains(t, ok(t, "", "check", file), "no damage found")

	for _, bad := range [][]string{{"--keep-for", "-1h"}, {"--keep-versions", "-1"}, {"--scope", "/"}} {
		require.Equal(t, exitUsage, dbctl("", append([]string{"gc", file}, bad...)...).code, bad)
	}
}

func TestCompact(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "a", "kettle")
	plan := asJSON(t, "", "compact", file, "--dry-run")
	require.Equal(t, true, plan["dry_run"])
	require.Contains(t, ok(t, "", "compact", file, "--dry-run"), "compacted it would have about")
	rep := asJSON(t, "", "compact", file)
	require.LessOrEqual(t, rep["after"], rep["before"])
	require.Contains(t, ok(t, "", "compact", file), "the file has")
	require.Contains(t, ok(t, "", "get", file, "acme", "a"), "kettle")
	require.Equal(t, exitFailed, dbctl("", "compact", filepath.Join(t.TempDir(), "none.ctx")).code)
}

func TestQuota(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	require.Contains(t, ok(t, "", "quota", "show", file), "no quota is set")
	require.Contains(t, ok(t, "", "quota", "set", file, "acme", "--bytes", "1K", "--dry-run"), "acme: 1024 bytes, any pages, any held")
	require.Contains(t, ok(t, "", "quota", "show", file), "no quota is set", "a dry run stores nothing")
	ok(t, "", "quota", "set", file, "acme", "--bytes", "1K")
	require.Equal(t, "acme: 1024 bytes, 1 pages, any held\n", ok(t, "", "quota", "set", file, "acme", "--pages", "1"))
	ok(t, "", "put", file, "acme/support", "a", "kettle")
	r := dbctl("", "put", file, "acme/support", "b", "pan", "--json")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, `"kind":"over quota"`)
	require.Contains(t, r.err, "dbctl gc FILE")
	require.Contains(t, ok(t, "", "quota", "show", file, "acme/support"), "acme")
	require.Contains(t, ok(t, "", "quota", "show", file, "other"), "no quota is set")
	require.Regexp(t, `acme/support +fact +1 +6 `, ok(t, "", "stat", file, "--space"))
	require.NotContains(t, ok(t, "", "stat", file), "acme/support")
	ok(t, "", "quota", "set", file, "acme", "--pages", "0", "--bytes", "0")
	ok(t, "", "put", file, "acme/support", "b", "pan")
	for _, bad := range [][]string{{"set", file, "acme"}, {"set", file, "acme", "--bytes", "much"}, {"set", file, "acme", "--pages", "-1"}, {"set", file, "a//b", "--pages", "1"}, {"show", file, "a//b"}} {
		require.Equal(t, exitUsage, dbctl("", append([]string{"quota"}, bad...)...).code, bad)
	}
}

func TestRetention(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	require.Contains(t, ok(t, "", "retention", "show", file), "everything is kept")
	db := must(ctxpage.Open(file, ctxpage.Options{Exclusive: true, Clock: func() time.Time { return time.Now().Add(-100 * 24 * time.Hour) }}))(t)
	must(db.Scope("acme").Put(t.Context(), ctxpage.Artefact{ID: "old", Kind: store.KindScratch, Text: "kettle"}))(t)
	must(db.Scope("acme").Session("talk").Append(t.Context(), ctxpage.Turn{Role: "user", Text: "what of it?"}))(t)
	require.NoError(t, db.Close())

	require.Contains(t, ok(t, "", "retention", "set", file, "acme", "--kind", "scratch=30d", "--held", "14d", "--dry-run"), "acme: scratch 30d, held 14d")
	require.Contains(t, ok(t, "", "retention", "show", file), "everything is kept", "a dry run stores nothing")
	ok(t, "", "retention", "set", file, "acme", "--kind", "scratch=30d", "--held", "14d")
	ok(t, "", "retention", "set", file, "acme", "--held", "inherit", "--versions", "8w", "--keep-versions", "2")
	ok(t, "", "retention", "set", file, "--default", "--decided", "30d")
	require.Equal(t, "(whole database): decided 30d\nacme: scratch 30d, versions 56d, keep 2 versions\n", ok(t, "", "retention", "show", file))
	e := asJSON(t, "", "retention", "show", file, "acme/support")
	require.Equal(t, map[string]any{"age": "30d", "from": ""}, e["decided"])
	require.Contains(t, ok(t, "", "retention", "show", file, "acme"), "no policy")

	require.Contains(t, ok(t, "", "retention", "run", file, "--dry-run"), "scratch")
	require.Contains(t, ok(t, "", "get", file, "acme", "old"), "kettle")
	rep := asJSON(t, "", "retention", "run", file, "--by", "ann")
	require.Len(t, rep["items"], 1)
	require.NotEqual(t, exitOK, dbctl("", "get", file, "acme", "old").code)
	require.Contains(t, ok(t, "", "session", "rm", file, "acme", "talk", "--dry-run"), "would remove 1 turn")
	require.Contains(t, ok(t, "", "session", "rm", file, "acme", "talk"), "removed 1 turn")
	require.Equal(t, exitFailed, dbctl("", "session", "rm", file, "acme", "talk").code)
	require.Contains(t, ok(t, "", "review", "purge", file, "--by", "ann"), "nothing matches")
	require.Contains(t, ok(t, "", "retention", "set", file, "acme", "--clear"), "no policy")
	for _, bad := range [][]string{
		{"set", file}, {"set", file, "acme", "--default", "--held", "1d"}, {"set", file, "acme", "--kind", "thing=3d"}, {"set", file, "acme", "--kind", "fact"},
		{"set", file, "acme", "--held", "soon"}, {"set", file, "acme", "--keep-versions", "x"}, {"show", file, "a//b"},
	} {
		require.Equal(t, exitUsage, dbctl("", append([]string{"retention"}, bad...)...).code, bad)
	}
}

// A text that is damaged in the file costs that text: the verbs go on, check lists it, salvage copies the rest.
func TestDamagedText(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "a", "the first text")
	ok(t, "", "put", file, "acme", "b", "the second text")
	require.Contains(t, ok(t, "", "check", file), "no damage found")
	b := must(os.ReadFile(file))(t)
	require.Contains(t, string(b), "the second text")
	require.NoError(t, os.WriteFile(file, bytes.ReplaceAll(b, []byte("the second text"), []byte("the sacond text")), 0o600))

	require.Contains(t, ok(t, "", "get", file, "acme", "a"), "the first text")
	r := dbctl("", "get", file, "acme", "b")
	require.Equal(t, exitDamaged, r.code)
	require.NotContains(t, r.out+r.err, "sacond")
	require.Contains(t, r.err, "dbctl salvage")
	require.NotContains(t, ok(t, "", "search", file, "acme", "text"), "sacond")
	require.Contains(t, ok(t, "", "assemble", file, "acme", "text"), "the first text")
	ok(t, "", "put", file, "acme", "c", "the third text")
	ok(t, "", "stat", file)
	r = dbctl("", "check", file)
	require.Equal(t, exitDamaged, r.code, r.out+r.err)
	require.Contains(t, r.out, "content 2")

	saved := filepath.Join(t.TempDir(), "saved.ctx")
	require.Contains(t, ok(t, "", "salvage", file, saved, "--by", "ann"), "nothing is lost", "the log still has it")
	require.Contains(t, ok(t, "", "get", saved, "acme", "b"), "the second text")
	require.Equal(t, exitFailed, dbctl("", "salvage", file, saved).code, "there is one already")

	logs := must(filepath.Glob(file + "-wal/*"))(t)
	for _, name := range logs {
		b := must(os.ReadFile(name))(t)
		require.NoError(t, os.WriteFile(name, bytes.ReplaceAll(b, []byte("the second text"), []byte("the sacond text")), 0o600))
	}
	saved = filepath.Join(t.TempDir(), "less.ctx")
	r = dbctl("", "salvage", file, saved)
	require.Equal(t, exitDamaged, r.code, r.out+r.err)
	require.Contains(t, r.out, "copied 2 artefacts")
	require.Contains(t, r.out, "acme:b@1")
	require.Contains(t, ok(t, "", "get", saved, "acme", "c"), "the third text")
	require.Contains(t, ok(t, "", "check", saved), "no damage found")
}

// TestHealth: each finding has a count, an example and the command that mends it, and that command does.
func TestHealth(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "one", "Refunds are made within thirty days of the purchase.")
	ok(t, "", "put", file, "acme", "two", "Refunds are made within thirty days of the purchase.")
	ok(t, "", "put", file, "acme", "ann-1", "Ann lives in Oslo.", "--subject", "ann", "--meta", "key=city")
	ok(t, "", "put", file, "acme", "ann-2", "Ann lives in Bergen.", "--subject", "ann", "--meta", "key=city")
	ok(t, "", "put", file, "acme", "old", "a notice", "--expires", "2020-01-01")
	ok(t, "", "put", file, "other", "two", "not looked at")

	out := ok(t, "", "health", file, "acme")
	require.Contains(t, out, "acme: 5 artefacts")
	require.Contains(t, out, "1 exact duplicate")
	require.Contains(t, out, "mend: dbctl rm ")
	v := asJSON(t, "", "health", file, "acme", "--examples", "1")
	counts := map[string]any{}
	for _, f := range v["findings"].([]any) {
		finding := f.(map[string]any)
		counts[finding["what"].(string)] = finding["count"]
	}
	require.EqualValues(t, 1, counts["contradiction"])
	require.EqualValues(t, 1, counts["expired"])

	ok(t, "", "rm", file, "acme", "two")
	require.Contains(t, ok(t, "", "health", file, "acme"), "0 exact duplicate")
	for _, args := range [][]string{{"--examples", "0"}, {"--assemblies", "0"}} {
		require.Equal(t, exitUsage, dbctl("", append([]string{"health", file, "acme"}, args...)...).code)
	}
}

// TestHealthMends: the commands that a report prints work as they are when a shell gets them, and afterwards nothing is found.
func TestHealthMends(t *testing.T) {
	dbtest.NeedsPosix(t, "a shell that runs the command it is shown")
	file := filepath.Join(t.TempDir(), "the agent's.ctx")
	const text = "Refunds are made within thirty days of the purchase, to the card that was charged"
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "one", text)
	ok(t, "", "put", file, "acme", "two $HOME", text)
	ok(t, "", "put", file, "acme", "three; it's", "Policy:  "+text+"!")
	ok(t, "", "put", file, "acme", "ann-1", "Ann lives in Oslo.", "--subject", "ann", "--meta", "key=city")
	ok(t, "", "put", file, "acme", "ann-2", "Ann lives in Bergen.", "--subject", "ann", "--meta", "key=city")
	ok(t, "", "put", file, "acme", "notice@2", "a notice", "--expires", "2020-01-01")
	ok(t, "", "put", "--", file, "acme", "-x", "an old rule")
	ok(t, "", "put", file, "acme", "rule", "a new rule", "--supersedes=-x")
	ok(t, "", "put", file, "acme", "base", "a base")
	ok(t, "", "put", file, "acme", "child", "made of it", "--from", "base")
	ok(t, "", "rm", file, "acme", "base")
	time.Sleep(2 * time.Millisecond)
	ok(t, "", "assemble", file, "acme", "refund rule Oslo Bergen", "--budget", "120")

	found := regexp.MustCompile(`(?m)^([1-9]\d*) (.*)\n(?:    .*\n)*?    it .*; mend: (dbctl rm .*)$`)
	all := found.FindAllStringSubmatch(ok(t, "", "health", file, "acme"), -1)
	var kinds []string
	for _, f := range all {
		kinds = append(kinds, f[2])
	}
	require.Equal(t, []string{"exact duplicate", "near duplicate", "contradiction", "never served", "expired", "superseded", "orphan"}, kinds)
	for range all { // one kind after the other: what one command deletes another would not find
		f := found.FindStringSubmatch(ok(t, "", "health", file, "acme"))
		if f == nil {
			break
		}
		sh := exec.Command("sh", "-c", `dbctl() { "$SELF" "$@"; }; `+f[3])
		sh.Env = append(os.Environ(), childEnv+"=1", "SELF="+os.Args[0])
		said, err := sh.CombinedOutput()
		require.NoError(t, err, "%s: %s", f[3], said)
	}
	require.Nil(t, found.FindStringSubmatch(ok(t, "", "health", file, "acme")))
}

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

// After an import refresh sees what is new, changed and gone, in this scope or in all.
func TestRefresh(t *testing.T) {
	dir, file := aFolder(t), newDB(t)
	ok(t, "", "import", file, "acme/docs", dir, "--max-size", "4000", "--prefix", "shop/")
	only := func(v map[string]any) map[string]any {
		for _, s := range v["scopes"].([]any) {
			if s := s.(map[string]any); s["scope"] == "acme/docs" {
				return s
			}
		}
		require.Fail(t, "no report of acme/docs")
		return nil
	}
	v := only(asJSON(t, "", "refresh", file))
	require.Equal(t, []any{7.0, 7.0}, []any{v["sources"], v["unchanged"]})

	write(t, dir, "docs/policy.md", "Return within 14 days, in the heliotrope box.\n")
	write(t, dir, "docs/new.md", "A new page.\n")
	write(t, dir, "docs/new.tmp", "ignored\n")
	require.NoError(t, os.Remove(filepath.Join(dir, "src/main.txt")))
	lsn := asJSON(t, "", "stat", file)["lsn"]
	for _, args := range [][]string{{"refresh", file, "acme/docs", "--dry-run"}, {"refresh", file, "acme/docs"}} {
		v = only(asJSON(t, "", args...))
		require.Equal(t, []any{"shop/docs/policy.md"}, v["changed"])
		require.Equal(t, []any{"shop/docs/new.md"}, v["new"])
		require.Equal(t, []any{"shop/src/main.txt"}, v["vanished"])
		require.Empty(t, v["deleted"])
		if len(args) == 4 {
			require.Equal(t, lsn, asJSON(t, "", "stat", file)["lsn"], "a dry run writes nothing")
		}
	}
	require.Contains(t, ok(t, "", "search", file, "acme/docs", "heliotrope"), "policy.md#1@2")
	out := ok(t, "", "refresh", file)
	require.Contains(t, out, "1 vanished, left out until the file is back\n    shop/src/main.txt\n")
	require.Contains(t, ok(t, "", "refresh", file, "acme/docs", "--delete"), "1 deleted\n    shop/src/main.txt\n")
	require.NotContains(t, imported(t, file), "shop/src/main.txt")
	require.NotContains(t, dbctl("", "refresh", file, "--progress").out, "%")

	require.Equal(t, exitFailed, dbctl("", "refresh", file, "acme/docs", "--no-roots").code)
	require.Equal(t, exitOK, dbctl("", "refresh", file, "acme/docs", "--no-roots", "--root", dir).code)
	require.Equal(t, exitUsage, dbctl("", "refresh", file, "--forget", dir).code)
	require.Equal(t, exitUsage, dbctl("", "refresh", file, "acme/docs", "--prefix", "x").code)
	require.Equal(t, exitFailed, dbctl("", "refresh", file, "acme/docs", "--forget", dir).code, "with another prefix it is not known")
	ok(t, "", "refresh", file, "acme/docs", "--forget", dir, "--prefix", "shop/")
	write(t, dir, "docs/newer.md", "A newer page.\n")
	require.Empty(t, only(asJSON(t, "", "refresh", file))["new"])
	ok(t, "", "check", file)
}
