package bench

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/store"
)

var (
	roffEscape = regexp.MustCompile(`\\f(\[[^]]*\]|.)|\\\*?\([a-zA-Z]{2}|\\\[[^]]*\]|\\[&|^:%c/]|\\s[-+]?\d`)
	roffMacro  = regexp.MustCompile(`^['.]\s*(\w+)?\s*(.*)$`)
)

// Known items among long documents. Each question is what somebody said of a document in a line, which is taken out of it;
// the document is to be found. KNOWN_PEER names a program that speaks the protocol of bench/evidence (bench/peers/evidence
// is bleve) and is asked the same. EVIDENCE_MODEL names a model, as for bench/evidence. KNOWN_MOST is how many manual pages
// are taken, spread over all.

// manText is the plain text of a manual page, and its NAME line.
func manText(raw string) (name, text string) {
	var b strings.Builder
	section := ""
	for _, line := range strings.Split(raw, "\n") {
		line = strings.ReplaceAll(roffEscape.ReplaceAllString(strings.ReplaceAll(line, `\-`, "-"), ""), `\ `, " ")
		if strings.HasPrefix(line, `.\"`) || strings.HasPrefix(line, `'\"`) {
			continue
		}
		if m := roffMacro.FindStringSubmatch(line); m != nil {
			arg := strings.ReplaceAll(m[2], `"`, "")
			switch m[1] {
			case "SH", "SS", "Sh", "Ss":
				section = arg
				if section != "NAME" {
					fmt.Fprintf(&b, "\n\n# %s\n", section)
				}
				continue
			case "B", "I", "BR", "BI", "IR", "RB", "RI", "IB", "SM":
				line = arg
				if m[1] == "BI" || m[1] == "BR" || m[1] == "RB" || m[1] == "IR" || m[1] == "RI" || m[1] == "IB" {
					line = strings.ReplaceAll(arg, " (", "(")
				}
			case "PP", "P", "LP", "sp", "TP", "IP", "HP":
				b.WriteString("\n")
				if m[1] == "PP" || m[1] == "P" || m[1] == "LP" {
					b.WriteString("\n")
				}
				if m[1] == "IP" {
					line = arg
				} else {
					continue
				}
			case "Nm", "Nd":
				line = arg
			default:
				continue
			}
		}
		if section == "NAME" {
			name += " " + line
			continue
		}
		b.WriteString(line + "\n")
	}
	return strings.TrimSpace(name), b.String()
}

// manPages are the manual pages below a folder, and what their NAME says of each.
func manPages(t *testing.T, dir string) (questions, texts []string) {
	var files []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, ".gz") && regexp.MustCompile(`/man/man\d/`).MatchString(path) {
			files = append(files, path)
		}
		return err
	}))
	for _, path := range files {
		f, err := os.Open(path)
		require.NoError(t, err)
		z, err := gzip.NewReader(f)
		require.NoError(t, err)
		raw, err := io.ReadAll(z)
		require.NoError(t, err)
		f.Close()
		name, text := manText(string(raw))
		_, said, ok := strings.Cut(name, " - ")
		if !ok || len(strings.Fields(said)) < 3 || len(strings.Fields(text)) < 40 {
			continue
		}
		questions, texts = append(questions, said), append(texts, text)
	}
	most, err := strconv.Atoi(cmp.Or(os.Getenv("KNOWN_MOST"), strconv.Itoa(len(texts))))
	require.NoError(t, err)
	for i := range min(most, len(texts)) {
		from := i * len(texts) / most
		questions[i], texts[i] = questions[from], texts[from]
	}
	return questions[:min(most, len(texts))], texts[:min(most, len(texts))]
}

// typeDocs makes a document of what is said of each type of Go's own packages with its functions and methods, and of the
// other functions of a package. The questions are
// the first sentences, which are left out of it; the passages are what follows them.
func typeDocs(t *testing.T) (questions, passages, texts []string, of []int) {
	for _, pkg := range knownPackages {
		for _, symbols := range symbolDocs(t, filepath.Join(goroot(), "src", pkg)) {
			var doc strings.Builder
			for _, text := range symbols {
				question, rest, ok := strings.Cut(text, ". ")
				name, question, _ := strings.Cut(question, " ")
				if ok && len(strings.Fields(question)) >= 4 && len(strings.Fields(rest)) >= 12 {
					questions, passages, of = append(questions, question), append(passages, rest), append(of, len(texts))
				}
				fmt.Fprintf(&doc, "# %s\n\n%s\n\n", name, rest)
			}
			texts = append(texts, doc.String())
		}
	}
	return questions, passages, texts, of
}

// TestKnownDocuments asks for long documents: the first 200, or all with CTXPAGE_LONG=1. KNOWN_MAN names a folder of manual pages to ask for, too.
func TestKnownDocuments(t *testing.T) {
	questions, _, texts, of := typeDocs(t)
	asked := dbtest.Times(200, 200, len(questions))
	if os.Getenv("KNOWN_PEER") != "" {
		asked = len(questions)
	}
	got := documents(t, "Go's types", questions[:asked], texts, of)
	require.Greater(t, got, .6)
	if dir := os.Getenv("KNOWN_MAN"); dir != "" {
		questions, texts := manPages(t, dir)
		documents(t, "manual pages", questions, texts, nil)
	}
}

// wordings are ways to ask the same question; each says whether it changed it.
var wordings = []struct {
	name string
	ask  func(words []string) string
}{
	{"as they are", func(w []string) string { return strings.Join(w, " ") }},
	{"two letters of the longest word exchanged", func(w []string) string {
		at := longest(w)
		if n := len(w[at]) / 2; n > 1 && n+1 < len(w[at]) {
			w[at] = w[at][:n] + w[at][n+1:n+2] + w[at][n:n+1] + w[at][n+2:]
		}
		return strings.Join(w, " ")
	}},
	{"a letter of the longest word left out", func(w []string) string {
		at := longest(w)
		if n := len(w[at]) / 2; n > 1 {
			w[at] = w[at][:n] + w[at][n+1:]
		}
		return strings.Join(w, " ")
	}},
	{"a letter of each long word replaced", func(w []string) string {
		for at := range w {
			if n := len(w[at]) * 2 / 3; n > 4 {
				w[at] = w[at][:n] + "e" + w[at][n+1:]
			}
		}
		return strings.Join(w, " ")
	}},
	{"the longest word and its neighbour run together", func(w []string) string {
		at := min(longest(w), len(w)-2)
		w[at] = strings.ToLower(w[at] + w[at+1])
		return strings.Join(slices.Delete(w, at+1, at+2), " ")
	}},
	{"the longest word written as two", func(w []string) string {
		at := longest(w)
		if n := len(w[at]) / 2; n > 2 {
			w[at] = w[at][:n] + " " + w[at][n:]
		}
		return strings.Join(w, " ")
	}},
}

// longest is the place of the longest word of letters.
func longest(words []string) (at int) {
	letters := func(w string) int {
		if strings.Trim(strings.ToLower(w), "abcdefghijklmnopqrstuvwxyz") != "" {
			return 0
		}
		return len(w)
	}
	for i, w := range words {
		if letters(w) > letters(words[at]) {
			at = i
		}
	}
	return at
}

// TestKnownWordings asks for the documents of TestKnownDocuments in questions that are misspelt.
func TestKnownWordings(t *testing.T) {
	questions, _, texts, of := typeDocs(t)
	asked := dbtest.Times(100, 200, 200)
	worded(t, "Go's types", questions[:asked], texts, of, .6)
	if dir := os.Getenv("KNOWN_MAN"); dir != "" {
		questions, texts := manPages(t, dir)
		worded(t, "manual pages", questions, texts, numbers(len(texts)), 0)
	}
}

// worded asks the questions in all wordings of one database; none may find less than least.
func worded(t *testing.T, name string, questions, texts []string, of []int, least float64) {
	db, err := ctxpage.Open(filepath.Join(t.TempDir(), "known.ctx"), ctxpage.Options{})
	require.NoError(t, err)
	defer db.Close()
	s := db.Scope("docs")
	putDocuments(t, s, texts)
	for _, w := range wordings {
		sum, read := 0.0, 0
		for i, q := range questions {
			found, err := s.Search(context.Background(), w.ask(strings.Fields(q)), 10)
			require.NoError(t, err)
			if found.Degraded != "" {
				read++
			}
			sum += gain(slices.IndexFunc(found.Hits, func(h ctxpage.Hit) bool { return h.Ref.ID == strconv.Itoa(of[i]) }))
		}
		got := sum / float64(len(questions))
		t.Logf("%s, %s: nDCG@10 %.3f; words of %d questions of %d were read as others", name, w.name, got, read, len(questions))
		require.Greater(t, got, least, w.name)
	}
}

// documents gives nDCG@10 of Search. of tells which document answers a question; nil: that of its number.
func documents(t *testing.T, name string, questions, texts []string, of []int) float64 {
	if of == nil {
		for i := range questions {
			of = append(of, i)
		}
	}
	model := knownModel(t)
	db, err := ctxpage.Open(filepath.Join(t.TempDir(), "known.ctx"), ctxpage.Options{Embedder: model, EmbedTimeout: time.Hour})
	require.NoError(t, err)
	defer db.Close()
	ctx, s, pages := context.Background(), db.Scope("docs"), 0
	putDocuments(t, s, texts)
	for v, err := range s.Artefacts(ctx, "") {
		require.NoError(t, err)
		pages += len(v.Pages)
	}
	if model != nil {
		_, err := db.Admin().Embed(ctx, store.EmbedOptions{})
		require.NoError(t, err)
	}
	sum := 0.0
	for i, q := range questions {
		found, err := s.Search(ctx, q, 10)
		require.NoError(t, err)
		require.NotRegexp(t, "by meaning|by words alone", found.Degraded)
		sum += gain(slices.IndexFunc(found.Hits, func(h ctxpage.Hit) bool { return h.Ref.ID == strconv.Itoa(of[i]) }))
	}
	got := sum / float64(len(questions))
	t.Logf("%s: %d questions, %d documents of %d pages: nDCG@10 %.3f", name, len(questions), len(texts), pages, got)
	if peer := os.Getenv("KNOWN_PEER"); peer != "" {
		t.Logf("%s: nDCG@10 of the peer %.3f", name, peerDocuments(t, peer, questions, texts, of))
	}
	return got
}

func putDocuments(t *testing.T, s *ctxpage.Scope, texts []string) {
	ctx := context.Background()
	for part := range slices.Chunk(numbers(len(texts)), 100) {
		require.NoError(t, s.Update(ctx, func(tx *ctxpage.Txn) error {
			for _, i := range part {
				if texts[i] == "" { // a type of which nothing is said
					continue
				}
				if err := tx.Put(ctx, ctxpage.Artefact{ID: strconv.Itoa(i), Kind: store.KindChunk, Text: texts[i]}); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

func numbers(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// peerDocuments asks another program. A document costs one token, so a budget of ten is the best ten, in their order.
func peerDocuments(t *testing.T, peer string, questions, texts []string, of []int) float64 {
	dir := t.TempDir()
	run := func(verb string, lines []byte) []byte {
		cmd := exec.Command(peer, verb, dir)
		cmd.Stdin, cmd.Stderr = bytes.NewReader(lines), os.Stderr
		out, err := cmd.Output()
		require.NoError(t, err)
		return out
	}
	var in bytes.Buffer
	enc := json.NewEncoder(&in)
	for i, text := range texts {
		require.NoError(t, enc.Encode(map[string]any{"id": strconv.Itoa(i), "text": text, "tokens": 1}))
	}
	run("ingest", in.Bytes())
	in.Reset()
	for i, q := range questions {
		require.NoError(t, enc.Encode(map[string]any{"question_id": strconv.Itoa(i), "text": q, "budget": 10}))
	}
	sum, dec := 0.0, json.NewDecoder(bytes.NewReader(run("query", in.Bytes())))
	for i := range questions {
		var a struct{ Chosen []string }
		require.NoError(t, dec.Decode(&a))
		sum += gain(slices.Index(a.Chosen, strconv.Itoa(of[i])))
	}
	return sum / float64(len(questions))
}
