package mcpserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// Limits of a call. A model asks for too much as easily as for too little.
const (
	defaultBudget = 4000
	maxBudget     = 200_000
	defaultHits   = 10
	maxHits       = 100
	maxHitBytes   = 4 << 10 // of the text of a hit
	defaultList   = 50
	maxList       = 200
	defaultBytes  = 32 << 10 // of a page
	maxBytes      = 256 << 10
)

type assembleIn struct {
	Query   string       `json:"query" jsonschema:"the user's question"`
	Budget  int          `json:"budget,omitempty" jsonschema:"tokens the context may take; default 4000"`
	Session string       `json:"session,omitempty" jsonschema:"conversation whose turns belong into the context"`
	Kinds   []string     `json:"kinds,omitempty" jsonschema:"only these kinds: system, fact, chunk, message, tool, scratch, summary"`
	Filter  *view.Filter `json:"filter,omitempty" jsonschema:"only pages that meet all of it"`

	Floor    string `json:"floor,omitempty" jsonschema:"lowest provenance that enters: scratch, tool (default), validated, chunk, human-verified"`
	Preset   string `json:"preset,omitempty" jsonschema:"ranking: default or START"`
	Overflow string `json:"overflow,omitempty" jsonschema:"if not everything fits: fill (default) or ladder, which degrades by whole tiers"`
	Recent   bool   `json:"recent,omitempty" jsonschema:"recent pages fill the context even if nothing matches the question"`
	Charge   string `json:"charge,omitempty" jsonschema:"what the budget counts: rendered (default) or contents, the texts alone"`
}

// assembleOut follows the text of the context, as its last line.
type assembleOut struct {
	Trace    string         `json:"trace"`
	Tier     int            `json:"tier"` // of the pages that matter: 1 all whole, 2 some shortened, 3 some left out, 4 the core does not fit
	Tokens   int            `json:"tokens"`
	Blocks   []blockOut     `json:"blocks"`          // the pages of the context, in order
	LeftOut  map[string]int `json:"left_out"`        // pages that were considered and left out, by reason
	Match    manifest.Match `json:"match,omitempty"` // none: say that you have nothing on it; weak: it may be about something else; good: most of the words are there
	Covered  float64        `json:"covered"`         // share of the question's words that the pages have
	Degraded string         `json:"degraded,omitempty"`
}

type blockOut struct {
	Ref    string `json:"ref"`
	Form   string `json:"form"`
	Why    string `json:"why"`
	Tokens int    `json:"tokens"`
	Stale  bool   `json:"stale,omitempty"` // its source changed and could not be fetched
}

func (s *server) assemble(ctx context.Context, _ *mcp.CallToolRequest, in assembleIn) (*mcp.CallToolResult, assembleOut, error) {
	q := ctxpage.Query{Text: in.Query, Budget: in.Budget, Session: in.Session, Recent: in.Recent}
	if err := q.SetNames(in.Floor, in.Preset, in.Overflow, in.Charge, ""); err != nil {
		return nil, assembleOut{}, err
	}
	if q.Budget == 0 {
		q.Budget = defaultBudget
	}
	if q.Budget < 0 || q.Budget > maxBudget {
		return nil, assembleOut{}, fmt.Errorf("budget %d: expected 1 to %d tokens", in.Budget, maxBudget)
	}
	var err error
	if q.Kinds, err = view.Kinds(in.Kinds); err != nil {
		return nil, assembleOut{}, err
	}
	if q.Filter, err = in.Filter.Filter(); err != nil {
		return nil, assembleOut{}, err
	}
	a, err := s.scope.Assemble(ctx, q)
	if err != nil {
		return nil, assembleOut{}, err
	}
	out := assembleOut{Trace: a.Trace, Tier: int(a.Tier), Tokens: a.Tokens, Blocks: []blockOut{}, LeftOut: map[string]int{}, Match: a.Match, Covered: manifest.Quantise(a.Covered).Float(), Degraded: a.Degraded}
	served := map[uint64]*manifest.Page{}
	for i := range a.Manifest.Pages {
		served[a.Manifest.Pages[i].Num] = &a.Manifest.Pages[i]
	}
	for i := range a.Blocks {
		b := &a.Blocks[i]
		out.Blocks = append(out.Blocks, blockOut{Ref: b.Ref.String(), Form: b.Form.String(), Why: reason(a, b, served[b.Num]), Tokens: b.Tokens, Stale: b.Stale})
	}
	for _, x := range a.Manifest.Excluded {
		out.LeftOut[x.Reason] += x.Count
	}
	line, err := jsonOf(out) // behind the last fence, which no page can close
	return textResult(strings.TrimSuffix(a.Text(), "\n") + "\n" + line), out, err
}

// reason says in a few words why a page is in a context; the tool why tells it in full.
func reason(a *ctxpage.Assembly, b *ctxpage.Block, p *manifest.Page) string {
	switch {
	case b.Kind == store.KindSystem:
		return "always included"
	case p == nil || p.Score == 0:
		return "of the conversation"
	case p.Reason != "":
		return p.Reason
	case p.S > 0 && a.Match != manifest.MatchNone: // every page is a little near in meaning
		return fmt.Sprintf("matches the question, score %.2f", p.Score.Float())
	}
	return fmt.Sprintf("recent or trusted, score %.2f", p.Score.Float())
}

type searchIn struct {
	Query  string       `json:"query" jsonschema:"words to look for"`
	Limit  int          `json:"limit,omitempty" jsonschema:"hits at most; default 10"`
	Filter *view.Filter `json:"filter,omitempty" jsonschema:"only pages that meet all of it"`
	Floor  string       `json:"floor,omitempty" jsonschema:"lowest provenance served: scratch, tool, validated, chunk or human-verified; default tool. Scratch also serves drafts, and imports that nobody has vouched for"`
}

type searchOut struct {
	Hits     []hitOut       `json:"hits"`            // best first
	LeftOut  map[string]int `json:"left_out"`        // pages that match and are not served, by reason
	Below    string         `json:"below,omitempty"` // how many matches are below the provenance floor, and how to see them
	Degraded string         `json:"degraded,omitempty"`
	Waiting  []waitingOut   `json:"waiting,omitempty"`
}

type hitOut struct {
	Ref   string  `json:"ref"`
	Text  string  `json:"text"`
	More  bool    `json:"more,omitempty"` // the text is cut
	Score float64 `json:"score"`
	Stale bool    `json:"stale,omitempty"`
}

func (s *server) search(ctx context.Context, _ *mcp.CallToolRequest, in searchIn) (*mcp.CallToolResult, searchOut, error) {
	limit, err := within("limit", in.Limit, defaultHits, maxHits)
	if err != nil {
		return nil, searchOut{}, err
	}
	filter, err := in.Filter.Filter()
	if err != nil {
		return nil, searchOut{}, err
	}
	var q ctxpage.Query
	if err := q.SetNames(in.Floor, "", "", "", ""); err != nil {
		return nil, searchOut{}, err
	}
	f, err := s.scope.Search(ctx, in.Query, limit, ctxpage.Where(filter), ctxpage.WithFloor(q.Floor))
	if err != nil {
		return nil, searchOut{}, err
	}
	out := searchOut{Hits: []hitOut{}, LeftOut: map[string]int{}, Below: f.Below(), Degraded: f.Degraded}
	for _, h := range f.Hits {
		text := h.Text[:boundary(h.Text, maxHitBytes)]
		out.Hits = append(out.Hits, hitOut{h.Ref.String(), render.Escape(text), len(text) < len(h.Text), h.Score, h.Stale})
	}
	for _, c := range f.Counts {
		out.LeftOut[c.Reason] += c.Count
	}
	out.Waiting, err = s.waiting(ctx, "", waitingInSearch)
	return nil, out, err
}

// within is a count that was given, or its default.
func within(name string, n, otherwise, most int) (int, error) {
	if n == 0 {
		return otherwise, nil
	}
	if n < 0 || n > most {
		return 0, fmt.Errorf("%s %d: expected 1 to %d", name, n, most)
	}
	return n, nil
}

type getIn struct {
	Ref    string `json:"ref" jsonschema:"an id, or a reference from another tool"`
	Offset int    `json:"offset,omitempty" jsonschema:"byte of the text to begin at; next of the part before"`
	Limit  int    `json:"limit,omitempty" jsonschema:"bytes of the text at most; default 32768"`
}

type getOut struct {
	Ref        string    `json:"ref"`
	Kind       string    `json:"kind"`
	Provenance string    `json:"provenance"`
	Text       string    `json:"text"`
	Offset     int       `json:"offset,omitempty"` // of the text, in bytes
	Next       int       `json:"next,omitempty"`   // offset of what follows; 0: this is the end
	Size       int       `json:"size"`             // of the whole text, in bytes
	Source     string    `json:"source,omitempty"`
	PutAt      time.Time `json:"put_at"`
	Stale      bool      `json:"stale,omitempty"`
}

func (s *server) get(ctx context.Context, _ *mcp.CallToolRequest, in getIn) (*mcp.CallToolResult, getOut, error) {
	limit, err := within("limit", in.Limit, defaultBytes, maxBytes)
	if err != nil {
		return nil, getOut{}, err
	}
	v, err := s.find(ctx, in.Ref)
	if err != nil {
		return nil, getOut{}, err
	}
	text := textOf(v)
	if in.Offset < 0 || in.Offset > len(text) {
		return nil, getOut{}, fmt.Errorf("offset %d: expected 0 to %d, the size of the text", in.Offset, len(text))
	}
	out := getOut{
		Ref: v.Ref.String(), Kind: v.Kind.String(), Provenance: v.Provenance.String(), Source: render.Escape(v.Source),
		Offset: boundary(text, in.Offset), Size: len(text), PutAt: v.PutAt.UTC(), Stale: v.Stale,
	}
	end := out.Offset + boundary(text[out.Offset:], limit)
	if end == out.Offset { // a limit below one character
		_, n := utf8.DecodeRuneInString(text[end:])
		end += n
	}
	if out.Text = render.Escape(text[out.Offset:end]); end < len(text) {
		out.Next = end
	}
	return nil, out, nil
}

// boundary is the end of the last whole character within n bytes.
func boundary(text string, n int) int {
	if n >= len(text) {
		return len(text)
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}

// textOf is all that a page says: its text, the texts of its parts, and the calls of tools.
func textOf(v *ctxpage.Version) string {
	text := view.Text(v)
	for _, c := range v.ToolCalls {
		if text != "" {
			text += "\n"
		}
		text += fmt.Sprintf("%s(%s) as %s", c.Name, c.Arguments, c.ID)
	}
	return text
}

// find reads what a text names: an id as it is, else a reference.
func (s *server) find(ctx context.Context, name string) (*ctxpage.Version, error) {
	v, err := s.scope.Recall(ctx, ctxpage.Ref{ID: name})
	if err == nil || !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrInvalid) {
		return v, err
	}
	if ref, ok := reference(name); ok {
		v, err = s.scope.Recall(ctx, ref)
	}
	if errors.Is(err, store.ErrNotFound) { // named as it was asked for: another scope's page is not a page of this one
		return nil, fmt.Errorf("%w: %q in %s and its ancestors", store.ErrNotFound, name, s.Scope)
	}
	return v, err
}

// reference reads a text that does not name an artefact as it is. A plain id is no reference.
func reference(name string) (ctxpage.Ref, bool) {
	if !strings.ContainsAny(name, ":#@") {
		return ctxpage.Ref{}, false
	}
	ref, err := store.ParseRef(name)
	return ref, err == nil
}

type listIn struct {
	Prefix string       `json:"prefix,omitempty" jsonschema:"only ids that begin with it"`
	Cursor string       `json:"cursor,omitempty" jsonschema:"next of the list before"`
	Limit  int          `json:"limit,omitempty" jsonschema:"items at most; default 50"`
	Filter *view.Filter `json:"filter,omitempty" jsonschema:"only pages that meet all of it"`
	Newest bool         `json:"newest,omitempty" jsonschema:"latest first, of each scope, in place of by id"`
}

type listOut struct {
	Items   []itemOut    `json:"items"` // by id; those of this scope first, then those of its ancestors
	Next    string       `json:"next,omitempty"`
	Waiting []waitingOut `json:"waiting,omitempty"` // in the first part of a list
}

type itemOut struct {
	Ref     string    `json:"ref"`
	ID      string    `json:"id"`
	Kind    string    `json:"kind"`
	Version uint32    `json:"version"`
	PutAt   time.Time `json:"put_at"`
}

// list goes through the visible chain, nearest scope first. A cursor is the scope's place in the chain and the cursor there.
func (s *server) list(ctx context.Context, _ *mcp.CallToolRequest, in listIn) (*mcp.CallToolResult, listOut, error) {
	limit, err := within("limit", in.Limit, defaultList, maxList)
	if err != nil {
		return nil, listOut{}, err
	}
	chain := store.ScopeChain(s.Scope)
	level, cursor, err := splitCursor(in.Cursor, len(chain))
	if err != nil {
		return nil, listOut{}, err
	}
	filter, err := in.Filter.Filter()
	if err != nil {
		return nil, listOut{}, err
	}
	opts := []ctxpage.ReadOption{ctxpage.Where(filter)}
	if in.Newest {
		opts = append(opts, ctxpage.NewestFirst())
	}
	out := listOut{Items: []itemOut{}}
	if in.Cursor == "" {
		if out.Waiting, err = s.waiting(ctx, in.Prefix, waitingInList); err != nil {
			return nil, listOut{}, err
		}
	}
	for level < len(chain) && len(out.Items) < limit {
		var next string
		part := append(slices.Clone(opts), ctxpage.AtMost(limit-len(out.Items), cursor, &next))
		rows, err := loop.Collect(s.DB.Scope(chain[level], ctxpage.Gated()).Artefacts(ctx, in.Prefix, part...))
		if err != nil {
			return nil, listOut{}, err
		}
		for _, v := range rows {
			if !strings.HasPrefix(v.ID, internalPrefix) {
				out.Items = append(out.Items, itemOut{v.Ref.String(), v.ID, v.Kind.String(), v.Version, v.PutAt.UTC()})
			}
		}
		if cursor = next; next == "" {
			level++
		}
	}
	if level < len(chain) {
		out.Next = fmt.Sprintf("%d.%s", level, cursor)
	}
	return nil, out, nil
}

// internalPrefix begins the ids of pages that the database makes for itself.
const internalPrefix = "ctxpage:"

func splitCursor(given string, levels int) (level int, cursor string, err error) {
	if given == "" {
		return 0, "", nil
	}
	head, cursor, ok := strings.Cut(given, ".")
	if _, err = fmt.Sscanf(head, "%d", &level); err != nil || !ok || level < 0 || level >= levels {
		return 0, "", errors.New("cursor: expected what next of a list said")
	}
	return level, cursor, nil
}

type historyIn struct {
	Ref    string `json:"ref" jsonschema:"an id, or a reference from another tool"`
	Cursor string `json:"cursor,omitempty" jsonschema:"next of the part before"`
	Limit  int    `json:"limit,omitempty" jsonschema:"versions at most; default 50"`
}

type historyOut struct {
	Versions []versionOut `json:"versions"` // newest first
	Next     string       `json:"next,omitempty"`
}

type versionOut struct {
	Ref        string    `json:"ref"`
	Provenance string    `json:"provenance"`
	PutAt      time.Time `json:"put_at"`
	State      string    `json:"state,omitempty"` // of a version that is not served: deleted, gone, superseded by a reference
}

// history lists versions without their texts, of a deleted page too. It sees the scopes that list sees.
func (s *server) history(ctx context.Context, _ *mcp.CallToolRequest, in historyIn) (*mcp.CallToolResult, historyOut, error) {
	limit, err := within("limit", in.Limit, defaultList, maxList)
	if err != nil {
		return nil, historyOut{}, err
	}
	out := historyOut{Versions: []versionOut{}}
	part := ctxpage.AtMost(limit, in.Cursor, &out.Next)
	rows, err := loop.Collect(s.scope.Versions(ctx, in.Ref, part))
	if ref, ok := reference(in.Ref); ok && err != nil && slices.Contains(store.ScopeChain(s.Scope), cmp.Or(ref.Scope, s.Scope)) {
		rows, err = loop.Collect(s.DB.Scope(cmp.Or(ref.Scope, s.Scope), ctxpage.Gated()).Versions(ctx, ref.ID, part))
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil, historyOut{}, fmt.Errorf("%w: %q in %s and its ancestors; list has the ids", store.ErrNotFound, in.Ref, s.Scope)
	}
	if err != nil {
		return nil, historyOut{}, err
	}
	for _, v := range rows {
		p := view.Of(v)
		out.Versions = append(out.Versions, versionOut{p.Ref, p.Provenance, p.PutAt, strings.TrimPrefix(p.State(), "-")})
	}
	return nil, out, nil
}

type whyIn struct {
	Trace string `json:"trace" jsonschema:"trace of a context, from assemble"`
	Ref   string `json:"ref,omitempty" jsonschema:"page to explain; without it the whole context is"`
}

type whyOut struct {
	Steps      []string `json:"steps"`      // what happened, in order
	Verdict    string   `json:"verdict"`    // in or out of the context; of a whole context: what came of it
	Replayable bool     `json:"replayable"` // the context can be rendered again, byte for byte
}

func (s *server) why(ctx context.Context, _ *mcp.CallToolRequest, in whyIn) (*mcp.CallToolResult, whyOut, error) {
	leaves, err := s.recorded(ctx, in.Trace)
	if err != nil {
		return nil, whyOut{}, err
	}
	out := whyOut{Steps: []string{}, Replayable: s.DB.Replayable(ctx, in.Trace) == nil}
	if in.Ref == "" {
		out.Steps, out.Verdict = told(leaves, in.Trace)
		return nil, out, nil
	}
	ref, ok := reference(in.Ref)
	if !ok {
		ref = ctxpage.Ref{ID: in.Ref}
	}
	w, err := s.DB.Why(ctx, in.Trace, ref)
	if err != nil && ok { // an id that only looks like a reference
		w, err = s.DB.Why(ctx, in.Trace, ctxpage.Ref{ID: in.Ref})
	}
	if err != nil {
		return nil, whyOut{}, err
	}
	for _, step := range w.Steps {
		out.Steps = append(out.Steps, render.Escape(step))
	}
	out.Verdict = "out"
	if w.In {
		out.Verdict = "in"
	}
	return nil, out, nil
}

// recorded returns the leaves of a trace that this scope recorded. A caller learns nothing about another scope's traces, not even
// that it exists.
func (s *server) recorded(ctx context.Context, trace string) ([]*manifest.Record, error) {
	leaves, err := s.DB.Manifests().ByTrace(ctx, trace)
	if err != nil && !errors.Is(err, manifest.ErrNoLeaf) {
		return nil, err
	}
	own := leaves[:0:0]
	for _, l := range leaves {
		if l.Scope == s.Scope {
			own = append(own, l)
		}
	}
	if len(own) == 0 || own[0].Trace != trace {
		return nil, fmt.Errorf("%w: %q names no context of this memory; expected a trace that assemble gave", store.ErrNotFound, trace)
	}
	return own, nil
}

// told says of a whole context what it had and what came of it.
func told(leaves []*manifest.Record, trace string) (steps []string, verdict string) {
	verdict = "nothing was written from it"
	for _, l := range leaves {
		switch {
		case l.Trace == trace && len(l.Pages)+len(l.Excluded) > 0:
			steps = append(steps, fmt.Sprintf("%s at %s: %d pages, %d of %d tokens, tier %d", l.Type, time.UnixMicro(l.Time).UTC().Format(time.RFC3339),
				len(l.Pages), l.Tokens, l.Budget, l.Tier))
			for _, x := range l.Excluded {
				steps = append(steps, fmt.Sprintf("left out: %d, %s", x.Count, x.Reason))
			}
		default:
			verdict = l.Type.String()
			if l.Reason != "" {
				verdict += ": " + l.Reason
			}
			steps = append(steps, render.Escape(verdict))
		}
	}
	return steps, verdict
}
