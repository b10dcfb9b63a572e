package directivelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// MaxInput bounds an input that changes something, in bytes. What passes through is not bounded.
const MaxInput = 64 << 10

// What a leaf and a journal entry say was done.
const (
	actionStep    = "step"
	actionRestore = "restore"
	actionImport  = "import"
)

// Chain has the input and output of a step: the states above, outermost first, the own newest version, and the versions that are
// to be written. It is one goroutine's. A step is judged on all the states that were read, so a commit of it expects
// each of them to be the same still.
type Chain struct {
	Above   []directive.Scoped
	Own     directive.Entry
	Decided directive.Decision // the answer to the last Step

	scope   string
	reason  string
	entries []directive.Entry
	read    []store.StatePre
}

// Load reads the states of a scope and of its ancestors. The scope is the first of the chain.
func (j Journal) Load(ctx context.Context, scopes store.Scopes) (*Chain, error) {
	c := &Chain{scope: scopes[0]}
	for _, name := range slices.Backward(scopes) {
		key := StateKey(name)
		row, lsn, err := j.row(ctx, key)
		if err != nil {
			return nil, err
		}
		c.read = append(c.read, store.StatePre{Key: key, LSN: lsn})
		if name == c.scope {
			c.Own = row
			break
		}
		c.Above = append(c.Above, directive.Scoped{Scope: name, State: row.After.State})
	}
	return c, nil
}

// Now is the session after the versions so far.
func (c *Chain) Now() directive.Session {
	if n := len(c.entries); n > 0 {
		return c.entries[n-1].After
	}
	return c.Own.After
}

// headOf is the beginning of an input that is too long for a directive, by which it can be told from prose. It does not
// end in white space, which a directive may.
func headOf(input string) string { return input[:MaxInput-1] + "x" }

// Step judges an input and adds what it leads to.
func (c *Chain) Step(input string, opts []directive.Option) error {
	if len(input) > MaxInput { // it is not normalised before its length is looked at
		next, decided := directive.StepIn(c.Above, c.Now(), headOf(input), opts...)
		c.Decided = decided
		if !SameSession(c.Now(), next) || c.Now().Pending == nil && decided.Kind != directive.Passthrough {
			return store.Invalid("directive", fmt.Sprintf("%d bytes", len(input)), fmt.Sprintf("at most %d", MaxInput))
		}
		return nil
	}
	next, decided := directive.StepIn(c.Above, c.Now(), input, opts...)
	c.Decided = decided
	if !c.become(next, directive.Entry{Action: actionStep, Input: input, Decision: decided}) {
		return nil
	}
	if !utf8.ValidString(input) {
		return store.Invalid("directive", "bytes that are not UTF-8", "UTF-8 text")
	}
	return nil
}

// Preview tells what Step would answer.
func (c *Chain) Preview(input string, opts []directive.Option) (directive.Trial, error) {
	if err := c.Step(input, opts); err != nil {
		return directive.Trial{}, err
	}
	if len(input) > MaxInput {
		input = headOf(input)
	}
	return directive.Preview(c.Above, c.Own.After, input, opts...), nil
}

// Apply steps the user's messages of a transcript. The first clarify of any sort ends it.
func (c *Chain) Apply(messages []directive.Message, opts []directive.Option) (directive.Outcome, error) {
	out := directive.Outcome{Read: len(messages)}
	for i, m := range messages {
		if m.Role != "user" {
			continue
		}
		if err := c.Step(m.Content, opts); err != nil {
			return directive.Outcome{}, fmt.Errorf("message %d: %w", i+1, err)
		}
		if c.Decided.Kind == directive.Clarify {
			out = directive.Outcome{Stopped: true, Prompt: c.Decided.Prompt, Read: i + 1}
			break
		}
	}
	out.State = c.Now().State
	return out, nil
}

// Restore adds a version that equals an old one. It is not judged.
func (c *Chain) Restore(old directive.Entry, version uint64) {
	c.reason = "restored from version " + strconv.FormatUint(version, 10)
	c.become(old.After, directive.Entry{Action: actionRestore, Decision: replaced(c.Now(), old.After)})
}

// Import adds a version that is a session from elsewhere. It is not judged.
func (c *Chain) Import(session directive.Session) {
	c.become(session, directive.Entry{Action: actionImport, Decision: replaced(c.Now(), session)})
}

// replaced is the decision of a change that was not judged.
func replaced(before, after directive.Session) directive.Decision {
	return directive.Decision{Kind: directive.Update, State: after.State, Changed: !after.State.Equal(before.State)}
}

// become adds a version that leads to a session, unless the session is in force already.
func (c *Chain) become(next directive.Session, e directive.Entry) bool {
	if SameSession(c.Now(), next) {
		return false
	}
	e.After = next
	c.entries = append(c.entries, e)
	return true
}

// SameSession reports whether two sessions are one: the state and the open question.
func SameSession(a, b directive.Session) bool {
	if a.Pending == nil || b.Pending == nil {
		return a.Pending == b.Pending && a.State.Equal(b.State)
	}
	return *a.Pending == *b.Pending && a.State.Equal(b.State)
}

// Changed reports whether there is anything to commit.
func (c *Chain) Changed() bool { return len(c.entries) > 0 }

// Write puts the rows of the new versions into a batch, with what they expect of the store and the leaf that names them.
func (c *Chain) Write(b *store.Batch, actor string, now time.Time) {
	version := c.Own.Version
	for _, e := range c.entries {
		version++
		e.Version, e.At, e.Actor = version, now, actor
		b.State = append(b.State, store.StateRow{Key: LogKey(c.scope, version), Value: Pack(&e)})
	}
	b.State = append(b.State, store.StateRow{Key: StateKey(c.scope), Value: b.State[len(b.State)-1].Value})
	b.ExpectState = c.read
	b.Leaf = manifest.Record{
		Type: manifest.TypeDirective, Action: c.entries[0].Action, Reason: c.reason,
		Note: fmt.Sprintf("version %d", version),
	}
}

// Check walks I14, and I10 for the rows of directives, through the store like any reader. No step may run meanwhile:
// between its row and its page the two would differ.
func (j Journal) Check(ctx context.Context) ([]store.Problem, error) {
	c := walk{store: j.Store, rows: map[string][]byte{}, want: map[string]string{}}
	err := c.run(ctx)
	if errors.Is(err, store.ErrCorrupt) { // the store told of it
		err = nil
	}
	return c.problems, err
}

// walk is one check.
type walk struct {
	store    store.Store
	rows     map[string][]byte // by key
	want     map[string]string // the page each scope should have, by its state row; "": none
	problems []store.Problem
}

func (c *walk) bad(invariant, where, format string, args ...any) {
	c.problems = append(c.problems, store.Problem{Invariant: invariant, Where: where, What: fmt.Sprintf(format, args...)})
}

func (c *walk) run(ctx context.Context) error {
	for page, err := range format.Pages(ctx, c.store, store.ScanQuery{What: store.ScanState, Prefix: prefix, Limit: 1000}) {
		if err != nil {
			return err
		}
		for _, r := range page.State {
			c.rows[r.Key] = r.Value
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.rows)) {
		c.row(key)
	}
	if err := c.scopes(ctx); err != nil {
		return err
	}
	for _, scope := range slices.Sorted(maps.Keys(c.want)) {
		text, err := c.page(ctx, scope)
		switch {
		case errors.Is(err, store.ErrCorrupt): // the store told of it
		case err != nil:
			return err
		case text != c.want[scope]:
			c.bad("I14", store.Ref{Scope: scope, ID: PageID}.String(), "the page differs from the state row of the scope")
		}
	}
	return nil
}

// row compares a row with the journal.
func (c *walk) row(key string) {
	rest, isLog := strings.CutPrefix(key, logPrefix)
	scope, isState := strings.CutPrefix(key, statePrefix)
	r, err := unpack(c.rows[key])
	switch {
	case err != nil:
		c.bad("I10", "state "+key, "%v", err)
	case isLog && !strings.HasSuffix(rest, "/"+strconv.FormatUint(r.Version, 10)):
		c.bad("I14", "state "+key, "holds version %d", r.Version)
	case isState && !bytes.Equal(c.rows[key], c.rows[LogKey(scope, r.Version)]):
		c.bad("I14", "state "+key, "is not what the journal says of version %d", r.Version)
	case isState:
		c.want[scope] = r.After.State.Text()
	}
}

// scopes adds those without a state row: they must have no page.
func (c *walk) scopes(ctx context.Context) error {
	for page, err := range format.Pages(ctx, c.store, store.ScanQuery{What: store.ScanScopes, Limit: 1000}) {
		if err != nil {
			return err
		}
		for _, s := range page.Names {
			if _, ok := c.want[s.Name]; !ok {
				c.want[s.Name] = ""
			}
		}
	}
	return nil
}

// page is the text of the page of directives of a scope, "" where there is none.
func (c *walk) page(ctx context.Context, scope string) (string, error) {
	l, err := c.store.Resolve(ctx, store.Scopes{scope}, store.Ref{ID: PageID})
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrGone) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	loaded, err := c.store.Load(ctx, nil, l.Pages, store.WantText)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for i := range loaded {
		switch err := loaded[i].Err; {
		case errors.Is(err, store.ErrErased): // after this backup was made, with the rows of the scope
			return "", nil
		case err != nil:
			return "", err
		}
		text.WriteString(loaded[i].Text)
	}
	return text.String(), nil
}
