package handoff

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// A packet that a session received is stored as pages of the session: the packet itself, its brief if the packet is too
// long to be pinned, and one page for each turn that it names. Their meta names their origin, so that an erase finds them:
//
//	handoff   packet, brief, or the form in which the turn stood in the window of the sender
//	from      the session that handed on: of the packet and its brief
//	ref       the turn: of a page for a turn
const (
	packetMark = "handoff"
	packetFrom = "from"
	packetRef  = "ref"

	packetWhole = "packet"
	packetBrief = "brief"
	briefSuffix = "-brief"
)

// Page is a page that a received packet becomes.
type Page struct {
	store.Artefact      // its id, text and meta
	Pinned         bool // else it is in the window as it is
	Stub           bool // its brief stands for it
}

// Pages returns the pages of a packet that the session of that name receives, the packet itself first. Their ids derive
// from the content. ErrPacket for a packet that breaks the schema or names more than session.MaxReferences turns.
//
// Turns that were pinned at the sender are pinned, the newest first, up to session.MaxBrief bytes. Evicted turns stay
// named in the packet only.
func Pages(p session.Packet, name string) ([]Page, error) {
	refs := slices.DeleteFunc(References(p), func(r Reference) bool { return r.Form == "evicted" })
	var tooMany error
	if n := len(refs); n > session.MaxReferences {
		tooMany = fmt.Errorf("%w: context_to_preserve names %d turns one by one, expected at most %d: name the older as ranges", session.ErrPacket, n, session.MaxReferences)
	}
	if err := errors.Join(p.Validate(), tooMany); err != nil {
		return nil, err
	}
	got := unverified(p)
	whole := string(got.Markdown())
	id := fmt.Sprintf("handoff-%s-%016x", name, xxhash.Sum64String(whole))
	short := len(whole) <= session.MaxBrief
	out := []Page{{Artefact: store.Artefact{ID: id, Text: whole, Meta: packetMeta(packetWhole, p.SessionOrProject)}, Pinned: short, Stub: !short}}
	if !short {
		brief := store.Artefact{ID: id + briefSuffix, Text: string(got.Brief(id)), Meta: packetMeta(packetBrief, p.SessionOrProject)}
		out = append(out, Page{Artefact: brief, Pinned: true})
	}
	first, remaining := len(out), session.MaxBrief
	for i, r := range refs {
		out = append(out, Page{Artefact: store.Artefact{
			ID: fmt.Sprintf("%s-%d", id, i+1), Text: "handed over by " + p.CreatedBy + ", unverified: " + r.Text,
			Meta: map[string]string{packetMark: r.Form, packetRef: r.Ref, "digest": r.Digest},
		}})
	}
	for i, r := range slices.Backward(refs) {
		if r.Form == "pinned" {
			remaining -= len(out[first+i].Text)
			out[first+i].Pinned = remaining >= 0
		}
	}
	return out, nil
}

func packetMeta(mark, from string) map[string]string {
	meta := map[string]string{packetMark: mark}
	if ref, err := store.ParseRef(from); err == nil && ref.Page == 0 && ref.Version == 0 {
		meta[packetFrom] = ref.String()
	}
	return meta
}

// unverified returns the packet as the receiving side may keep it: what the sender verified is not verified here, and the
// sender's decisions are claims.
func unverified(p session.Packet) session.Packet {
	mark := func(items []session.BasisItem) []session.BasisItem {
		items = slices.Clone(items)
		for i := range items {
			items[i].Basis = "handed over by " + p.CreatedBy + ", unverified: " + items[i].Basis
		}
		return items
	}
	p.LockedDecisions, p.InferredClaims, p.VerifiedSources = mark(p.LockedDecisions), mark(p.InferredClaims), slices.Clone(p.VerifiedSources)
	for i := range p.VerifiedSources {
		if s := &p.VerifiedSources[i]; s.State == "verified" || s.State == "scanned" {
			s.State, s.WhatWasVerified = "referenced", "nothing here; "+p.CreatedBy+" reported: "+s.WhatWasVerified
		}
	}
	return p
}

// Received returns the packet to which a page belongs, "" for a page of no packet, and the origin that its meta names.
func Received(h *store.Head) (packet string, from, turn store.Ref) {
	switch mark := h.Meta[packetMark]; {
	case mark == "" || h.Kind != store.KindScratch || h.Group == "":
		return "", from, turn
	case mark == packetWhole:
		packet = h.ID
	case mark == packetBrief:
		packet = strings.TrimSuffix(h.ID, briefSuffix)
	default:
		packet = h.ID[:max(strings.LastIndexByte(h.ID, '-'), 0)]
	}
	from, _ = store.ParseRef(h.Meta[packetFrom])
	turn, _ = store.ParseRef(h.Meta[packetRef])
	return packet, from, turn
}

// toldIn returns the phrases that end the reasons of directives of a chain of scopes: with the character behind the name,
// so that no scope stands for one whose name is longer.
func toldIn(chain store.Scopes) (phrases []string) {
	for _, scope := range chain {
		for _, end := range []string{")", ":", ";"} {
			phrases = append(phrases, directiveOf+scope+end)
		}
	}
	return phrases
}

// directiveOf begins the reason of a directive.
const directiveOf = "directive of the user in "

// Directives returns the directives in force as the locked decisions and the corrections of the user.
func Directives(told directive.Effective) (decisions []session.BasisItem, corrections []session.CorrectionItem) {
	for _, p := range told.Premises {
		decisions = append(decisions, session.BasisItem{Text: "premise: " + p.Premise, Basis: directiveOf + p.Scope})
	}
	for _, p := range told.Policies {
		if p.Polarity == directive.Prohibit {
			corrections = append(corrections, session.CorrectionItem{
				Correction: "prohibit " + p.Item, MeaningForNextAgent: directiveOf + p.Scope + ": do not use or propose it",
			})
			continue
		}
		decisions = append(decisions, session.BasisItem{Text: "use " + p.Item, Basis: directiveOf + p.Scope})
	}
	return decisions, corrections
}

// Contract returns the bytes to append to a contract file whose content is have: the lines of the pass in force, nil if
// there is none, then those of the session's notes and directives.
func Contract(have []byte, p *session.StoredPass, n session.Notes, told directive.Effective, of store.Ref, chain store.Scopes) ([]byte, error) {
	l, err := ReadLedger(have)
	if err != nil {
		return nil, err
	}
	var out []byte
	if p != nil {
		if out, err = l.Pass(p, p.At); err != nil {
			return nil, err
		}
	}
	more, err := l.Records(recordsFrom(n, told, of, chain))
	if err != nil {
		return nil, err
	}
	return append(out, more...), nil
}

// PacketContract returns the bytes to append to a contract file whose content is have, so that it has the facts of a packet.
func PacketContract(have []byte, p session.Packet, chain store.Scopes) ([]byte, error) {
	l, err := ReadLedger(have)
	if err != nil {
		return nil, err
	}
	return l.Packet(p, toldIn(chain)...)
}

// recordsFrom returns what notes and directives of a session say.
func recordsFrom(n session.Notes, told directive.Effective, of store.Ref, chain store.Scopes) (r Records) {
	decisions, corrections := Directives(told)
	for _, d := range decisions {
		r.Decisions = append(r.Decisions, Entry{d.Text, d.Basis})
	}
	for _, x := range corrections {
		r.Corrections = append(r.Corrections, Entry{x.Correction, x.MeaningForNextAgent})
	}
	by := noted(of.String())
	for _, q := range n.Questions {
		if visible(q.Question) {
			r.Questions = append(r.Questions, Entry{q.Question, strings.TrimPrefix(q.WhyItMatters+"; "+by, "; ")})
		}
	}
	for _, l := range []struct {
		name  string
		items []string
	}{{"work-completed", n.Done}, {"work-remaining", n.Open}} {
		list := List{Name: l.name}
		for _, item := range l.items {
			if visible(item) {
				list.Items = append(list.Items, Entry{item, by})
			}
		}
		r.Lists = append(r.Lists, list)
	}
	r.OwnReasons = append([]string{by}, toldIn(chain)...)
	return r
}

// visible reports whether a note shows anything. Blank notes are skipped, because they would fail the whole contract.
func visible(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) })
}
