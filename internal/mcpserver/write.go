package mcpserver

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

type putIn struct {
	Writes []writeIn `json:"writes" jsonschema:"pages to write, all or none"`
	Trace  string    `json:"trace,omitempty" jsonschema:"trace of the context that this was written from"`
	Batch  string    `json:"batch,omitempty" jsonschema:"a ULID that names this write; repeating it writes nothing twice"`
}

type writeIn struct {
	ID          string   `json:"id" jsonschema:"id of the page; one that exists gets a new version"`
	Text        string   `json:"text"`
	Kind        string   `json:"kind,omitempty" jsonschema:"fact (default), chunk, message, tool, scratch or summary"`
	DerivedFrom []string `json:"derived_from,omitempty" jsonschema:"ids or references this was made from; it becomes dirty when they change"`
	ExpiresAt   string   `json:"expires_at,omitempty" jsonschema:"RFC 3339 time after which it is no longer served"`

	Subject string            `json:"subject,omitempty" jsonschema:"the person or thing it is about"`
	Tags    []string          `json:"tags,omitempty" jsonschema:"words to filter by"`
	Meta    map[string]string `json:"meta,omitempty" jsonschema:"metadata to filter by"`
}

// writeOut tells how a write ended. Held is no error: nothing is to be repeated.
type writeOut struct {
	Status string   `json:"status"` // committed, held, declined (the person said no) or conflict
	Refs   []string `json:"refs"`
	Batch  string   `json:"batch,omitempty"`
	Reason string   `json:"reason,omitempty"`
	Note   string   `json:"note,omitempty"` // of the evaluator
	Next   string   `json:"next,omitempty"` // what happens now
}

type deleteIn struct {
	IDs   []string `json:"ids" jsonschema:"ids of pages of this scope"`
	Batch string   `json:"batch,omitempty" jsonschema:"a ULID that names this call; repeating it deletes nothing twice"`
}

func (s *server) put(ctx context.Context, req *mcp.CallToolRequest, in putIn) (*mcp.CallToolResult, writeOut, error) {
	if len(in.Writes) == 0 {
		return nil, writeOut{}, errors.New("writes: expected at least one page")
	}
	arts := make([]ctxpage.Artefact, len(in.Writes))
	var ask strings.Builder
	fmt.Fprintf(&ask, "Store in the memory of %s?\n", s.Scope)
	for i, w := range in.Writes {
		var err error
		if arts[i], err = w.artefact(); err != nil {
			return nil, writeOut{}, fmt.Errorf("writes[%d]: %w", i, err)
		}
		fmt.Fprintf(&ask, "\n%s:\n%s\n", render.Escape(w.title()), render.Escape(w.Text))
	}
	return s.commit(ctx, req, in.Trace, in.Batch, ask.String(), func(tx *ctxpage.Txn) error {
		for i := range arts {
			if err := tx.Put(ctx, arts[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// title is the heading of a write in the question to the person: everything that makes it more or less than a lasting fact.
func (w *writeIn) title() string {
	title := w.ID
	if w.Kind != "" {
		title += ", kind " + w.Kind
	}
	if w.ExpiresAt != "" {
		title += ", until " + w.ExpiresAt
	}
	if len(w.DerivedFrom) > 0 {
		title += ", from " + strings.Join(w.DerivedFrom, ", ")
	}
	if w.Subject != "" {
		title += ", about " + w.Subject
	}
	if len(w.Tags) > 0 {
		title += ", tags " + strings.Join(w.Tags, ", ")
	}
	for _, k := range slices.Sorted(maps.Keys(w.Meta)) {
		title += ", " + k + "=" + w.Meta[k]
	}
	return title
}

func (w *writeIn) artefact() (a ctxpage.Artefact, err error) {
	a = ctxpage.Artefact{ID: w.ID, Text: w.Text, Subject: w.Subject, Tags: w.Tags, Meta: w.Meta}
	if w.Kind != "" {
		if a.Kind, err = store.ParseKind(w.Kind); err != nil {
			return a, err
		}
	}
	for _, name := range w.DerivedFrom {
		ref, ok := reference(name)
		if !ok {
			ref = ctxpage.Ref{ID: name}
		}
		a.DerivedFrom = append(a.DerivedFrom, ref)
	}
	if w.ExpiresAt != "" {
		if a.ExpiresAt, err = time.Parse(time.RFC3339, w.ExpiresAt); err != nil {
			return a, fmt.Errorf("expires_at %q: expected a time like 2027-01-31T12:00:00Z", w.ExpiresAt)
		}
	}
	return a, nil
}

func (s *server) delete(ctx context.Context, req *mcp.CallToolRequest, in deleteIn) (*mcp.CallToolResult, writeOut, error) {
	if len(in.IDs) == 0 {
		return nil, writeOut{}, errors.New("ids: expected at least one id")
	}
	ask := fmt.Sprintf("Delete from the memory of %s?\n\n%s\n", s.Scope, render.Escape(strings.Join(in.IDs, "\n")))
	return s.commit(ctx, req, "", in.Batch, ask, func(tx *ctxpage.Txn) error {
		for _, id := range in.IDs {
			if err := tx.Delete(ctx, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// commit carries out a write: it asks the person if there is one to ask, and otherwise leaves the verdict to the evaluator
// and the gate.
//
//	no answer yet, and the client can ask  → input required, nothing written
//	the person said yes                    → committed with the verdict of that person
//	the person said no                     → declined, nothing written
//	nobody can be asked                    → the gate decides: committed by the evaluator, or held
func (s *server) commit(ctx context.Context, req *mcp.CallToolRequest, trace, batch, ask string, write func(*ctxpage.Txn) error) (*mcp.CallToolResult, writeOut, error) {
	verdict := ctxpage.Verdict{}
	if s.Confirm != "" && canAsk(req) {
		said, err := s.answer(req)
		switch {
		case err != nil:
			return nil, writeOut{}, err
		case said == "":
			return s.question(req, ask), writeOut{}, nil
		case said != "accept":
			return nil, writeOut{Status: "declined", Refs: []string{}, Reason: s.Confirm + " did not agree", Next: "Nothing was written. Do not write it again."}, nil
		}
		verdict = ctxpage.Verdict{Confidence: 1, By: s.Confirm, Note: "confirmed in the client"}
	}
	var opts []ctxpage.TxnOption
	if batch != "" {
		opts = append(opts, ctxpage.WithID(batch))
	}
	begin := s.scope.Begin
	if trace != "" {
		if _, err := s.recorded(ctx, trace); err != nil {
			return nil, writeOut{}, err
		}
		begin = func(ctx context.Context, opts ...ctxpage.TxnOption) (*ctxpage.Txn, error) {
			return s.scope.Resume(ctx, trace, opts...)
		}
	}
	tx, err := begin(ctx, opts...)
	if err != nil {
		return nil, writeOut{}, err
	}
	defer tx.Rollback()
	if err := write(tx); err != nil {
		return nil, writeOut{}, err
	}
	return s.ended(tx, tx.Commit(ctx, verdict))
}

// ended tells how a commit ended.
func (s *server) ended(tx *ctxpage.Txn, err error) (*mcp.CallToolResult, writeOut, error) {
	out := writeOut{Refs: []string{}, Batch: tx.ID()}
	var held *store.HeldError
	switch {
	case err == nil:
		out.Status = "committed"
		out.Refs = view.Refs(tx.Outcome().Refs)
		for _, r := range tx.Outcome().Repeats {
			out.Refs = append(out.Refs, r.String())
			out.Note = "the memory has it already, word for word"
		}
	case errors.As(err, &held):
		out.Status, out.Batch, out.Reason, out.Note = "held", held.Batch, held.Reason, render.Escape(held.Note)
		out.Next = "A person decides: dbctl review show FILE " + held.Batch + ", then dbctl review approve or reject. Until then it is in no context; " +
			"search and list name it under waiting. Do not write it again."
	case errors.Is(err, store.ErrConflict):
		out.Status, out.Reason, out.Next = "conflict", err.Error(), "Nothing was written. Call assemble again, and write from its answer."
	default:
		return nil, writeOut{}, err
	}
	return nil, out, nil
}

// canAsk reports whether the client can show a question to the person at it.
func canAsk(req *mcp.CallToolRequest) bool {
	p := req.Session.InitializeParams()
	return p != nil && p.Capabilities != nil && p.Capabilities.Elicitation != nil
}

const confirmKey = "confirm"

// question has the client ask. The state that it hands back is good for one answer to this call: it has a number that is
// used once, and a MAC over the number and the call.
func (s *server) question(req *mcp.CallToolRequest, ask string) *mcp.CallToolResult {
	return &mcp.CallToolResult{
		InputRequests: mcp.InputRequestMap{confirmKey: &mcp.ElicitParams{
			Mode: "form", Message: ask,
			RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}, // to accept is the answer
		}},
		RequestState: s.ask(req),
	}
}

// answer returns the person's answer: accept, another word, or "" if there is none yet.
func (s *server) answer(req *mcp.CallToolRequest) (string, error) {
	given, ok := req.Params.InputResponses[confirmKey]
	if !ok {
		return "", nil
	}
	number, _, _ := strings.Cut(req.Params.RequestState, ".")
	if !hmac.Equal([]byte(req.Params.RequestState), []byte(s.sign(req, number))) || !s.asked.use(number) {
		return "", errors.New("requestState: the answer is to another call, or was given before; call again without inputResponses")
	}
	res, ok := given.(*mcp.ElicitResult)
	if !ok {
		return "", errors.New("inputResponses: expected the answer to an elicitation")
	}
	return res.Action, nil
}

// ask notes that a call was asked about, and returns the state for it.
func (s *server) ask(req *mcp.CallToolRequest) string {
	number := rand.Text()
	s.asked.add(number)
	return s.sign(req, number)
}

// maxAsked limits the questions that wait for an answer. The oldest lapse: their calls must be made again.
const maxAsked = 1024

// asked are the questions that wait for an answer, oldest first.
type asked struct {
	mu      sync.Mutex
	numbers []string
}

func (a *asked) add(number string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.numbers = append(a.numbers, number)
	a.numbers = a.numbers[max(0, len(a.numbers)-maxAsked):]
}

// use reports whether a question waits, and ends its waiting.
func (a *asked) use(number string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.numbers, number)
	if i >= 0 {
		a.numbers = slices.Delete(a.numbers, i, i+1)
	}
	return i >= 0
}

// sign returns the number with the MAC of what a call asks for.
func (s *server) sign(req *mcp.CallToolRequest, number string) string {
	m := hmac.New(sha256.New, s.mac)
	m.Write([]byte(number + "\x00"))
	var args any
	if json.Unmarshal(req.Params.Arguments, &args) == nil { // the same arguments in another order are the same call
		b, _ := json.Marshal(args)
		m.Write(b)
	}
	m.Write([]byte{0})
	m.Write([]byte(req.Params.Name))
	return number + "." + base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

func signingKey() ([]byte, error) {
	key := make([]byte, 32)
	_, err := rand.Read(key)
	return key, err
}
