package serve

import (
	"context"
	"fmt"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// Calls that change what the model will see need a host: an agent could put words into the user's mouth, or remove turns that
// speak against it.

var conversationCalls = []call{
	unary("session/append", Host, "Append turns to a conversation, in one transaction.", appendTurns),
	unary("session/truncate", Host, "Delete the newest turns, in one transaction, if they are still the newest.", truncate),
	unary("session/window", Agent, "The window of a conversation, without texts.", window),
	unary("session/limit", Host, "Set the size of the window in tokens; 0 removes the limit.", limitWindow),
	unary("session/pass", Host, "Decide which turns stay whole, become stubs or leave the window.", pass),
	unary("session/undo", Host, "Undo a pass.", undo),
	unary("session/pin", Host, "Pin a turn, so that passes leave it whole, or unpin it.", pin),
	unary("session/recall", Agent, "Read one turn in full, even if the window shows a stub or nothing of it.", recall),
	unary("session/history", Agent, "The turns in full, in order.", history),
	unary("session/list", Agent, "The conversations of the scope.", listSessions),
}

type turnIn struct {
	ID         string            `json:"id,omitempty" jsonschema:"appending the same turn again under its id changes nothing; default: a new id"`
	Role       string            `json:"role" jsonschema:"user, assistant or tool"`
	Name       string            `json:"name,omitempty"`
	Text       string            `json:"text,omitempty"`
	Parts      []view.Part       `json:"parts,omitempty" jsonschema:"instead of text"`
	ToolCalls  []view.ToolCall   `json:"tool_calls,omitempty"`
	ToolCallID string            `json:"tool_call_id,omitempty" jsonschema:"of a tool turn: the call that it answers"`
	At         time.Time         `json:"at,omitzero" jsonschema:"default: now"`
	ExpiresAt  time.Time         `json:"expires_at,omitzero"`
	Subject    string            `json:"subject,omitempty" jsonschema:"whom it is about, for exports and erases"`
	Priority   string            `json:"priority,omitempty" jsonschema:"how long the watcher keeps it whole: low, medium, high or critical; default: high for the user, medium for the assistant, low for tools"`
	Relevance  *float64          `json:"relevance,omitempty" jsonschema:"how much it matters to the task, 0 to 1; of turns of one priority the least relevant are compacted first"`
	Tags       []string          `json:"tags,omitempty"`
	Meta       map[string]string `json:"meta,omitempty"`
	Trace      string            `json:"trace,omitempty" jsonschema:"of an answer: the assembly that it was written from"`
}

func (t *turnIn) turn() (ctxpage.Turn, error) {
	out := ctxpage.Turn{
		ID: t.ID, Role: t.Role, Name: t.Name, Text: t.Text, ToolCallID: t.ToolCallID, At: t.At, ExpiresAt: t.ExpiresAt, Subject: t.Subject, Tags: t.Tags,
		Meta: t.Meta, Trace: t.Trace, Relevance: t.Relevance,
	}
	p, err := store.ParsePriority(t.Priority)
	if err != nil {
		return out, err
	}
	out.Priority = p
	for _, p := range t.Parts {
		out.Parts = append(out.Parts, store.Part(p))
	}
	for _, c := range t.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, store.ToolCall(c))
	}
	return out, nil
}

type appendIn struct {
	Session string   `json:"session"`
	Turns   []turnIn `json:"turns"`
	Batch   string   `json:"batch,omitempty" jsonschema:"a ULID that names this call; a repeated one is applied once"`
	DryRun  bool     `json:"dry_run,omitempty" jsonschema:"say whether they would fit and what would make room"`
}

// appendOut has Compacted and Freed for a dry run only.
type appendOut struct {
	Refs      []string `json:"refs"`
	DryRun    bool     `json:"dry_run,omitempty"`
	Compacted int      `json:"compacted,omitempty" jsonschema:"of a dry run: turns that would make room"`
	Freed     int      `json:"freed,omitempty" jsonschema:"of a dry run: tokens they would free"`
}

func appendTurns(ctx context.Context, r *request, in appendIn) (appendOut, error) {
	if len(in.Turns) == 0 {
		return appendOut{}, store.Invalid("turns", "none", "at least one turn")
	}
	turns := make([]ctxpage.Turn, len(in.Turns))
	for i := range in.Turns {
		var err error
		if turns[i], err = in.Turns[i].turn(); err != nil {
			return appendOut{}, fmt.Errorf("turn %d: %w", i+1, err)
		}
		turns[i].Batch = in.Batch
	}
	c := r.s.Session(in.Session)
	if in.DryRun {
		info, err := c.Try(ctx, turns...)
		return appendOut{Refs: []string{}, DryRun: true, Compacted: info.Items, Freed: info.Freed}, err
	}
	refs, err := c.Append(ctx, turns...)
	return appendOut{Refs: view.Refs(refs)}, err
}

type truncateIn struct {
	Session string `json:"session"`
	After   int64  `json:"after" jsonschema:"turns with a higher number go; 0: all"`
	Last    string `json:"last,omitempty" jsonschema:"id that the newest turn must have: otherwise the call fails with conflict and nothing goes"`
	Batch   string `json:"batch,omitempty" jsonschema:"a ULID that names this call; a repeated one is applied once"`
}

type truncateOut struct {
	Deleted []string `json:"deleted" jsonschema:"references of the tombstones, by id"`
}

func truncate(ctx context.Context, r *request, in truncateIn) (truncateOut, error) {
	var opts []ctxpage.TxnOption
	if in.Batch != "" {
		opts = append(opts, ctxpage.WithID(in.Batch))
	}
	refs, err := r.s.Session(in.Session).Truncate(ctx, in.After, in.Last, opts...)
	return truncateOut{view.Refs(refs)}, err
}

type sessionIn struct {
	Session string `json:"session"`
}

type windowOut struct {
	Session string    `json:"session"`
	LSN     uint64    `json:"lsn"`
	Pass    uint64    `json:"pass" jsonschema:"number of the last pass; 0: none"`
	InForce uint64    `json:"in_force"`
	Tokens  int       `json:"tokens" jsonschema:"of all turns as they are shown"`
	Stored  int       `json:"stored" jsonschema:"of all turns whole"`
	Total   int       `json:"total,omitempty" jsonschema:"size of the window, if one was set"`
	Usable  int       `json:"usable,omitempty"`
	Turns   []turnOut `json:"turns"`
}

// turnOut is a turn in a window. Tokens counts it as shown, Stored whole; Verdict and Why come from the pass in force.
type turnOut struct {
	ID      string `json:"id"`
	Seq     int64  `json:"seq"`
	Role    string `json:"role,omitempty"`
	Kind    string `json:"kind"`
	Level   string `json:"level" jsonschema:"how the window shows it"`
	Tokens  int    `json:"tokens"`
	Stored  int    `json:"stored"`
	Pinned  bool   `json:"pinned,omitempty"`
	Verdict string `json:"verdict,omitempty"`
	Why     string `json:"why,omitempty"`
	Trace   string `json:"trace,omitempty" jsonschema:"of the assembly that it was written from, for why and replay"`
}

func window(ctx context.Context, r *request, in sessionIn) (windowOut, error) {
	w, err := r.s.Session(in.Session).Inspect(ctx)
	if err != nil {
		return windowOut{}, err
	}
	out := windowOut{Session: w.Session, LSN: w.LSN, Pass: w.Pass, InForce: w.InForce, Tokens: w.Tokens, Stored: w.Stored, Turns: []turnOut{}}
	if w.Limits != nil {
		out.Total, out.Usable = w.Limits.Total, w.Limits.Usable
	}
	for _, t := range w.Turns {
		out.Turns = append(out.Turns, turnOut{t.ID, t.Seq, t.Role, t.Kind, t.Level.String(), t.Tokens, t.Stored, t.Pinned, t.Verdict, t.Why, t.Trace})
	}
	return out, nil
}

type limitIn struct {
	Session        string  `json:"session"`
	Total          int     `json:"total" jsonschema:"tokens of the window; 0: no limit"`
	OutputReserve  int     `json:"output_reserve,omitempty" jsonschema:"tokens kept for the answer"`
	KeepLast       int     `json:"keep_last,omitempty" jsonschema:"newest turns that are never touched; default 6"`
	ReservePercent float64 `json:"reserve_percent,omitempty" jsonschema:"per cent of the window that stay free; default 15"`
}

// limitWindow sets the size of the window. Older turns are compacted in the same transaction; if that is not enough, nothing changes.
func limitWindow(ctx context.Context, r *request, in limitIn) (windowOut, error) {
	cfg := session.Config{Total: in.Total, OutputReserve: in.OutputReserve, KeepLast: in.KeepLast, Reserve: session.PPM(in.ReservePercent * 10_000)}
	if in.Total < 0 || in.OutputReserve < 0 {
		return windowOut{}, store.Invalid("total, output_reserve", "below zero", "zero or more tokens")
	}
	if !(in.ReservePercent >= 0 && in.ReservePercent < 100) {
		return windowOut{}, store.Invalid("reserve_percent", fmt.Sprint(in.ReservePercent), "per cent, from 0 to below 100")
	}
	if err := r.s.Session(in.Session).SetWindow(ctx, cfg); err != nil {
		return windowOut{}, err
	}
	return window(ctx, r, sessionIn{in.Session})
}

type passIn struct {
	Session  string   `json:"session"`
	Keywords []string `json:"keywords,omitempty" jsonschema:"words or sentences that say what the conversation is about now"`
	KeepLast *int     `json:"keep_last,omitempty" jsonschema:"newest turns that always stay"`
	DryRun   bool     `json:"dry_run,omitempty"`
}

type passOut struct {
	Pass     uint64       `json:"pass" jsonschema:"its number; 0 of a dry run"`
	Repeated bool         `json:"repeated,omitempty" jsonschema:"nothing had changed since the pass in force"`
	Retained int          `json:"retained"`
	Paged    int          `json:"paged"`
	Evicted  int          `json:"evicted"`
	Verdicts []verdictOut `json:"verdicts"`
}

// verdictOut is the verdict on one turn. Reason is one of a fixed set; Why is a sentence for people.
type verdictOut struct {
	ID     string  `json:"id"`
	Action string  `json:"action" jsonschema:"retain, page or evict"`
	Score  float64 `json:"score"`
	Reason string  `json:"reason"`
	Why    string  `json:"why"`
}

// pass decides over the turns anew.
func pass(ctx context.Context, r *request, in passIn) (passOut, error) {
	q := session.PassQuery{Keywords: in.Keywords, Params: session.RecommendedParams(), DryRun: in.DryRun}
	if in.KeepLast != nil {
		q.Params.KeepLast = *in.KeepLast
	}
	p, err := r.s.Session(in.Session).Pass(ctx, q)
	if err != nil {
		return passOut{}, err
	}
	out := passOut{Pass: p.Number, Repeated: p.Repeated, Verdicts: []verdictOut{}}
	for _, v := range p.Verdicts {
		out.Verdicts = append(out.Verdicts, verdictOut{v.ID, v.Action.String(), v.R, v.Reason, p.Explain(v)})
	}
	out.Retained, out.Paged, out.Evicted = p.Count[session.Retain], p.Count[session.Page], p.Count[session.Evict]
	return out, nil
}

type undoIn struct {
	Session string `json:"session"`
	Pass    uint64 `json:"pass,omitempty" jsonschema:"number of the pass; default: the newest that was not undone"`
}

type undoOut struct {
	Pass uint64 `json:"pass"`
	Kind string `json:"kind"`
}

func undo(ctx context.Context, r *request, in undoIn) (undoOut, error) {
	p, err := r.s.Session(in.Session).Undo(ctx, in.Pass)
	return undoOut{p.Number, p.Kind}, err
}

type pinIn struct {
	Session string `json:"session"`
	ID      string `json:"id"`
	Pinned  bool   `json:"pinned"`
}

func pin(ctx context.Context, r *request, in pinIn) (pinIn, error) {
	c := r.s.Session(in.Session)
	if in.Pinned {
		return in, c.Pin(ctx, in.ID)
	}
	return in, c.Unpin(ctx, in.ID)
}

type recallIn struct {
	Session string `json:"session"`
	ID      string `json:"id"`
}

func recall(ctx context.Context, r *request, in recallIn) (view.Page, error) {
	v, err := r.s.Session(in.Session).Recall(ctx, in.ID)
	if err != nil {
		return view.Page{}, err
	}
	return view.Of(v), nil
}

type historyIn struct {
	Session string `json:"session"`
	From    int64  `json:"from,omitempty" jsonschema:"sequence number of the first turn"`
	Last    int    `json:"last,omitempty" jsonschema:"only this many of the newest turns, instead of from"`
	Limit   int    `json:"limit,omitempty" jsonschema:"at most 1000; default 100"`
}

type historyOut struct {
	Turns []view.Page `json:"turns"`
	Next  int64       `json:"next,omitempty" jsonschema:"from of the turns that follow, if the limit was reached"`
}

func history(ctx context.Context, r *request, in historyIn) (historyOut, error) {
	limit, err := within(in.Limit, defaultList, maxList)
	if err != nil {
		return historyOut{}, err
	}
	if in.Last != 0 {
		if in.From != 0 {
			return historyOut{}, store.Invalid("from, last", "both", "one of them")
		}
		if limit, err = within(in.Last, 0, maxList); err != nil {
			return historyOut{}, err
		}
		if in.From, err = r.fromOfLast(ctx, in.Session, in.Last); err != nil {
			return historyOut{}, err
		}
	}
	turns, err := loop.Collect(r.s.Session(in.Session).Turns(ctx, in.From, ctxpage.AtMost(limit, "", nil)))
	if err != nil {
		return historyOut{}, err
	}
	out := historyOut{Turns: pagesOf(turns)}
	if len(turns) == limit && in.Last == 0 {
		out.Next = turns[len(turns)-1].Seq + 1
	}
	return out, nil
}

// fromOfLast returns the number of the first of the newest turns. A turn that is appended meanwhile is newer: the caller then gets the
// turns that were the newest when it asked.
func (r *request) fromOfLast(ctx context.Context, name string, n int) (int64, error) {
	w, err := r.s.Session(name).Inspect(ctx)
	if err != nil || len(w.Turns) <= n {
		return 0, err
	}
	return w.Turns[len(w.Turns)-n].Seq, nil
}

type sessionsIn struct {
	After string `json:"after,omitempty" jsonschema:"only names after this one"`
	Limit int    `json:"limit,omitempty" jsonschema:"at most 1000; default 100"`
}

type sessionsOut struct {
	Sessions []string `json:"sessions"`
	Next     string   `json:"next,omitempty" jsonschema:"after of the names that follow"`
}

// listSessions pages through the names of the conversations. The store has no cursor for them, so earlier names are skipped here.
func listSessions(ctx context.Context, r *request, in sessionsIn) (sessionsOut, error) {
	limit, err := within(in.Limit, defaultList, maxList)
	if err != nil {
		return sessionsOut{}, err
	}
	out := sessionsOut{Sessions: []string{}}
	for name, err := range r.s.Sessions(ctx) {
		if err != nil {
			return sessionsOut{}, fmt.Errorf("sessions: %w", err)
		}
		if name <= in.After && in.After != "" {
			continue
		}
		if len(out.Sessions) == limit {
			out.Next = out.Sessions[limit-1]
			break
		}
		out.Sessions = append(out.Sessions, name)
	}
	return out, nil
}
