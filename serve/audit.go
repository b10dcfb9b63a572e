package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// The audit has the leaves of all scopes in one order. recorded and maySee decide what a caller sees; there is no other way to a leaf.

var auditCalls = []call{
	unary("why", Agent, "Why a page was in a past context, or was not.", why),
	unary("replay", Agent, "Render a past context again, byte for byte.", replay),
	unary("diff", Agent, "How two past contexts differ: settings, and pages in one alone or in other forms.", diff),
	unary("manifest", Agent, "The audit leaves of a trace: what a context showed, and how its transactions ended.", showManifest),
	stream("changes", Agent, "A stream of the audit leaves of the scope, one line each, until the caller disconnects.", changes),
}

// serves reports whether callers may work in a scope.
func (s *Server) serves(scope string) bool {
	w := s.opts.Within
	return w == "" || scope == w || strings.HasPrefix(scope, w+"/")
}

// recorded returns the leaves of a trace that the caller may see. A trace of another scope is "not found": an error of its own
// would reveal that it exists.
func (r *request) recorded(ctx context.Context, trace string) ([]*manifest.Record, error) {
	leaves, err := r.srv.db.Manifests().ByTrace(ctx, trace)
	if err != nil && !errors.Is(err, manifest.ErrNoLeaf) {
		return nil, err
	}
	leaves = slices.DeleteFunc(leaves, func(l *manifest.Record) bool { return !r.maySee(l) })
	if len(leaves) == 0 {
		return nil, fmt.Errorf("%w: scope %s recorded nothing under the trace %.100q", store.ErrNotFound, r.scope, trace)
	}
	return leaves, nil
}

// maySee reports whether a leaf is of the caller's scope or, for an operator, of any scope that is served.
func (r *request) maySee(l *manifest.Record) bool {
	return l.Scope == r.scope || r.role == Operator && r.srv.serves(l.Scope)
}

type whyIn struct {
	Trace string `json:"trace"`
	ID    string `json:"id,omitempty" jsonschema:"id of the page; without id and ref the whole context is explained"`
	Ref   string `json:"ref,omitempty" jsonschema:"reference of the page, instead of id"`
}

type whyOut struct {
	Trace    string   `json:"trace"`
	Ref      string   `json:"ref" jsonschema:"empty: of the whole context"`
	In       bool     `json:"in"`
	Question string   `json:"question,omitempty"`
	Steps    []string `json:"steps" jsonschema:"in plain words, in order"`
}

// why explains one page of one read, or the whole context.
func why(ctx context.Context, r *request, in whyIn) (whyOut, error) {
	if _, err := r.recorded(ctx, in.Trace); err != nil {
		return whyOut{}, err
	}
	ref := ctxpage.Ref{ID: in.ID} // of neither: the whole context
	if in.Ref != "" {
		var err error
		if ref, err = store.ParseRef(in.Ref); err != nil {
			return whyOut{}, err
		}
	}
	w, err := r.srv.db.Why(ctx, in.Trace, ref)
	if err != nil {
		return whyOut{}, err
	}
	name := w.Ref.String()
	if w.Ref.Scope == "" { // whichever of the visible scopes had it
		name = w.Ref.ID
	}
	return whyOut{w.Trace, name, w.In, w.Question, full(w.Steps)}, nil
}

type traceIn struct {
	Trace string `json:"trace"`
}

// replayOut is a context as it was shown. A replay that differs is an error, so Same is always true.
type replayOut struct {
	Trace   string   `json:"trace"`
	Text    string   `json:"text"`
	Same    bool     `json:"same" jsonschema:"the bytes are those that were recorded"`
	Missing []string `json:"missing,omitempty" jsonschema:"pages that gc dropped"`
}

func replay(ctx context.Context, r *request, in traceIn) (replayOut, error) {
	if _, err := r.recorded(ctx, in.Trace); err != nil {
		return replayOut{}, err
	}
	again := r.s.Replay
	if r.role == Operator { // of any scope that is served
		again = r.srv.db.Replay
	}
	p, err := again(ctx, in.Trace)
	if err != nil {
		return replayOut{}, err
	}
	return replayOut{p.Trace, p.Text, p.Same, p.Missing}, nil
}

type diffIn struct {
	A string `json:"a" jsonschema:"trace of an assembly"`
	B string `json:"b" jsonschema:"trace of another one"`
}

type diffOut struct {
	A       string                 `json:"a"`
	B       string                 `json:"b"`
	Same    bool                   `json:"same"`
	Fields  []manifest.FieldChange `json:"fields"`
	OnlyA   []string               `json:"only_a" jsonschema:"pages of a alone"`
	OnlyB   []string               `json:"only_b"`
	Changed []formOut              `json:"changed"`
}

type formOut struct {
	Ref  string   `json:"ref"`
	What []string `json:"what"`
}

func diff(ctx context.Context, r *request, in diffIn) (diffOut, error) {
	for _, trace := range []string{in.A, in.B} {
		if _, err := r.recorded(ctx, trace); err != nil {
			return diffOut{}, err
		}
	}
	d, err := r.srv.db.Diff(ctx, in.A, in.B)
	if err != nil {
		return diffOut{}, err
	}
	out := diffOut{A: in.A, B: in.B, Same: len(d.Fields)+len(d.In)+len(d.Out)+len(d.Changed) == 0, Fields: d.Fields, Changed: []formOut{}}
	for _, p := range d.Out {
		out.OnlyA = append(out.OnlyA, r.srv.db.RefOf(ctx, p.Num))
	}
	for _, p := range d.In {
		out.OnlyB = append(out.OnlyB, r.srv.db.RefOf(ctx, p.Num))
	}
	for _, c := range d.Changed {
		out.Changed = append(out.Changed, formOut{r.srv.db.RefOf(ctx, c.B.Num), c.What})
	}
	view.FillLists(&out)
	return out, nil
}

type manifestOut struct {
	Leaves []leafOut `json:"leaves"`
}

// leafOut is an audit leaf. Index orders all leaves of the database.
type leafOut struct {
	Index      uint64         `json:"index"`
	Type       string         `json:"type"`
	At         time.Time      `json:"at"`
	Trace      string         `json:"trace"`
	Parent     string         `json:"parent,omitempty" jsonschema:"the trace it belongs to"`
	Scope      string         `json:"scope,omitempty"`
	Actor      string         `json:"actor,omitempty"`
	LSN        uint64         `json:"lsn"`
	Session    string         `json:"session,omitempty"`
	Question   string         `json:"question,omitempty" jsonschema:"what was asked, unless it was erased or not kept; in manifest alone"`
	Budget     int            `json:"budget,omitempty"`
	Tokens     int            `json:"tokens,omitempty"`
	Tier       int            `json:"tier,omitempty"`
	Preset     string         `json:"preset,omitempty"`
	Overflow   string         `json:"overflow,omitempty"`
	Counter    string         `json:"counter,omitempty" jsonschema:"what counted the tokens"`
	Pages      []servedOut    `json:"pages,omitempty" jsonschema:"what a read served, in order"`
	LeftOut    map[string]int `json:"left_out,omitempty"`
	Batch      string         `json:"batch,omitempty"`
	Status     string         `json:"status,omitempty"`
	Reason     string         `json:"reason,omitempty"`
	Confidence float64        `json:"confidence,omitempty"`
	By         string         `json:"by,omitempty"`
	Note       string         `json:"note,omitempty"`
	Writes     []changeOut    `json:"writes,omitempty"`
	Action     string         `json:"action,omitempty"`
}

// servedOut is a page of a read.
type servedOut struct {
	Ref    string  `json:"ref"`
	Form   string  `json:"form"`
	Tokens int     `json:"tokens"`
	Score  float64 `json:"score,omitempty"`
	Reason string  `json:"reason,omitempty"`
}

type changeOut struct {
	Ref     string `json:"ref"`
	Version uint32 `json:"version"`
	Deleted bool   `json:"deleted,omitempty"`
	Touch   bool   `json:"touch,omitempty" jsonschema:"it repeated what was there"`
}

func (r *request) leaf(ctx context.Context, l *manifest.Record) leafOut {
	out := leafOut{
		Index: l.Index, Type: l.Type.String(), At: time.UnixMicro(l.Time).UTC(), Trace: l.Trace, Parent: l.Parent, Scope: l.Scope, Actor: l.Actor, LSN: l.LSN,
		Session: l.Session, Budget: l.Budget, Tokens: l.Tokens, Tier: l.Tier, Preset: l.Preset, Overflow: l.Overflow, Counter: l.Counter, Batch: l.Batch, Status: l.Status, Reason: l.Reason, Confidence: l.Confidence,
		By: l.By, Note: l.Note, Action: l.Action,
	}
	for _, p := range l.Pages {
		out.Pages = append(out.Pages, servedOut{r.srv.db.RefOf(ctx, p.Num), p.Form.String(), p.Tokens, p.Score.Float(), p.Reason})
	}
	if len(l.Excluded) > 0 {
		out.LeftOut = leftOut(l)
	}
	for _, w := range l.Writes {
		out.Writes = append(out.Writes, changeOut{w.Ref, w.Version, w.Deleted, w.Touch})
	}
	return out
}

func showManifest(ctx context.Context, r *request, in traceIn) (manifestOut, error) {
	leaves, err := r.recorded(ctx, in.Trace)
	if err != nil {
		return manifestOut{}, err
	}
	out := manifestOut{Leaves: []leafOut{}}
	for _, l := range leaves {
		leaf := r.leaf(ctx, l)
		if leaf.Question, err = r.srv.db.Manifests().Question(ctx, l); err != nil && !errors.Is(err, manifest.ErrNoQuestion) {
			return manifestOut{}, err
		}
		out.Leaves = append(out.Leaves, leaf)
	}
	return out, nil
}

type changesIn struct {
	From  *uint64  `json:"from,omitempty" jsonschema:"index of the first leaf, such as next of the last line; default: what comes from now on"`
	Limit int      `json:"limit,omitempty" jsonschema:"end after this many leaves"`
	Types []string `json:"types,omitempty" jsonschema:"only leaves of these types, such as commit, held, assemble"`
	Idle  int      `json:"idle_s,omitempty" jsonschema:"end after this many seconds without a leaf; default: never"`
}

type changeLine struct {
	Next uint64   `json:"next" jsonschema:"from, to go on after this line"`
	Leaf *leafOut `json:"leaf,omitempty" jsonschema:"absent in a sign of life, which comes every 15 seconds"`
}

// The interval of signs of life in a stream without leaves, and how many leaves are read at once.
const (
	signEvery = 15 * time.Second
	askAtOnce = 256 // leaves
)

// changes streams the leaves that the caller may see, as they are written. The first line has no leaf and says where the stream
// starts; it is repeated as a sign of life.
func changes(ctx context.Context, r *request, in changesIn, line func(changeLine) error) error {
	size, err := r.srv.db.Manifests().Size(ctx)
	if err != nil {
		return err
	}
	f := &follower{r: r, in: in, line: line, next: size, sent: time.Now(), lastLeaf: time.Now()}
	if in.From != nil {
		f.next = *in.From
	}
	switch {
	case f.next > size:
		return store.Invalid("from", fmt.Sprint(f.next), fmt.Sprintf("at most %d, the number of leaves in the audit", size))
	case in.Limit < 0:
		return store.Invalid("limit", fmt.Sprint(in.Limit), "zero or more")
	case in.Idle < 0 || in.Idle > view.MaxSeconds:
		return store.Invalid("idle_s", fmt.Sprint(in.Idle), fmt.Sprintf("0 to %d seconds", view.MaxSeconds))
	}
	for _, name := range in.Types {
		if _, err := manifest.ParseType(name); err != nil {
			return store.Invalid("types", fmt.Sprintf("%.40q", name), "types of leaves, such as commit, held or assemble")
		}
	}
	if err := line(changeLine{Next: f.next}); err != nil { // the caller knows that it listens
		return err
	}
	for {
		n, err := f.pass(ctx)
		if err != nil || f.atLimit() {
			return err
		}
		if n > 0 {
			continue
		}
		if _, err := r.srv.db.Manifests().Wait(ctx, f.next, f.waitMost()); err != nil {
			return err
		}
	}
}

// follower is a stream of changes. The goroutine of its call owns it. It stores no position: a caller that lost its connection passes
// next as from and misses nothing. Nothing is buffered for a slow reader; writeParts cuts it off after partTime.
type follower struct {
	r        *request
	in       changesIn
	line     func(changeLine) error
	next     uint64    // leaf to be read
	given    int       // leaves that were sent
	sent     time.Time // when anything was sent last, also a line without a leaf
	lastLeaf time.Time // when a leaf was sent last
}

// atLimit reports whether the stream has reached the limits of the caller.
func (f *follower) atLimit() bool {
	return f.given > 0 && f.given == f.in.Limit || f.in.Idle > 0 && time.Since(f.lastLeaf) >= time.Duration(f.in.Idle)*time.Second
}

// waitMost returns how long to wait for a leaf.
func (f *follower) waitMost() time.Duration {
	wait := signEvery - time.Since(f.sent)
	if f.in.Idle > 0 {
		wait = min(wait, time.Duration(f.in.Idle)*time.Second-time.Since(f.lastLeaf))
	}
	return max(wait, 0)
}

// pass sends the new leaves and returns how many it read.
func (f *follower) pass(ctx context.Context) (int, error) {
	leaves, err := f.r.srv.db.Manifests().Records(ctx, f.next, f.next+askAtOnce, false, askAtOnce)
	if err != nil {
		return 0, err
	}
	for _, l := range leaves {
		f.next = l.Index + 1
		if !f.r.maySee(l) || len(f.in.Types) > 0 && !slices.Contains(f.in.Types, l.Type.String()) {
			continue
		}
		out := f.r.leaf(ctx, l)
		if err := f.line(changeLine{f.next, &out}); err != nil {
			return 0, err
		}
		f.sent, f.lastLeaf = time.Now(), time.Now()
		if f.given++; f.atLimit() {
			break
		}
	}
	if len(leaves) == 0 && time.Since(f.sent) >= signEvery {
		f.sent = time.Now()
		return 0, f.line(changeLine{Next: f.next})
	}
	return len(leaves), nil
}
