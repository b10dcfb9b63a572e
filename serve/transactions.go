package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token/bpe"
)

// A transaction stays open between the calls of its caller, under the caller's key, scope, actor, role and trace (txnName).
//
// 	keep     begin puts it into Server.txns
// 	open     a call uses it, and its lease starts again
// 	take     commit and rollback remove it from txns first, then end it
// 	expire   the timer removes it if no call used it for the lease, and rolls it back
//
// The one that removes an entry from txns ends the transaction, so a commit and an expiry at the same moment do not both end it.

var contextCalls = []call{
	unary("assemble", Agent, "The context for a question within a token budget, and a trace to cite in begin or commit.", assemble),
	unary("begin", Agent, "Begin a transaction, of the context of a trace if one is given. No one else sees its writes until commit.", begin),
	unary("commit", Agent, "Commit an open transaction, or writes from the context of a trace, through the gate: committed, or the error held, conflict or stale_context.", commit),
	unary("rollback", Agent, "Drop an open transaction, or record that the answer to a context was discarded.", rollback),
}

// txnName finds an open transaction. Callers that name themselves by headers have no key: headers tell them apart no further.
type txnName struct {
	key, scope, actor string
	role              Role
	trace             string
}

// openTxn is a transaction between two calls. A call starts the lease when it finds it and again when it returns.
type openTxn struct {
	tx    *ctxpage.Txn
	lease time.Duration
	timer *time.Timer
}

func (t *openTxn) used() { t.timer.Reset(t.lease) }

// drop rolls it back. Only the one that removed it from txns calls it.
func (t *openTxn) drop() {
	t.timer.Stop()
	_ = t.tx.Rollback() // nothing of it is stored
}

func (r *request) named(trace string) txnName {
	return txnName{r.key, r.scope, r.actor, r.role, trace}
}

func (r *request) keep(tx *ctxpage.Txn) error {
	name := r.named(tx.Trace())
	s := r.srv
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return refuse("closing", "the server is about to end", "connect again")
	case s.txns[name] != nil:
		return store.Invalid("trace", tx.Trace(), "one that has no open transaction: commit it, or roll it back")
	}
	own := 0
	for other := range s.txns {
		if other.scope == name.scope {
			own++
		}
	}
	if err := r.role.room("transactions are open", len(s.txns), own, maxTransactions, "commit or roll back one"); err != nil {
		return err
	}
	t := &openTxn{tx: tx, lease: s.opts.Lease}
	t.timer = time.AfterFunc(t.lease, func() { s.expire(name, t) })
	s.txns[name] = t
	return nil
}

// open finds an open transaction of the caller, and starts its lease anew. Calls may use it at once: a Txn locks.
func (r *request) open(trace string) (*openTxn, error) {
	r.srv.mu.Lock()
	defer r.srv.mu.Unlock()
	if t := r.srv.txns[r.named(trace)]; t != nil {
		t.used()
		return t, nil
	}
	return nil, fmt.Errorf("%w: no open transaction %.100q of this caller; begin one", store.ErrNotFound, trace)
}

func (s *Server) expire(name txnName, t *openTxn) {
	s.mu.Lock()
	idle := s.txns[name] == t
	if idle {
		delete(s.txns, name)
	}
	s.mu.Unlock()
	if idle {
		t.drop()
	}
}

func (r *request) take(name txnName) *openTxn {
	r.srv.mu.Lock()
	defer r.srv.mu.Unlock()
	t := r.srv.txns[name]
	delete(r.srv.txns, name)
	return t
}

// beginIn begins a transaction. With a trace it has read what that assembly served, so a change of one of those pages makes it stale.
type beginIn struct {
	Trace   string `json:"trace,omitempty" jsonschema:"trace of the assembly that will be answered; what it served is what the transaction read"`
	Batch   string `json:"batch,omitempty" jsonschema:"a ULID that names the transaction; a repeated one is applied once"`
	OnStale string `json:"on_stale,omitempty" jsonschema:"if a page of the context has changed: hold (default), fail or allow"`
}

type beginOut struct {
	Trace string `json:"trace" jsonschema:"names the transaction in the calls that follow"`
	Batch string `json:"batch"`
	Lease int    `json:"lease_s" jsonschema:"seconds without a call after which it is rolled back"`
}

func (r *request) speculate(ctx context.Context, in beginIn) (*ctxpage.Txn, error) {
	var opts []ctxpage.TxnOption
	if in.Batch != "" {
		opts = append(opts, ctxpage.WithID(in.Batch))
	}
	switch in.OnStale {
	case "", "hold":
	case "fail":
		opts = append(opts, ctxpage.WithOnStale(store.FailStale))
	case "allow":
		opts = append(opts, ctxpage.WithOnStale(store.AllowStale))
	default:
		return nil, store.Invalid("on_stale", fmt.Sprintf("%.40q", in.OnStale), "hold, fail or allow")
	}
	if in.Trace == "" {
		return r.s.Begin(ctx, opts...)
	}
	return r.s.Resume(ctx, in.Trace, opts...)
}

// begin opens a transaction and keeps it for later calls, or rolls it back if it cannot be kept.
func begin(ctx context.Context, r *request, in beginIn) (beginOut, error) {
	tx, err := r.speculate(ctx, in)
	if err != nil {
		return beginOut{}, err
	}
	if err := r.keep(tx); err != nil {
		return beginOut{}, errors.Join(err, tx.Rollback())
	}
	return beginOut{tx.Trace(), tx.ID(), int(r.srv.opts.Lease / time.Second)}, nil
}

// verdictIn is the judgement of a host on a draft. By must be neither the actor nor the scope.
type verdictIn struct {
	Confidence float64 `json:"confidence" jsonschema:"0 to 1"`
	By         string  `json:"by" jsonschema:"the judge of the answer; not its writer"`
	Note       string  `json:"note,omitempty"`
}

type commitIn struct {
	Trace   string       `json:"trace,omitempty" jsonschema:"trace of an open transaction, or of the assembly that is answered"`
	Writes  []view.Write `json:"writes,omitempty"`
	Deletes []string     `json:"deletes,omitempty" jsonschema:"ids"`
	Verdict *verdictIn   `json:"verdict,omitempty" jsonschema:"of a host. Without one the evaluator judges; without an evaluator the writes are held"`
	Batch   string       `json:"batch,omitempty" jsonschema:"as in begin"`
	OnStale string       `json:"on_stale,omitempty" jsonschema:"as in begin"`
}

// commit ends an open transaction of the trace, with the writes of this call added, or makes one of these writes alone. A write that
// is refused rolls it back, because half of the writes may be in it. Where Commit leaves it open, it goes back, and the caller may
// commit again.
func commit(ctx context.Context, r *request, in commitIn) (writtenOut, error) {
	verdict := ctxpage.Verdict{}
	if v := in.Verdict; v != nil {
		if r.role < Host {
			return writtenOut{}, refuse("role", "an agent gave a verdict on its own writes", "leave it out: an evaluator or a person judges")
		}
		verdict = ctxpage.Verdict{Confidence: v.Confidence, By: v.By, Note: v.Note}
	}
	arts, err := artefacts(in.Writes)
	if err != nil {
		return writtenOut{}, err
	}
	var tx *ctxpage.Txn
	t := r.take(r.named(in.Trace))
	if t != nil {
		if in.Batch != "" || in.OnStale != "" {
			r.putBack(t, in.Trace)
			return writtenOut{}, store.Invalid("batch, on_stale", "one for an open transaction", "what begin was given")
		}
		tx = t.tx
	} else {
		if len(in.Writes)+len(in.Deletes) == 0 {
			return writtenOut{}, store.Invalid("commit", "no open transaction of this trace, and no writes", "begin first, or give writes or deletes; manifest of the trace says how a transaction ended")
		}
		if tx, err = r.speculate(ctx, beginIn{in.Trace, in.Batch, in.OnStale}); err != nil {
			return writtenOut{}, err
		}
	}
	if err = putAll(ctx, tx, arts); err == nil {
		err = deleteAll(ctx, tx, in.Deletes)
	}
	whole := err == nil
	if whole {
		err = tx.Commit(ctx, verdict)
	}
	switch {
	case tx.Done(): // committed, held, or refused for good
	case t != nil && whole:
		r.putBack(t, in.Trace)
		return writtenOut{}, err
	default:
		_ = tx.Rollback() // nothing of it is stored
	}
	if t != nil {
		t.timer.Stop()
	}
	return committed(tx, err)
}

// putBack undoes take, unless nobody would find the transaction any more: then it is rolled back.
func (r *request) putBack(t *openTxn, trace string) {
	s := r.srv
	s.mu.Lock()
	left := s.closed || r.key != "" && s.keys[r.key] == nil
	if !left {
		s.txns[r.named(trace)] = t
		t.used()
	}
	s.mu.Unlock()
	if left {
		t.drop()
	}
}

type rollbackIn struct {
	Trace string `json:"trace"`
}

type rollbackOut struct {
	Trace string `json:"trace"`
}

// rollback ends an open transaction, or records that the answer to a context was discarded.
func rollback(ctx context.Context, r *request, in rollbackIn) (rollbackOut, error) {
	if t := r.take(r.named(in.Trace)); t != nil {
		t.timer.Stop()
		return rollbackOut(in), t.tx.Rollback()
	}
	tx, err := r.s.Resume(ctx, in.Trace)
	if err != nil {
		return rollbackOut{}, err
	}
	return rollbackOut(in), tx.Rollback()
}

type assembleIn struct {
	Query    string       `json:"query" jsonschema:"the question; it finds pages and is not part of the context"`
	Budget   int          `json:"budget,omitempty" jsonschema:"tokens the context may take; may be left out for a session with a window"`
	Reserve  int          `json:"reserve,omitempty" jsonschema:"tokens of the budget that stay free"`
	TopK     int          `json:"top_k,omitempty"`
	Kinds    []string     `json:"kinds,omitempty"`
	Filter   *view.Filter `json:"filter,omitempty"`
	Session  string       `json:"session,omitempty" jsonschema:"the conversation that asks; its turns belong into the context"`
	AsOf     uint64       `json:"as_of,omitempty" jsonschema:"LSN of the past"`
	Txn      string       `json:"txn,omitempty" jsonschema:"trace of an open transaction: its drafts are seen, and what is served joins what it read"`
	Stale    bool         `json:"serve_stale,omitempty"`
	Recent   bool         `json:"recent,omitempty" jsonschema:"recent pages fill the context even if nothing matches the question"`
	Floor    string       `json:"floor,omitempty" jsonschema:"lowest provenance that enters: scratch, tool (default), validated, chunk or human-verified"`
	Preset   string       `json:"preset,omitempty" jsonschema:"how pages are ranked: default, or START, the published method in two passes"`
	Overflow string       `json:"overflow,omitempty" jsonschema:"if not everything fits: fill (default) keeps as much as fits, ladder degrades by whole tiers"`
	Charge   string       `json:"charge,omitempty" jsonschema:"what counts: rendered (default), headers included; contents, the texts alone"`
	Form     string       `json:"form,omitempty" jsonschema:"how pages are shown: dense (default) says once what pages have in common and names them by number; long gives each a header with its reference"`
	Counter  string       `json:"counter,omitempty" jsonschema:"counts this context: o200k_base, cl100k_base, a model such as claude or gemini, or one of these with a factor (o200k_base*125%); default: the server's"`
	Summary  int          `json:"summary_tokens,omitempty" jsonschema:"about how many tokens a page takes that is shortened; default 200"`
	Messages string       `json:"messages,omitempty" jsonschema:"also return the messages of a provider's request: openai, anthropic or gemini"`
}

// assembleOut is a context. Text is the whole of it; Blocks are its parts.
type assembleOut struct {
	Trace    string         `json:"trace" jsonschema:"cite it in begin, commit, why and replay"`
	LSN      uint64         `json:"lsn"`
	Text     string         `json:"text" jsonschema:"the context, ready to be read"`
	Messages any            `json:"messages,omitempty" jsonschema:"the fragment of the provider's request"`
	Tier     int            `json:"tier" jsonschema:"of the red and yellow pages: 1 all are in, whole; 2 some are shortened; 3 some are left out; 4 what is protected does not fit"`
	Tokens   int            `json:"tokens"`
	Limit    int            `json:"limit"`
	Counter  string         `json:"counter" jsonschema:"what counted"`
	Review   bool           `json:"review,omitempty" jsonschema:"not even the protected pages fitted"`
	Match    manifest.Match `json:"match,omitempty" jsonschema:"none: nothing matches the question, say so; weak: less than three fifths of its words, or by meaning alone; good"`
	Covered  float64        `json:"covered" jsonschema:"share of the question's words that the pages have"`
	Degraded string         `json:"degraded,omitempty"`
	Blocks   []blockOut     `json:"blocks" jsonschema:"the pages of the context, in order: the text calls the first one 1"`
	LeftOut  map[string]int `json:"left_out" jsonschema:"pages that were considered and left out, counted by reason"`
}

// blockOut is one page of a context. Tokens counts the form that is shown.
type blockOut struct {
	Ref        string            `json:"ref"`
	Form       string            `json:"form" jsonschema:"full, range, summary or stub; get returns the rest"`
	Kind       string            `json:"kind"`
	Provenance string            `json:"provenance"`
	Role       string            `json:"role,omitempty"`
	Tokens     int               `json:"tokens"`
	Score      float64           `json:"score"`
	Text       string            `json:"text"`
	Stale      bool              `json:"stale,omitempty"`
	Meta       map[string]string `json:"meta,omitempty"`
}

func (in *assembleIn) query() (q ctxpage.Query, err error) {
	q = ctxpage.Query{Text: in.Query, Budget: in.Budget, Reserve: in.Reserve, TopK: in.TopK, Session: in.Session, AsOf: in.AsOf, ServeStale: in.Stale, SummaryTokens: in.Summary, Recent: in.Recent}
	if q.Kinds, err = view.Kinds(in.Kinds); err != nil {
		return q, err
	}
	if in.Counter != "" {
		if q.Counter, err = bpe.Named(in.Counter); err != nil {
			return q, store.Invalid("counter", fmt.Sprintf("%.40q", in.Counter), expectedCounter(err))
		}
	}
	if err = q.SetNames(in.Floor, in.Preset, in.Overflow, in.Charge, in.Form); err != nil {
		return q, err
	}
	q.Filter, err = in.Filter.Filter()
	return q, err
}

var shapes = map[string]func([]render.Message) ([]byte, error){"openai": render.OpenAI, "anthropic": render.Anthropic, "gemini": render.Gemini}

// assemble builds a context. Within an open transaction it sees the drafts, and what it serves counts as read.
func assemble(ctx context.Context, r *request, in assembleIn) (assembleOut, error) {
	q, err := in.query()
	if err != nil {
		return assembleOut{}, err
	}
	shape, ok := shapes[in.Messages]
	if !ok && in.Messages != "" {
		return assembleOut{}, store.Invalid("messages", fmt.Sprintf("%.40q", in.Messages), "openai, anthropic or gemini")
	}
	ask := r.s.Assemble
	if in.Txn != "" {
		t, err := r.open(in.Txn)
		if err != nil {
			return assembleOut{}, err
		}
		defer t.used()
		ask = t.tx.Assemble
	}
	a, err := ask(ctx, q)
	if err != nil {
		return assembleOut{}, err
	}
	out := assembledOut(a)
	if shape != nil {
		b, err := shape(a.Messages())
		if err != nil {
			return assembleOut{}, err
		}
		out.Messages = json.RawMessage(b)
	}
	return out, nil
}

func assembledOut(a *ctxpage.Assembly) assembleOut {
	out := assembleOut{
		Trace: a.Trace, LSN: a.LSN, Text: a.Text(), Tier: int(a.Tier), Tokens: a.Tokens, Limit: a.Limit, Counter: a.Manifest.Counter, Review: a.Review, Match: a.Match, Covered: manifest.Quantise(a.Covered).Float(), Degraded: a.Degraded,
		Blocks: []blockOut{}, LeftOut: leftOut(a.Manifest),
	}
	for i := range a.Blocks {
		b := &a.Blocks[i]
		out.Blocks = append(out.Blocks, blockOut{b.Ref.String(), b.Form.String(), b.Kind.String(), b.Provenance.String(), b.Role, b.Tokens, b.Score, b.Text, b.Stale, maps.Clone(b.Meta)})
	}
	return out
}

func leftOut(m *manifest.Record) map[string]int {
	out := map[string]int{}
	for _, x := range m.Excluded {
		out[x.Reason] += x.Count
	}
	return out
}

func expectedCounter(err error) string {
	_, expected, _ := strings.Cut(err.Error(), "expected ")
	return expected
}
