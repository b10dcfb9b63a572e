package ui_test

import (
	"flag"
	"fmt"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/ui"
)

var measured = flag.Int("ui.pages", 0, "measure every view on a database of so many pages, and a context for each ten (bench/README.md)")

// Server time and size of every view on a large database. It judges the sizes; the times are printed, because they depend on the machine.
func TestMeasureViews(t *testing.T) {
	if *measured == 0 {
		t.Skip("it measures: go test ./ui -run TestMeasureViews -ui.pages 100000 -v")
	}
	const each = 100 // pages of a scope
	ctx := t.Context()
	db := must(ctxpage.Open(filepath.Join(t.TempDir(), "a.ctx"), ctxpage.Options{NoWatch: true}))(t)
	defer func() { require.NoError(t, db.Close()) }()
	begun := time.Now()
	f := &fixture{t: t, db: db}
	for n := range *measured / each {
		s := db.Scope(fmt.Sprintf("acme/team-%04d/agent", n), ctxpage.WithActor("bot"))
		require.NoError(t, s.Update(ctx, func(tx *ctxpage.Txn) error {
			for i := range each {
				a := ctxpage.Artefact{ID: fmt.Sprintf("note-%03d", i), Subject: "lee", Tags: []string{"note"}, Text: fmt.Sprintf("Refund %d of team %d takes %d days and is approved by the desk.", i, n, i%30)}
				if err := tx.Put(ctx, a); err != nil {
					return err
				}
			}
			return nil
		}))
		for i := range each / 10 {
			a := must(s.Assemble(ctx, ctxpage.Query{Text: fmt.Sprint("how long does refund ", i, " take?"), Budget: 1500}))(t)
			f.first, f.second = f.second, a.Trace
		}
	}
	s := db.Scope("acme/team-0000/agent", ctxpage.WithActor("bot"))
	for i := range 1000 {
		must(s.Session("chat").Append(ctx, ctxpage.Turn{Role: "user", Text: fmt.Sprint("question ", i, " of a long conversation")}))(t)
	}
	for i := range 200 {
		tx := must(s.Begin(ctx))(t)
		require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("note-", i), Text: "another text"}))
		require.Error(t, tx.Commit(ctx, ctxpage.Verdict{}))
		f.held = tx.ID()
	}
	stats := must(db.Stats(ctx))(t)
	t.Logf("made in %v: %d pages, %d leaves, %d scopes", time.Since(begun).Round(time.Second), stats.Pages, stats.Leaves, stats.Scopes)
	h := must(ui.New(ui.Options{DB: db, Write: true}))(t)
	defer h.Close()
	scope, ref := url.QueryEscape(s.Name()), url.QueryEscape("acme/team-0000/agent:note-007")
	for _, v := range [][2]string{
		{"Live", "/"}, {"Live, by actor", "/?actor=nobody"}, {"Context", "/context?trace=" + f.second}, {"Context, as JSON", "/context?tab=json&trace=" + f.second}, {"Why", "/why?trace=" + f.second + "&ref=note-007"},
		{"Diff", "/diff?a=" + f.first + "&b=" + f.second}, {"Page", "/page?ref=" + ref}, {"Page, contexts", "/page?contexts=1&ref=" + ref}, {"Sessions", "/sessions"}, {"Session", "/session?scope=" + scope + "&id=chat"},
		{"Review", "/review"}, {"Batch", "/batch?id=" + f.held}, {"Try", "/try?scope=" + scope + "&q=refund+7"}, {"Browse", "/browse"}, {"Browse, a scope", "/browse?scope=" + scope}, {"Browse, search", "/browse?q=refund+7&scope=" + scope},
		{"Stale pages", "/sources?scope=" + scope}, {"Health", "/health"},
	} {
		var times []time.Duration
		size := 0
		for range 9 {
			w, at := httptest.NewRecorder(), time.Now()
			h.ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1"+v[1], nil))
			times = append(times, time.Since(at))
			require.Equal(t, 200, w.Code, "%s: %s", v[0], w.Body)
			size = w.Body.Len()
		}
		slices.Sort(times)
		t.Logf("| %s | %.1f | %.1f | %d |", v[0], times[4].Seconds()*1000, times[8].Seconds()*1000, size/1000)
		require.LessOrEqual(t, size, 150_000, v[0])
	}
}
