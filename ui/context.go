package ui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// contextView is a past context.
type contextView struct {
	Leaf     *manifest.Record
	Tab      string
	Provider string
	Bar      bar
	Blocks   []block
	From     int // index of the first of Blocks
	Next     int // index behind the last of them; 0: there are no more
	Left     []left
	Problem  string // why the texts are not shown, or may differ
	Text     *part  // of a tab, or of one block
	Block    int    // its number from 1; 0: none
	Followed []*manifest.Record
	Earlier  []leafRow
}

// Providers are those whose requests a context can be shown as.
func (v *contextView) Providers() []string { return []string{"openai", "anthropic", "gemini"} }

// block is a page in a context.
type block struct {
	N     int // from 1
	Ref   string
	Part  string
	Page  manifest.Page
	Kind  string
	Trust string
	Stale bool
	Text  *part
}

// left is a page that a context left out, or a number of pages for one reason.
type left struct {
	Ref    string
	Reason string
	Page   manifest.Page
	More   int // pages without a name
}

func (h *Handler) context(r *http.Request) (*content, error) {
	ctx := r.Context()
	trace := r.FormValue("trace")
	leaf, followed, err := h.assembly(ctx, trace)
	if err != nil {
		return nil, err
	}
	v := &contextView{Leaf: leaf, Tab: r.FormValue("tab"), Provider: r.FormValue("provider"), Followed: followed}
	if leaf.Pruned != nil {
		v.Problem = "The manifest of this context was " + leaf.Pruned.String() + "."
		return &content{Name: "context", Title: "Context " + trace, Nav: "live", View: v}, nil
	}
	replay, err := h.scope(leaf.Scope).Replay(ctx, trace)
	switch {
	case errors.Is(err, ctxpage.ErrReplay), errors.Is(err, store.ErrGone):
		v.Problem = problem(err)
	case err != nil:
		return nil, err
	}
	if replay == nil {
		replay = &ctxpage.Replay{}
	}
	at := atoi(r.FormValue("at"))
	switch n := atoi(r.FormValue("block")); {
	case n > 0 && n <= len(replay.Blocks):
		p := partOf(replay.Blocks[n-1].Text, at, partBytes)
		v.Block, v.Text = n, &p
		v.Blocks, v.From = h.blocks(r, leaf, replay, n-1, n), n-1
	case v.Tab == "text" || v.Tab == "messages" || v.Tab == "json":
		if v.Text, err = v.tab(leaf, replay, at); err != nil {
			return nil, err
		}
	default:
		v.Tab = ""
		v.From = min(atoi(r.FormValue("from")), len(leaf.Pages))
		to := min(v.From+rowsAtOnce/2, len(leaf.Pages))
		if to < len(leaf.Pages) {
			v.Next = to
		}
		v.Blocks = h.blocks(r, leaf, replay, v.From, to)
		v.Left = h.left(r, leaf, 2*rowsAtOnce)
		if v.Earlier, err = h.earlier(ctx, leaf, 5); err != nil {
			return nil, err
		}
	}
	v.Bar = h.bar(leaf, replay)
	return &content{Name: "context", Title: "Context " + trace, Nav: "live", View: v}, nil
}

// tab is the text of a tab: as the model read it, as a request to a provider, or the manifest as JSON.
func (v *contextView) tab(leaf *manifest.Record, replay *ctxpage.Replay, at int) (*part, error) {
	text := replay.Text
	switch v.Tab {
	case "json":
		b, err := json.MarshalIndent(leaf, "", "  ")
		if err != nil {
			return nil, err
		}
		text = string(b)
	case "messages":
		as := map[string]func([]render.Message) ([]byte, error){"openai": render.OpenAI, "anthropic": render.Anthropic, "gemini": render.Gemini}[v.Provider]
		if as == nil {
			v.Provider, as = "openai", render.OpenAI
		}
		b, err := as(replay.Messages)
		if err != nil {
			b = []byte(problem(err))
		}
		var out bytes.Buffer
		if json.Indent(&out, b, "", "  ") != nil {
			out.Write(b)
		}
		text = out.String()
	}
	p := partOf(text, at, partBytes)
	return &p, nil
}

// blocks are the pages from one index of a context to another, with the beginning of their texts where these are there.
func (h *Handler) blocks(r *http.Request, leaf *manifest.Record, replay *ctxpage.Replay, from, to int) (out []block) {
	for i := from; i < to; i++ {
		b := block{N: i + 1, Page: leaf.Pages[i]}
		if i < len(replay.Blocks) {
			x := &replay.Blocks[i]
			p := partOf(x.Text, 0, blockBytes)
			b.Ref, b.Part, b.Kind, b.Trust, b.Stale, b.Text = x.Ref.String(), partNames[share(x)], x.Kind.String(), x.Provenance.String(), x.Stale, &p
		} else {
			b.Ref = h.o.DB.RefOf(r.Context(), b.Page.Num)
		}
		out = append(out, b)
	}
	return out
}

// left lists what a context left out, for each reason the nearest first. It names at most limit pages and counts the others.
func (h *Handler) left(r *http.Request, leaf *manifest.Record, limit int) (out []left) {
	for _, x := range leaf.Excluded {
		named := min(len(x.Nearest), limit)
		limit -= named
		for i := range x.Nearest[:named] {
			out = append(out, left{Ref: h.o.DB.RefOf(r.Context(), x.Nearest[i].Num), Reason: x.Reason, Page: x.Nearest[i]})
		}
		if more := x.Count - named; more > 0 {
			out = append(out, left{Reason: x.Reason, More: more})
		}
	}
	return out
}

// The parts of a context, in the order of the bar.
const (
	partSystem = iota
	partDirectives
	partPinned
	partFacts
	partDocuments
	partHistory
	partOther
	partHeaders
	partReserve
	partFree
	partCount
)

var (
	partNames   = [partCount]string{"system", "directives", "pinned", "facts", "documents", "history", "notes and tools", "headers", "reserve", "free"}
	partLetters = [partCount]string{"S", "D", "P", "F", "C", "H", "N", "#", "R", ""}
)

// share is the part that a block belongs to.
func share(b *ctxpage.Block) int {
	switch {
	case b.Kind == store.KindSystem && strings.HasPrefix(b.Ref.ID, store.ReservedPrefix):
		return partDirectives
	case b.Kind == store.KindSystem:
		return partSystem
	case b.Pinned:
		return partPinned
	case b.Kind == store.KindFact:
		return partFacts
	case b.Kind == store.KindChunk:
		return partDocuments
	case b.Kind == store.KindMessage:
		return partHistory
	}
	return partOther
}

// bar has the tokens of a context by part.
type bar struct {
	Total int // the budget, or what was used where there was none
	Parts []barPart
}

// barPart is a part of a bar. X and Width are in percent.
type barPart struct {
	Class        int
	Name, Letter string
	Tokens       int
	X, Width     string
	Wide         bool // there is room for the letter
}

func (h *Handler) bar(leaf *manifest.Record, replay *ctxpage.Replay) bar {
	var tokens [partCount]int
	used := 0
	for i := range replay.Blocks {
		b := &replay.Blocks[i]
		n := leaf.Pages[i].Tokens
		used += n
		if c := h.o.Counter; c != nil && c.Name() == leaf.Counter && b.Kind != store.KindSystem {
			text := min(c.Count(b.Text), n)
			tokens[partHeaders] += n - text
			n = text
		}
		tokens[share(b)] += n
	}
	if len(replay.Blocks) == 0 {
		tokens[partOther], used = leaf.Tokens, leaf.Tokens
	}
	tokens[partHeaders] += max(0, leaf.Tokens-used) // what is of no page
	tokens[partReserve] = leaf.Reserve
	tokens[partFree] = max(0, leaf.Budget-leaf.Reserve-leaf.Tokens)
	out := bar{Total: max(leaf.Budget, leaf.Tokens+leaf.Reserve, 1)}
	x := 0.0
	for i, n := range tokens {
		if n == 0 {
			continue
		}
		w := 100 * float64(n) / float64(out.Total)
		out.Parts = append(out.Parts, barPart{
			Class: i, Name: partNames[i], Letter: partLetters[i], Tokens: n, X: pct(x), Width: pct(w), Wide: w > 3,
		})
		x += w
	}
	return out
}

func pct(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) + "%" }

// atoi reads a number of a query; what is none is 0.
func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// whyView explains the place of a page in a context.
type whyView struct {
	*ctxpage.Why
	Leaf  *manifest.Record
	Ref   string
	Bars  []scoreBar
	Least float64 // the lowest score that was served for its score; 0: none
}

// scoreBar is a part of a score.
type scoreBar struct {
	Name, Meaning string
	Value         float64
	Width         string
	At            string // where the threshold is; "": there is none
}

func (h *Handler) why(r *http.Request) (*content, error) {
	leaf, _, err := h.assembly(r.Context(), r.FormValue("trace"))
	if err != nil {
		return nil, err
	}
	v := &whyView{Leaf: leaf, Ref: strings.TrimSpace(r.FormValue("ref"))}
	ref := ctxpage.Ref{}
	if v.Ref != "" {
		if ref, err = store.ParseRef(v.Ref); err != nil {
			ref = ctxpage.Ref{ID: store.Canonical(v.Ref)}
		}
	}
	if v.Why, err = h.o.DB.Why(r.Context(), leaf.Trace, ref); err != nil {
		return nil, err
	}
	v.Least = least(leaf)
	if p := v.Page; p != nil {
		v.Bars = bars(p, v.Least)
	}
	return &content{Name: "why", Title: "Why", Nav: "live", View: v}, nil
}

// least is the lowest score with which a page is in a context for its score. A page that is red with a low score is protected.
func least(leaf *manifest.Record) (out float64) {
	for _, p := range leaf.Pages {
		if p.Score > 0 && (p.Tag != manifest.TagRed || p.Score.Float() >= triage.RedScore) && (out == 0 || p.Score.Float() < out) {
			out = p.Score.Float()
		}
	}
	return out
}

// bars are the parts of the score of a page.
func bars(p *manifest.Page, least float64) (out []scoreBar) {
	for i, x := range []struct {
		name, meaning string
		score         manifest.Score
	}{
		{"score", "what it was ranked by", p.Score}, {"recency", "how recent it is", p.R}, {"provenance", "how far its writer is trusted", p.P},
		{"relevance", "how well it fits the question", p.S}, {"words", "its own words", p.LexOwn}, {"neighbours", "words of its neighbours", p.LexNear},
		{"group", "words of its group", p.LexGroup}, {"speaker", "who speaks", p.LexSpeaker}, {"first person", "words in the first person", p.LexFirst},
		{"date", "its month", p.LexDate}, {"forms", "irregular forms", p.LexForms}, {"level", "added to pages beside turns", p.LexLevel},
		{"meaning", "its vector and that of the question", p.Vector},
	} {
		if i > 3 && x.score == 0 {
			continue
		}
		b := scoreBar{Name: x.name, Meaning: x.meaning, Value: x.score.Float(), Width: pct(100 * x.score.Float())}
		if i == 0 && least > 0 {
			b.At = pct(100 * least)
		}
		out = append(out, b)
	}
	return out
}

// short is a trace as links show it.
func short(trace string) string {
	if len(trace) > 12 {
		return trace[:6] + "…" + trace[len(trace)-5:]
	}
	return trace
}

// form is how much of a page was served.
func form(p manifest.Page) string {
	if p.Form == manifest.FormRange {
		n := uint32(0)
		for _, r := range p.Ranges {
			n += r[1] - r[0]
		}
		return fmt.Sprintf("range, %d bytes", n)
	}
	return p.Form.String()
}

// state describes the source of a page as the manifest has it, or says why the page is in.
func state(p manifest.Page) string {
	switch {
	case p.Refetched:
		return "source changed, fetched again"
	case p.Stale:
		return "source changed, served stale"
	case p.Dirty:
		return "source changed"
	}
	return p.Reason
}
