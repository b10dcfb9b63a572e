package ctxpage

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

const noteRowKey = "session/note/" // SCOPE \0 SESSION

// Dialect is how a contract is written.
type Dialect string

// The dialects of Session.Contract.
const (
	CompatContract Dialect = "compat" // as the reference pager writes it
	StrictContract Dialect = "strict" // valid for the real interpreter, with the records of the session
)

// Notes are what a host records of a session beside its turns, for contracts and handoffs. None of it is judged.
type Notes struct {
	Goal       string                 `json:"goal,omitempty"`
	State      string                 `json:"state,omitempty"`
	Status     string                 `json:"status,omitempty"` // of the intent
	Claims     []session.BasisItem    `json:"claims,omitempty"`
	Questions  []session.QuestionItem `json:"questions,omitempty"`
	Done       []string               `json:"done,omitempty"`
	Open       []string               `json:"open,omitempty"`
	Boundaries []session.BoundaryItem `json:"boundaries,omitempty"`
	Next       string                 `json:"next,omitempty"`
	Text       string                 `json:"text,omitempty"`
}

// Record replaces the notes of the session.
func (c *Session) Record(ctx context.Context, n Notes) error {
	talk, err := c.hostTalk("Record")
	if err != nil {
		return err
	}
	raw, err := json.Marshal(&n)
	if err != nil {
		return fmt.Errorf("%w: notes: %w", ErrInvalid, err)
	}
	if len(raw) > MaxMeta {
		return store.Invalid("notes", fmt.Sprintf("%d bytes", len(raw)), fmt.Sprintf("at most %d", MaxMeta))
	}
	return talk.exclusively(ctx, func() error {
		w := talk.begin()
		w.raw(talk.key(noteRowKey), raw)
		return talk.commit(ctx, c.s, w, manifest.Record{Type: manifest.TypeCommit, Action: "notes", Reason: "vouched by the host"})
	})
}

// Notes gives what was recorded last.
func (c *Session) Notes(ctx context.Context) (n Notes, err error) {
	talk, err := c.talk()
	if err != nil {
		return n, err
	}
	raw, err := c.s.db.store.State(ctx, talk.key(noteRowKey))
	if err != nil || raw == nil {
		return n, err
	}
	return n, json.Unmarshal(raw, &n)
}

// Contract gives the bytes to append to a contract file, with one write: the pass in force, and in the strict dialect
// the session's notes and directives and the extra records of the caller. What notes and directives said before and say
// no more is removed. have is what the file holds now. Nothing new gives no bytes in the strict dialect; the compatible
// one repeats the pass, as the reference does. ErrNotFound when the compatible dialect has no pass to write.
func (c *Session) Contract(ctx context.Context, d Dialect, have []byte, extra session.Records) ([]byte, error) {
	p, err := c.InForce(ctx)
	if err != nil && (d == CompatContract || !errors.Is(err, ErrNotFound)) {
		return nil, err
	}
	switch d {
	case CompatContract:
		return session.CompatExport(p.Result, p.At, have)
	case StrictContract:
		return c.strict(ctx, p, have, extra)
	}
	return nil, store.Invalid("dialect", strconv.Quote(string(d)), "compat or strict")
}

func (c *Session) strict(ctx context.Context, p *Pass, have []byte, extra session.Records) (out []byte, err error) {
	ledger, err := session.ReadLedger(have)
	if err != nil {
		return nil, err
	}
	if p != nil {
		if out, err = ledger.Pass(p.Result, p.At); err != nil {
			return nil, err
		}
	}
	if err := c.records(ctx, &extra); err != nil {
		return nil, err
	}
	more, err := ledger.Records(extra)
	if err != nil {
		return nil, err
	}
	return append(out, more...), nil
}

// HandoffContract gives the bytes to append to a strict contract file, with one write, so that it says what a packet of
// this session says: see session.Packet.Limn. have is what the file holds now; what packets and Contract wrote there of
// this session and its directives, and the packet has no more, is removed. The packet that the file ends with gives no
// bytes. The error is session.ErrContract for a file that breaks the dialect.
func (c *Session) HandoffContract(p session.Packet, have []byte) ([]byte, error) {
	if c.s.err != nil {
		return nil, c.s.err
	}
	ledger, err := session.ReadLedger(have)
	if err != nil {
		return nil, err
	}
	return p.Limn(ledger, c.told()...)
}

// told are the phrases that end the reasons of what the scope and its ancestors were told: as the reasons end, so that no
// scope stands for one whose name is longer.
func (c *Session) told() (phrases []string) {
	for _, scope := range c.s.chain {
		for _, end := range []string{")", ":", ";"} {
			phrases = append(phrases, directiveOf+scope+end)
		}
	}
	return phrases
}

// records adds what notes and directives say.
func (c *Session) records(ctx context.Context, r *session.Records) error {
	n, err := c.Notes(ctx)
	if err != nil {
		return err
	}
	decisions, corrections, err := c.directives(ctx)
	if err != nil {
		return err
	}
	for _, d := range decisions {
		r.Decisions = append(r.Decisions, session.Entry{Text: d.Text, Because: d.Basis})
	}
	for _, x := range corrections {
		r.Corrections = append(r.Corrections, session.Entry{Text: x.Correction, Because: x.MeaningForNextAgent})
	}
	noted := "noted in [" + Ref{Scope: c.s.name, ID: c.id}.String() + "]" // so that no id stands for one that is longer
	for _, q := range n.Questions {
		if !visible(q.Question) {
			continue
		}
		r.Questions = append(r.Questions, session.Entry{Text: q.Question, Because: strings.TrimPrefix(q.WhyItMatters+"; "+noted, "; ")})
	}
	for _, l := range []struct {
		name  string
		items []string
	}{{"work-completed", n.Done}, {"work-remaining", n.Open}} {
		list := session.List{Name: l.name}
		for _, item := range l.items {
			if visible(item) {
				list.Items = append(list.Items, session.Entry{Text: item, Because: noted})
			}
		}
		r.Lists = append(r.Lists, list)
	}
	r.Standing = append(append(r.Standing, noted), c.told()...)
	return nil
}

// visible says whether a note shows anything. One that does not is passed over: it would make the whole contract fail.
func visible(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) })
}

// directiveOf begins the reason of what a scope was told.
const directiveOf = "directive of the user in "

// directives are the locked decisions and the corrections of the user: what the scope and its ancestors were told.
func (c *Session) directives(ctx context.Context) (decisions []session.BasisItem, corrections []session.CorrectionItem, err error) {
	st, err := c.s.Directives().State(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range st.Effective.Premises {
		decisions = append(decisions, session.BasisItem{Text: "premise: " + p.Premise, Basis: directiveOf + p.Scope})
	}
	for _, p := range st.Effective.Policies {
		if p.Polarity == directive.Prohibit {
			corrections = append(corrections, session.CorrectionItem{
				Correction: "prohibit " + p.Item, MeaningForNextAgent: directiveOf + p.Scope + ": do not use or propose it",
			})
			continue
		}
		decisions = append(decisions, session.BasisItem{Text: "use " + p.Item, Basis: directiveOf + p.Scope})
	}
	return decisions, corrections, nil
}

// Handoff packages the session for another agent. Nothing in it is asked of a model: what counts as verified follows
// from the manifests, which say what answers of this session really read, and from hashes computed now; decisions and
// corrections are the directives in force; the context is the window, pinned and the newest turns one by one and the others,
// such as evicted ones, as ranges by which to recall them; the rest is as recorded by Record. What grows with the session is
// bounded by session.MaxHandoff.
func (c *Session) Handoff(ctx context.Context, to string) (session.Packet, error) {
	talk, err := c.talk()
	if err != nil {
		return session.Packet{}, err
	}
	n, err := c.Notes(ctx)
	if err != nil {
		return session.Packet{}, err
	}
	in := session.HandoffInput{
		For: to, By: c.s.actor, Session: Ref{Scope: c.s.name, ID: c.id}.String(), At: c.s.db.opts.Clock(), Goal: n.Goal, State: n.State, Status: n.Status,
		Claims: n.Claims, Questions: n.Questions, Done: n.Done, Open: n.Open, Boundaries: n.Boundaries, Next: n.Next, Notes: n.Text,
	}
	if in.Decisions, in.Corrections, err = c.directives(ctx); err != nil {
		return session.Packet{}, err
	}
	leaf := &manifest.Record{Type: manifest.TypeHandoff, Session: c.id, Note: to}
	var turns []manifest.Page
	err = talk.exclusively(ctx, func() error {
		in.Intent, err = talk.intent()
		for i := range talk.blocks {
			b := &talk.blocks[i]
			in.Window = append(in.Window, talk.windowItem(i))
			turns = append(turns, manifest.Page{Num: b.nums[0], Version: b.version, Form: manifest.FormStub})
		}
		leaf.LSN = talk.lsn
		return err
	})
	if err != nil {
		return session.Packet{}, err
	}
	if in.Sources, err = c.sources(ctx, leaf); err != nil {
		return session.Packet{}, err
	}
	p := session.Handoff(in)
	named := map[string]bool{}
	for _, r := range p.References() {
		named[r.Ref] = true
	}
	var served []manifest.Page // a range serves nothing of its turns
	for i, w := range in.Window {
		if named[w.Ref] {
			served = append(served, turns[i])
		}
	}
	leaf.Pages = append(served, leaf.Pages...)
	return p, c.s.emit(ctx, leaf)
}

// intent is what the pass in force was about.
func (c *conversation) intent() (ir session.IntentIR, err error) {
	if len(c.force.IR) > 0 {
		return session.ParseIntentIR(c.force.IR)
	}
	if len(c.force.Keywords) > 0 {
		words := make([]any, len(c.force.Keywords))
		for i, w := range c.force.Keywords {
			words[i] = w
		}
		ir.Slots = map[string]any{"keywords": words}
	}
	return ir, nil
}

func (c *conversation) windowItem(i int) session.WindowItem {
	b := &c.blocks[i]
	actions := [session.Levels]session.Action{session.Stub: session.Page, session.Cold: session.Evict}
	return session.WindowItem{
		Ref: Ref{Scope: c.scope, ID: b.id, Version: b.version}.String(), Digest: hex.EncodeToString(b.digest[:6]), Tokens: b.row.Sizes[session.Raw],
		Action: actions[c.shown(i)], Pinned: b.row.Pinned, Title: b.row.Title, Why: c.why(i),
	}
}

// sources are the pages that contexts of this session were made of, but for its own turns, in the order in which they
// were first served, each as its newest version served.
func (c *Session) sources(ctx context.Context, leaf *manifest.Record) ([]session.SourceFact, error) {
	served, err := c.served(ctx)
	if err != nil {
		return nil, err
	}
	keys := make([]store.PageKey, len(served))
	for i, p := range served {
		keys[i] = p.key
	}
	loaded, err := c.s.db.store.Load(ctx, c.s.chain, keys, store.WantHead)
	if err != nil {
		return nil, err
	}
	type fact struct {
		head *store.Head
		key  store.PageKey
		page int
		read bool
	}
	var order []string
	facts := map[string]*fact{}
	for i := range loaded {
		l := &loaded[i]
		if l.Err != nil || l.Head.Group == c.id && l.Head.Scope == c.s.name || l.Head.Kind == KindSystem || strings.HasPrefix(l.Head.ID, ReservedPrefix) {
			continue
		}
		name := c.sourceName(ctx, l.Head)
		f := facts[name]
		if f == nil {
			f = &fact{}
			facts[name] = f
			order = append(order, name)
		}
		if f.head == nil || l.Head.Version >= f.head.Version {
			f.head, f.key, f.page = l.Head, l.Key, l.Page
		}
		f.read = f.read || served[i].read
	}
	out := make([]session.SourceFact, len(order))
	for i, name := range order {
		f := facts[name]
		out[i] = c.fact(ctx, name, f.head, f.page)
		out[i].Read = f.read
		leaf.Pages = append(leaf.Pages, manifest.Page{Num: f.key.Num, Version: f.key.Version, Form: manifest.FormStub})
	}
	return out, nil
}

// sourceName names the source of a page, or the page itself when it has none. What a page: source of an ancestor copies is
// named with its scope: the session's own scope may call something else by that id.
func (c *Session) sourceName(ctx context.Context, h *store.Head) string {
	key, copies := strings.CutPrefix(h.Artefact.Source, "page:")
	switch {
	case h.Artefact.Source == "":
		return Ref{Scope: h.Scope, ID: h.ID}.String()
	case !copies || h.Scope == c.s.name:
		return h.Artefact.Source
	}
	ref, err := store.SourceRef(key)
	if err != nil {
		return h.Artefact.Source
	}
	if ref.Scope == "" {
		ref.Scope = h.Scope
		if l, err := (pageSource{c.s.db, c.s.owner(h).chain}).locate(ctx, key); err == nil {
			ref.Scope = l.Scope
		}
	}
	return "page:" + ref.String()
}

// fact looks at a source now: its hash, or, for a page without one, whether the version that was read still stands.
func (c *Session) fact(ctx context.Context, name string, h *store.Head, page int) session.SourceFact {
	if h.Artefact.Source == "" {
		f := session.SourceFact{Source: name, Type: h.Kind.String(), Digest: hex.EncodeToString(h.Rows[page-1].Digest[:6])}
		l, err := c.s.db.store.Resolve(ctx, store.Scopes{h.Scope}, Ref{ID: h.ID})
		if f.Gone = err != nil; !f.Gone {
			f.Checked = true
			f.Same = l.By == 0 && slices.ContainsFunc(l.Pages, func(k store.PageKey) bool { return k.Num == h.Rows[page-1].Num })
		}
		return f
	}
	scheme, _, _ := strings.Cut(h.Artefact.Source, ":")
	f := session.SourceFact{Source: name, Type: scheme, Digest: fmt.Sprintf("xxhash64:%016x", h.Source.Hash)}
	// Without a stamp to go by the source has to look at its content. The page's own scope says what the source names.
	v, err := c.s.owner(h).probe(ctx, h.Artefact.Source, Validator{Hash: h.Source.Hash})
	if f.Gone = err != nil; !f.Gone {
		f.Checked, f.Same = true, v.Hash == h.Source.Hash
	}
	return f
}

// servedPage is a page that a context of the session had, and whether an answer was committed from it.
type servedPage struct {
	key  store.PageKey
	read bool
}

// served walks the manifests: which contexts belong to the session, which of them an answer came from.
func (c *Session) served(ctx context.Context) ([]servedPage, error) {
	mine, answered := map[string]bool{}, map[string]bool{}
	log := c.s.db.Manifests()
	size := log.Size()
	err := log.Each(ctx, 0, size, false, func(r *manifest.Record) error {
		if r.Scope != c.s.name {
			return nil
		}
		ends := r.Parent != "" && r.Action != actionSummary && r.Action != actionDrafts &&
			(r.Type == manifest.TypeCommit || r.Type == manifest.TypeApprove)
		if ends {
			answered[r.Parent] = true
		}
		switch {
		case r.Session != c.id:
		case r.Type.Reads():
			mine[r.Trace] = true
		case ends:
			mine[r.Parent] = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out []servedPage
	at := map[store.PageKey]int{}
	err = log.Each(ctx, 0, size, false, func(r *manifest.Record) error {
		if r.Scope != c.s.name || !r.Type.Reads() || !mine[r.Trace] && !mine[r.Parent] {
			return nil
		}
		read := answered[r.Trace] || answered[r.Parent]
		for _, p := range r.Pages {
			k := store.PageKey{Num: p.Num, Version: p.Version}
			i, ok := at[k]
			if !ok {
				i = len(out)
				at[k] = i
				out = append(out, servedPage{key: k})
			}
			out[i].read = out[i].read || read
		}
		return nil
	})
	return out, err
}

// Receive takes over a session that another agent handed on: the packet itself, and a reference for each turn that it
// names one by one and that stood in its window, become pages of this session. A packet of up to session.MaxBrief bytes
// is pinned; of a longer one its brief is, and the packet stands beside it as a stub, to recall or to pin, so that no
// context is crowded out. What was pinned there is pinned here, the newest first, up to as many bytes; the others stand
// unpinned. All of it is scratch and marked as unverified, visible in this session only: nothing the sender verified is
// verified here. A packet that names more than session.MaxReferences such turns is refused: ErrInvalid, session.ErrPacket.
func (c *Session) Receive(ctx context.Context, p session.Packet) ([]Ref, error) {
	talk, err := c.hostTalk("Receive")
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(p.Validate(), p.Receivable()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	var refs []Ref
	err = talk.exclusively(ctx, func() error {
		a := &appending{c: talk, s: c.s, changes: talk.begin(), action: "receive"}
		if a.tx, err = c.s.newTxn(nil); err != nil {
			return err
		}
		a.tx.managed = true
		if err := a.receive(ctx, p); err != nil {
			a.takeBack()
			return err
		}
		a.refs = make([]Ref, len(a.fresh))
		if err := a.commit(ctx, ""); err != nil {
			return err
		}
		refs = a.refs
		return nil
	})
	if err == nil {
		talk.wake()
	}
	return refs, err
}

func (a *appending) receive(ctx context.Context, p session.Packet) error {
	got := p.Received()
	whole := string(got.Markdown())
	name := fmt.Sprintf("handoff-%s-%016x", a.c.id, xxhash.Sum64String(whole))
	if a.c.find(name) >= 0 {
		return store.Invalid("packet", "one that was received before", "another packet")
	}
	packet := Artefact{ID: name, Text: whole, Meta: map[string]string{"handoff": "packet"}}
	if len(whole) <= session.MaxBrief {
		if err := a.receiveOne(ctx, packet, turnRow{Pinned: true}); err != nil {
			return err
		}
		return a.receiveReferences(ctx, p, name)
	}
	if err := a.receiveOne(ctx, packet, turnRow{Level: uint8(session.Stub), Because: "its brief stands for it"}); err != nil {
		return err
	}
	// After the packet: what stands last is the newest, which every context has whole.
	brief := Artefact{ID: name + "-brief", Text: string(got.Brief(name)), Meta: map[string]string{"handoff": "brief"}}
	if err := a.receiveOne(ctx, brief, turnRow{Pinned: true}); err != nil {
		return err
	}
	return a.receiveReferences(ctx, p, name)
}

func (a *appending) receiveReferences(ctx context.Context, p session.Packet, name string) error {
	items := map[string]string{} // the context of a reference, by its form and name
	for _, item := range p.Context {
		if key, _, ok := strings.Cut(item.Context, " ("); ok && items[key] == "" {
			items[key] = item.Context
		}
	}
	refs := p.References()
	texts, pinned := make([]string, len(refs)), make([]bool, len(refs))
	room := session.MaxBrief
	for i, r := range slices.Backward(refs) {
		texts[i] = "handed over by " + p.CreatedBy + ", unverified: " + items[r.Form+" "+r.Ref]
		if r.Form == "pinned" {
			room -= len(texts[i])
			pinned[i] = room >= 0
		}
	}
	for i, r := range refs {
		if r.Form == "evicted" {
			continue // named in the packet
		}
		art := Artefact{ID: fmt.Sprintf("%s-%d", name, i+1), Text: texts[i], Meta: map[string]string{"handoff": r.Form, "ref": r.Ref, "digest": r.Digest}}
		if err := a.receiveOne(ctx, art, turnRow{Pinned: pinned[i]}); err != nil {
			return err
		}
	}
	return nil
}

// receiveOne makes a page of the session; of the row only its place in the window is taken.
func (a *appending) receiveOne(ctx context.Context, art Artefact, row turnRow) error {
	seq, err := a.next()
	if err != nil {
		return err
	}
	art.Kind, art.Provenance, art.Group, art.Seq, art.Priority = KindScratch, Scratch, a.c.id, seq, PriorityMedium
	put, err := a.tx.makePut(ctx, art)
	if err != nil {
		return err
	}
	if err := a.tx.add(ctx, put); err != nil {
		return err
	}
	b := a.c.freshBlock(&put)
	b.row.Pinned, b.row.Level, b.row.Because = row.Pinned, row.Level, row.Because
	a.bring(len(a.fresh), b)
	return nil
}
