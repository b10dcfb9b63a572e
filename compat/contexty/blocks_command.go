package contexty

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/token"
	"github.com/ctxpage/ctxpage/token/bpe"
)

// Run is the logic of `dbctl budget compile`: a request on stdin, the answer of the allocators on stdout, without a
// database. Usage documents both.

// Exit codes of Run.
const (
	ExitOK     = 0
	ExitFailed = 1 // the request is not well formed, or what must be in the window does not fit
	ExitUsage  = 2 // the command line is wrong
)

// Usage is the help text.
const Usage = `Usage: dbctl budget compile [--counter NAME] < request.json > answer.json

Fit messages or items into a token budget. Needs no database. Reads one JSON object on stdin, writes one on stdout.

Request (fields not named here are refused):
  budget, reserve   size of the window in tokens, and how many of them stay free for the answer
  model             a model name: its window, output limit and counter are the defaults
  counter           what counts: "o200k_base" (default, or that of --counter), "cl100k_base", "est/2", a model such as "claude", or one of these with
                    a factor such as "o200k_base*125%"; overrides the counter of model
  blocks            messages in blocks, or
  items             priced candidates; then also overflow ("fill", "ladder") and recent_share (0..1)

  block: key, class (system core rag history scratchpad), place, strategy (auto strict drop truncate choose),
         messages, weights, scores, max, min, protect (roles), low (0..1), mark {index, id}
  message: id, role, text or content [{type, text, image_url}], name, tool_calls, tool_call_id, metadata
  item:  key, class, place, position, tokens or text, compressed, stub_tokens, score, group,
         pinned, core, recent, must_stub
  place: auto tools system directives pinned core summaries history chunks scratchpad newest

Answer:
  counter {name, label}; of blocks: messages, report; of items: result {tier, used, limit, demand, review, placed, left}
  error {kind, message, block, need, have, shortfall} beside the report when it failed; kind is budget, block or request

Exit codes: 0 ok, 1 failed (see error), 2 usage.

Example:
  echo '{"budget":12,"items":[{"key":"a","class":"rag","tokens":10,"score":0.9},
        {"key":"b","class":"rag","tokens":5,"score":0.4}]}' | dbctl budget compile
`

// Run reads a request and writes the answer. args is the command line after "budget": "compile", then flags; --json is
// accepted and changes nothing, --counter names the counter of requests that name none. It returns the exit code.
func Run(args []string, in io.Reader, out, errw io.Writer) int {
	if len(args) > 0 && args[0] == "compile" {
		args = args[1:]
	}
	counter := token.O200k
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		name, isCounter := strings.CutPrefix(a, "--counter")
		if isCounter && name == "" && len(args) > 0 {
			name, args = "="+args[0], args[1:]
		}
		switch {
		case a == "--json":
		case isCounter && strings.HasPrefix(name, "="):
			counter = name[1:]
		case a == "-h", a == "--help":
			fmt.Fprint(out, Usage)
			return ExitOK
		default:
			fmt.Fprintf(errw, "dbctl budget compile: unexpected argument %q\n\n%s", a, Usage)
			return ExitUsage
		}
	}
	ans, err := answerTo(in, counter)
	if err != nil {
		ans.Error = errorOf(err)
		fmt.Fprintln(errw, "dbctl budget compile:", err)
	}
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if werr := enc.Encode(ans); werr != nil {
		fmt.Fprintln(errw, "dbctl budget compile: writing the answer:", werr)
		return ExitFailed
	}
	if err != nil {
		return ExitFailed
	}
	return ExitOK
}

// errRequest says that the request cannot be read.
var errRequest = errors.New("bad request")

type request struct {
	Budget      int     `json:"budget"`
	Reserve     *int    `json:"reserve"`
	Model       string  `json:"model"`
	Counter     string  `json:"counter"`
	Blocks      []block `json:"blocks"`
	Items       []item  `json:"items"`
	Overflow    string  `json:"overflow"`
	RecentShare float64 `json:"recent_share"`
}

type block struct {
	Key      string    `json:"key"`
	Class    string    `json:"class"`
	Place    string    `json:"place"`
	Strategy string    `json:"strategy"`
	Messages []message `json:"messages"`
	Weights  []int     `json:"weights"`
	Scores   []float64 `json:"scores"`
	Max      int       `json:"max"`
	Min      int       `json:"min"`
	Protect  []string  `json:"protect"`
	Low      float64   `json:"low"`
	Mark     Mark      `json:"mark"`
}

type message struct {
	Message
	Text *string `json:"text"` // short for content of one text part
}

type item struct {
	Key        string  `json:"key"`
	Class      string  `json:"class"`
	Place      string  `json:"place"`
	Position   int     `json:"position"`
	Tokens     *int    `json:"tokens"`
	Text       string  `json:"text"`
	Compressed int     `json:"compressed"`
	StubTokens int     `json:"stub_tokens"`
	Score      float64 `json:"score"`
	Group      string  `json:"group"`
	Pinned     bool    `json:"pinned"`
	Core       bool    `json:"core"`
	Recent     bool    `json:"recent"`
	MustStub   bool    `json:"must_stub"`
}

type answer struct {
	Counter  *counterName `json:"counter,omitempty"`
	Messages []Message    `json:"messages,omitempty"`
	Report   *Report      `json:"report,omitempty"`
	Result   *result      `json:"result,omitempty"`
	Error    *failure     `json:"error,omitempty"`
}

type counterName struct {
	Name  string      `json:"name"`
	Label token.Label `json:"label"`
}

type result struct {
	Tier   string   `json:"tier"`
	Used   int      `json:"used"`
	Limit  int      `json:"limit"`
	Demand int      `json:"demand"`
	Review bool     `json:"review"`
	Placed []placed `json:"placed"`
	Left   []left   `json:"left"`
}

type placed struct {
	Index  int    `json:"index"`
	Key    string `json:"key"`
	Form   string `json:"form"`
	Tokens int    `json:"tokens"`
}

type left struct {
	Index  int    `json:"index"`
	Key    string `json:"key"`
	Reason string `json:"reason"`
}

type failure struct {
	Kind      string `json:"kind"`
	Message   string `json:"message"`
	Block     string `json:"block,omitempty"`
	Need      int    `json:"need,omitempty"`
	Have      int    `json:"have,omitempty"`
	Shortfall int    `json:"shortfall,omitempty"`
}

func errorOf(err error) *failure {
	f := &failure{Kind: "request", Message: err.Error()}
	var e *triage.BudgetError
	switch {
	case errors.As(err, &e):
		f.Kind, f.Block, f.Need, f.Have, f.Shortfall = "budget", e.Block, e.Need, e.Have, e.Shortfall
	case errors.Is(err, ErrBlock):
		f.Kind = "block"
	}
	return f
}

// answerTo returns as much of the answer as there is, with an error too.
func answerTo(in io.Reader, otherwise string) (answer, error) {
	r, err := read(in)
	if err != nil {
		return answer{}, err
	}
	counter, err := r.resolve(otherwise)
	if err != nil {
		return answer{}, err
	}
	ans := answer{Counter: &counterName{counter.Name(), token.LabelOf(counter)}}
	if r.Items != nil {
		ans.Result, err = r.fit(counter)
		return ans, err
	}
	list, err := r.compileBlocks()
	if err != nil {
		return ans, err
	}
	c, err := Compile(Config{Budget: r.Budget, Reserve: *r.Reserve, Counter: counter}, list)
	ans.Messages, ans.Report = c.Messages, &c.Report
	return ans, err
}

func read(in io.Reader) (*request, error) {
	dec := json.NewDecoder(in)
	dec.DisallowUnknownFields()
	dec.UseNumber() // metadata goes out as it came in
	var r request
	if err := dec.Decode(&r); err != nil {
		return nil, fmt.Errorf("%w: %w", errRequest, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: one JSON object was expected, something follows it", errRequest)
	}
	if (r.Items == nil) == (r.Blocks == nil) {
		return nil, fmt.Errorf("%w: give either blocks or items", errRequest)
	}
	return &r, nil
}

// resolve fills in what the model implies and finds the counter; otherwise is the one of a request that implies none.
func (r *request) resolve(otherwise string) (token.Counter, error) {
	var counter token.Counter
	if r.Model != "" {
		p, ok := token.Builtin().Find(r.Model)
		if !ok {
			p = token.Profile{Model: r.Model, Window: 8192, Output: 2048, Encoding: token.O200k, Percent: 140} // cautious
		}
		counter = p.Counter(bpe.Find)
		if r.Budget == 0 {
			r.Budget = p.Window
			if r.Reserve == nil {
				r.Reserve = &p.Output
			}
		}
	}
	if r.Reserve == nil {
		r.Reserve = new(int)
	}
	if r.Counter == "" && counter == nil {
		r.Counter = otherwise
	}
	if r.Counter != "" {
		var err error
		if counter, err = bpe.Named(r.Counter); err != nil {
			return nil, fmt.Errorf("%w: %w", errRequest, err)
		}
	}
	if r.Budget <= 0 {
		return nil, fmt.Errorf("%w: budget %d: expected a number of tokens above 0, or a model, whose window is the default", errRequest, r.Budget)
	}
	return counter, nil
}

func (r *request) compileBlocks() ([]Block, error) {
	list := make([]Block, len(r.Blocks))
	for i := range r.Blocks {
		b := &r.Blocks[i]
		where := fmt.Sprintf("block %q", b.Key)
		strategy, err := lookup(where+": strategy", b.Strategy, Auto, Choose)
		if err != nil {
			return nil, err
		}
		class, place, err := position(where, b.Class, b.Place)
		if err != nil {
			return nil, err
		}
		list[i] = Block{Key: b.Key, Class: class, Place: place, Strategy: strategy, Weights: b.Weights, Scores: b.Scores,
			Max: b.Max, Min: b.Min, Protect: b.Protect, Low: b.Low, Mark: b.Mark}
		for _, m := range b.Messages {
			if m.Text != nil {
				m.Content = append(m.Content, TextMessage("", *m.Text).Content...)
			}
			list[i].Messages = append(list[i].Messages, m.Message)
		}
	}
	return list, nil
}

func (r *request) fit(counter token.Counter) (*result, error) {
	overflow, err := lookup("overflow", r.Overflow, triage.Fill, triage.Ladder)
	if err != nil {
		return nil, err
	}
	req := triage.Request{Budget: r.Budget, Reserve: *r.Reserve, Overflow: overflow, RecentShare: r.RecentShare}
	for i := range r.Items {
		it := &r.Items[i]
		class, place, err := position(fmt.Sprintf("item %q", it.Key), it.Class, it.Place)
		if err != nil {
			return nil, err
		}
		req.Items = append(req.Items, triage.Item{Key: it.Key, Class: class, Place: place, Position: it.Position,
			Tokens: it.tokens(counter), Compressed: it.Compressed, StubTokens: it.StubTokens, Score: it.Score, Group: it.Group,
			Pinned: it.Pinned, Core: it.Core, Recent: it.Recent, MustStub: it.MustStub})
	}
	res, err := triage.Fit(req)
	return r.result(res), err
}

func (it *item) tokens(counter token.Counter) int {
	if it.Tokens != nil {
		return *it.Tokens
	}
	return counter.Count(it.Text)
}

func (r *request) result(res triage.Result) *result {
	out := &result{Tier: res.Tier.String(), Used: res.Used, Limit: res.Limit, Demand: res.Demand, Review: res.Review,
		Placed: []placed{}, Left: []left{}}
	for _, p := range res.Placed {
		out.Placed = append(out.Placed, placed{p.Index, r.Items[p.Index].Key, p.Form.String(), p.Tokens})
	}
	for _, l := range res.Left {
		out.Left = append(out.Left, left{l.Index, r.Items[l.Index].Key, l.Reason})
	}
	return out
}

// position reads class and place; an empty class is rag.
func position(where, class, place string) (triage.Class, triage.Place, error) {
	if class == "" {
		class = triage.RAG.String()
	}
	c, err := lookup(where+": class", class, triage.System, triage.Scratchpad)
	if err != nil {
		return 0, 0, err
	}
	p, err := lookup(where+": place", place, triage.PlaceAuto, triage.PlaceNewest)
	return c, p, err
}

// lookup finds a value by its name between first and last; the empty name is the first.
func lookup[T interface {
	~int
	fmt.Stringer
}](what, name string, first, last T) (T, error) {
	if name == "" {
		return first, nil
	}
	var names []string
	for v := first; v <= last; v++ {
		names = append(names, v.String())
	}
	i := slices.Index(names, name)
	if i < 0 {
		return first, fmt.Errorf("%w: %s %q is not one of %v", errRequest, what, name, names)
	}
	return first + T(i), nil
}
