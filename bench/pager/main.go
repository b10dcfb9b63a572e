// Command pager measures what a pass does to the turns that a question needs. Each conversation of a file becomes a
// session of a database, each question the intent of a pass:
//
//	pager CONVERSATIONS.json
//
// The file is a list of {"turns": [{"id", "speaker", "text"}], "questions": [{"text", "evidence": [id]}]}. The first
// who speaks counts as the user, everybody else as the assistant. It prints, for each set of parameters, the share of
// the evidence that is retained, paged and evicted, and the same of all turns.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/session"
)

type conversation struct {
	Turns []struct {
		ID, Speaker, Text string
	}
	Questions []struct {
		Text     string
		Evidence []string
	}
}

// row is the count of one set of parameters, by session.Action.
type row struct {
	name     string
	params   session.Params
	evidence [3]int
	all      [3]int
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: pager CONVERSATIONS.json")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "pager:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var talks []conversation
	if err := json.Unmarshal(raw, &talks); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	bare := session.RecommendedParams()
	bare.UserFloor = false
	rows := []row{
		{name: "compatible defaults", params: session.CompatParams()},
		{name: "recommended", params: session.RecommendedParams()},
		{name: "recommended, no floor for the user", params: bare},
	}
	dir, err := os.MkdirTemp("", "pager")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := ctxpage.Open(filepath.Join(dir, "pager.ctx"), ctxpage.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	for i := range talks {
		if err := measure(ctx, db.Scope("talk").Session(fmt.Sprint(i)), &talks[i], rows); err != nil {
			return fmt.Errorf("conversation %d: %w", i, err)
		}
	}
	for _, r := range rows {
		fmt.Printf("%-36s evidence: %s   all turns: %s\n", r.name, shares(r.evidence), shares(r.all))
	}
	return nil
}

func measure(ctx context.Context, s *ctxpage.Session, c *conversation, rows []row) error {
	turns := make([]ctxpage.Turn, len(c.Turns))
	place := map[string]int{}
	for i, t := range c.Turns {
		turns[i] = ctxpage.Turn{Role: "assistant", Name: t.Speaker, Text: t.Text}
		if t.Speaker == c.Turns[0].Speaker {
			turns[i].Role = "user"
		}
		place[t.ID] = i
	}
	if _, err := s.Append(ctx, turns...); err != nil {
		return err
	}
	for _, q := range c.Questions {
		for i := range rows {
			p, err := s.Pass(ctx, session.PassQuery{Keywords: []string{q.Text}, Params: rows[i].params, DryRun: true})
			if err != nil {
				return err
			}
			for a, n := range p.Count {
				rows[i].all[a] += n
			}
			for _, id := range q.Evidence {
				if at, ok := place[id]; ok {
					rows[i].evidence[p.Verdicts[at].Action]++
				}
			}
		}
	}
	return nil
}

func shares(n [3]int) string {
	sum := max(n[0]+n[1]+n[2], 1)
	share := func(a session.Action) float64 { return 100 * float64(n[a]) / float64(sum) }
	return fmt.Sprintf("retained %4.1f%%  paged %4.1f%%  evicted %4.1f%%  of %d", share(session.Retain), share(session.Page), share(session.Evict), sum)
}
