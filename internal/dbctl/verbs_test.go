package dbctl

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/token/bpe"
)

// Each line is one call on one database, in order.
func TestVerbs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	for _, c := range []struct {
		args  string
		stdin string
		code  int
		says  string // in what it prints, on either stream
	}{
		{"get F acme x", "", exitFailed, "dbctl init FILE"},
		{"init F", "", exitOK, "made"},
		{"init F", "", exitFailed, "exists; name a path that does not, or use the database that is there"},
		{"put F acme/support policy", "Refunds up to $400.", exitOK, "acme/support:policy@1: "},
		{"put F acme/support policy --dry-run", "Refunds up to $500.", exitOK, "would write acme/support:policy"},
		{"get F acme/support policy", "", exitOK, "$400"},
		{"put F acme/support policy", "Refunds up to $500.", exitOK, "acme/support:policy@2: "},
		{"put F acme/support policy", "Refunds up to $500.", exitOK, "unchanged: acme/support:policy@2 says the same, no new version was made"},
		{"put F acme/support policy --dry-run", "Refunds up to $500.", exitOK, "unchanged: acme/support:policy@2 says the same, no new version would be made"},
		{"put F acme/support policy --dry-run --json", "Refunds up to $501.", exitOK, `"unchanged": false`},
		{"put F acme/support policy --dry-run --json --verified --by ann", "Refunds up to $500.", exitOK, `"unchanged": false`},
		{"get F acme/support policy --version 1", "", exitOK, "$400"},
		{"get F acme/support acme/support:policy@1", "", exitOK, "$400"},
		{"get F acme/support acme/support:policy@1 --version 1", "", exitOK, "$400"},
		{"get F acme/support acme/support:policy@1 --version 2", "", exitUsage, "names version 1"},
		{"get F acme/support policy --read-only", "", exitOK, "$500"},
		{"get F other policy", "", exitFailed, `not found: "policy"; searched in scope other and the scopes above it`},
		{"get F acme/support policy --version 9", "", exitFailed, "acme/support:policy@9 has versions up to 2"},
		{"get F acme/support acme/support:policy#7", "", exitFailed, "acme/support:policy#7 has 1 pages"},
		{"session append F acme/support chat text --role nobody", "", exitUsage, "dbctl: turn 1: role: "},
		{"get F acme//x policy", "", exitUsage, "single slashes"},
		{"put F acme empty", "  ", exitUsage, "expected the text on standard input"},
		{"put F acme empty -", "  ", exitUsage, "expected the text on standard input"},
		{"put F acme x y --provenance human-verified", "", exitUsage, "--verified --by"},
		{"put F acme x y --verified", "", exitUsage, "--by"},
		{"put F acme x y --expires tomorrow", "", exitUsage, "2027-01-31"},
		{"put F acme x y --source file:/nowhere/at/all", "", exitFailed, "leave one of them out"},
		{"put F acme x y --supersedes nowhere", "", exitUsage, "put them first"},
		{"put F acme x y --supersedes nowhere --dry-run", "", exitUsage, "put them first"},
		{"put F acme x y --supersedes nowhere --dry-run --verified --by ann", "", exitUsage, "put them first"},
		{"put F acme boss hello --verified --by ann", "", exitOK, "wrote acme:boss@1"},
		{"put F acme boss hello --verified --by ann", "", exitOK, "unchanged: acme:boss@1"},
		{"put F acme boss hello --verified --by ann --dry-run", "", exitOK, "unchanged: acme:boss@1"},
		{"put F acme boss hello --verified --by bob", "", exitOK, "acme:boss@"},
		{"history F acme/support nope", "", exitFailed, `not found: "nope" in acme/support, acme`},
		{"ls F acme", "", exitOK, "human-verified"},
		{"search F acme/support refunds --limit 2000", "", exitOK, "policy#1@2"},
		{"search F acme/support refunds --check nonsense", "", exitUsage, "expected always, never"},
		{"assemble F acme/support refunds --as-of 1", "", exitOK, "$400"},
		{"assemble F acme/support refunds --as-of 9999", "", exitUsage, "nothing has been committed at this one yet"},
		{"assemble F acme/support refunds --budget 0", "", exitUsage, "above 0"},
		{"assemble F acme/support refunds --budget 400 --read-only", "", exitOK, "no manifest was written"},
		{"commit F acme/support --trace 01ARZ3NDEKTSV4RRGGQ69G5GAV", "answer", exitFailed, "no assembly"},
		{"commit F acme/support", "answer", exitUsage, "--trace"},
		{"commit F acme/support --trace BAD", "answer", exitUsage, `--trace "BAD": expected the trace`},
		{"rollback F acme/support --trace BAD", "", exitUsage, `--trace "BAD": expected the trace`},
		{"assemble F acme/support refunds --trace BAD", "", exitUsage, "trace"},
		{"session append F acme/support chat --jsonl", "", exitUsage, "one JSON object a line"},
		{"rm F acme --prefix bo --dry-run", "", exitOK, "would delete boss"},
		{"rm F acme nowhere", "", exitFailed, "nothing was deleted"},
		{"rm F acme --prefix bo", "", exitOK, "deleted boss"},
		{"review show F nonsense", "", exitUsage, "ULID"},
		{"manifest ls F --type nonsense", "", exitUsage, "no leaf type"},
		{"manifest ls F --type recall --limit 1", "", exitOK, "more: --cursor"},
		{"manifest verify F --head nonsense", "", exitUsage, "neither a head line"},
		{"manifest show F 0", "", exitOK, "vouched by the host"},
		{"nonsense", "", exitUsage, "--help"},
		{"get", "", exitUsage, "dbctl get --help"},
	} {
		args := strings.Fields(strings.ReplaceAll(c.args, "F", file))
		r := dbctl(c.stdin, args...)
		require.Equal(t, c.code, r.code, "dbctl %s\n%s%s", c.args, r.out, r.err)
		require.Contains(t, r.out+r.err, c.says, "dbctl %s", c.args)
	}
}

// An init that was killed leaves a file that holds nothing yet, with or without an empty log: the next one makes it whole.
// What holds something is left as it is.
func TestInitGoesOn(t *testing.T) {
	at := func(text string) string {
		file := filepath.Join(t.TempDir(), "agent.ctx")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	for name, text := range map[string]string{"empty": "", "before bbolt's first write": strings.Repeat("\x00", 4096)} {
		for _, log := range []bool{false, true} {
			file := at(text)
			if log {
				require.NoError(t, os.Mkdir(file+"-wal", 0o700))
			}
			require.Contains(t, ok(t, "", "init", file, "--dry-run"), "would make", name)
			require.Contains(t, ok(t, "", "init", file), "made", name)
			ok(t, "", "put", file, "acme", "note", "kept")
			r := dbctl("", "init", file)
			require.Equal(t, exitFailed, r.code)
			require.Contains(t, r.err, "use the database that is there")
			require.Equal(t, "kept", ok(t, "", "get", file, "acme", "note"))
		}
	}
	foreign := at("buy milk\n")
	require.Equal(t, exitFailed, dbctl("", "init", foreign).code)
	b := must(os.ReadFile(foreign))(t)
	require.Equal(t, "buy milk\n", string(b))
	lost := newDB(t)
	require.NoError(t, os.Truncate(lost, 0))
	r := dbctl("", "init", lost)
	require.Equal(t, exitFailed, r.code, "its log holds what it held")
	require.Contains(t, r.err, "exists; name a path that does not\n")
}

// Verify names every damaged leaf, also those that the log holds once more.
func TestVerifyGoesOn(t *testing.T) {
	file := newDB(t)
	ok(t, "", "put", file, "acme", "second", "word")
	ok(t, "", "put", file, "acme", "third", "word")
	at := must(filepath.Glob(file + "-manifest/leaves-*"))(t)
	require.Len(t, at, 1)
	b := must(os.ReadFile(at[0]))(t)
	for _, id := range []string{"refund-policy", "second"} {
		b[strings.Index(string(b), id)] ^= 1
	}
	require.NoError(t, os.WriteFile(at[0], b, 0o600))
	r := dbctl("", "manifest", "verify", file)
	require.Equal(t, exitDamaged, r.code)
	require.Contains(t, r.out, "NOT VERIFIED: 2 problems in 5 leaves")
	require.Contains(t, r.out, "(leaf 0)")
	require.Contains(t, r.out, "(leaf 3)")
	v := asJSON(t, "", "manifest", "verify", file)
	require.Equal(t, []any{false, 2.0, 2}, []any{v["ok"], v["found"], len(v["problems"].([]any))})
	require.Equal(t, exitDamaged, dbctl("", "ls", file).code, "the database itself still refuses")
	require.Contains(t, ok(t, "", "manifest", "show", file, "4"), "acme:third", "another leaf can be shown")
	r = dbctl("", "manifest", "show", file, "4", "--json")
	require.Regexp(t, `^{"warning":".*"}\n$`, r.err)
	r = dbctl("", "manifest", "show", file, "3")
	require.Equal(t, exitDamaged, r.code)
	require.Contains(t, r.err, "leaf 3")

	copied := filepath.Join(t.TempDir(), "agent.ctx")
	b = must(os.ReadFile(file))(t)
	require.NoError(t, os.WriteFile(copied, b, 0o600))
	for _, verb := range []string{"verify", "head", "ls"} {
		r := dbctl("", "manifest", verb, copied)
		require.Equal(t, exitDamaged, r.code, "no audit is not an audit without a fault")
		require.Contains(t, r.err, "put agent.ctx-manifest and agent.ctx-wal in their place")
	}
}

// A proof says what it proves, and does not hold when it shows something else.
func TestProofOfWhatItShows(t *testing.T) {
	file := newDB(t)
	dir := t.TempDir()
	head := asJSON(t, "", "manifest", "head", file)["head"].(string)
	verify := func(proof map[string]any, more ...string) result {
		b := must(json.Marshal(proof))(t)
		path := filepath.Join(dir, "proof.json")
		require.NoError(t, os.WriteFile(path, b, 0o600))
		return dbctl("", append([]string{"manifest", "verify", "--proof", path, "--head", head}, more...)...)
	}
	proof := asJSON(t, "", "manifest", "prove", file, "0")
	require.Contains(t, verify(proof).out, "leaf 0, commit at ")
	require.Contains(t, verify(proof, "--json").out, `"type": "commit"`)
	leaf := proof["leaf"].(map[string]any)
	for field, other := range map[string]any{"actor": "mallory", "type": "get", "index": 1.0, "lsn": 9.0, "reason": "because", "by": "bob"} {
		was, had := leaf[field]
		leaf[field] = other
		r := verify(proof)
		require.Equal(t, exitDamaged, r.code, field)
		require.Contains(t, r.err, "the leaf that it shows is not the leaf that it proves", field)
		if leaf[field] = was; !had {
			delete(leaf, field)
		}
	}
	require.Equal(t, exitOK, verify(proof).code)
	ok(t, "", "put", file, "acme", "another", "word")
	early := head
	head = asJSON(t, "", "manifest", "head", file)["head"].(string)
	require.Contains(t, verify(asJSON(t, "", "manifest", "prove", file, "--from", early)).out, "which contains all that this head vouches for: "+early)
}

// The job of the command line from question to memory.
func TestCommitThroughTheGate(t *testing.T) {
	file := newDB(t)
	trace := asJSON(t, "", "assemble", file, "acme/support", "what may I refund?")["trace"].(string)
	commit := func(stdin string, more ...string) result {
		return dbctl(stdin, append([]string{"commit", file, "acme/support", "--trace", trace, "--json"}, more...)...)
	}
	for _, c := range []struct {
		name, reason string
		args         []string
	}{
		{"no verdict", "no verdict", nil},
		{"below", "confidence below the gate", []string{"--confidence", "0.6", "--by", "checker"}},
		{"self", "self-certified", []string{"--confidence", "0.99", "--by", "bot", "--actor", "bot"}},
	} {
		dry := commit("Up to $400.", append(c.args, "--dry-run")...)
		require.Equal(t, exitOK, dry.code, dry.err)
		require.Contains(t, dry.out, c.reason)
		r := commit("Up to $400.", c.args...)
		require.Equal(t, exitHeld, r.code, c.name)
		require.Contains(t, r.out, c.reason)
	}
	require.Len(t, asJSON(t, "", "review", "ls", file)["held"], 3, "the dry runs held nothing")
	require.Equal(t, exitFailed, dbctl("", "get", file, "acme/support", "answer-"+trace).code, "a held draft is invisible")
	require.Equal(t, exitUsage, commit("x", "--confidence", "1.5", "--by", "checker").code)
	require.Equal(t, exitUsage, commit("x", "--confidence", "0.9").code)
	require.Equal(t, exitUsage, commit(" ").code)

	require.Equal(t, exitOK, commit("Up to $400.", "--confidence", "0.88", "--by", "checker", "--id", "answer").code)
	require.Equal(t, "Up to $400.", ok(t, "", "get", file, "acme/support", "answer"))

	batch := asJSON(t, "", "review", "ls", file)["held"].([]any)[0].(map[string]any)["id"].(string)
	require.Contains(t, ok(t, "", "review", "show", file, batch), "Up to $400.")
	require.Equal(t, exitFailed, dbctl("", "review", "approve", file, batch, "--by", "acme/support").code, "nobody approves his own")
	ok(t, "", "review", "approve", file, batch, "--by", "ann", "--dry-run")
	require.Len(t, asJSON(t, "", "review", "ls", file)["held"], 3)
	first := ok(t, "", "review", "approve", file, batch, "--by", "ann", "--human-verified")
	require.Equal(t, first, ok(t, "", "review", "approve", file, batch, "--by", "ann"), "twice gives the first outcome")
	require.Equal(t, "human-verified", asJSON(t, "", "get", file, "acme/support", "answer-"+trace)["provenance"])
	second := asJSON(t, "", "review", "ls", file)["held"].([]any)[0].(map[string]any)["id"].(string)
	ok(t, "", "review", "reject", file, second, "--by", "ann", "--note", "wrong")
	require.Contains(t, ok(t, "", "review", "ls", file, "--all"), "rejected")
	require.Regexp(t, `decision note +wrong`, ok(t, "", "review", "show", file, second))
	late := ok(t, "", "review", "reject", file, second, "--by", "bob")
	require.Contains(t, late, "rejected by ann")
	require.Contains(t, late, "nothing was recorded for bob")
	require.NotContains(t, ok(t, "", "review", "reject", file, second, "--by", "ann"), "nothing was recorded", "control")

	ok(t, "", "rollback", file, "acme/support", "--trace", trace)
	ends := ok(t, "", "manifest", "ls", file, "--trace", trace)
	for _, typ := range []string{"assemble", "held", "commit", "rollback"} {
		require.Contains(t, ends, typ)
	}
}

func TestStaleContextIsHeld(t *testing.T) {
	file := newDB(t)
	trace := asJSON(t, "", "assemble", file, "acme/support", "what may I refund?")["trace"].(string)
	ok(t, "Refunds need approval now.", "put", file, "acme/support", "refund-policy")
	r := dbctl("Up to $400.", "commit", file, "acme/support", "--trace", trace, "--confidence", "0.9", "--by", "checker")
	require.Equal(t, exitHeld, r.code)
	require.Contains(t, r.out, "changed since it was read: acme/support:refund-policy#1@1")
	batch := asJSON(t, "", "review", "ls", file)["held"].([]any)[0].(map[string]any)["id"].(string)
	r = dbctl("", "review", "approve", file, batch, "--by", "ann")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "--stale approves all the same")
	ok(t, "", "review", "approve", file, batch, "--by", "ann", "--stale")

	r = dbctl("Up to $300.", "commit", file, "acme/support", "--trace", trace, "--id", "other", "--confidence", "0.9", "--by", "checker", "--on-stale", "fail")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "commit with --on-stale hold or allow, or assemble anew")
	require.NotContains(t, r.err, "dbctl review", "nothing is held")
}

// What a held batch would overwrite was written since: no retry helps.
func TestConflictOfAHeldBatch(t *testing.T) {
	file := newDB(t)
	trace := asJSON(t, "", "assemble", file, "acme/support", "what may I refund?")["trace"].(string)
	require.Equal(t, exitHeld, dbctl("Up to $400.", "commit", file, "acme/support", "--trace", trace, "--id", "answer").code)
	ok(t, "", "put", file, "acme/support", "answer", "Ask a person.")
	batch := asJSON(t, "", "review", "ls", file)["held"].([]any)[0].(map[string]any)["id"].(string)
	r := dbctl("", "review", "approve", file, batch, "--by", "ann", "--json")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, `"kind":"conflict"`)
	require.Contains(t, r.err, "reject it, and write anew from a new assembly")
	require.NotContains(t, r.err, "retry")
	ok(t, "", "review", "reject", file, batch, "--by", "ann")
}

// A directory is recorded with what was put from below it, not with a put that failed.
func TestRootOfAPut(t *testing.T) {
	file, dir := newDB(t), t.TempDir()
	write(t, dir, "a.txt", "text")
	r := dbctl("", "put", file, "acme", "x", "--source", "file:"+dir+"/nope", "--root", dir)
	require.Equal(t, exitFailed, r.code)
	require.NotContains(t, ok(t, "", "stat", file), dir)
	r = dbctl("", "put", file, "acme", "x", "text", "--root", dir+"/nodir")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "expected a directory that is there")
	ok(t, "", "put", file, "acme", "x", "--source", "file:"+dir+"/a.txt", "--root", dir)
	require.Contains(t, ok(t, "", "stat", file), dir)
}

func TestExplainReplayDiff(t *testing.T) {
	file := newDB(t)
	text := dbctl("", "assemble", file, "acme/support", "what may I refund?", "--trace", "01ARZ3NDEKTSV4RRFFQ69G5FAV")
	require.Equal(t, exitOK, text.code, text.err)
	first := "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	require.Equal(t, text.out, ok(t, "", "replay", file, first))
	require.Contains(t, ok(t, "", "why", file, first, "refund-policy"), "is in the context")
	require.Contains(t, ok(t, "", "why", file, first, "nowhere"), "is not in the context")

	ok(t, "Refunds need approval now.", "put", file, "acme/support", "refund-policy")
	require.Equal(t, text.out, ok(t, "", "replay", file, first), "an older context stays what it was")
	second := asJSON(t, "", "assemble", file, "acme/support", "what may I refund?")["trace"].(string)
	d := ok(t, "", "diff", file, first, second)
	require.Contains(t, d, "acme/support:refund-policy#1@1")
	require.Contains(t, d, "acme/support:refund-policy#1@2")
	require.NotContains(t, d, "need approval")
	require.Contains(t, ok(t, "", "diff", file, first, first), "the same")
	before := strings.Count(ok(t, "", "manifest", "ls", file), "\n")
	d = ok(t, "", "diff", file, first, second, "--text", "--read-only")
	require.Contains(t, d, "acme/support:refund-policy#1@1 → acme/support:refund-policy#1@2\n")
	require.Contains(t, d, "\n+Refunds need approval now.\n")
	require.Equal(t, before, strings.Count(ok(t, "", "manifest", "ls", file), "\n"))
	require.Equal(t, d, ok(t, "", "diff", file, first, second, "--text"))
	require.Equal(t, before+2, strings.Count(ok(t, "", "manifest", "ls", file), "\n"), "each text that was read is in the audit")
}

func TestDiffLines(t *testing.T) {
	diff := func(a, b string) string { return strings.Join(diffLines(strings.Fields(a), strings.Fields(b)), "") }
	for _, c := range [][3]string{{"a b c", "a x c", " a-b+x c"}, {"a b", "a b", " a b"}, {"", "a", "+a"}, {"a", "", "-a"}, {"a b c d", "b d e", "-a b-c d+e"}} {
		require.Equal(t, c[2], diff(c[0], c[1]))
	}
	long := strings.Repeat("x ", maxDiff+1)
	require.Len(t, diff(long, "y"), 2*(maxDiff+1)+2)
}

func TestCursorsWalkEverything(t *testing.T) {
	file := newDB(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		ok(t, "", "put", file, "acme/list", id, "text "+id)
		ok(t, "", "put", file, "acme/list", id, "more text "+id)
	}
	for _, c := range []struct {
		list string
		rows int
		args []string
	}{
		{"items", 4, []string{"ls", file, "acme/list"}},
		{"scopes", 3, []string{"ls", file}},
		{"items", 2, []string{"history", file, "acme/list", "a"}},
		{"leaves", 11, []string{"manifest", "ls", file, "--type", "commit"}},
	} {
		var got []any
		cursor := ""
		for range 20 {
			v := asJSON(t, "", append(c.args, "--limit", "1", "--cursor", cursor)...)
			got = append(got, v[c.list].([]any)...)
			if cursor, _ = v["next"].(string); cursor == "" {
				break
			}
		}
		require.Len(t, got, c.rows, "%v", c.args)
	}
	cursor := asJSON(t, "", "ls", file, "acme/list", "--limit", "1")["next"].(string)
	require.Equal(t, exitUsage, dbctl("", "manifest", "ls", file, "--cursor", cursor).code, "a cursor of another listing")
	require.Equal(t, exitUsage, dbctl("", "ls", file, "--limit", "0").code)
}

func TestBackupAndRestore(t *testing.T) {
	file := newDB(t)
	dir := t.TempDir()
	backup := filepath.Join(dir, "backup.ctx")
	head := asJSON(t, "", "backup", file, backup)["head"].(string)
	require.Equal(t, exitFailed, dbctl("", "backup", file, backup).code, "nothing is overwritten")
	ok(t, "", "put", file, "acme", "late", "after the backup")
	late := strings.TrimSpace(ok(t, "", "manifest", "head", file))

	r := dbctl("", "restore", backup, file)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "--force")
	ok(t, "", "restore", backup, filepath.Join(dir, "dry.ctx"), "--dry-run", "--head", head)
	_, err := os.Stat(filepath.Join(dir, "dry.ctx"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Equal(t, exitDamaged, dbctl("", "restore", backup, file, "--force", "--head", late).code, "a head the backup cannot vouch for")
	require.Equal(t, exitOK, dbctl("", "get", file, "acme", "late").code, "nothing was written")

	ok(t, "", "restore", backup, file, "--force", "--head", head, "--by", "ann")
	require.Equal(t, exitFailed, dbctl("", "get", file, "acme", "late").code)
	require.Contains(t, ok(t, "", "manifest", "ls", file, "--type", "restored"), "ann")
	ok(t, "", "manifest", "verify", file, "--head", head)
	require.Equal(t, exitDamaged, dbctl("", "manifest", "verify", file, "--head", late).code)
	ok(t, "", "check", file)

	b := must(os.ReadFile(backup))(t)
	for i := len(b) / 3; i < len(b)/3+64; i++ {
		b[i] ^= 0xff
	}
	for i := 0; i < len(b); i += 512 {
		b[i] ^= 0xff
	}
	require.NoError(t, os.WriteFile(backup, b, 0o600))
	r = dbctl("", "restore", backup, file, "--force")
	require.Equal(t, exitDamaged, r.code, r.err)
	require.Contains(t, r.err, "nothing was written")
	ok(t, "", "check", file)
}

// A verb that makes a database makes no directory for it: a mistyped path would become a database that nobody finds.
func TestNoDirectoryIsMade(t *testing.T) {
	file := newDB(t)
	missing := filepath.Join(t.TempDir(), "typo")
	to := filepath.Join(missing, "deep", "new.ctx")
	for _, args := range [][]string{
		{"init", to}, {"init", to, "--dry-run"}, {"backup", file, to}, {"restore", file, to}, {"restore", file, to, "--dry-run"},
		{"restore", file, to, "--force"}, {"restore", file, to, "--force", "--dry-run"}, {"salvage", file, to},
	} {
		r := dbctl("", args...)
		require.Equal(t, exitFailed, r.code, args)
		require.Contains(t, r.err, "no directory "+filepath.Dir(to), args)
		require.Contains(t, r.err, "make it first", args)
		require.NoDirExists(t, missing, args)
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
	ok(t, "", "backup", file, to)
	for _, args := range [][]string{{"backup", file}, {"restore", file}, {"init"}} {
		r := dbctl("", append(args, filepath.Join(to, "below-a-file.ctx"))...)
		require.Equal(t, exitFailed, r.code, args)
		require.Contains(t, r.err, to+" is not a directory", args)
	}
}

func TestProofs(t *testing.T) {
	file := newDB(t)
	old := strings.TrimSpace(ok(t, "", "manifest", "head", file))
	ok(t, "", "get", file, "acme/support", "note")
	now := strings.TrimSpace(ok(t, "", "manifest", "head", file))
	heads := filepath.Join(t.TempDir(), "heads")
	require.NoError(t, os.WriteFile(heads, []byte(old+"\n"+now+"\n"), 0o600))

	proof := filepath.Join(t.TempDir(), "proof.json")
	for _, args := range [][]string{
		{"manifest", "prove", file, "0", "--head", old, "--json"},
		{"manifest", "prove", file, "--from", old, "--json"},
	} {
		require.NoError(t, os.WriteFile(proof, []byte(ok(t, "", args...)), 0o600))
		against, other := old, now
		if args[3] == "--from" {
			against, other = heads, old // the last line of a file
		}
		ok(t, "", "manifest", "verify", "--proof", proof, "--head", against)
		require.Equal(t, exitDamaged, dbctl("", "manifest", "verify", "--proof", proof, "--head", other).code, "another head")
	}
	require.Equal(t, exitUsage, dbctl("", "manifest", "verify", "--proof", proof).code, "a proof proves nothing by itself")

	other := newDB(t)
	foreign := strings.TrimSpace(ok(t, "", "manifest", "head", other))
	r := dbctl("", "manifest", "verify", file, "--head", foreign)
	require.Equal(t, exitDamaged, r.code)
	require.Contains(t, r.out, "NOT VERIFIED")
}

// Every verb has an example in its help, and a flag of every verb that writes says what it would do.
func TestHelp(t *testing.T) {
	var c cli
	k := kong.Must(&c, kong.Name("dbctl"))
	var visit func(n *kong.Node, path string)
	seen := 0
	visit = func(n *kong.Node, path string) {
		for _, child := range n.Children {
			if child.Type != kong.CommandNode {
				continue
			}
			name := strings.TrimSpace(path + " " + child.Name)
			visit(child, name)
			if len(child.Children) > 0 {
				continue
			}
			seen++
			r := dbctl("", append(strings.Fields(name), "--help")...)
			require.Equal(t, exitOK, r.code)
			require.Contains(t, strings.Join(strings.Fields(r.out), " "), "dbctl "+name+" ", name)
			require.Contains(t, r.out, "Example:", name)
			require.NotRegexp(t, `[“”]|(?s:Example:.*Example:)`, r.out, "two single quotes become one double, and examples stand on lines of their own: %s", name)
			all := dbctl("", append([]string{"--json"}, append(strings.Fields(name), "--help")...)...)
			require.Equal(t, all.out, r.out, "a verb that comes first is read alone, and says the same")
		}
	}
	visit(k.Model.Node, "")
	require.GreaterOrEqual(t, seen, 27)
	for _, verb := range []string{"init", "put", "rm", "import", "commit", "rollback", "review approve", "review reject", "restore",
		"session append", "session pass", "session undo", "session contract", "session receive", "watch"} {
		require.Contains(t, dbctl("", append(strings.Fields(verb), "--help")...).out, "--dry-run", verb)
	}
	require.Contains(t, ok(t, ""), "without a lock", "help says what it can get wrong beside an agent")
}

// TestArgumentsAreUTF8: the parser would replace other bytes, and name another artefact.
func TestArgumentsAreUTF8(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	require.Equal(t, exitOK, dbctl("", "init", file).code)
	for _, args := range [][]string{{"put", file, "acme", "\xff", "text"}, {"put", file, "acme", "id", "te\xfext"}, {"get", file, "acme", "\xfe", "--json"}} {
		r := dbctl("", args...)
		require.Equal(t, exitUsage, r.code, args)
		require.Contains(t, r.err, "expected UTF-8")
	}
	require.Contains(t, dbctl("", "ls", file).out, "nothing was written yet")
}

// An error names the flag it is about, and what it tells to do can be done.
func TestErrorsThatHelp(t *testing.T) {
	file := newDB(t)
	r := dbctl("", "manifest", "prove", file, "--from", "nonsense")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "--from")
	require.NotContains(t, r.err, "--head")
	r = dbctl("", "put", file, "acme", "k", "x", "--provenance", "human-verified")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "--verified --by")
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for _, args := range [][]string{{"stat", empty}, {"get", empty, "acme", "k"}, {"put", empty, "acme", "k", "x"}, {"mcp", empty, "--scope", "acme"}} { // read-only or not
		r = dbctl("", args...)
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "is empty; expected the file of a database; make one with: dbctl init FILE")
	}
	require.Contains(t, dbctl("", "stat", empty+"2").err, "dbctl init")
	begun := empty + "3"
	require.NoError(t, os.WriteFile(begun, nil, 0o600))
	ok(t, "", "mcp", begun, "--scope", "acme", "--write") // it makes a missing one, too
	ok(t, "", "check", begun)
	r = dbctl("", "stat", filepath.Dir(empty))
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "which is a directory, expected the file of a database; make one with: dbctl init FILE, where no FILE is yet")
	ok(t, "", "init", empty)
	ok(t, "", "stat", empty)
}

// What the library says of a file that may not be written leads to the flag that needs no right to.
func TestHintOfReadOnly(t *testing.T) {
	for _, cause := range []error{syscall.EACCES, syscall.EROFS} {
		for _, step := range []string{"lock", "socket", "wal: open"} {
			require.Contains(t, hint(fmt.Errorf("ctxpage: %s: %w", step, &fs.PathError{Op: "open", Path: "x.lock", Err: cause})), "--read-only")
		}
	}
	require.NotContains(t, hint(fmt.Errorf("ctxpage: lock: %w", syscall.EIO)), "--read-only", "control")
	require.NotContains(t, hint(fmt.Errorf("ctxpage: backup: %w", syscall.EACCES)), "--read-only", "control")
}

// Words that are no command, and a backup that is not there, get errors that say what was expected.
func TestErrorsSayWhatWasExpected(t *testing.T) {
	dir := t.TempDir()
	r := dbctl("", "nosuch")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "there is no command nosuch; dbctl --help says more")
	require.Contains(t, dbctl("", "search", dir, "acme", "x", "--model").err, "--model: expected string value but got nothing; dbctl search --help says more")
	r = dbctl("", "restore", filepath.Join(dir, "none.ctx"), filepath.Join(dir, "agent.ctx"))
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "there is no backup")
	require.NotContains(t, r.err, "dbctl init", "that would not make one")
}

// dbctl counts with o200k_base unless --counter says otherwise, and takes the settings of a context by name.
func TestCounterAndSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.ctx")
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "lao", "ຜູ້ໃຊ້ອາໄສຢູ່ວຽງຈັນ ແລະ ມັກດື່ມກາເຟ coffee")
	ask := func(args ...string) map[string]any {
		return asJSON(t, "", append([]string{"assemble", file, "acme", "coffee", "--budget", "500"}, args...)...)
	}
	exact := ask()
	require.EqualValues(t, bpe.O200k().Count(exact["text"].(string)), exact["tokens"])
	require.Greater(t, ask("--counter", "claude")["tokens"], exact["tokens"])
	require.Less(t, ask("--charge", "contents")["tokens"], exact["tokens"])
	require.Equal(t, exitUsage, dbctl("", "assemble", file, "acme", "coffee", "--counter", "p50k").code)
	require.Equal(t, exitFailed, dbctl(`{"items":[{"key":"a","tokens":5}]}`, "budget", "compile").code)
}
