package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbctl"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/mcpserver"
	"github.com/ctxpage/ctxpage/serve"
	"github.com/ctxpage/ctxpage/store"
)

const (
	frozenOps  = 2000
	frozenSeed = 29
	frozenDir  = "testdata/frozen"
	frozenUp   = 330 // operations while the database is open here; then frozenDown with the files free
	frozenDown = 70
)

var update = flag.Bool("update", false, "write the golden files anew; read the difference before committing it")

var frozenTo = flag.String("frozen.to", "", "write the whole transcript of TestFrozen to this file, to compare it with that of another commit")

func TestMain(m *testing.M) {
	dbtest.CollectLess()
	if os.Getenv("DBCTL_CHECK_CHILD") != "" { // a check runs itself
		main()
	}
	os.Exit(dbtest.InMemory(m.Run))
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// frozenWorld is one run of the operations: a database, its doors, and what the answers so far have named.
type frozenWorld struct {
	t     *testing.T
	dir   string
	rng   *mathrand.Rand
	clock atomic.Int64
	db    *ctxpage.DB // nil: the files are free
	srv   *serve.Server
	mcp   *mcp.ClientSession
	close func()

	traces, batches, backups, exports []string
	news                              int
	docs                              map[string]string
	args                              string // of the operation, as drawn
}

// opRand is the randomness of the operation under way.
type opRand struct{}

func (opRand) Read(b []byte) (int, error) { return rand.Reader.Read(b) }

func (w *frozenWorld) now() time.Time { return time.UnixMicro(w.clock.Load()).UTC() }

func newFrozenWorld(t *testing.T) *frozenWorld {
	t.Helper()
	w := &frozenWorld{t: t, dir: t.TempDir(), docs: map[string]string{}, rng: mathrand.New(mathrand.NewPCG(frozenSeed, 1)), traces: []string{"01JZZZZZZZ0000000000000000"}, batches: []string{"01JZZZZZZZ0000000000000001"}}
	w.clock.Store(time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC).UnixMicro())
	t.Chdir(w.dir)
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"} {
		t.Setenv(name, w.dir)
	}
	t.Setenv("PATH", "")
	zone := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = zone })
	for i, name := range frozenDocs {
		w.docs[name] = fmt.Sprintf("# %s\n\nThe %s desk answers within %d days.\n\nRefunds above $%d00 need approval.\n", name, name, i+1, i+2)
		write(t, w.dir, "docs/"+name, w.docs[name])
	}
	write(t, w.dir, "mem.json", `[{"id":"1","memory":"Lee likes blue parcels","user_id":"lee"},{"id":"2","memory":"Ann works at the desk","user_id":"ann"}]`)
	write(t, w.dir, "key.hex", strings.Repeat("0123456789abcdef", 4))
	write(t, w.dir, "chats.json", `{"messages":[{"role":"user","content":"May I have a refund?"},{"role":"assistant","content":"Up to $400."}]}`)
	old := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	require.NoError(t, filepath.Walk(w.dir, func(p string, _ os.FileInfo, err error) error { return os.Chtimes(p, old, old) }))
	return w
}

// frozenSource has documents in memory.
type frozenSource struct{ docs map[string]string }

func (f frozenSource) Fetch(_ context.Context, key string) (store.Fetched, error) {
	return store.Fetched{Text: f.docs[key], Validator: store.Validator{Stamp: short(f.docs[key])}}, nil
}

func (f frozenSource) Probe(ctx context.Context, key string, _ store.Validator) (store.Validator, error) {
	v, err := f.Fetch(ctx, key)
	return v.Validator, err
}

// open opens the database here and its doors.
func (w *frozenWorld) open() {
	db, err := ctxpage.Open("agent.ctx", ctxpage.Options{Clock: w.now, Rand: opRand{}, NoWatch: true, Sources: map[string]store.Source{"doc": frozenSource{w.docs}}})
	require.NoError(w.t, err)
	w.db = db
	w.srv, err = serve.New(db, serve.Options{Grant: serve.Operator, Now: w.now})
	require.NoError(w.t, err)
	s, err := mcpserver.New(mcpserver.Config{DB: db, Scope: "acme/support", Actor: "claude", Write: true})
	require.NoError(w.t, err)
	there, here := mcp.NewInMemoryTransports()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.Background(), there) }()
	w.mcp, err = mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(w.t.Context(), here, nil)
	require.NoError(w.t, err)
	w.close = func() {
		w.mcp.Close()
		<-ended
		require.NoError(w.t, w.srv.Close())
		require.NoError(w.t, db.Close())
		w.db = nil
	}
}

// do carries out an operation at its door and returns what its user sees.
func (w *frozenWorld) do(line string) string {
	door, rest, _ := strings.Cut(line, " ")
	rest, stdin, _ := strings.Cut(rest, " <<< ")
	var args []string
	for _, f := range strings.Fields(rest) {
		args = append(args, w.draw(f))
	}
	stdin = w.draw(stdin)
	w.args = strings.TrimSuffix(door+" "+strings.Join(args, " ")+" <<< "+stdin, " <<< ")
	switch door {
	case "lib":
		return w.lib(args)
	case "serve":
		return w.serve(args)
	case "mcp":
		return w.tool(args)
	}
	var out, errw bytes.Buffer
	for i := range args {
		args[i] = cmp.Or(map[string]string{"F": "agent.ctx", "G": "files.ctx", "E": "sealed.ctx"}[args[i]], args[i])
	}
	code := dbctl.Tool{Now: w.now, NoWatch: true}.Run(args, strings.NewReader(stdin), &out, &errw)
	return fmt.Sprintf("exit %d\n%s%s", code, out.String(), errw.String())
}

func (w *frozenWorld) lib(args []string) string {
	var in frozenIn
	require.NoError(w.t, json.Unmarshal([]byte(args[2]), &in), "%s", args[2])
	in.ctx, in.w, in.s, in.raw = w.t.Context(), w, w.db.Scope(args[1], ctxpage.WithActor("agent")), []byte(args[2])
	v, err := frozenLib[args[0]](&in)
	b, jerr := json.Marshal(v)
	require.NoError(w.t, jerr)
	if err != nil {
		return fmt.Sprintf("%s\n%T: %v\n", b, err, err)
	}
	return string(b) + "\n"
}

func (w *frozenWorld) serve(args []string) string {
	req := httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://localhost/v1/"+args[1], strings.NewReader(strings.Join(args[2:], " ")))
	if len(args) == 2 && args[1] != "stop" {
		req.Method = http.MethodGet
	}
	req.Header.Set("Ctxpage-Scope", "acme/support")
	req.Header.Set("Ctxpage-Actor", args[0])
	req.Header.Set("Ctxpage-Role", args[0])
	rec := httptest.NewRecorder()
	w.srv.ServeHTTP(rec, req)
	return fmt.Sprintf("status %d\n%s\n", rec.Code, rec.Body.String())
}

func (w *frozenWorld) tool(args []string) string {
	var in map[string]any
	require.NoError(w.t, json.Unmarshal([]byte(args[1]), &in))
	var out any
	var err error
	switch ctx := w.t.Context(); args[0] {
	case "tools":
		out, err = w.mcp.ListTools(ctx, nil)
	case "resource":
		out, err = w.mcp.ReadResource(ctx, &mcp.ReadResourceParams{URI: in["uri"].(string)})
	case "prompt":
		out, err = w.mcp.GetPrompt(ctx, &mcp.GetPromptParams{Name: "directives"})
	default:
		out, err = w.mcp.CallTool(ctx, &mcp.CallToolParams{Name: args[0], Arguments: in})
	}
	b, jerr := json.Marshal(out)
	require.NoError(w.t, jerr)
	return fmt.Sprintf("%s %v\n", b, err)
}

var (
	frozenDocs  = []string{"billing", "parcels", "returns"}
	frozenWords = strings.Fields("refund parcel desk invoice approval policy customer window answer budget manager blue noon order note paper harbour ticket")
	frozenHole  = regexp.MustCompile(`\{[a-z]+\}`)
	frozenTrace = regexp.MustCompile(`"(?:trace|Trace)": ?"([0-9A-Z]{26})"`)
	frozenBatch = regexp.MustCompile(`"(?:batch|Batch)": ?"([0-9A-Z]{26})"`)
)

func (w *frozenWorld) pick(of []string) string { return of[w.rng.IntN(len(of))] }

func (w *frozenWorld) words(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = w.pick(frozenWords)
	}
	return strings.Join(out, " ")
}

// draw fills in the words in braces.
func (w *frozenWorld) draw(s string) string {
	return frozenHole.ReplaceAllStringFunc(strings.ReplaceAll(s, "$DIR", w.dir), func(hole string) string {
		switch hole {
		case "{scope}":
			return w.pick([]string{"acme/support", "acme/support", "acme/support", "acme", "acme/docs", "acme/support/tier2", "other"})
		case "{id}":
			return fmt.Sprint(w.pick(frozenWords[:6]), "-", w.rng.IntN(4))
		case "{ref}":
			return w.draw("{scope}:{id}@{digit}")
		case "{text}":
			return fmt.Sprintf("The %s of $%d is %s.", w.words(2), 100*w.rng.IntN(9), w.words(2+w.rng.IntN(14)))
		case "{long}":
			return strings.Repeat(w.draw("{text}")+" ", 20)
		case "{q}":
			return "what about the " + w.words(1+w.rng.IntN(4))
		case "{word}", "{tag}":
			return w.pick(frozenWords)
		case "{person}":
			return w.pick([]string{"lee", "ann", "bob"})
		case "{n}":
			return fmt.Sprint(w.rng.IntN(12))
		case "{digit}":
			return fmt.Sprint(1 + w.rng.IntN(4))
		case "{lsn}":
			return fmt.Sprint(1 + w.rng.IntN(60))
		case "{ttl}":
			return fmt.Sprint(int64(time.Duration(1+w.rng.IntN(40)) * 12 * time.Hour))
		case "{budget}":
			return fmt.Sprint(200 + 100*w.rng.IntN(30))
		case "{conf}":
			return fmt.Sprintf("0.%d", 3+w.rng.IntN(7))
		case "{doc}":
			return w.pick(frozenDocs)
		case "{session}":
			return fmt.Sprint("chat-", 1+w.rng.IntN(3))
		case "{turn}":
			return w.draw("block-{session}-{digit}")
		case "{directive}":
			return w.pick([]string{"prohibit gift cards", "permit gift cards", "use blue parcels", "premise: we sell paper", "remove gift cards", "clear", "yes", "prohibit " + w.pick(frozenWords), "use " + w.pick(frozenWords)})
		case "{trace}":
			return w.pick(w.traces[max(0, len(w.traces)-6):])
		case "{batch}":
			return w.pick(w.batches[max(0, len(w.batches)-4):])
		case "{verb}":
			return w.pick(frozenVerbs)
		case "{new}":
			w.news++
			return fmt.Sprint("new-", w.news)
		case "{backup}":
			return w.pick(append([]string{"none.ctx"}, w.backups...))
		case "{jsonl}":
			return w.pick(append([]string{"none.jsonl"}, w.exports...))
		}
		return hole
	})
}

// learn remembers what an answer names, for later operations.
func (w *frozenWorld) learn(text string) {
	for _, m := range frozenTrace.FindAllStringSubmatch(text, 1) {
		w.traces = append(w.traces, m[1])
	}
	for _, m := range frozenBatch.FindAllStringSubmatch(text, 1) {
		w.batches = append(w.batches, m[1])
	}
	for _, f := range regexp.MustCompile(`new-\d+\.(?:ctx|jsonl)`).FindAllString(w.args, 1) {
		if _, err := os.Stat(f); err != nil {
			continue
		}
		if strings.HasSuffix(f, ".ctx") {
			w.backups = append(w.backups, f)
		} else {
			w.exports = append(w.exports, f)
		}
	}
}

// frozenLeftOut is what no golden file has, because it differs between runs, machines or formats: the width of columns,
// sizes and counts of files, the version of the format, hashes of the audit's tree, processes, and the digests of
// pages whose source is a path.
var frozenLeftOut = []struct {
	what *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`  +`), "  "},
	{regexp.MustCompile(`"(file_bytes|file_before|file_after|log_bytes|column_bytes|unflushed_rows|applied_lsn|leaves_archived|checkpoints|archived|bodies|before|after|free|log|Rows|Bytes|Segments|Applied|pid|format|renderer)": ?\d+`), `"$1":N`},
	{regexp.MustCompile(`"bytes": ?\d{6,}`), `"bytes":N`},
	{regexp.MustCompile(`(file bytes|log bytes|unflushed rows|applied|archived|format)  ?\d+`), "$1 N"},
	{regexp.MustCompile(`\d+ (archived|of them in the archive|bytes of the log)|(copied|the file has|it had) \d+( bytes)?`), "$1 $2 N"},
	{regexp.MustCompile(`[A-Za-z0-9+/]{43}=`), "HASH"},
	{regexp.MustCompile(`"program": ?"[^"]*"`), `"program":P`},
	{regexp.MustCompile(`pid \d+ \([^,]*,`), "pid N (P,"},
}

// frozenIDs are ids and digests. In the first hash of an operation they are numbered by first appearance.
var frozenIDs = regexp.MustCompile(`\b(?:[0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{16,64}|[0-9A-Za-z_-]{43})\b`)

// frozenPaths are ids, and the tokens of pages whose header names a path.
var frozenPaths = regexp.MustCompile(frozenIDs.String() + `|\d+ (?:of 4000 )?tokens|\d+ bytes`)

// frozenKey is the name of a field that the library, not a door, names.
var frozenKey = regexp.MustCompile(`"[A-Za-z_]+":`)

// frozenResult is one operation and what came of it.
type frozenResult struct{ kind, text, meaning, exact string }

// line is the golden line of operation i.
func (r *frozenResult) line(i int) string {
	return fmt.Sprintf("%04d %s %s %.60s", i, r.meaning, r.exact, r.kind)
}

func (w *frozenWorld) clean(text string) string {
	exe, err := os.Executable()
	require.NoError(w.t, err)
	text = strings.NewReplacer(w.dir, "DIR", exe, "DBCTL").Replace(text)
	for _, m := range frozenLeftOut {
		text = m.what.ReplaceAllString(text, m.to)
	}
	if strings.Contains(w.args, " G ") || strings.Contains(w.args, " demo ") {
		text = frozenPaths.ReplaceAllString(text, "ID")
	}
	return text
}

func short(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s)))[:12] }

// script takes each kind of operation once, in order, then kinds at random; down: only those that need no open database.
func (w *frozenWorld) script(kinds []string) (up, down []string) {
	var first, last []string
	for _, k := range kinds {
		if strings.HasPrefix(k, "down ") {
			last = append(last, k)
		} else {
			first = append(first, k)
		}
	}
	tools := slices.DeleteFunc(slices.Clone(first), func(k string) bool { return !strings.HasPrefix(k, "dbctl ") })
	rounds := frozenOps / (frozenUp + frozenDown)
	for len(first) < rounds*frozenUp {
		first = append(first, w.pick(first))
	}
	for len(last) < rounds*frozenDown {
		last = append(last, w.pick([]string{w.pick(last), w.pick(tools)}))
	}
	return first, last
}

// runFrozen carries out the first n operations. change, for controls, may replace the line of one, or its output.
func runFrozen(t *testing.T, n int, change func(i int, line, out string) (string, string)) []frozenResult {
	kinds := frozenKinds(t)
	w := newFrozenWorld(t)
	up, down := w.script(kinds)
	cryptotest.SetGlobalRandom(t, frozenSeed)
	w.open()
	defer func() {
		if w.db != nil {
			w.close()
		}
	}()
	var results []frozenResult
	ids := map[string]string{}
	for i := range n {
		var line string
		cryptotest.SetGlobalRandom(t, uint64(i))
		w.clock.Add((time.Duration(1+w.rng.IntN(120)) * time.Second).Microseconds())
		if i%50 == 49 {
			w.clock.Add((26 * time.Hour).Microseconds())
		}
		if i%(frozenUp+frozenDown) < frozenUp {
			if w.db == nil {
				w.open()
			}
			line, up = up[0], up[1:]
		} else {
			if w.db != nil {
				w.close()
			}
			line, down = down[0], down[1:]
		}
		kind := line
		if change != nil {
			line, _ = change(i, line, "")
		}
		raw := w.do(line)
		w.learn(raw)
		if w.db != nil {
			_, err := w.db.Head(t.Context()) // it syncs the audit: counts do not depend on when that happens
			require.NoError(t, err)
		}
		text := w.clean("$ " + w.args + "\n" + raw)
		if change != nil {
			_, text = change(i, line, text)
		}
		meaning := frozenIDs.ReplaceAllStringFunc(text, func(id string) string {
			if ids[id] == "" {
				ids[id] = fmt.Sprint("#", len(ids))
			}
			return ids[id]
		})
		if strings.HasPrefix(kind, "lib ") {
			meaning = frozenKey.ReplaceAllString(meaning, "")
		}
		results = append(results, frozenResult{kind, text, short(meaning), short(text)})
	}
	return results
}

func frozenKinds(t *testing.T) (kinds []string) {
	f, err := os.Open(filepath.Join(frozenDir, "ops.txt"))
	require.NoError(t, err)
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if !strings.HasPrefix(s.Text(), "#") && s.Text() != "" {
			kinds = append(kinds, s.Text())
		}
	}
	return kinds
}

// frozenFiles are the golden files: a line for each operation, and the whole text of the first of each kind.
func frozenFiles(results []frozenResult) (lines, texts string) {
	var l, x strings.Builder
	seen := map[string]bool{}
	for i, r := range results {
		l.WriteString(r.line(i) + "\n")
		if !seen[r.kind] {
			seen[r.kind] = true
			fmt.Fprintf(&x, "%04d %s", i, r.text)
		}
	}
	return l.String(), x.String()
}

// frozenDifferences names the operations whose output is not the golden one.
func frozenDifferences(results []frozenResult, golden string) (differ []string) {
	want := strings.Split(strings.TrimSuffix(golden, "\n"), "\n")
	for i, r := range results {
		switch {
		case i >= len(want):
			differ = append(differ, fmt.Sprintf("%04d is not in the golden file: %s", i, r.kind))
		case r.line(i) == want[i]:
		case strings.Contains(want[i], r.meaning+" "):
			differ = append(differ, fmt.Sprintf("%04d differs in ids, digests or names of fields only: %s\n%s", i, r.kind, r.text))
		default:
			differ = append(differ, fmt.Sprintf("%04d differs: %s\n%s", i, r.kind, r.text))
		}
	}
	return differ
}

// What users see of 2,000 operations at every door is as the golden files have it. After a difference, run it with
// -frozen.to FILE here and at the commit before, and compare the files. -update writes the golden files anew.
func TestFrozen(t *testing.T) {
	dir, err := filepath.Abs(frozenDir)
	require.NoError(t, err)
	if dbtest.Race {
		results := runFrozen(t, 300, nil)
		want, err := os.ReadFile(filepath.Join(dir, "operations.txt"))
		require.NoError(t, err)
		require.Empty(t, frozenDifferences(results, string(want)))
		return
	}
	results := runFrozen(t, frozenOps, nil)
	if *frozenTo != "" {
		var all strings.Builder
		for i, r := range results {
			fmt.Fprintf(&all, "%04d %s", i, r.text)
		}
		require.NoError(t, os.WriteFile(*frozenTo, []byte(all.String()), 0o600))
	}
	lines, texts := frozenFiles(results)
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "operations.txt"), []byte(lines), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "texts.txt"), []byte(texts), 0o644))
	}
	want, err := os.ReadFile(filepath.Join(dir, "operations.txt"))
	require.NoError(t, err)
	if differ := frozenDifferences(results, string(want)); len(differ) > 0 {
		t.Fatalf("%d of %d operations differ, first:\n%s", len(differ), len(results), strings.Join(differ[:min(5, len(differ))], "\n"))
	}
	require.Equal(t, string(want), lines, "the golden file has more operations")
	want, err = os.ReadFile(filepath.Join(dir, "texts.txt"))
	require.NoError(t, err)
	require.Equal(t, string(want), texts)
}

// Controls: another argument, and another output, of one operation are found and named.
func TestFrozenFindsChanges(t *testing.T) {
	want, err := os.ReadFile(filepath.Join(frozenDir, "operations.txt"))
	require.NoError(t, err)
	for name, change := range map[string]func(i int, line, out string) (string, string){
		"argument": func(i int, line, out string) (string, string) {
			if i == 20 {
				line = strings.Replace(line, "{scope}", "acme", 1)
			}
			return line, out
		},
		"output": func(i int, line, out string) (string, string) {
			if i == 20 {
				out = strings.Replace(out, "\n", " \n", 1)
			}
			return line, out
		},
	} {
		t.Run(name, func(t *testing.T) {
			differ := frozenDifferences(runFrozen(t, 30, change), string(want))
			require.NotEmpty(t, differ)
			require.Contains(t, differ[0], "0020 differs: lib versions")
			if name == "output" {
				require.Len(t, differ, 1)
			}
		})
	}
}

// frozenVerbs are the verbs of dbctl that may stand alone.
var frozenVerbs = slices.DeleteFunc(dbctl.Verbs(), func(verb string) bool { return verb == "demo" })
