// Command evidence measures how much of the evidence for an answer an assembled context holds. It speaks a two-process
// protocol over the public API of ctxpage, so that the store really is on disk in between:
//
//	evidence [--charge contents] ingest DIR    turns on stdin, one JSON object a line
//	evidence [--charge contents] query DIR     questions on stdin, one a line; the chosen turns on stdout, one answer a line
//	evidence score DATA                        answers on stdin; how much of the evidence they hold on stdout (score.go)
//
// A budget charges the context as a model reads it, in tokens of o200k_base, with all that stands around the turns. With
// --charge contents it charges the turns alone, by the formula below. The chosen turns never cost more than the budget by the
// formula.
//
// A turn is {"id","session","time","speaker","text","tokens"} and, where facts are kept up to date, "source" and
// "version": these become id and version of the artefact, so a later turn replaces an earlier one. A question is
// {"question_id","budget","text","now"}; its answer {"question_id","budget","chosen","tokens","extracts"}, where chosen are the
// turns that are in the context whole, and extracts {"turn","text"} those of which a part is. A turn costs
// ceil(bytes of "YYYY-MM-DD HH:MM Speaker: text" / 4) + 1 tokens, or what its line says.
//
// EVIDENCE_MODEL makes it ask by meaning, too: an endpoint (embedder/serve.py), the folder of a static model, or small.
//
// A time that is missing is that of the line before. A turn the database cannot hold is named on standard error and
// left out; one that is longer than a page is chosen only when all of it is in the context.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/embed"
	"github.com/ctxpage/ctxpage/embed/static"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token/bpe"
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
	ID     json.RawMessage `json:"question_id"`
	Budget int             `json:"budget"`
	Text   string          `json:"text"`
	Now    string          `json:"now"`
}

type answer struct {
	ID     json.RawMessage `json:"question_id"`
	Budget int             `json:"budget"`
	Chosen []string        `json:"chosen"`
	Tokens int             `json:"tokens"`
	Match  manifest.Match  `json:"match,omitempty"`
	Share  float64         `json:"covered"`
	Cut    []extract       `json:"extracts,omitempty"`
}

// extract is a turn that is in a context in part, and what is shown of it.
type extract struct {
	Turn string `json:"turn"`
	Text string `json:"text"`
}

// charge counts a turn as the protocol does: the date and time that stand before it are part of its cost.
type charge struct{}

const stamp = "2006-01-02 15:04 "

func (charge) Name() string          { return "evidence/1" }
func (charge) Count(text string) int { return (len(stamp)+len(text)+3)/4 + 1 }

const scope = "conversation"

// contents says that a budget charges the texts alone.
var contents bool

func main() {
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: evidence [--charge contents] ingest DIR < turns\n       evidence [--charge contents] query DIR < questions > answers\n       evidence score DATA < answers")
		os.Exit(2)
	}
	what := flag.String("charge", "rendered", "what a budget charges: rendered or contents")
	flag.Parse()
	contents = *what == "contents"
	run := map[string]func(context.Context, string, io.Reader, io.Writer) error{"ingest": ingest, "query": query, "score": score}[flag.Arg(0)]
	if run == nil || flag.NArg() != 2 || !contents && *what != "rendered" {
		flag.Usage()
	}
	if err := run(context.Background(), flag.Arg(1), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "evidence:", err)
		os.Exit(1)
	}
}

// modelVar names the model that questions and turns are compared by; empty: none.
const modelVar = "EVIDENCE_MODEL"

func open(dir string, now func() time.Time) (*ctxpage.DB, error) {
	o := ctxpage.Options{Counter: bpe.O200k(), Clock: now, PageTokens: store.MaxPageTokens, EmbedTimeout: time.Hour}
	if contents {
		o.Counter = charge{}
	}
	if model := os.Getenv(modelVar); model != "" {
		e, err := embedder(model)
		if err != nil {
			return nil, err
		}
		o.Embedder = e
	}
	return ctxpage.Open(filepath.Join(dir, "evidence.ctx"), o)
}

func embedder(model string) (ctxpage.Embedder, error) {
	switch {
	case model == "small":
		return static.Small(), nil
	case !strings.HasPrefix(model, "http://"):
		return static.Load(model)
	}
	return embed.New(embed.Options{URL: model, Model: "all-MiniLM-L6-v2", CacheBytes: 256 << 20})
}

// eachLine decodes one JSON object a line, of any length.
func eachLine[T any](in io.Reader, fn func(T) error) error {
	r := bufio.NewReader(in)
	for n := 1; ; n++ {
		line, end := r.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var v T
			if err := json.Unmarshal(line, &v); err != nil {
				return fmt.Errorf("line %d: expected a JSON object: %w", n, err)
			}
			if err := fn(v); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
		}
		if errors.Is(end, io.EOF) {
			return nil
		} else if end != nil {
			return end
		}
	}
}

// clock reads the layouts the data sets use; "" leaves it where it is.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func (c *clock) set(s string) error {
	if s == "" {
		return nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			c.at = t.UTC()
			return nil
		}
	}
	return fmt.Errorf("time %q: expected something like 2023-05-08 13:56", s)
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
	size := 0
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
		batch, size = batch[:0], 0
		clear(seen)
		return err
	}
	seq, at := int64(0), clock{}
	err = eachLine(in, func(t turn) error {
		if err := at.set(t.Time); err != nil {
			return err
		}
		if len(t.Text) > maxTurn || len(t.ID) > maxName {
			fmt.Fprintf(os.Stderr, "evidence: turn %.40q left out: %d bytes\n", t.ID, len(t.Text))
			return nil
		}
		a := t.artefact(seq, at.at)
		seq++
		if len(batch) == perCommit || size+len(a.Text) > store.MaxText || seen[a.ID] {
			if err := flush(); err != nil {
				return err
			}
		}
		batch, seen[a.ID], size = append(batch, a), true, size+len(a.Text)
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

// What a turn may hold: its speaker stands before its text, and its id goes into the metadata.
const (
	maxTurn = store.MaxText - 1<<20
	maxName = 32 << 10
	// maxSpeaker is more than anybody is called.
	maxSpeaker = 128
)

// Keys of the metadata.
const (
	metaTurn   = "turn"
	metaTokens = "tokens"
	metaBytes  = "bytes"
)

func (t *turn) artefact(seq int64, at time.Time) ctxpage.Artefact {
	id := key("", t.ID)
	if t.Source != "" {
		id = key("source/", t.Source)
	}
	text := t.Speaker + ": " + t.Text
	if t.Tokens <= 0 {
		t.Tokens = charge{}.Count(text)
	}
	return ctxpage.Artefact{
		ID: id, Kind: store.KindMessage, Role: "user", CurrentAsOf: at, Name: speaker(t.Speaker), Group: key("session ", strings.Trim(string(t.Session), `"`)), Seq: seq,
		Text: text, Meta: map[string]string{metaTurn: t.ID, metaTokens: strconv.Itoa(t.Tokens), metaBytes: strconv.Itoa(len(text))},
	}
}

// speaker is a name the database takes; one that it would refuse is left to the text.
func speaker(name string) string {
	if len(name) > maxSpeaker || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return ""
	}
	return name
}

// key is an id the database takes: what it would refuse, and what could be taken for another, is hashed.
func key(prefix, id string) string {
	whole := prefix + id
	taken := prefix == "" && (id == "" || strings.Contains(id, "/")) || strings.HasPrefix(whole, store.ReservedPrefix)
	if !taken && len(whole) <= store.MaxID && !strings.ContainsFunc(whole, unicode.IsControl) {
		return whole
	}
	return fmt.Sprintf("%shash/%x", prefix, sha256.Sum256([]byte(id)))
}

// longestQuestion is what the database takes, in bytes.
const longestQuestion = 64 << 10

func query(ctx context.Context, dir string, in io.Reader, out io.Writer) error {
	at := clock{time.Now()}
	db, err := open(dir, at.now)
	if err != nil {
		return err
	}
	defer db.Close()
	s := db.Scope(scope)
	w := bufio.NewWriter(out)
	defer w.Flush()
	enc := json.NewEncoder(w)
	return eachLine(in, func(q question) error {
		if err := at.set(q.Now); err != nil {
			return err
		}
		ans := answer{ID: q.ID, Budget: q.Budget, Chosen: []string{}}
		if q.Budget > 0 {
			text := strings.ToValidUTF8(q.Text[:min(len(q.Text), longestQuestion)], "")
			a, err := s.Assemble(ctx, ctxpage.Query{Text: text, Budget: q.Budget, ContentsOnly: contents, Recent: true})
			if err != nil {
				return err
			}
			ans.Match, ans.Share = a.Match, a.Covered
			ans.choose(whole(a.Blocks))
			for _, b := range a.Blocks {
				if b.Form == manifest.FormRange {
					ans.Cut = append(ans.Cut, extract{b.Meta[metaTurn], b.Text})
				}
			}
			if !contents {
				ans.Tokens = min(a.Tokens, q.Budget)
			}
		}
		return enc.Encode(ans)
	})
}

// chosen is a turn that is in a context with all its pages.
type chosen struct {
	turn   string
	tokens int // what its line says it costs
	bytes  int // not yet found in the context
	score  float64
}

// whole gives the turns of which nothing is missing, in the order of the context.
func whole(blocks []ctxpage.Block) (turns []chosen) {
	at := map[string]int{}
	for _, b := range blocks {
		i, ok := at[b.Ref.ID]
		if !ok {
			i = len(turns)
			at[b.Ref.ID] = i
			tokens, _ := strconv.Atoi(b.Meta[metaTokens])
			size, _ := strconv.Atoi(b.Meta[metaBytes])
			turns = append(turns, chosen{turn: b.Meta[metaTurn], tokens: tokens, bytes: size, score: b.Score})
		}
		if b.Form == manifest.FormFull {
			turns[i].bytes -= len(b.Text)
		}
	}
	return slices.DeleteFunc(turns, func(c chosen) bool { return c.bytes > 0 })
}

// choose takes the turns; where their lines ask for more than the formula charges, the last in score give way.
func (a *answer) choose(turns []chosen) {
	for _, c := range turns {
		a.Tokens += c.tokens
	}
	for a.Tokens > a.Budget && len(turns) > 0 {
		last := 0
		for i := range turns {
			if turns[i].score < turns[last].score {
				last = i
			}
		}
		a.Tokens -= turns[last].tokens
		turns = slices.Delete(turns, last, last+1)
	}
	for _, c := range turns {
		a.Chosen = append(a.Chosen, c.turn)
	}
}
