// Command evidence answers the protocol of bench/evidence with bleve: its English analyser, BM25, date and speaker
// indexed with the text, the best turns first until the budget is full. It is what the recall of ctxpage is held
// against; a turn costs what it costs there.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/blevesearch/bleve/v2"
)

type turn struct {
	ID      string `json:"id"`
	Time    string `json:"time"`
	Speaker string `json:"speaker"`
	Text    string `json:"text"`
	Tokens  int    `json:"tokens"`
}

type question struct {
	ID     string `json:"question_id"`
	Budget int    `json:"budget"`
	Text   string `json:"text"`
}

type answer struct {
	ID     string   `json:"question_id"`
	Budget int      `json:"budget"`
	Chosen []string `json:"chosen"`
	Tokens int      `json:"tokens"`
}

func main() {
	if len(os.Args) != 3 || os.Args[1] != "ingest" && os.Args[1] != "query" {
		fmt.Fprintln(os.Stderr, "usage: evidence ingest DIR < turns\n       evidence query DIR < questions > answers")
		os.Exit(2)
	}
	run := ingest
	if os.Args[1] == "query" {
		run = query
	}
	if err := run(filepath.Join(os.Args[2], "bleve"), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "evidence:", err)
		os.Exit(1)
	}
}

func ingest(dir string, in io.Reader, _ io.Writer) error {
	m := bleve.NewIndexMapping()
	m.DefaultAnalyzer = "en"
	m.ScoringModel = "bm25"
	x, err := bleve.New(dir, m)
	if err != nil {
		return err
	}
	batch := x.NewBatch()
	for dec := json.NewDecoder(bufio.NewReader(in)); ; {
		var t turn
		if err := dec.Decode(&t); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		doc := map[string]any{"text": header(t.Time) + t.Speaker + ": " + t.Text, "tokens": t.Tokens}
		if err := batch.Index(t.ID, doc); err != nil {
			return err
		}
	}
	if err := x.Batch(batch); err != nil {
		return err
	}
	return x.Close()
}

// header writes the date as people ask for it.
func header(at string) string {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04"} {
		if t, err := time.Parse(layout, at); err == nil {
			return t.Format("2 January 2006 ")
		}
	}
	return at + " "
}

func query(dir string, in io.Reader, out io.Writer) error {
	x, err := bleve.Open(dir)
	if err != nil {
		return err
	}
	defer x.Close()
	w := bufio.NewWriter(out)
	enc := json.NewEncoder(w)
	for dec := json.NewDecoder(bufio.NewReader(in)); ; {
		var q question
		if err := dec.Decode(&q); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		a, err := fill(x, q)
		if err != nil {
			return err
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
	return w.Flush()
}

// fill takes turns by score; one that does not fit any more is passed over.
func fill(x bleve.Index, q question) (answer, error) {
	a := answer{ID: q.ID, Budget: q.Budget, Chosen: []string{}}
	match := bleve.NewMatchQuery(q.Text)
	match.SetField("text")
	ask := bleve.NewSearchRequestOptions(match, 1000, 0, false)
	ask.Fields = []string{"tokens"}
	res, err := x.Search(ask)
	if err != nil {
		return a, err
	}
	for _, h := range res.Hits {
		tokens, ok := h.Fields["tokens"].(float64)
		if !ok {
			return a, fmt.Errorf("turn %s: its tokens were not stored", h.ID)
		}
		if a.Tokens+int(tokens) <= q.Budget {
			a.Tokens += int(tokens)
			a.Chosen = append(a.Chosen, h.ID)
		}
	}
	return a, nil
}
