package dbctl

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/fields.txt anew; read the difference before committing it")

// The fields of every verb's JSON. A field may be added; one that goes or changes its name breaks scripts.
func TestJSONFields(t *testing.T) {
	file := newDB(t)
	dir := aFolder(t)
	ok(t, "", "put", file, "acme/support", "old", "before")
	ok(t, "", "put", file, "acme/support", "everything", "--ttl", "1h", "--group", "g", "--seq", "2", "--subject", "lee", "--role", "user",
		"--tag", "a", "--meta", "k=v", "--pin", "--from", "acme/support:note", "--supersedes", "old", "--as-of", "2026-01-01", "--source", "page:note")
	ok(t, "", "put", file, "acme/support", "expired", "refund refund", "--expires", "2020-01-01")
	ok(t, "", "put", file, "acme/support", "gone", "x")
	ok(t, "", "rm", file, "acme/support", "gone")
	var got strings.Builder
	pin := func(name, stdin string, args ...string) map[string]any {
		v := asJSON(t, stdin, args...)
		var shown []string
		for _, k := range keys(v) {
			if data.MatchString(k) || depends.MatchString(k) {
				continue
			}
			shown = append(shown, k)
		}
		fmt.Fprintf(&got, "%s: %s\n", name, strings.Join(shown, " "))
		return v
	}
	tmp := t.TempDir()
	pin("init", "", "init", filepath.Join(tmp, "new.ctx"))
	pin("put", "", "put", file, "acme/support", "p", "x")
	pin("get", "", "get", file, "acme/support", "everything")
	pin("ls", "", "ls", file, "acme/support", "--limit", "1")
	pin("ls scopes", "", "ls", file, "--limit", "1")
	pin("history", "", "history", file, "acme/support", "gone")
	pin("search", "", "search", file, "acme/support", "refunds")
	pin("import", "", "import", file, "acme/docs", dir)
	pin("refresh", "", "refresh", file, "acme/docs", "--dry-run")
	first := pin("assemble", "", "assemble", file, "acme/support", "refunds")["trace"].(string)
	pin("assemble request", "", "assemble", file, "acme/support", "refunds", "--format", "openai")
	second := asJSON(t, "", "assemble", file, "acme/docs", "how are refunds made", "--budget", "400")["trace"].(string)
	pin("commit", "answer", "commit", file, "acme/support", "--trace", first, "--confidence", "0.9", "--by", "c", "--note", "n")
	held := pin("commit held", "answer", "commit", file, "acme/support", "--trace", first, "--id", "held", "--confidence", "0.1", "--by", "c", "--note", "n")
	pin("rollback", "", "rollback", file, "acme/support", "--trace", first)
	pin("review ls", "", "review", "ls", file)
	pin("review show", "", "review", "show", file, held["batch"].(string))
	pin("review approve all", "", "review", "approve", file, "--all", "--by", "ann", "--dry-run")
	pin("review approve", "", "review", "approve", file, held["batch"].(string), "--by", "ann")
	clientHome(t)
	pin("setup", "", "setup", "cursor", file, "--scope", "acme", "--dry-run")
	pin("mcp config", "", "mcp", "config", "cursor", file, "--scope", "acme")
	pin("hook", `{"session_id":"s","hook_event_name":"UserPromptSubmit","prompt":"hello"}`, "hook", file, "--scope", "acme", "--dry-run")
	pin("manifest ls", "", "manifest", "ls", file, "--limit", "30")
	pin("manifest show", "", "manifest", "show", file, second)
	head := pin("manifest head", "", "manifest", "head", file)["head"].(string)
	pin("manifest prove", "", "manifest", "prove", file, "0")
	pin("manifest prove from", "", "manifest", "prove", file, "--from", head)
	pin("manifest verify", "", "manifest", "verify", file, "--head", head)
	pin("why", "", "why", file, first, "refund-policy")
	pin("replay", "", "replay", file, first)
	pin("diff", "", "diff", file, first, second)
	pin("stat", "", "stat", file)
	pin("check", "", "check", file)
	pin("backup", "", "backup", file, filepath.Join(tmp, "b.ctx"))
	pin("restore", "", "restore", filepath.Join(tmp, "b.ctx"), filepath.Join(tmp, "r.ctx"))
	pin("salvage", "", "salvage", filepath.Join(tmp, "b.ctx"), filepath.Join(tmp, "s.ctx"))
	pin("rm", "", "rm", file, "acme/support", "p")
	pin("gc", "", "gc", file, "--keep-for", "0s")
	pin("erase", "", "erase", file, "acme/support:everything", "--by", "ann", "--reason", "r", "--receipt", filepath.Join(tmp, "r.json"))
	pin("erase verify", "", "erase", "verify", filepath.Join(tmp, "r.json"))
	run := pin("erase ls", "", "erase", "ls", file)["erases"].([]any)[0].(map[string]any)["trace"].(string)
	pin("erase receipt", "", "erase", "receipt", file, run, "-o", filepath.Join(tmp, "again.json"))
	pin("history after gc", "", "history", file, "acme/support", "gone")
	chat := []string{talk(t), "acme/support", "chat"}
	in := func(verb string, more ...string) []string {
		return append(append(strings.Fields(verb), chat...), more...)
	}
	pin("session ls", "", "session", "ls", chat[0], chat[1])
	pin("session append", "", in("session append", "one more")...)
	pin("session pass", "", in("session pass", "refund")...)
	pin("session show", "", in("session show", "--text")...)
	pin("session explain", "", in("session explain", "block-chat-1")...)
	pin("session pin", "", in("session pin", "block-chat-1")...)
	pin("session notes", `{"goal":"help Ann"}`, in("session notes")...)
	pin("session recall", "", in("session recall", "block-chat-1")...)
	pin("session contract", "", in("session contract", filepath.Join(tmp, "c.limn"))...)
	pin("session undo", "", in("session undo")...)
	pin("session passes", "", in("session passes")...)
	pin("watch", "", in("watch", "--total", "4000", "--once")...)
	pin("watch dry run", "", in("watch", "--dry-run")...)
	pin("handoff", "", in("handoff")...)
	pin("session export", "", in("session export")...)
	jsonl := filepath.Join(tmp, "x.jsonl")
	pin("export", "", "export", file, "--out", jsonl)
	pin("import export", "", "import", filepath.Join(tmp, "x.ctx"), jsonl)
	write(t, tmp, "mem.json", `[{"id":"1","memory":"x","user_id":"ann"}]`)
	pin("import foreign", "", "import", file, "acme/support", filepath.Join(tmp, "mem.json"))
	pin("demo", "", "demo", dir, "--into", filepath.Join(tmp, "demo"))

	pin("compact", "", "compact", file)
	pin("quota set", "", "quota", "set", file, "acme", "--pages", "100000", "--bytes", "1G", "--held", "10")
	pin("retention set", "", "retention", "set", file, "acme", "--kind", "fact=1ms", "--sessions", "30d", "--held", "1d", "--decided", "1d", "--directives", "1d", "--versions", "1d", "--keep-versions", "1")
	pin("retention show", "", "retention", "show", file, "acme/support")
	pin("retention run", "", "retention", "run", file, "--dry-run")
	pin("review purge", "", "review", "purge", file, "--by", "ann", "--waiting", "--dry-run")
	pin("session rm", "", in("session rm", "--dry-run")...)
	pin("stat space", "", "stat", file, "--space")

	golden := filepath.Join("testdata", "fields.txt")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o644))
	}
	want := must(os.ReadFile(golden))(t)
	require.Equal(t, string(want), got.String())
}

// Keys that are data, and fields of a ranked page that stand there only when they are not zero.
var (
	data    = regexp.MustCompile(`(^|\.)(skipped|meta)\.`)
	depends = regexp.MustCompile(`\.(lex_own|lex_near|lex_group|lex_speaker|lex_first|lex_date|lex_forms|lex_level|via|ranges|dirty|refetched|stale|tag)$`)
)
