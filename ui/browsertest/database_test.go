package browsertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// world is a database that this process has open, and an inspector of it in a process of its own.
type world struct {
	t             *testing.T
	db            *ctxpage.DB
	dir, link     string
	first, second string // contexts
	held          []string
}

const scopeName = "acme/support/agent-7"

var policies = []string{
	"Refunds up to $400 need no approval. Above that a team lead approves them within two working days.",
	"A refund by card takes 14 days; by bank transfer it takes five working days.",
	"Parcels that were lost are replaced once the carrier confirms it. The customer does not pay for the second shipment.",
	"Invoices are corrected until the end of the following month. Later corrections need the finance team.",
	"Accounts are deleted 30 days after the request. Open invoices stop the clock.",
	"A discount code is valid once per customer and cannot be combined with a volume discount.",
}

// newWorld fills a database as a day of a support agent would, and starts the inspector with the flags.
func newWorld(t *testing.T, flags ...string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	now := time.Now().UTC().Truncate(time.Second).Add(-20 * time.Hour)
	clock := func() time.Time { now = now.Add(41 * time.Second); return now }
	path := filepath.Join(w.dir, "agent.ctx")
	var err error
	w.db, err = ctxpage.Open(path, ctxpage.Options{FileRoots: []string{w.dir}, RecordedRoots: true, Clock: clock})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.db.Close()) })
	w.fill()
	w.serve(path, flags)
	return w
}

func (w *world) fill() {
	t, ctx := w.t, w.t.Context()
	docs := filepath.Join(w.dir, "docs")
	require.NoError(t, os.MkdirAll(docs, 0o700))
	for i, text := range policies {
		file := fmt.Sprintf("policy-%d.md", i+1)
		body := fmt.Sprintf("# Policy %d\n\n%s\n\n## Details\n\n%s\n", i+1, text, strings.Repeat("The desk records each case with its number, the amount and the person who decided. ", 12))
		require.NoError(t, os.WriteFile(filepath.Join(docs, file), []byte(body), 0o600))
	}
	_, err := w.db.AddFolder(ctx, "acme/support", docs)
	require.NoError(t, err)
	s := w.db.Scope(scopeName, ctxpage.WithActor("agent-7"))
	put := func(a ctxpage.Artefact) {
		_, err := s.Put(ctx, a)
		require.NoError(t, err)
	}
	put(ctxpage.Artefact{ID: "role", Kind: store.KindSystem, Text: "You answer customers of Acme. Be brief, and name the policy that you rely on."})
	put(ctxpage.Artefact{ID: "hours", Text: "The refund desk is open from 9 to 17.", Pinned: true})
	for i := range 40 {
		put(ctxpage.Artefact{ID: fmt.Sprintf("case-%02d", i), Subject: fmt.Sprint("customer-", i%7), Tags: []string{"case"}, Text: fmt.Sprintf("Case %d: the customer asked about refund number %d and was told that it takes 14 days.", i, 1000+i)})
	}
	put(ctxpage.Artefact{ID: "refund-limit", Text: "The limit of refunds without approval is $300."})
	_, err = s.Directives().Step(ctx, "set premise Answer in English.")
	require.NoError(t, err)
	chat := s.Session("monday")
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 6000}))
	for i := range 110 {
		_, err := chat.Append(ctx, ctxpage.Turn{Role: "user", Text: fmt.Sprintf("How long does refund %d take, and who approves it? %s", i, strings.Repeat("It was ordered in March and sent back in April. ", 3))})
		require.NoError(t, err)
		_, err = chat.Append(ctx, ctxpage.Turn{Role: "assistant", Text: fmt.Sprintf("Refund %d takes 14 days by card.", i)})
		require.NoError(t, err)
	}
	q := ctxpage.Query{Text: "What is the limit of refunds without approval, and how long do they take?", Session: "monday", Budget: 2400, Reserve: 300}
	a, err := s.Assemble(ctx, q)
	require.NoError(t, err)
	w.first = a.Trace
	put(ctxpage.Artefact{ID: "refund-limit", Text: "The limit of refunds without approval is $400.\nIt was $300 until March."})
	b, err := s.Assemble(ctx, q)
	require.NoError(t, err)
	w.second = b.Trace
	_, err = chat.Append(ctx, ctxpage.Turn{Role: "assistant", Text: "The limit is $300.", Trace: b.Trace})
	require.NoError(t, err)
	for i, draft := range []ctxpage.Artefact{
		{ID: "refund-limit", Text: "The limit of refunds without approval is $900.\nIt was $300 until March."},
		{ID: "answer-1", Text: "Customers may choose between card and transfer."}, {ID: "answer-2", Text: "Lost parcels are always refunded."},
	} {
		tx, err := s.Resume(ctx, b.Trace)
		require.NoError(t, err)
		require.NoError(t, tx.Put(ctx, draft))
		require.ErrorIs(t, tx.Commit(ctx, ctxpage.Verdict{Confidence: 0.3 + 0.1*float64(i), By: "checker", Note: "not supported"}), store.ErrHeld)
		w.held = append(w.held, tx.ID())
	}
	_, err = s.Search(ctx, "lost parcels", 5)
	require.NoError(t, err)
	stale := filepath.Join(docs, "policy-1.md")
	require.NoError(t, os.WriteFile(stale, []byte("# Policy 1\n\nRefunds up to $500 need no approval.\n"), 0o600))
}

// built makes dbctl, once.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ctxpage-browsertest-")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", dir, "./cmd/dbctl")
	build.Dir = "../.." // dbctl is of another module
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return filepath.Join(dir, "dbctl"), nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if bin, err := built(); err == nil {
		_ = os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}

// serve starts dbctl ui in a process of its own.
func (w *world) serve(path string, flags []string) {
	t := w.t
	bin, err := built()
	require.NoError(t, err)
	cmd := exec.Command(bin, append([]string{"ui", filepath.Base(path), "--json"}, flags...)...)
	cmd.Dir = filepath.Dir(path)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.NoError(t, cmd.Wait(), errs.String())
	})
	line, err := bufio.NewReader(pipe).ReadBytes('\n')
	require.NoError(t, err, "%s", &errs)
	var said struct {
		URL string `json:"url"`
	}
	require.NoError(t, json.Unmarshal(line, &said), string(line))
	w.link = said.URL
}

// page is a view with a name for its picture.
type page struct{ name, path string }

func (w *world) views() []page {
	ref := ctxpage.Ref{Scope: scopeName, ID: "refund-limit"}.String()
	enc := func(s string) string {
		return strings.NewReplacer("/", "%2F", ":", "%3A", " ", "+", "#", "%23").Replace(s)
	}
	scope := enc(scopeName)
	return []page{
		{"live", "/"}, {"browse", "/browse"}, {"scope", "/browse?scope=" + scope}, {"search", "/browse?q=refund&scope=" + scope}, {"stale", "/sources?scope=acme%2Fsupport"},
		{"page", "/page?with=1&contexts=1&ref=" + enc(ref)}, {"context", "/context?trace=" + w.second}, {"context-text", "/context?tab=text&trace=" + w.second},
		{"context-messages", "/context?tab=messages&trace=" + w.second}, {"why", "/why?trace=" + w.second + "&ref=" + enc(ref)}, {"diff", "/diff?a=" + w.first + "&b=" + w.second},
		{"sessions", "/sessions"}, {"session", "/session?turn=200&id=monday&scope=" + scope}, {"review", "/review"}, {"batch", "/batch?id=" + w.held[0]},
		{"try", "/try?two=1&budget-b=800&q=refunds+by+card&scope=" + scope}, {"health", "/health?scope=" + scope}, {"error", "/page?ref=rubbish"},
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}
