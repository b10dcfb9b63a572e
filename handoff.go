package ctxpage

import (
	"context"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/handoff"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// A handoff carries a session to another agent as a packet. Nothing in it comes from a model:
//
//	verified sources   manifests record what the answers of the session read; the hashes are computed now
//	decisions          the directives in force
//	window             pinned and newest turns one by one, all others as ranges to recall
//	the rest           what the host recorded (Record)
//
// The receiver trusts nothing of it: every page that Receive makes is scratch, marked as unverified, and visible in the
// receiving session only. Sizes are bounded on both sides (session.MaxHandoff, MaxBrief, MaxReferences), so a long session
// does not crowd out the receiver's context.

// Contract returns the bytes to append to a contract file, with one write. They describe the pass in force, if there is
// one, then the session's notes and directives; with a packet of this session (Handoff), they contain its facts instead.
// Records of earlier notes, directives and packets that no longer hold are removed. have is the current content of the
// file. When nothing is new, Contract returns no bytes. session.ErrContract for a file that cannot run in the interpreter.
func (c *Session) Contract(ctx context.Context, have []byte, p *session.Packet) ([]byte, error) {
	conv, err := c.conversation()
	if err != nil {
		return nil, err
	}
	if p != nil { // the chain tells apart the records of the sessions that share a file
		return handoff.PacketContract(have, *p, c.s.chain)
	}
	in, err := conv.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	st, err := c.s.Directives().State(ctx)
	if err != nil {
		return nil, err
	}
	return handoff.Contract(have, in.Force, in.Notes, st.Effective, Ref{Scope: c.s.name, ID: c.id}, c.s.chain)
}

// Handoff packages the session for another agent. No model is asked. Sources count as verified by the manifests, which
// record what the answers of this session read, and by hashes computed now. Decisions and corrections are the directives
// in force. The context is the window: pinned turns and the newest ones one by one, all others, evicted ones too, as
// ranges to recall; turns that have expired are left out. The rest comes from Record. session.MaxHandoff bounds the parts
// that grow with the session.
func (c *Session) Handoff(ctx context.Context, to string) (session.Packet, error) {
	ctx = c.s.db.timed(ctx)
	conv, err := c.conversation()
	if err != nil {
		return session.Packet{}, err
	}
	st, err := c.s.Directives().State(ctx)
	if err != nil {
		return session.Packet{}, err
	}
	pack := handoff.Packing{Store: c.s.db.store, Audit: c.s.db.Manifests(), View: c.s.view, Chain: c.s.chain, Told: st.Effective, By: c.s.actor, Now: c.s.db.opts.Clock()}
	p, leaf, err := pack.Packet(ctx, conv, to, actionSummary, actionDrafts)
	if err == nil {
		err = c.s.emit(ctx, leaf)
	}
	return p, c.s.failed(ctx, manifest.TypeHandoff, err)
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
	pages, err := handoff.Pages(p, c.id)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	var refs []Ref
	err = conv.Exclusively(ctx, func() error {
		refs, err = c.s.appending(conv, "receive").receive(ctx, pages)
		return err
	})
	return refs, err
}
