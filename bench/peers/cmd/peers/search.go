package main

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/mapping"
)

// sqlite is SQLite with a write-ahead log and synchronous=FULL: each commit is synced. With fts, an FTS5 index of
// stems stands beside the table and is kept by a trigger, as SQLite's documentation recommends. One connection writes, as
// SQLite has one writer; readers have their own.
type sqlite struct {
	fts           bool
	write, read   *sql.DB
	insert, fetch *sql.Stmt
	find          *sql.Stmt
}

func (s *sqlite) name() string {
	if s.fts {
		return "SQLite FTS5"
	}
	return "SQLite"
}

func (s *sqlite) open(dir string) (err error) {
	path := filepath.Join(dir, "sqlite")
	if s.write, err = connect(path, 1); err != nil {
		return err
	}
	ddl := []string{"CREATE TABLE IF NOT EXISTS pages (n INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, text TEXT NOT NULL)"}
	if s.fts {
		ddl = append(ddl,
			"CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(text, content='pages', content_rowid='n', tokenize='porter unicode61')",
			"CREATE TRIGGER IF NOT EXISTS indexed AFTER INSERT ON pages BEGIN INSERT INTO words(rowid, text) VALUES (new.n, new.text); END")
	}
	for _, q := range ddl {
		if _, err := s.write.Exec(q); err != nil {
			return err
		}
	}
	if s.read, err = connect(path, 8); err != nil {
		return err
	}
	if s.insert, err = s.write.Prepare("INSERT INTO pages(id, text) VALUES (?, ?)"); err != nil {
		return err
	}
	if s.fetch, err = s.read.Prepare("SELECT text FROM pages WHERE id = ?"); err != nil || !s.fts {
		return err
	}
	s.find, err = s.read.Prepare("SELECT p.id, p.text FROM (SELECT rowid, rank FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?) w JOIN pages p ON p.n = w.rowid ORDER BY w.rank")
	return err
}

func connect(path string, n int) (*sql.DB, error) {
	db, err := sql.Open(driver, dsn(path))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, db.Ping()
}

func (s *sqlite) close() error {
	if err := s.read.Close(); err != nil {
		return err
	}
	return s.write.Close()
}

func (s *sqlite) put(ctx context.Context, id, text string) error {
	_, err := s.insert.ExecContext(ctx, id, text)
	return err
}

func (s *sqlite) fill(ctx context.Context, ids, texts []string) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	insert := tx.StmtContext(ctx, s.insert)
	for i, id := range ids {
		if _, err := insert.ExecContext(ctx, id, texts[i]); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (s *sqlite) get(ctx context.Context, id string) (text string, err error) {
	err = s.fetch.QueryRowContext(ctx, id).Scan(&text)
	return text, err
}

func (s *sqlite) search(ctx context.Context, question string, k int) (ids []string, err error) {
	if !s.fts {
		return nil, errUnsupported
	}
	rows, err := s.find.QueryContext(ctx, strings.Join(strings.Fields(question), " OR "), k)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, text string
		if err := rows.Scan(&id, &text); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

func (s *sqlite) settle(ctx context.Context) error {
	_, err := s.write.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	return err
}

// index is bleve: its English analyser and BM25, texts stored, no term vectors.
type index struct{ x bleve.Index }

func (b *index) name() string { return "bleve" }

func (b *index) open(dir string) (err error) {
	path := filepath.Join(dir, "bleve")
	if b.x, err = bleve.Open(path); err == nil {
		return nil
	}
	m := bleve.NewIndexMapping()
	m.DefaultAnalyzer = "en"
	m.ScoringModel = "bm25"
	text := mapping.NewTextFieldMapping()
	text.IncludeTermVectors = false
	m.DefaultMapping.AddFieldMappingsAt("text", text)
	b.x, err = bleve.New(path, m)
	return err
}

func (b *index) close() error { return b.x.Close() }

func (b *index) put(_ context.Context, id, text string) error {
	return b.x.Index(id, map[string]any{"text": text})
}

func (b *index) fill(_ context.Context, ids, texts []string) error {
	batch := b.x.NewBatch()
	for i, id := range ids {
		if err := batch.Index(id, map[string]any{"text": texts[i]}); err != nil {
			return err
		}
	}
	return b.x.Batch(batch)
}

func (b *index) get(ctx context.Context, id string) (string, error) {
	ask := bleve.NewSearchRequestOptions(bleve.NewDocIDQuery([]string{id}), 1, 0, false)
	ask.Fields = []string{"text"}
	res, err := b.x.SearchInContext(ctx, ask)
	if err != nil {
		return "", err
	}
	if len(res.Hits) != 1 {
		return "", fmt.Errorf("%d documents have the id %s, expected 1", len(res.Hits), id)
	}
	text, _ := res.Hits[0].Fields["text"].(string)
	return text, nil
}

func (b *index) search(ctx context.Context, question string, k int) (ids []string, err error) {
	match := bleve.NewMatchQuery(question)
	match.SetField("text")
	ask := bleve.NewSearchRequestOptions(match, k, 0, false)
	ask.Fields = []string{"text"}
	res, err := b.x.SearchInContext(ctx, ask)
	if err != nil {
		return nil, err
	}
	for _, h := range res.Hits {
		ids = append(ids, h.ID)
	}
	return ids, nil
}

func (b *index) settle(context.Context) error { return nil }
