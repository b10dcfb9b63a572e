package dbctl

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/system"
)

// A tenant moves by the verbs of docs/scale.md: in parts, the last of them with the scope closed, and a comparison at the end.
func TestMoveByVerbs(t *testing.T) {
	tmp := t.TempDir()
	from, to := filepath.Join(tmp, "old.ctx"), filepath.Join(tmp, "new.ctx")
	file := func(name string) string { return filepath.Join(tmp, name) }
	ok(t, "", "init", from)
	ok(t, "tea is green", "put", from, "acme", "tea")
	ok(t, "", "session", "append", from, "acme/support", "chat", "what may I refund?")
	lsn := fmt.Sprint(asJSON(t, "", "export", from, "--scope", "acme", "--versions", "-o", file("1"))["lsn"])
	require.Contains(t, ok(t, "", "import", to, file("1")), "wrote 2 versions, 0 rows of state")
	ok(t, "tea is black", "put", from, "acme", "tea")
	require.Equal(t, exitUsage, dbctl("", "export", from, "--since", lsn, "--format", "md").code)
	require.Equal(t, exitUsage, dbctl("", "quota", "set", from, "acme", "--closed", "a\nb").code)
	require.Contains(t, ok(t, "", "quota", "set", from, "acme", "--closed", "moved to new.ctx"), "acme is closed for writes: moved to new.ctx\n")
	r := dbctl("tea is red", "put", from, "acme", "tea")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "acme is closed for writes: moved to new.ctx. Nothing was written: write where the scope is now")
	require.Contains(t, ok(t, "", "quota", "show", from), "acme is closed for writes: moved to new.ctx\n")
	ok(t, "", "export", from, "--scope", "acme", "-o", file("all"))
	require.Contains(t, ok(t, "", "import", to, file("all"), "--dry-run"), "would write 1 version, ", "control: the last part is missing")
	ok(t, "", "export", from, "--scope", "acme", "--since", lsn, "-o", file("2"))
	require.Contains(t, ok(t, "", "import", to, file("2")), "wrote 1 version, ")
	require.Contains(t, ok(t, "", "import", to, file("all"), "--dry-run"), "would write 0 versions, 0 rows of state and 0 held batches")
	ok(t, "tea is red", "put", to, "acme", "tea")
	ok(t, "", "erase", from, "--scope", "acme", "--by", "ann", "--reason", "moved", "--receipt", file("moved.json"))
	ok(t, "", "erase", "verify", file("moved.json"))
	ok(t, "", "quota", "set", from, "acme", "--closed", "")
	require.Equal(t, "no quota is set\n", ok(t, "", "quota", "show", from))
}

// A database goes out and comes back; a second import writes nothing; a file that was cut off is refused before there is a
// database, and finished by --resume.
func TestExportImport(t *testing.T) {
	file, tmp := newDB(t), t.TempDir()
	ok(t, "", "session", "append", file, "acme/support", "chat", "what may I refund?")
	ok(t, "use metric units\n", "directive", file, "acme/support")
	out := filepath.Join(tmp, "a.jsonl")
	require.Contains(t, ok(t, "", "export", file, "--dry-run"), "would export ")
	require.Contains(t, ok(t, "", "export", file, "-o", out), " to "+out)
	require.Contains(t, dbctl("", "export", file, "-o", out).err, "there is a file")
	info := must(os.Stat(out))(t)
	require.True(t, !system.Modes || info.Mode().Perm() == 0o600, info.Mode())

	to := filepath.Join(tmp, "b.ctx")
	require.Contains(t, ok(t, "", "import", to, out), "wrote ")
	require.Contains(t, ok(t, "", "import", to, out), "wrote 0 versions, 0 rows of state and 0 held batches")
	require.Contains(t, ok(t, "", "check", to), "no damage")
	context := []string{"acme/support", "refunds", "--read-only"}
	require.Equal(t, ok(t, "", append([]string{"assemble", file}, context...)...), ok(t, "", append([]string{"assemble", to}, context...)...))
	require.Equal(t, ok(t, "", "ls", file, "acme/support"), ok(t, "", "ls", to, "acme/support"))

	begun := filepath.Join(tmp, "begun.ctx") // what an import leaves that was killed at once
	require.NoError(t, os.WriteFile(begun, nil, 0o600))
	ok(t, "", "import", begun, out)
	require.Equal(t, asJSON(t, "", "stat", file)["id"], asJSON(t, "", "stat", begun)["id"], "it has the secret of the export, too")

	differs := false
	for n := 0; n < 40 && !differs; n++ { // who made the export does not know the mark that these draw, each one of six
		own := filepath.Join(tmp, fmt.Sprintf("own%d.ctx", n))
		ok(t, "", "import", own, out, "--no-secret")
		differs = ok(t, "", append([]string{"assemble", file}, context...)...) != ok(t, "", append([]string{"assemble", own}, context...)...)
		require.Equal(t, ok(t, "", "ls", file, "acme/support"), ok(t, "", "ls", own, "acme/support"))
	}
	require.True(t, differs)

	whole := must(os.ReadFile(out))(t)
	cut := filepath.Join(tmp, "cut.jsonl")
	require.NoError(t, os.WriteFile(cut, whole[:len(whole)/2], 0o600))
	none := filepath.Join(tmp, "none.ctx")
	r := dbctl("", "import", none, cut)
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "before the last line")
	require.NoFileExists(t, none)
	ok(t, "", "export", file, "-o", cut, "--resume")
	got := must(os.ReadFile(cut))(t)
	require.Equal(t, string(whole), string(got))
	for _, n := range []int{0, 1, 60, strings.IndexByte(string(whole), '\n')} { // cut off before there was a header: it begins anew
		require.NoError(t, os.WriteFile(cut, whole[:n], 0o600))
		ok(t, "", "export", file, "-o", cut, "--resume")
		require.Contains(t, ok(t, "", "import", to, cut), "wrote 0 versions", n)
	}
	for _, mine := range []string{"my notes", "{}", "{\n"} { // control: what is no export stays
		require.NoError(t, os.WriteFile(cut, []byte(mine), 0o600))
		require.Equal(t, exitUsage, dbctl("", "export", file, "-o", cut, "--resume").code)
		got := must(os.ReadFile(cut))(t)
		require.Equal(t, mine, string(got))
	}

	if runtime.GOOS != "windows" { // where no name stands for an open file
		pipe, into, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, into.Close())
		defer pipe.Close()
		require.Contains(t, dbctl("", "import", none, fmt.Sprintf("/dev/fd/%d", pipe.Fd())).err, "got a pipe")
	}
	ok(t, "", "put", to, "acme/support", "mine", "x")
	ok(t, "", "put", file, "acme/support", "mine", "y")
	r = dbctl("", "import", to, exportOf(t, file))
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.out, "acme/support:mine")
	require.Contains(t, ok(t, "", "get", to, "acme/support", "mine"), "x")
}

func exportOf(t *testing.T, file string) string {
	out := filepath.Join(t.TempDir(), "x.jsonl")
	ok(t, "", "export", file, "-o", out)
	return out
}

// A person gets what an erase would take, to read or to import.
func TestExportSubject(t *testing.T) {
	file := newDB(t)
	ok(t, "", "put", file, "acme/support", "likes", "Ann likes tea", "--subject", "ann")
	md := ok(t, "", "export", file, "--subject", "ann", "--format", "md")
	require.Contains(t, md, "# What is held about ann")
	require.Contains(t, md, "Ann likes tea")
	require.NotContains(t, md, "Lee")
	require.Contains(t, ok(t, "", "ls", file, "acme/support", "--subject", "ann"), "likes")
	require.Contains(t, ok(t, "", "search", file, "acme/support", "tea", "--subject", "ann"), "likes")
	r := dbctl("", "export", file, "--subject", "nobody")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "nothing is held of nobody")
	require.Equal(t, exitUsage, dbctl("", "export", file, "--json").code)
	md = ok(t, "", "export", file, "--subject", "ann", "--scope", "acme", "--format", "md")
	require.Contains(t, md, "# What is held about ann in acme")
	require.Contains(t, dbctl("", "export", file, "--subject", "ann", "--scope", "globex").err, "nothing is held of ann globex")
}

// An export from before an erase does not bring back what was erased: not into the database, and with the receipt into no other.
func TestImportErased(t *testing.T) {
	file, tmp := newDB(t), t.TempDir()
	ok(t, "", "put", file, "acme/support", "likes", "Ann likes tea", "--subject", "ann")
	old, receipt := exportOf(t, file), filepath.Join(tmp, "receipt.json")
	ok(t, "", "erase", file, "--subject", "ann", "--names", "--by", "desk", "--reason", "request 4711", "--receipt", receipt)
	require.Contains(t, ok(t, "", "import", file, old), "left out: they were erased")
	require.NotContains(t, ok(t, "", "ls", file, "acme/support"), "likes")
	to := filepath.Join(tmp, "to.ctx")
	require.Contains(t, ok(t, "", "import", to, old, "--receipt", receipt), "left out: they were erased")
	require.NotContains(t, ok(t, "", "ls", to, "acme/support"), "likes")
	bare := filepath.Join(tmp, "bare.ctx")
	ok(t, "", "import", bare, old)
	require.Contains(t, ok(t, "", "ls", bare, "acme/support"), "likes", "control: without the receipt")
	other := exportOf(t, newDB(t))
	none := filepath.Join(tmp, "none.ctx")
	require.Contains(t, dbctl("", "import", none, other, "--erased", receipt).err, "it is of database")
	require.NoFileExists(t, none)
}

// Memories go out for other systems, and come in again as scratch.
func TestExportPAM(t *testing.T) {
	file, tmp := newDB(t), t.TempDir()
	ok(t, "", "put", file, "acme/support", "likes", "Ann likes tea", "--subject", "ann")
	ok(t, "", "session", "append", file, "acme/support", "chat", "hello")
	out := filepath.Join(tmp, "ann.json")
	require.Contains(t, ok(t, "", "export", file, "--format", "pam", "--subject", "ann", "-o", out), "exported 1 memory")
	require.Contains(t, ok(t, "", "import", file, "acme/else", out), "format pam (detected by")
	require.Contains(t, ok(t, "", "ls", file, "acme/else"), "scratch")
	require.Contains(t, ok(t, "", "export", file, "--format", "pam", "--dry-run"), "left out 1 of kind message")
	require.Contains(t, ok(t, "", "export", file, "--format", "pam", "--scope", "acme", "--owner", "ann"), `"owner":{"id":"ann"}`)
	require.Equal(t, exitUsage, dbctl("", "export", file, "--owner", "ann").code)
	require.Equal(t, exitUsage, dbctl("", "export", file, "--format", "pam", "--resume", "-o", out).code)
}

// Files of other systems come in as scratch; what cannot be told is said, and nothing of a wrong file is written.
func TestImportForeign(t *testing.T) {
	file, dir := newDB(t), t.TempDir()
	write(t, dir, "mem.json", `{"results":[{"id":"1","memory":"Ann likes tea","user_id":"ann"}]}`)
	write(t, dir, "rows.jsonl", `{"k":1,"b":{"t":"one"}}`+"\n"+`{"k":2,"b":{"t":"two"}}`)
	write(t, dir, "bad.json", `{"results":[{"id":"1","memory":"x"},`+"\n"+`{"id":"2","memory":3}]}`)
	mem := filepath.Join(dir, "mem.json")
	require.Contains(t, ok(t, "", "import", file, "acme/ann", mem), "format mem0 (detected by")
	require.Contains(t, ok(t, "", "import", file, "acme/ann", mem), "wrote 0 new and 0 changed of 1 item")
	require.Contains(t, ok(t, "", "get", file, "acme/ann", "mem0:1", "--json"), `"scratch"`)
	require.NotContains(t, ok(t, "", "assemble", file, "acme/ann", "tea"), "likes tea")
	rows := filepath.Join(dir, "rows.jsonl")
	require.Contains(t, dbctl("", "import", file, "acme/rows", rows).err, "--from FORMAT")
	require.Contains(t, dbctl("", "import", file, "acme/rows", rows, "--from", "jsonl").err, "id=.path")
	require.Contains(t, ok(t, "", "import", file, "acme/rows", "--from", "jsonl", "--map", "id=.k,text=.b.t", rows), "wrote 2 new")
	r := dbctl("", "import", file, "acme/bad", filepath.Join(dir, "bad.json"))
	require.Contains(t, r.err, "line 2, field memory")
	require.NotContains(t, ok(t, "", "ls", file), "acme/bad", "nothing of it is in")
	require.Contains(t, dbctl("", "import", file, mem).err, "expected SCOPE before it")
	require.Contains(t, dbctl("", "import", file, "acme/x", mem, "--from", "nosuch").err, "one of openai")
}

// What one provider accepts and another one does not is written as the other accepts it, or left out and counted.
func TestSessionExportIsAccepted(t *testing.T) {
	file := newDB(t)
	long := strings.Repeat("i", 41)
	ok(t, `{"role":"user","name":"Dr. Who","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},{"type":"text","text":"look"}]}
{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"x"},{"type":"text","text":"I look."},{"type":"tool_use","id":"a.b","name":"f","input":{}}]}
{"role":"tool","tool_call_id":"a.b","content":[{"type":"text","text":"a cat"},{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}
{"role":"assistant","content":null,"tool_calls":[{"id":"`+long+`","type":"function","function":{"name":"disk.read:`+strings.Repeat("a", 54)+`","arguments":"[1]"}},{"id":"c","type":"function","function":{"name":"`+strings.Repeat("g", 65)+`","arguments":"null"}}]}
{"role":"tool","tool_call_id":"c","content":""}
{"role":"tool","tool_call_id":"`+long+`","content":""}
{"role":"user","content":[{"type":"text","text":" "},{"type":"image_url","image_url":{"url":"data:image/png;base64,BBBB"}},{"type":"text","text":"and this?"}]}
`, "session", "append", file, "acme/ann", "one", "--jsonl")
	type block = map[string]any
	export := func(format string) (all []block, left any) {
		v := asJSON(t, "", "session", "export", file, "acme/ann", "one", "--format", format)
		for _, m := range v["messages"].([]any) {
			all = append(all, m.(block))
		}
		return all, v["left_out"]
	}

	said, left := export("openai")
	require.EqualValues(t, 2, left, "a thought, and an image of a tool")
	require.Equal(t, "Dr.%20Who", said[0]["name"])
	require.Equal(t, []any{block{"type": "image_url", "image_url": block{"url": "data:image/png;base64,AAAA"}}, block{"type": "text", "text": "look"}}, said[0]["content"])
	require.Equal(t, []any{block{"type": "text", "text": "I look."}}, said[1]["content"])
	require.Equal(t, []any{block{"type": "text", "text": "a cat"}}, said[2]["content"])
	id := said[3]["tool_calls"].([]any)[0].(block)["id"].(string)
	require.LessOrEqual(t, len(id), 40)
	require.Regexp(t, "^disk_read_a{54}$", said[3]["tool_calls"].([]any)[0].(block)["function"].(block)["name"])
	require.Regexp(t, "^g{64}$", said[3]["tool_calls"].([]any)[1].(block)["function"].(block)["name"])
	require.ElementsMatch(t, []any{id, "c"}, []any{said[4]["tool_call_id"], said[5]["tool_call_id"]})
	ok(t, ok(t, "", "session", "export", file, "acme/ann", "one"), "session", "append", file, "acme/ann", "two", "--jsonl")
	require.Contains(t, ok(t, "", "session", "export", file, "acme/ann", "two", "--format", "md"), "(Dr. Who)", "the name is read as it was")

	said, left = export("anthropic")
	require.EqualValues(t, 1, left, "the image of the tool")
	require.Equal(t, block{"type": "image", "source": block{"type": "base64", "media_type": "image/png", "data": "AAAA"}}, said[0]["content"].([]any)[0])
	used := said[1]["content"].([]any)
	require.Equal(t, "thinking", used[0].(block)["type"])
	require.Regexp(t, "^[a-zA-Z0-9_-]+$", used[2].(block)["id"])
	require.Equal(t, used[2].(block)["id"], said[2]["content"].([]any)[0].(block)["tool_use_id"])
	used = said[3]["content"].([]any)
	require.Regexp(t, "^g{65}$", used[1].(block)["name"], "Anthropic accepts longer ones")
	require.Equal(t, block{"_unparsed": "[1]"}, used[0].(block)["input"])
	require.Equal(t, block{"_unparsed": "null"}, used[1].(block)["input"])
	require.Equal(t, []any{block{"type": "image", "source": block{"type": "base64", "media_type": "image/png", "data": "BBBB"}}, block{"type": "text", "text": "and this?"}},
		said[len(said)-1]["content"])
}

// Messages of providers go in as they are, and come out again.
func TestSessionMessages(t *testing.T) {
	file := newDB(t)
	openai := `{"role":"user","content":[{"text":"look","type":"text"},{"image_url":{"url":"https://x/y.png"},"type":"image_url"}]}
{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{}"}}]}
{"role":"tool","content":"a cat","tool_call_id":"c1"}
{"role":"assistant","content":"It is a cat."}
`
	r := dbctl(`{"role":"system","content":"be nice"}`+"\n"+openai, "session", "append", file, "acme/ann", "one", "--jsonl")
	require.Equal(t, exitOK, r.code, r.err)
	require.Contains(t, r.err, "role system is no turn")
	require.Equal(t, openai, ok(t, "", "session", "export", file, "acme/ann", "one"))
	anthropic := ok(t, "", "session", "export", file, "acme/ann", "one", "--format", "anthropic")
	require.Contains(t, anthropic, `"type":"tool_result"`)
	ok(t, anthropic, "session", "append", file, "acme/ann", "two", "--jsonl")
	require.Equal(t, anthropic, ok(t, "", "session", "export", file, "acme/ann", "two", "--format", "anthropic"))
	md := ok(t, "", "session", "export", file, "acme/ann", "one", "--format", "md")
	require.Equal(t, 4, strings.Count(md, "## "))
	require.Len(t, asJSON(t, "", "session", "export", file, "acme/ann", "one")["messages"], 4)
	torn := `{"role":"assistant","content":"looking","tool_calls":[{"id":"a","type":"function","function":{"name":"look","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"look","arguments":"{}"}}]}
{"role":"user","content":"hurry"}
{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"look","arguments":"{}"}}]}
{"role":"tool","content":"late","tool_call_id":"b"}
{"role":"user","content":"well?"}
`
	ok(t, torn, "session", "append", file, "acme/ann", "torn", "--jsonl")
	r = dbctl("", "session", "export", file, "acme/ann", "torn")
	require.Equal(t, `{"role":"assistant","content":"looking","tool_calls":[{"id":"b","type":"function","function":{"name":"look","arguments":"{}"}}]}
{"role":"tool","content":"late","tool_call_id":"b"}
{"role":"user","content":"hurry"}
{"role":"user","content":"well?"}
`, r.out, "a late result stands behind its call, and calls without a result are left out")
	require.Contains(t, r.err, "left out: 2 calls")
	require.EqualValues(t, 2, asJSON(t, "", "session", "export", file, "acme/ann", "torn", "--format", "anthropic")["left_out"])
	require.Equal(t, 5, strings.Count(ok(t, "", "session", "export", file, "acme/ann", "torn", "--format", "md"), "## "), "the control: people see all of it")
	failed := `{"role":"user","content":[{"text":"go","type":"text"}]}
{"role":"assistant","content":[{"id":"t","input":{},"name":"x","type":"tool_use"}]}
{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"boom","is_error":true}]}
`
	ok(t, failed, "session", "append", file, "acme/ann", "failed", "--jsonl")
	require.Equal(t, failed, ok(t, "", "session", "export", file, "acme/ann", "failed", "--format", "anthropic"), "that a tool failed is kept")
	require.Contains(t, ok(t, "", "session", "export", file, "acme/ann", "failed"), `"content":[{"text":"boom","type":"text"}],"tool_call_id":"t"`)
	bad := dbctl(`{"role":"user","content":"x","content":"y"}`, "session", "append", file, "acme/ann", "three", "--jsonl")
	require.Equal(t, exitUsage, bad.code)
	require.Contains(t, bad.err, "field content")
}
