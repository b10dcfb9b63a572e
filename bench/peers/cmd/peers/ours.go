package main

import (
	"context"
	"path/filepath"

	"github.com/ctxpage/ctxpage"
)

// page is ctxpage with its default options.
type page struct {
	db *ctxpage.DB
	s  *ctxpage.Scope
}

func (p *page) name() string { return "ctxpage" }

func (p *page) open(dir string) (err error) {
	if p.db, err = ctxpage.Open(filepath.Join(dir, "agent.ctx"), ctxpage.Options{}); err == nil {
		p.s = p.db.Scope("acme/bench")
	}
	return err
}

func (p *page) close() error { return p.db.Close() }

func (p *page) put(ctx context.Context, id, text string) error {
	_, err := p.s.Put(ctx, ctxpage.Artefact{ID: id, Text: text})
	return err
}

func (p *page) fill(ctx context.Context, ids, texts []string) error {
	return p.s.Update(ctx, func(tx *ctxpage.Txn) error {
		for i, id := range ids {
			if err := tx.Put(ctx, ctxpage.Artefact{ID: id, Text: texts[i]}); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *page) get(ctx context.Context, id string) (string, error) {
	v, err := p.s.Get(ctx, id)
	if err != nil {
		return "", err
	}
	return v.Text, nil
}

func (p *page) search(ctx context.Context, question string, k int) (ids []string, err error) {
	found, err := p.s.Search(ctx, question, k)
	for _, h := range found.Hits {
		ids = append(ids, h.Ref.ID)
	}
	return ids, err
}

func (p *page) assemble(ctx context.Context, question string, k int) (int, error) {
	a, err := p.s.Assemble(ctx, ctxpage.Query{Text: question, Budget: 40_000, TopK: k})
	if err != nil {
		return 0, err
	}
	return len(a.Blocks), nil
}

func (p *page) turn(ctx context.Context, session, text string) error {
	_, err := p.s.Session(session).Append(ctx, ctxpage.Turn{Role: "user", Text: text})
	return err
}

// settle checkpoints twice: the first one cuts the log up to where the one before it ended.
func (p *page) settle(ctx context.Context) error {
	for range 2 {
		if _, err := p.db.Admin().Checkpoint(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *page) logDir(dir string) string { return filepath.Join(dir, "agent.ctx-wal") }

func (p *page) applied(ctx context.Context) (float64, error) {
	st, err := p.db.Stats(ctx)
	if err != nil || st.LSN == 0 {
		return 0, err
	}
	return float64(st.Applied) / float64(st.LSN), nil
}
