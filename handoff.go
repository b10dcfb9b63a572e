package ctxpage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/handoff"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// A handoff carries a session to another agent as a packet. Nothing in it comes from a model:
//
//	verified sources   manifests say what the answers of the session read; the hashes are computed now
//	decisions          the directives in force
//	window             pinned and newest turns one by one, all others as ranges to recall
//	the rest           what the host recorded (Record)
//
// The receiver trusts nothing of it: every page that Receive makes is scratch, marked as unverified, and visible in the
// receiving session only. The brief comes after the packet, because the last page is the newest turn, which every
// context shows whole. Sizes are bounded on both sides (session.MaxHandoff, MaxBrief, MaxReferences), so a long session
// does not crowd out the receiver's context.

// Record replaces the notes of the session.
func (c *Session) Record(ctx context.Context, n session.Notes) error {
	conv, err := c.hostConversation("Record")
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
	return conv.Exclusively(ctx, func() error {
		w := conv.Begin()
		w.Raw(conv.Key(conversation.NoteRowKey), raw)
		return conv.Commit(ctx, c.s.actor, w, manifest.Record{Type: manifest.TypeCommit, Action: "notes", Reason: "vouched by the host"})
	})
}

// Notes returns the notes that were recorded last.
func (c *Session) Notes(ctx context.Context) (n session.Notes, err error) {
	conv, err := c.conversation()
	if err != nil {
		return n, err
	}
	row, err := c.s.db.store.State(ctx, conv.Key(conversation.NoteRowKey))
	if err != nil || row.Value == nil {
		return n, err
	}
	return n, json.Unmarshal(row.Value, &n)
}

// Contract returns the bytes to append to a contract file, with one write. They describe the pass in force, if there is
// one, then the session's notes and directives and the caller's extra records. Records of earlier notes and directives
// that no longer hold are removed. have is the current content of the file. When nothing is new it returns no bytes.
// session.ErrContract for a file that cannot run in the interpreter.
func (c *Session) Contract(ctx context.Context, have []byte, extra session.Records) (out []byte, err error) {
	p, err := c.InForce(ctx)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
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

// HandoffContract returns the bytes to append to a strict contract file, with one write, so that the file says what a
// packet of this session says (session.Packet.Limn). have is the current content of the file. Records that packets and
// Contract wrote there of this session and its directives, and that the packet no longer has, are removed. For the
// packet that the file ends with it returns no bytes. session.ErrContract for a file that cannot run in the
// interpreter.
//
// It reads nothing of the database but the names of the scope's chain, by which it knows its own records in a file that
// several sessions share.
func (c *Session) HandoffContract(p session.Packet, have []byte) ([]byte, error) {
	if c.s.err != nil {
		return nil, c.s.err
	}
	ledger, err := session.ReadLedger(have)
	if err != nil {
		return nil, err
	}
	return p.Limn(ledger, handoff.Told(c.s.chain)...)
}

// records adds what notes and directives say.
func (c *Session) records(ctx context.Context, r *session.Records) error {
	n, err := c.Notes(ctx)
	if err != nil {
		return err
	}
	st, err := c.s.Directives().State(ctx)
	if err != nil {
		return err
	}
	handoff.Records(r, n, st.Effective, Ref{Scope: c.s.name, ID: c.id}, c.s.chain)
	return nil
}

// Handoff packages the session for another agent. No model is asked. Sources count as verified by the manifests, which
// say what the answers of this session read, and by hashes computed now. Decisions and corrections are the directives
// in force. The context is the window: pinned turns and the newest ones one by one, all others, evicted ones too, as
// ranges to recall. The rest is what Record kept. session.MaxHandoff bounds the parts that grow with the session.
func (c *Session) Handoff(ctx context.Context, to string) (session.Packet, error) {
	conv, err := c.conversation()
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
	st, err := c.s.Directives().State(ctx)
	if err != nil {
		return session.Packet{}, err
	}
	in.Decisions, in.Corrections = handoff.Directives(st.Effective)
	leaf := &manifest.Record{Type: manifest.TypeHandoff, Session: c.id, Note: to}
	var turns []manifest.Page
	var pages []store.PageKey
	err = conv.Exclusively(ctx, func() error {
		in.Intent, err = conv.Intent()
		for i := range conv.Blocks {
			b := &conv.Blocks[i]
			in.Window = append(in.Window, conv.WindowItem(i))
			turns = append(turns, manifest.Page{Num: b.Nums[0], Version: b.Version, Form: manifest.FormStub})
			pages = append(pages, store.PageKey{Num: b.Nums[0], Version: b.Version})
		}
		leaf.LSN = conv.LSN
		return err
	})
	if err != nil {
		return session.Packet{}, err
	}
	was, err := handoff.ServedTo(ctx, c.s.db.Manifests(), c.s.name, c.id, actionSummary, actionDrafts)
	if err != nil {
		return session.Packet{}, err
	}
	facts := handoff.Facts{Store: c.s.db.store, View: c.s.view, Chain: c.s.chain, Session: c.id}
	if in.Sources, leaf.Pages, err = facts.Of(ctx, was); err != nil {
		return session.Packet{}, err
	}
	p, named, err := c.packet(ctx, in, pages)
	if err != nil {
		return session.Packet{}, err
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

// packet makes the packet, and says which turns it names one by one. Only these have titles, the first lines of their pages. A
// title takes room, so a packet that has more of them names no turn that one with fewer would have passed over.
func (c *Session) packet(ctx context.Context, in session.HandoffInput, pages []store.PageKey) (session.Packet, map[string]bool, error) {
	titled := map[int]bool{}
	for {
		p := session.Handoff(in)
		named := map[string]bool{}
		for _, r := range p.References() {
			named[r.Ref] = true
		}
		var at []int
		var keys []store.PageKey
		for i, w := range in.Window {
			if named[w.Ref] && !titled[i] {
				at, keys, titled[i] = append(at, i), append(keys, pages[i]), true
			}
		}
		if len(at) == 0 {
			return p, named, nil
		}
		loaded, err := c.s.db.store.Load(ctx, c.s.chain[:1], keys, store.WantText)
		if err != nil {
			return p, nil, err
		}
		for j, i := range at { // without a title where the text cannot be read
			in.Window[i].Title = session.Title(loaded[j].Text)
		}
	}
}

// Receive takes over a session that another agent handed on. The packet, and a reference for each turn that it names
// one by one and that was in the sender's window, become pages of this session. A packet of at most session.MaxBrief
// bytes is pinned. Of a longer packet the brief is pinned, and the packet itself is a stub, to recall or to pin, so
// that it does not crowd out the context. Turns that were pinned at the sender are pinned here, the newest first, up to
// the same number of bytes; the others are not pinned. All of it is scratch, marked as unverified and visible in this
// session only: what the sender verified is not verified here. ErrInvalid with session.ErrPacket for a packet that
// names more than session.MaxReferences such turns.
func (c *Session) Receive(ctx context.Context, p session.Packet) ([]Ref, error) {
	conv, err := c.hostConversation("Receive")
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(p.Validate(), p.Receivable()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	var refs []Ref
	err = conv.Exclusively(ctx, func() error {
		a := c.s.appending(conv, "receive")
		if a.tx, err = c.s.newTxn(nil); err != nil {
			return err
		}
		a.tx.managed = true
		if err := a.receive(ctx, p); err != nil {
			a.takeBack()
			return err
		}
		a.refs = make([]Ref, len(a.Fresh))
		if err := a.commit(ctx); err != nil {
			return err
		}
		refs = a.refs
		return nil
	})
	return refs, err
}

// receive makes the pages of a packet: the packet itself, its brief if the packet is too long to be pinned, and a page
// for each turn that it names. The id is derived from the content, so receiving the same packet twice is refused.
func (a *appending) receive(ctx context.Context, p session.Packet) error {
	got := p.Received()
	whole := string(got.Markdown())
	name := fmt.Sprintf("handoff-%s-%016x", a.c.ID, xxhash.Sum64String(whole))
	if a.c.Find(name) >= 0 {
		return store.Invalid("packet", "one that was received before", "another packet")
	}
	packet := Artefact{ID: name, Text: whole, Meta: conversation.PacketMeta(false, p.SessionOrProject)}
	if len(whole) <= session.MaxBrief {
		if err := a.receiveOne(ctx, packet, conversation.TurnRow{Pinned: true}); err != nil {
			return err
		}
		return a.receiveReferences(ctx, p, name)
	}
	if err := a.receiveOne(ctx, packet, conversation.TurnRow{Level: uint8(session.Stub), Because: "its brief stands for it"}); err != nil {
		return err
	}
	brief := Artefact{ID: conversation.BriefID(name), Text: string(got.Brief(name)), Meta: conversation.PacketMeta(true, p.SessionOrProject)}
	if err := a.receiveOne(ctx, brief, conversation.TurnRow{Pinned: true}); err != nil {
		return err
	}
	return a.receiveReferences(ctx, p, name)
}

// receiveReferences makes a page for each turn that the packet names one by one. Evicted turns stay named in the packet
// only.
func (a *appending) receiveReferences(ctx context.Context, p session.Packet, name string) error {
	refs := p.References()
	texts, pinned := handoff.References(p)
	for i, r := range refs {
		if r.Form == "evicted" {
			continue // named in the packet
		}
		art := Artefact{ID: fmt.Sprintf("%s-%d", name, i+1), Text: texts[i], Meta: map[string]string{"handoff": r.Form, "ref": r.Ref, "digest": r.Digest}}
		if err := a.receiveOne(ctx, art, conversation.TurnRow{Pinned: pinned[i]}); err != nil {
			return err
		}
	}
	return nil
}

// receiveOne makes a page of the session. Of the row it takes only the place in the window.
func (a *appending) receiveOne(ctx context.Context, art Artefact, row conversation.TurnRow) error {
	seq, err := a.Next()
	if err != nil {
		return err
	}
	art.Kind, art.Provenance, art.Group, art.Seq, art.Priority = KindScratch, Scratch, a.c.ID, seq, PriorityMedium
	put, err := a.tx.makePut(ctx, art)
	if err != nil {
		return err
	}
	b := a.c.FreshBlock(&put, &row)
	if err := a.tx.add(ctx, put); err != nil {
		return err
	}
	a.Bring(len(a.Fresh), b, put.Turn != nil)
	return nil
}
