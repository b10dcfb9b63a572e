package ui

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// tryView is a question and what two settings make of it.
type tryView struct {
	Scope, Question, Session string
	Settings                 [2]settings
	Results                  []*tried
	Kept                     []kept
	Next                     string // cursor of Kept
	Again                    string // address of the same question, which compares with these answers
}

// settings has the settings of one side.
type settings struct {
	Side           string // a or b: the names of the fields end with it
	Preset         string
	Budget         int
	Floor          string
	Words          bool   // without the embedder
	Before         string // trace of an earlier answer; "": none
	Enabled        bool
	LadderOverflow bool
	Floors         []string // that can be chosen
	CanEmbed       bool
}

// tried has the context that one setting makes of a question.
type tried struct {
	settings
	Problem string
	Trace   string
	Leaf    *manifest.Record
	Bar     bar
	Blocks  []block
	Left    []left
	Since   *manifest.Difference // from Before
}

// kept is a question that was kept.
type kept struct{ ID, Question, Address string }

// keptScope is where questions are kept: artefacts of kind scratch, in a scope that no agent has.
const keptScope = "ctxpage-ui/questions"

func (h *Handler) try(r *http.Request) (*content, error) {
	get := r.FormValue
	v := &tryView{
		Scope: get("scope"), Question: strings.TrimSpace(get("q")), Session: get("session"),
	}
	for i, side := range []string{"a", "b"} {
		s := settings{
			Side: side, Preset: get("preset-" + side), Budget: atoi(get("budget-" + side)), Floor: get("floor-" + side), Words: get("words-"+side) != "",
			Before: get("before-" + side), LadderOverflow: get("ladder-"+side) != "",
			Floors: []string{"scratch", "tool", "validated", "chunk", "human-verified"}, CanEmbed: h.o.Embedder,
		}
		if s.Budget == 0 {
			s.Budget = 4000
		}
		s.Enabled = side == "a" || get("two") != ""
		v.Settings[i] = s
	}
	if v.Question != "" {
		for _, s := range v.Settings {
			if s.Enabled {
				t, err := h.ask(r, v, s)
				if err != nil {
					return nil, err
				}
				v.Results = append(v.Results, t)
			}
		}
		q := r.URL.Query()
		for _, t := range v.Results {
			q.Set("before-"+t.Side, t.Trace)
		}
		v.Again = h.o.Prefix + "/try?" + q.Encode()
	}
	var err error
	v.Kept, err = h.keptQuestions(r, v)
	return &content{Name: "try", Title: "Try a question", Nav: "try", View: v}, err
}

// ask assembles a context and marks its manifest as a trial.
func (h *Handler) ask(r *http.Request, v *tryView, s settings) (*tried, error) {
	ctx := r.Context()
	t := &tried{settings: s}
	q := ctxpage.Query{
		Text: v.Question, Session: v.Session, Budget: s.Budget, Ladder: s.LadderOverflow, Dry: true, WordsOnly: s.Words,
	}
	if err := q.SetNames(s.Floor, s.Preset, "", "", ""); err != nil {
		return nil, err
	}
	a, err := h.scope(v.Scope).Assemble(ctx, q)
	if errors.Is(err, store.ErrBudget) {
		t.Problem = problem(err)
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	t.Trace, t.Leaf = a.Trace, a.Manifest
	replay := &ctxpage.Replay{Blocks: a.Blocks}
	t.Bar = h.bar(a.Manifest, replay)
	t.Blocks = h.blocks(r, a.Manifest, replay, 0, min(len(a.Manifest.Pages), rowsAtOnce/4))
	t.Left = h.left(r, a.Manifest, rowsAtOnce/2)
	for i := range t.Blocks {
		p := partOf(a.Blocks[i].Text, 0, 500)
		t.Blocks[i].Text = &p
	}
	if s.Before != "" {
		d, err := h.o.DB.Diff(ctx, s.Before, a.Trace)
		if err == nil {
			t.Since = &d
		} else if !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrGone) {
			return nil, err
		}
	}
	return t, nil
}

// keptQuestions lists questions that were kept.
func (h *Handler) keptQuestions(r *http.Request, v *tryView) (out []kept, err error) {
	for a, err := range h.scope(keptScope).Artefacts(r.Context(), "", ctxpage.NewestFirst(), ctxpage.AtMost(20, r.FormValue("after"), &v.Next)) {
		if err != nil {
			return nil, err
		}
		out = append(out, kept{a.ID, a.Meta["question"], h.o.Prefix + "/try?" + a.Meta["address"]})
	}
	return out, nil
}

// keep stores a question with its settings, and the contexts that answered it.
func (h *Handler) keep(r *http.Request) (next string, err error) {
	if err := r.ParseForm(); err != nil {
		return "", store.Invalid("form", err.Error(), "the form of a question")
	}
	q, err := url.ParseQuery(strings.TrimPrefix(r.PostForm.Get("address"), h.o.Prefix+"/try?"))
	if err != nil || q.Get("q") == "" {
		return "", store.Invalid("address", r.PostForm.Get("address"), "the address of a question")
	}
	if id := r.PostForm.Get("forget"); id != "" {
		return h.link("/try"), h.scope(keptScope).Delete(r.Context(), id)
	}
	same := url.Values{}
	for name, values := range q { // the same question under the same settings is kept once
		if !strings.HasPrefix(name, "before-") {
			same[name] = values
		}
	}
	sum := sha256.Sum256([]byte(same.Encode()))
	_, err = h.scope(keptScope).Put(r.Context(), ctxpage.Artefact{
		ID: "question-" + hex.EncodeToString(sum[:8]), Kind: store.KindScratch, Text: q.Get("scope") + ": " + q.Get("q"),
		Meta: map[string]string{"address": q.Encode(), "question": q.Get("q")},
	})
	return h.o.Prefix + "/try?" + q.Encode(), err
}
