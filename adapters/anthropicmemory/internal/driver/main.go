// Command driver answers the commands of the memory tool on standard input, one JSON object a line, so that the tests that
// Anthropic's Python SDK has for its own class run on this package (testdata/upstream). Its argument is a database.
//
//	{"scope": "test-1", "command": {"command": "view", "path": "/memories"}}    → {"text": "…"} or {"error": "…"}
//	{"scope": "test-1", "put": {"id": "memories/a.md", "text": "…"}}            → {"text": ""}
//	{"scope": "test-1", "get": "memories/a.md"}                                 → {"text": "…"} or {"absent": true}
//	{"scope": "test-1", "below": "memories/"}                                   → {"ids": […]}
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/adapters/anthropicmemory"
	"github.com/ctxpage/ctxpage/store"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: driver FILE")
	}
	if err := run(context.Background(), os.Args[1], os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

type request struct {
	Scope   string
	Command json.RawMessage
	Put     *struct{ ID, Text string }
	Get     string
	Below   string
}

type response struct {
	Text   string   `json:"text"`
	Error  string   `json:"error,omitempty"`
	Absent bool     `json:"absent,omitempty"`
	IDs    []string `json:"ids"`
}

func run(ctx context.Context, path string, in io.Reader, out io.Writer) (err error) {
	db, err := ctxpage.Open(path, ctxpage.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var q request
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return fmt.Errorf("got %.80q, expected a request: %w", lines.Text(), err)
		}
		a, err := answer(ctx, db.Scope(q.Scope), &q)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(a); err != nil {
			return err
		}
	}
	return lines.Err()
}

func answer(ctx context.Context, s *ctxpage.Scope, q *request) (a response, err error) {
	switch {
	case q.Command != nil:
		blocks, err := anthropicmemory.New(s).Execute(ctx, q.Command)
		if err != nil {
			return response{Error: err.Error()}, nil
		}
		return response{Text: blocks[0].OfText.Text}, nil
	case q.Put != nil:
		_, err = s.Put(ctx, ctxpage.Artefact{ID: q.Put.ID, Kind: store.KindScratch, Text: q.Put.Text})
	case q.Get != "":
		v, failed := s.Get(ctx, q.Get)
		if errors.Is(failed, store.ErrNotFound) {
			return response{Absent: true}, nil
		}
		if err = failed; err == nil {
			a.Text = v.Text
		}
	default:
		for v, failed := range s.Artefacts(ctx, q.Below) {
			if failed != nil {
				return a, failed
			}
			a.IDs = append(a.IDs, v.ID)
		}
	}
	return a, err
}
