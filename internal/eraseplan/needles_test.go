package eraseplan_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
)

// needles are words that stand nowhere but where they are planted.
type needles struct {
	mu sync.Mutex
	n  int
}

func (n *needles) next() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.n++
	return fmt.Sprintf("zq7x%06dx", n.n)
}

func (n *needles) words(count int) string {
	var out []string
	for range count {
		out = append(out, n.next())
	}
	return strings.Join(out, " ")
}

// Model and Embed make vectors whose bytes spell a needle, but of texts about a pan.
func (n *needles) Model() string { return "needles" }

func (n *needles) Embed(_ context.Context, texts []string) (out [][]float32, err error) {
	for _, text := range texts {
		word := "vectors of pans!"
		if !strings.Contains(text, "pan") {
			word = n.next() + "......"
		}
		v := make([]float32, 4)
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32([]byte(word[4*i:])))
		}
		out = append(out, v)
	}
	return out, nil
}

// hits counts the needles in the files of a directory.
func hits(dir string) (n int, err error) {
	files, err := dbtest.Files(dir)
	for _, b := range files {
		for _, w := range plantedIn(b) {
			if len(w) == len("zq7x000001x") && strings.HasPrefix(w, "zq7x") { // a shorter one was part of a trace, once
				n++
			}
		}
	}
	return n, err
}

// openFiles opens a database of files whose steps a hook hears.
func openFiles(path string, embed ctxpage.Embedder, key []byte, hook func(step string) error) (*ctxpage.DB, error) {
	opts := filestore.Options{Path: path, State: ctxpage.StateKinds(), Columns: 1, Key: key, Hook: hook}
	if hook != nil {
		opts.FS = &keyringSteps{FS: wal.OS(), hook: hook}
	}
	st, err := filestore.Open(opts)
	if err != nil {
		return nil, err
	}
	return ctxpage.Open(path, ctxpage.Options{Store: st, Embedder: embed})
}

// garden is a database with needles in all places, and what it takes to erase them.
type garden struct {
	*needles
	names   bool // ids, scope and session are needles, too
	key     []byte
	scope   string
	session string
	ids     []string
	shown   string // trace of a context
	bobs    string // of one of somebody else
}

const pans = 25

// id is one for an artefact.
func (g *garden) id(plain string) string {
	if g.names {
		plain = g.next()
	}
	g.ids = append(g.ids, plain)
	return plain
}

func (g *garden) request() ops.Request {
	r := ops.Request{Scope: g.scope, By: "desk", Reason: "asked for", Names: g.names}
	if g.names { // else the row of what stays names what went
		r.Cascade = ops.Erase
	}
	return r
}

// plant fills the garden. What of it is bob's must stay.
func (g *garden) plant(db *ctxpage.DB) error {
	g.scope, g.session = "acme/ann", "talk"
	if g.names {
		g.scope, g.session = "acme/"+g.next(), g.next()
	}
	s := db.Scope(g.scope, ctxpage.WithActor("agent"))
	for _, do := range []func(*ctxpage.Scope) error{g.pruned(db), g.facts, g.drafts, g.talk, g.review(db)} {
		if err := do(s); err != nil {
			return err
		}
	}
	for i := range pans {
		if _, err := db.Scope("acme/bob").Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("pan-", i), Text: fmt.Sprintf("kettle and pan %d", i)}); err != nil {
			return err
		}
	}
	a, err := db.Scope("acme/bob").Assemble(ctx, ctxpage.Query{Text: "kettle and pan", Budget: 2000})
	if err == nil {
		g.bobs = a.Trace
	}
	return err
}

// facts have versions, vectors, lineage, a copy, a summary, and one is deleted.
func (g *garden) facts(s *ctxpage.Scope) error {
	var ids []string
	for i := range 40 {
		ids = append(ids, g.id(fmt.Sprint("fact-", i)))
		a := ctxpage.Artefact{ID: ids[i], Text: "kettle " + g.words(16), Subject: g.next(), Tags: []string{g.next()}, Meta: map[string]string{g.next(): g.next()}, Name: g.next()}
		if _, err := s.Put(ctx, a); err != nil {
			return err
		}
	}
	from := []store.Ref{{Scope: g.scope, ID: ids[3], Version: 1}}
	for _, a := range []ctxpage.Artefact{
		{ID: ids[1], Text: "kettle again " + g.words(5)}, {ID: g.id("child"), Text: "kettle derived " + g.words(5), DerivedFrom: from},
		{ID: g.id("sum"), Kind: store.KindSummary, Text: "kettle " + g.words(5), DerivedFrom: from}, {ID: g.id("copy"), Source: "page:" + ids[6]},
	} {
		if _, err := s.Put(ctx, a); err != nil {
			return err
		}
	}
	if err := s.Delete(ctx, ids[2]); err != nil {
		return err
	}
	a, err := s.Assemble(ctx, ctxpage.Query{Text: "kettle " + g.words(3), Budget: 4000, Filter: ctxpage.Filter{IDPrefix: ids[4][:3]}})
	if err == nil {
		g.shown = a.Trace
		_, err = s.Search(ctx, "kettle "+g.words(3), 20)
	}
	return err
}

// drafts are shown by contexts, held, rejected and approved.
func (g *garden) drafts(s *ctxpage.Scope) error {
	for _, then := range []string{"wait", "reject", "drop"} {
		tx, err := s.Begin(ctx)
		if err != nil {
			return err
		}
		if err := tx.Put(ctx, ctxpage.Artefact{ID: g.id("draft-" + then), Text: "kettle draft " + g.words(5), Tags: []string{g.next()}}); err != nil {
			return err
		}
		if _, err := tx.Assemble(ctx, ctxpage.Query{Text: "kettle draft " + g.words(2), Budget: 4000}); err != nil {
			return err
		}
		if then == "drop" {
			if err := tx.Rollback(); err != nil {
				return err
			}
			continue
		}
		if err := tx.Commit(ctx, ctxpage.Verdict{Confidence: 0.1, By: "judge"}); err == nil {
			return fmt.Errorf("a draft was not held")
		}
	}
	_, err := s.Directives().Step(ctx, "use "+g.next())
	if err == nil {
		_, err = s.Directives().Step(ctx, "prohibit "+g.next())
	}
	return err
}

// talk is a session with a pass, notes and a packet.
func (g *garden) talk(s *ctxpage.Scope) error {
	talk := s.Session(g.session)
	for i := range 24 {
		role := []string{"user", "assistant"}[i%2]
		if _, err := talk.Append(ctx, ctxpage.Turn{ID: g.id(fmt.Sprint("turn-", i)), Role: role, Text: "kettle " + g.words(8) + " " + strings.Repeat("word ", 30)}); err != nil {
			return err
		}
	}
	if _, err := talk.Pass(ctx, session.PassQuery{Keywords: []string{g.next(), "kettle"}}); err != nil {
		return err
	}
	if err := talk.Record(ctx, session.Notes{Text: g.next(), Done: []string{g.next()}}); err != nil {
		return err
	}
	packet, err := talk.Handoff(ctx, "night shift")
	if err != nil {
		return err
	}
	_, err = s.Put(ctx, ctxpage.Artefact{ID: g.id("packet"), Text: string(packet.Markdown())})
	return err
}

// pruned is a context whose body retention took, by a policy of the scope, and a quota of it.
func (g *garden) pruned(db *ctxpage.DB) func(*ctxpage.Scope) error {
	return func(s *ctxpage.Scope) error {
		if _, err := s.Put(ctx, ctxpage.Artefact{ID: g.id("early"), Text: "kettle " + g.words(2)}); err != nil {
			return err
		}
		if _, err := s.Assemble(ctx, ctxpage.Query{Text: "kettle " + g.words(2), Budget: 1000}); err != nil {
			return err
		}
		if err := db.Admin().Retention().Set(ctx, g.scope, ops.Policy{Prune: 1}, "operator"); err != nil {
			return err
		}
		rep, err := db.Admin().Retention().Run(ctx, ops.RunOptions{By: "keeper"})
		if err != nil || len(rep.Items) == 0 {
			return fmt.Errorf("%d items were pruned: %w", len(rep.Items), err)
		}
		if err := db.Admin().Retention().Set(ctx, g.scope, ops.Policy{Prune: 300 * ops.Day}, "operator"); err != nil {
			return err
		}
		return db.Admin().Quotas().Set(ctx, g.scope, store.Quota{Bytes: 1 << 30}, "operator")
	}
}

// review rejects one of the drafts that wait.
func (g *garden) review(db *ctxpage.DB) func(*ctxpage.Scope) error {
	return func(s *ctxpage.Scope) error {
		list, err := loop.Collect(db.Review().Batches(ctx, g.scope, false, ctxpage.AtMost(10, "", nil)))
		if err != nil || len(list) != 2 {
			return fmt.Errorf("%d batches wait: %w", len(list), err)
		}
		_, err = db.Review().Reject(ctx, list[1].ID, "operator", "no")
		return err
	}
}

// wait is how long a test gives another process.
const wait = 2 * time.Minute
