// Command evidence measures how much of the evidence for an answer an assembled context holds. It speaks a two-process
// protocol over the public API of ctxpage, so that the store really is on disk in between:
//
//	evidence ingest DIR    turns on stdin, one JSON object a line
//	evidence query DIR     questions on stdin, one a line; the chosen turns on stdout, one answer a line
//
// A turn is {"id","session","time","speaker","text","tokens"} and, where facts are kept up to date, "source" and
// "version": these become id and version of the artefact, so a later turn replaces an earlier one. A question is
// {"question_id","budget","text","now"}; its answer {"question_id","budget","chosen","tokens"}. A turn costs
// ceil(bytes of "YYYY-MM-DD HH:MM Speaker: text" / 4) + 1 tokens.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
)

type turn struct {
	ID      string          `json:"id"`
	Session json.RawMessage `json:"session"`
	Time    string          `json:"time"`
	Speaker string          `json:"speaker"`
	Text    string          `json:"text"`
	Tokens  int             `json:"tokens"`
	Source  string          `json:"source"`
}

type question struct {
	ID     string `json:"question_id"`
	Budget int    `json:"budget"`
	Text   string `json:"text"`
	Now    string `json:"now"`
}

type answer struct {
	ID     string   `json:"question_id"`
	Budget int      `json:"budget"`
	Chosen []string `json:"chosen"`
	Tokens int      `json:"tokens"`
}

// charge counts a turn as the protocol does: the date and time that stand before it are part of its cost.
type charge struct{}

const stamp = "2006-01-02 15:04 "

func (charge) Name() string          { return "evidence/1" }
func (charge) Count(text string) int { return (len(stamp)+len(text)+3)/4 + 1 }

const scope = "conversation"

func main() {
	if len(os.Args) < 3 || os.Args[1] != "ingest" && os.Args[1] != "query" {
		fmt.Fprintln(os.Stderr, "usage: evidence ingest DIR < turns\n       evidence query DIR < questions > answers")
		os.Exit(2)
	}
	run := ingest
	if os.Args[1] == "query" {
		run = query
	}
	if err := run(context.Background(), os.Args[2], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "evidence:", err)
		os.Exit(1)
	}
}

func open(dir string, now func() time.Time) (*ctxpage.DB, error) {
	return ctxpage.Open(filepath.Join(dir, "evidence.ctx"), ctxpage.Options{Counter: charge{}, Clock: now, PageTokens: ctxpage.MaxPageTokens})
}

// eachLine decodes one JSON object a line.
func eachLine[T any](in io.Reader, fn func(T) error) error {
	sc := bufio.NewScanner(in)
	sc.Buffer(nil, 16<<20)
	for n := 1; sc.Scan(); n++ {
		if strings.TrimSpace(sc.Text()) == "" {
			continue
		}
		var v T
		if err := json.Unmarshal(sc.Bytes(), &v); err != nil {
			return fmt.Errorf("line %d: expected a JSON object: %w", n, err)
		}
		if err := fn(v); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return sc.Err()
}

// parseTime reads the layouts the data sets use.
func parseTime(s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("time %q: expected something like 2023-05-08 13:56", s)
}

// perCommit keeps versions of one source apart: they are put one after the other, in the order of writing.
const perCommit = 200

func ingest(ctx context.Context, dir string, in io.Reader, _ io.Writer) error {
	db, err := open(dir, time.Now)
	if err != nil {
		return err
	}
	defer db.Close()
	s := db.Scope(scope)
	var batch []ctxpage.Artefact
	seen := map[string]bool{}
	flush := func() error {
		err := s.Update(ctx, func(tx *ctxpage.Txn) error {
			for _, a := range batch {
				if err := tx.Put(ctx, a); err != nil {
					return err
				}
			}
			return nil
		})
		batch = batch[:0]
		clear(seen)
		return err
	}
	seq := int64(0)
	err = eachLine(in, func(t turn) error {
		a, err := t.artefact(seq)
		seq++
		if err != nil {
			return err
		}
		if len(batch) == perCommit || seen[a.ID] {
			if err := flush(); err != nil {
				return err
			}
		}
		batch, seen[a.ID] = append(batch, a), true
		return nil
	})
	if err != nil {
		return err
	}
	if err := flush(); err != nil {
		return err
	}
	return db.Close()
}

func (t turn) artefact(seq int64) (ctxpage.Artefact, error) {
	at, err := parseTime(t.Time)
	if err != nil {
		return ctxpage.Artefact{}, err
	}
	id := t.ID
	if t.Source != "" {
		id = "source/" + t.Source
	}
	return ctxpage.Artefact{
		ID: id, Kind: ctxpage.KindMessage, Role: "user", CurrentAsOf: at, Group: "session " + strings.Trim(string(t.Session), `"`), Seq: seq,
		Text: t.Speaker + ": " + t.Text, Meta: map[string]string{"turn": t.ID},
	}, nil
}

func query(ctx context.Context, dir string, in io.Reader, out io.Writer) error {
	now := time.Now()
	db, err := open(dir, func() time.Time { return now })
	if err != nil {
		return err
	}
	defer db.Close()
	s := db.Scope(scope)
	w := bufio.NewWriter(out)
	defer w.Flush()
	enc := json.NewEncoder(w)
	return eachLine(in, func(q question) error {
		if now, err = parseTime(q.Now); err != nil {
			return err
		}
		a, err := s.Assemble(ctx, ctxpage.Query{Text: q.Text, Budget: q.Budget, Charge: ctxpage.ChargeContents})
		if err != nil {
			return err
		}
		ans := answer{ID: q.ID, Budget: q.Budget, Chosen: []string{}, Tokens: a.Tokens}
		for _, b := range a.Blocks {
			if b.Form.String() == "full" {
				ans.Chosen = append(ans.Chosen, b.Meta["turn"])
			}
		}
		return enc.Encode(ans)
	})
}
