package ctxpage

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/vmihailenco/msgpack/v5"
)

// What a scope was told is kept in three forms, all written by the one batch of a step, so that a crash leaves all of
// it or nothing:
//
//	state row    directive/state/SCOPE            the newest journal row: session, open question included, and version
//	journal row  directive/log/SCOPE/VERSION      what was said, decided, by whom, when, and the session after it
//	page         ctxpage:directives of the scope  the own state in words, kind system; absent while the state is empty
//
// The page is an ordinary page but for its reserved id: versioned, replayed, named in manifests, visible to the scopes
// below. It holds the own state only, because a step writes its own scope only; what holds over several levels is put
// together in an assembly (see overrule).

// ReservedPrefix begins the ids of the pages the database writes itself. A Put, Delete or Supersedes of such an id is
// refused with ErrInvalid.
const ReservedPrefix = "ctxpage:"

// DirectivesID is the id of the page that tells a model what a scope's user has decided.
const DirectivesID = ReservedPrefix + "directives"

// MaxDirective bounds an input that changes something, in bytes. What passes through is not bounded.
const MaxDirective = 64 << 10

// What a leaf and a journal entry say was done.
const (
	actionStep    = "step"
	actionRestore = "restore"
	actionImport  = "import"
)

// Directives is what the user of a scope has decided: one premise and policies, see package directive. They change by
// Step, Apply, Restore and Import, and by nothing else: no page, no model output, no assembly. They are vouched for by
// the host and so never gated. Every change is durable when the call returns, a version of its own, and in the manifest,
// without its content. Calls from many goroutines are carried out one after the other, over all scopes of the database.
//
// The host's loop, for each message of the user and for nothing else:
//
//	decision, err := scope.Directives().Step(ctx, input)
//	switch decision.Kind {
//	case directive.Clarify:     // show decision.Prompt; the model is not called
//	case directive.Update:      // say that it is kept
//	case directive.Passthrough: // Assemble for the input, call the model
//	}
//
// Assemble needs nothing more: each context has the state of the scope and of its ancestors, as class system.
type Directives struct{ s *Scope }

// Directives gives access to what the user of the scope has decided.
func (s *Scope) Directives() *Directives { return &Directives{s} }

// DirectiveState is what holds in a scope.
type DirectiveState struct {
	Own       directive.Session   // the scope's own state, and the question that is open, if one is
	Effective directive.Effective // the own state joined with the ancestors'
	Version   uint64              // of Own: 0 before the first change, then rising by one
}

// DirectiveEntry is one version of a scope's directives: how it came about, and what it is.
type DirectiveEntry struct {
	Version  uint64
	At       time.Time
	Actor    string
	Action   string             // step, restore or import
	Input    string             // of a step
	Decision directive.Decision // the answer to a step; of the others its Kind is Update
	After    directive.Session
}

// State gives what holds now. It serves no page, so it leaves no manifest.
func (d *Directives) State(ctx context.Context) (out DirectiveState, err error) {
	err = d.exclusively(ctx, func(c *directiveChain) error {
		own := directive.Scoped{Scope: d.s.name, State: c.own.After.State}
		out = DirectiveState{Own: c.own.After, Effective: directive.Join(append(c.above, own)...), Version: c.own.Version}
		return nil
	})
	return out, err
}

// Step judges one input of the user on what holds in the scope, its ancestors included, and keeps the outcome: what an
// ancestor prohibits cannot be used here, and what it has set cannot be removed; the decision names the ancestor. An
// input that changes nothing writes nothing.
//
// Errors: ErrInvalid when an input that changes something is not UTF-8 or above MaxDirective, ErrReadOnly, and those of
// a commit. The context ends waiting for other steps, not a commit that has started.
func (d *Directives) Step(ctx context.Context, input string, opts ...directive.Option) (out directive.Decision, err error) {
	if err := d.s.hostOnly("Directives.Step"); err != nil {
		return directive.Decision{}, err
	}
	err = d.exclusively(ctx, func(c *directiveChain) error {
		if err := c.step(input, opts); err != nil {
			return err
		}
		out = c.decided
		return d.commit(ctx, c)
	})
	if err != nil {
		return directive.Decision{}, err
	}
	return out, nil
}

// Preview tells what Step would answer. It changes nothing, the open question included.
func (d *Directives) Preview(ctx context.Context, input string, opts ...directive.Option) (out directive.Trial, err error) {
	err = d.exclusively(ctx, func(c *directiveChain) error {
		if err := c.step(input, opts); err != nil {
			return err
		}
		if len(input) > MaxDirective {
			input = headOf(input)
		}
		out = directive.PreviewIn(c.above, c.own.After, input, opts...)
		return nil
	})
	if err != nil {
		return directive.Trial{}, err
	}
	return out, nil
}

// Apply steps the user's messages of a transcript. The first clarify of any sort ends it: changes made before it stay,
// a question it opened stays open. All of it is one commit, with a version for each message that changed something.
func (d *Directives) Apply(ctx context.Context, messages []directive.Message, opts ...directive.Option) (out directive.Outcome, err error) {
	if err := d.s.hostOnly("Directives.Apply"); err != nil {
		return directive.Outcome{}, err
	}
	err = d.exclusively(ctx, func(c *directiveChain) error {
		out = directive.Outcome{Read: len(messages)}
		for i, m := range messages {
			if m.Role != "user" {
				continue
			}
			if err := c.step(m.Content, opts); err != nil {
				return fmt.Errorf("message %d: %w", i+1, err)
			}
			if c.decided.Kind == directive.Clarify {
				out = directive.Outcome{Stopped: true, Prompt: c.decided.Prompt, Read: i + 1}
				break
			}
		}
		out.State = c.now().State
		return d.commit(ctx, c)
	})
	if err != nil {
		return directive.Outcome{}, err
	}
	return out, nil
}

// Restore makes a new version that equals an old one, its open question included; version 0 is the empty state. It is
// not judged: where an ancestor prohibits by now what the old version uses, the prohibition holds. ErrNotFound when the
// scope has no such version.
func (d *Directives) Restore(ctx context.Context, version uint64) error {
	if err := d.s.hostOnly("Directives.Restore"); err != nil {
		return err
	}
	return d.exclusively(ctx, func(c *directiveChain) error {
		var old DirectiveEntry
		if version > 0 {
			row, err := d.entry(ctx, version)
			if err != nil {
				return err
			}
			old = row
		}
		c.reason = "restored from version " + strconv.FormatUint(version, 10)
		c.become(old.After, DirectiveEntry{Action: actionRestore, Decision: replaced(c.now(), old.After)})
		return d.commit(ctx, c)
	})
}

// Import replaces the session of the scope by one from elsewhere, as directive.ImportJSON or ImportCheckpoint gives it.
// Like Restore it is not judged. ErrInvalid for a session no directive checkpoint can carry.
func (d *Directives) Import(ctx context.Context, session directive.Session) error {
	if err := d.s.hostOnly("Directives.Import"); err != nil {
		return err
	}
	clean, err := directive.ImportCheckpoint(directive.ExportCheckpoint(session))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return d.exclusively(ctx, func(c *directiveChain) error {
		c.become(clean, DirectiveEntry{Action: actionImport, Decision: replaced(c.now(), clean)})
		return d.commit(ctx, c)
	})
}

// replaced is the decision of a change that was not judged.
func replaced(before, after directive.Session) directive.Decision {
	return directive.Decision{Kind: directive.Update, State: after.State, Changed: !after.State.Equal(before.State)}
}

// History lists the versions of the scope's own directives, newest first: after cursor, up to limit (0: 100). It gives
// the cursor of the next page, empty at the end.
func (d *Directives) History(ctx context.Context, cursor string, limit int) (list []DirectiveEntry, next string, err error) {
	if d.s.err != nil {
		return nil, "", d.s.err
	}
	newest, err := d.s.db.directiveRow(ctx, directiveStateKey(d.s.name))
	if err != nil {
		return nil, "", err
	}
	from := newest.Version
	if cursor != "" {
		v, err := strconv.ParseUint(cursor, 10, 64)
		if err != nil || v > from {
			return nil, "", store.Invalid("cursor", strconv.Quote(cursor), "a cursor from the page before")
		}
		from = v
	}
	if limit <= 0 {
		limit = 100
	}
	for ; from > 0; from-- {
		if len(list) == limit {
			return list, strconv.FormatUint(from, 10), nil
		}
		row, err := d.entry(ctx, from)
		if err != nil {
			return nil, "", err
		}
		list = append(list, row)
	}
	return list, "", nil
}

func (d *Directives) entry(ctx context.Context, version uint64) (DirectiveEntry, error) {
	row, err := d.s.db.directiveRow(ctx, directiveLogKey(d.s.name, version))
	if err == nil && row.Version == 0 {
		return row, fmt.Errorf("%w: the directives of %s have no version %d", ErrNotFound, d.s.name, version)
	}
	return row, err
}

// directiveChain is what a step works with: the states above, outermost first, the own newest row, and the rows that
// are to be written.
type directiveChain struct {
	above   []directive.Scoped
	own     DirectiveEntry
	decided directive.Decision
	reason  string
	entries []DirectiveEntry
}

// exclusively runs fn on the state of the scope while no other step of the database is under way. One lock for all
// scopes, because a step is judged on the ancestors' states too; steps come at the pace of people typing.
func (d *Directives) exclusively(ctx context.Context, fn func(c *directiveChain) error) error {
	if d.s.err != nil {
		return d.s.err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case d.s.db.steps <- struct{}{}:
		defer func() { <-d.s.db.steps }()
	case <-ctx.Done():
		return ctx.Err()
	}
	c := &directiveChain{}
	for _, name := range slices.Backward(d.s.chain) {
		row, err := d.s.db.directiveRow(ctx, directiveStateKey(name))
		if err != nil {
			return err
		}
		if name == d.s.name {
			c.own = row
			break
		}
		c.above = append(c.above, directive.Scoped{Scope: name, State: row.After.State})
	}
	return fn(c)
}

// now is the session after the entries so far.
func (c *directiveChain) now() directive.Session {
	if n := len(c.entries); n > 0 {
		return c.entries[n-1].After
	}
	return c.own.After
}

// headOf is the beginning of an input that is too long for a directive, by which it can be told from prose. It does not
// end in white space, which a directive may.
func headOf(input string) string { return input[:MaxDirective-1] + "x" }

func (c *directiveChain) step(input string, opts []directive.Option) error {
	if len(input) > MaxDirective { // it is not normalised before its length is looked at
		next, decided := directive.StepIn(c.above, c.now(), headOf(input), opts...)
		c.decided = decided
		if !sameSession(c.now(), next) || c.now().Pending == nil && decided.Kind != directive.Passthrough {
			return store.Invalid("directive", fmt.Sprintf("%d bytes", len(input)), fmt.Sprintf("at most %d", MaxDirective))
		}
		return nil
	}
	next, decided := directive.StepIn(c.above, c.now(), input, opts...)
	c.decided = decided
	if !c.become(next, DirectiveEntry{Action: actionStep, Input: input, Decision: decided}) {
		return nil
	}
	if !utf8.ValidString(input) {
		return store.Invalid("directive", "bytes that are not UTF-8", "UTF-8 text")
	}
	return nil
}

// become adds an entry that leads to a session, unless that is what there is.
func (c *directiveChain) become(next directive.Session, e DirectiveEntry) bool {
	if sameSession(c.now(), next) {
		return false
	}
	e.After = next
	c.entries = append(c.entries, e)
	return true
}

func sameSession(a, b directive.Session) bool {
	if a.Pending == nil || b.Pending == nil {
		return a.Pending == b.Pending && a.State.Equal(b.State)
	}
	return *a.Pending == *b.Pending && a.State.Equal(b.State)
}

// commit writes the entries, the state row and the page in one batch.
func (d *Directives) commit(ctx context.Context, c *directiveChain) error {
	if len(c.entries) == 0 {
		return nil
	}
	s := d.s
	if s.db.opts.ReadOnly {
		return ErrReadOnly
	}
	id, err := s.db.newID()
	if err != nil {
		return err
	}
	b := store.Batch{ID: id, Scope: s.name, Actor: s.actor, Now: s.db.opts.Clock(), OnStale: AllowStale}
	version := c.own.Version
	for _, e := range c.entries {
		version++
		e.Version, e.At, e.Actor = version, b.Now, s.actor
		row, err := packDirective(&e)
		if err != nil {
			return err
		}
		b.State = append(b.State, store.StateRow{Key: directiveLogKey(s.name, version), Value: row})
	}
	b.State = append(b.State, store.StateRow{Key: directiveStateKey(s.name), Value: b.State[len(b.State)-1].Value})
	if err := s.db.directivePage(&b, c.own.After.State, c.now().State); err != nil {
		return err
	}
	b.Leaf = manifest.Record{
		Type: manifest.TypeDirective, Action: c.entries[0].Action, Reason: c.reason,
		Note: fmt.Sprintf("version %d", version),
	}
	// Once begun it is seen through: a second step must not be judged while the outcome of this one is open.
	_, err = s.db.store.Commit(context.WithoutCancel(ctx), b)
	return err
}

// directivePage puts what changes the page of the scope into the batch. It is one page however long it is, so that no
// line of it is torn.
func (db *DB) directivePage(b *store.Batch, before, after directive.State) error {
	text := after.Text()
	switch {
	case text == before.Text():
		return nil
	case text == "":
		b.Deletes = []string{DirectivesID}
		return nil
	case len(text) > MaxText:
		return store.Invalid("directives", fmt.Sprintf("%d bytes of premise and policies", len(text)), fmt.Sprintf("at most %d; remove policies first", MaxText))
	}
	a := Artefact{ID: DirectivesID, Kind: KindSystem, Text: text}
	a.KindDefaults()
	put, err := db.makeUnsplit(a)
	b.Puts = []store.Put{put}
	return err
}

// Keys of state rows. A log key ends in a version, which has no slash, so no two scopes share one.
const (
	directivePrefix      = "directive/"
	directiveStatePrefix = directivePrefix + "state/"
	directiveLogPrefix   = directivePrefix + "log/"
)

func directiveStateKey(scope string) string { return directiveStatePrefix + scope }

func directiveLogKey(scope string, version uint64) string {
	return directiveLogPrefix + scope + "/" + strconv.FormatUint(version, 10)
}

// directiveWire is the row of a version; the state row repeats the newest. Its checkpoint is a directive checkpoint.
type directiveWire struct {
	//lint:ignore U1000 msgpack looks for it
	_msgpack   struct{} `msgpack:",as_array"`
	Version    uint64
	At         int64 // unix µs
	Actor      string
	Action     string
	Input      string
	Kind       uint8
	Changed    bool
	Prompt     string
	Code       string
	Repair     []string
	Scope      string
	Checkpoint []byte
}

func packDirective(e *DirectiveEntry) ([]byte, error) {
	b, err := msgpack.Marshal(&directiveWire{
		Version: e.Version, At: codec.Micros(e.At), Actor: e.Actor, Action: e.Action, Input: e.Input, Kind: uint8(e.Decision.Kind),
		Changed: e.Decision.Changed, Prompt: e.Decision.Prompt, Code: string(e.Decision.Code), Repair: e.Decision.Repair,
		Scope: e.Decision.Scope, Checkpoint: directive.ExportCheckpoint(e.After),
	})
	if err != nil {
		return nil, fmt.Errorf("ctxpage: encode directives: %w", err)
	}
	return b, nil
}

func unpackDirective(row []byte) (out DirectiveEntry, err error) {
	var w directiveWire
	if err := codec.Unpack(row, &w); err != nil {
		return out, err
	}
	if w.Version == 0 {
		return out, fmt.Errorf("%w: directives of version 0", codec.ErrMalformed)
	}
	after, err := directive.ImportCheckpoint(w.Checkpoint)
	if err != nil {
		return out, err
	}
	out = DirectiveEntry{
		Version: w.Version, At: codec.FromMicros(w.At), Actor: w.Actor, Action: w.Action, Input: w.Input, After: after,
		Decision: directive.Decision{
			Kind: directive.Kind(w.Kind), Changed: w.Changed, Prompt: w.Prompt, Code: directive.Code(w.Code), Repair: w.Repair, Scope: w.Scope,
		},
	}
	if out.Decision.Kind == directive.Update {
		out.Decision.State = after.State
	}
	return out, nil
}

// directiveRow reads a row of directives; its version is 0 when there is none.
func (db *DB) directiveRow(ctx context.Context, key string) (out DirectiveEntry, err error) {
	row, err := db.store.State(ctx, key)
	if err != nil || row == nil {
		return out, err
	}
	if out, err = unpackDirective(row); err != nil {
		return out, &CorruptError{File: db.path, Err: fmt.Errorf("state row %q: %w", key, err)}
	}
	return out, nil
}

// isDirectives tells a directive page from others of kind system.
func isDirectives(k Kind, id string) bool { return k == KindSystem && id == DirectivesID }

// checkPut refuses an artefact that breaks a rule or a limit, or that would replace what directives are shown by.
func checkPut(a *Artefact) error {
	if err := a.Check(); err != nil {
		return err
	}
	for _, id := range a.Supersedes {
		if err := checkReserved("supersedes", id); err != nil {
			return err
		}
	}
	return nil
}

func checkReserved(field, id string) error {
	if !strings.HasPrefix(id, ReservedPrefix) {
		return nil
	}
	expected := "an id that does not begin with " + ReservedPrefix + ", which the database keeps for its own pages"
	if id == DirectivesID {
		expected += "; directives change through Scope.Directives"
	}
	return store.Invalid(field, strconv.Quote(id), expected)
}

// Reasons that a manifest gives for directive pages.
const (
	reasonOverruled     = "directives: a prohibition stands against all of it"
	reasonOverruledPart = "directives: uses that a prohibition stands against are left out"
)

var (
	lineUse      = []byte("- use ")
	lineProhibit = []byte("- prohibit ")
	linePolicies = []byte("policies:\n")
)

// overrule leaves out of the directive pages of an assembly the uses that a prohibition of another level stands
// against: the model must not be shown both. A step cannot write such a pair, but an ancestor may prohibit later what a
// scope below has in use. It is decided here, on the pages as they were read, so that it holds for an assembly from the
// past as well, and is recorded as ranges, so that a replay asks nobody.
func (a *assembling) overrule() {
	prohibited := map[string]bool{}
	var pages []*item
	for i := range a.ranked {
		it := a.ranked[i]
		if it.reason != "" || !isDirectives(it.cand.Kind, it.cand.Ref.ID) {
			continue
		}
		pages = append(pages, it)
		for line := range bytes.Lines([]byte(it.text)) {
			if item, ok := bytes.CutPrefix(line, lineProhibit); ok {
				prohibited[string(item)] = true
			}
		}
	}
	for _, it := range pages {
		it.whole = true
		keep, left := holding([]byte(it.text), prohibited)
		switch {
		case !left:
		case len(keep) == 0:
			it.reason = reasonOverruled
		default:
			it.cuts, it.note = keep, reasonOverruledPart
		}
	}
}

// holding gives the ranges of a directive page that hold, and whether anything is left out. The heading of policies goes
// with the last of them.
func holding(text []byte, prohibited map[string]bool) (keep [][2]uint32, left bool) {
	var lines [][2]uint32
	var take []int
	at, heading := uint32(0), -1
	for line := range bytes.Lines(text) {
		lines = append(lines, [2]uint32{at, at + uint32(len(line))})
		at += uint32(len(line))
		if item, ok := bytes.CutPrefix(line, lineUse); ok && prohibited[string(item)] {
			left = true
			continue
		}
		if bytes.Equal(line, linePolicies) {
			heading = len(take)
		}
		take = append(take, len(lines)-1)
	}
	if left && heading >= 0 && heading == len(take)-1 {
		take = take[:heading]
	}
	return joinRanges(lines, take), left
}

// cutShown is a page cut to ranges as a model is shown it. The lines of directives stand for themselves: a mark at a gap
// would only make one ask what is missing.
func cutShown(k Kind, id, text string, cuts [][2]uint32) string {
	if !isDirectives(k, id) {
		return cutText(text, cuts)
	}
	var b strings.Builder
	for _, r := range cuts {
		b.WriteString(text[r[0]:r[1]])
	}
	return b.String()
}
