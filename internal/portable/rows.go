package portable

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
)

// Rows of state and held batches are written only where the database has none: an import never replaces a row. Page numbers in rows
// become the numbers here (StateKind.Renumber); pages that were not imported are removed.
//
// A row of an artefact, session or scope that was erased in this database is skipped: an old export must not bring it back.

func (m *importer) stateLine(b []byte) error {
	var line stateLine
	if err := m.in.decode(b, &line); err != nil {
		return err
	}
	key := string(line.Key)
	if key == "" || line.Value == nil || strings.HasPrefix(key, format.EraseRows) || strings.HasPrefix(key, format.ReceiptRows) {
		return fieldError("key", store.Invalid("key", fmt.Sprintf("%q", line.Name), "a row of state with a value"))
	}
	kind := kindOf(m.opts.State, key)
	if kind != nil && kind.Stays {
		return fieldError("key", store.Invalid("key", fmt.Sprintf("%q", line.Name), "no row of "+kind.Prefix+": such rows stay in their database"))
	}
	gone, err := m.rowErased(kind, key)
	if err != nil {
		return err
	}
	if gone {
		m.rep.Erased++
		return nil
	}
	value := line.Value
	if m.gone != nil {
		if value, gone, err = m.gone.Row(store.StateRow{Key: key, Value: value}); err != nil {
			return fieldError("value", err)
		}
		if gone {
			m.rep.Erased++
			return nil
		}
	}
	if kind != nil && kind.Renumber != nil {
		to, err := m.numbers(line.Pages)
		if err != nil {
			return err
		}
		if value, err = kind.Renumber(value, to); err != nil {
			return unreadable(kind, err)
		}
	}
	if value, err = m.asked(kind, line.Name, key, value); err != nil || value == nil {
		return err
	}
	if kind.Check != nil {
		if err := kind.Check(key, value); err != nil {
			return unreadable(kind, err)
		}
	}
	is, err := m.st.State(m.ctx, key)
	if err != nil {
		return err
	}
	if m.sawState(key, value); is.Value != nil {
		m.sawState(key, is.Value)
	}
	switch {
	case bytes.Equal(is.Value, value) && is.Value != nil:
		m.rep.State.Same++
		return nil
	case is.Value != nil:
		m.other(&m.rep.State, 1, line.Name)
		return nil
	}
	if m.rows = append(m.rows, store.StateRow{Key: key, Value: value}); len(m.rows) >= batchRows {
		return m.flushRows()
	}
	return nil
}

// unreadable is the error of a row that the database could not read.
func unreadable(kind *store.StateKind, err error) error {
	return fieldError("value", store.Invalid("value", "a row of "+kind.Prefix+" that cannot be read ("+err.Error()+")", "the row as it was exported"))
}

// asked keeps the parts of a row that the caller of the import asked for, nil for none, and lists the others.
func (m *importer) asked(kind *store.StateKind, name, key string, value []byte) ([]byte, error) {
	switch {
	case kind == nil: // nothing here reads it, and nobody knows what would
		m.rep.Withheld = append(m.rep.Withheld, name)
		return nil, nil
	case kind.Policy && !m.opts.Policies:
		m.rep.Withheld = append(m.rep.Withheld, name)
		return nil, nil
	case kind.Paths == nil:
		return value, nil
	}
	kept, left, err := kind.Paths(key, value, m.below)
	if err != nil {
		return nil, fieldError("value", err)
	}
	for _, dir := range left {
		m.rep.Withheld = append(m.rep.Withheld, kind.Prefix+" "+printable(dir))
	}
	return kept, nil
}

func (m *importer) below(dir string) bool {
	for _, root := range m.opts.Roots {
		if rel, err := filepath.Rel(root, dir); err == nil && filepath.IsAbs(dir) && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

func (m *importer) rowErased(kind *store.StateKind, key string) (bool, error) {
	if kind == nil {
		return m.ofSession(key), nil
	}
	var of store.Ref
	if kind.Past != nil {
		_, of = kind.Past(key)
	}
	if kind.Unit != nil {
		of = kind.Unit(key).Page
	}
	if of.ID == "" {
		return m.ofSession(key), nil
	}
	h, err := newestHead(m.ctx, m.st, of)
	return err == nil && h != nil && h.Deleted && h.ErasedBy != "" && !m.erased[store.Ref{Scope: of.Scope, ID: of.ID}], err
}

// ofSession reports whether a row is of a session that lost turns to an erase here, or a directory of an erased scope.
func (m *importer) ofSession(key string) bool {
	if strings.HasPrefix(key, freshness.DirectoryRows()) {
		scope := freshness.DirectoryScope(key)
		return m.lost[scope] && !m.stays[scope]
	}
	rest, ok := strings.CutPrefix(key, "session/")
	if !ok || len(m.sessions) == 0 {
		return false
	}
	_, rest, _ = strings.Cut(rest, "/")
	part := strings.SplitN(rest, "\x00", 3)
	return len(part) > 1 && m.sessions[part[0]+"\x00"+part[1]]
}

// numbers says which numbers pages have here. A page that is not here has none.
func (m *importer) numbers(pages []pageName) (map[uint64]uint64, error) {
	to := make(map[uint64]uint64, len(pages))
	for i, p := range pages {
		num, err := m.number(p.Ref)
		if err != nil {
			return nil, fieldError(fmt.Sprintf("pages[%d].ref", i), err)
		}
		if to[p.Num] = num; m.opts.DryRun && num == 0 {
			to[p.Num] = p.Num
		}
	}
	return to, nil
}

func (m *importer) number(name string) (uint64, error) {
	ref, err := store.ParseRef(name)
	if err != nil {
		return 0, err
	}
	if ref.Version == 0 {
		return 0, nil
	}
	l, err := m.st.Resolve(m.ctx, store.Scopes{ref.Scope}, ref)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrGone) {
		return 0, nil
	}
	if err != nil || len(l.Pages) == 0 {
		return 0, err
	}
	return l.Pages[0].Num, nil
}

func (m *importer) flushRows() error {
	rows := m.rows
	m.rows = nil
	if len(rows) == 0 {
		return nil
	}
	if !m.opts.DryRun {
		b := store.Batch{State: rows}
		for i := range rows {
			b.ExpectState = append(b.ExpectState, store.StatePre{Key: rows[i].Key})
		}
		if err := m.commit(b); err != nil {
			return err
		}
	}
	m.rep.State.New += uint64(len(rows))
	return nil
}

func (m *importer) heldLine(b []byte) error {
	var line heldLine
	if err := m.in.decode(b, &line); err != nil {
		return err
	}
	id, err := ulid.ParseStrict(line.ID)
	if err != nil {
		return fieldError("id", store.Invalid("id", line.ID, "a ULID"))
	}
	is, err := m.st.Held(m.ctx, id)
	switch {
	case err == nil && is.At.Equal(line.At) && is.Batch.Scope == line.Scope:
		m.rep.Held.Same++
		return nil
	case err == nil:
		m.other(&m.rep.Held, 1, "held batch "+line.ID)
		return nil
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	batch, err := m.heldBatch(id, &line)
	if err != nil {
		return err
	}
	if m.gone != nil && m.gone.Held(batch) {
		m.rep.Erased++
		return nil
	}
	if gone, err := m.heldErased(batch); gone || err != nil {
		m.rep.Erased++
		return err
	}
	if !m.opts.DryRun {
		if err := m.commit(*batch); err != nil {
			return err
		}
	}
	m.rep.Held.New++
	return nil
}

// heldErased reports whether a held batch would write something that was erased here.
func (m *importer) heldErased(b *store.Batch) (bool, error) {
	for i := range b.Puts {
		ref := store.Ref{Scope: b.Scope, ID: b.Puts[i].Artefact.ID}
		h, err := newestHead(m.ctx, m.st, ref)
		if err != nil {
			return false, err
		}
		if h != nil && h.Deleted && h.ErasedBy != "" && !m.erased[ref] {
			return true, nil
		}
	}
	return false, nil
}

// heldBatch returns the batch with the page numbers of this store.
func (m *importer) heldBatch(id ulid.ULID, line *heldLine) (*store.Batch, error) {
	if err := store.CheckScope(line.Scope); err != nil {
		return nil, fieldError("scope", err)
	}
	b := &store.Batch{
		ID: id, Scope: line.Scope, Actor: line.Actor, Now: line.At, Trace: line.Trace, Action: store.ActHold, Reason: line.Reason, OnStale: line.OnStale,
		Raise: line.Raise, Force: line.Force, Deletes: line.Deletes, Leaf: line.Leaf, Unknown: line.Unknown,
		Hold: &store.CarriedHold{Decided: line.Decided, By: line.By, Note: line.Note},
	}
	if line.Decided == "rejected" {
		b.Hold.Outcome.Status = store.StatusRejected
	}
	for _, list := range []struct {
		from  []string
		to    *[]store.Ref
		field string
	}{{line.Stale, &b.Hold.Stale, "stale"}, {line.Refs, &b.Hold.Outcome.Refs, "refs"}} {
		for _, name := range list.from {
			ref, err := store.ParseRef(name)
			if err != nil {
				return nil, fieldError(list.field, err)
			}
			*list.to = append(*list.to, ref)
		}
	}
	if err := m.heldExpects(b, line); err != nil {
		return nil, err
	}
	for i := range line.Puts {
		p, err := line.Puts[i].put(m.opts.Counter)
		if err != nil {
			return nil, fieldError(fmt.Sprintf("puts[%d]", i), err)
		}
		b.Puts = append(b.Puts, p)
	}
	return b, format.CheckIDs(b)
}

func (m *importer) heldExpects(b *store.Batch, line *heldLine) error {
	for i, e := range line.Expect {
		ref, err := store.ParseRef(e.Ref)
		if err != nil {
			return fieldError(fmt.Sprintf("expect[%d]", i), err)
		}
		pre := store.Precondition{Ref: ref, LSN: store.LsnElsewhere}
		if !e.Elsewhere {
			if pre.LSN, err = lsnOf(m.ctx, m.st, ref); err != nil {
				return err
			}
		}
		b.Expect = append(b.Expect, pre)
	}
	for i, s := range line.Context {
		ref, err := store.ParseRef(s.Ref)
		var num uint64
		if err == nil {
			num, err = m.number(s.Ref)
		}
		if err != nil {
			return fieldError(fmt.Sprintf("context[%d]", i), err)
		}
		b.Context = append(b.Context, store.Seen{Scope: ref.Scope, ID: ref.ID, Page: ref.Page, Num: num})
	}
	return nil
}

func (p *putLine) put(counter token.Counter) (store.Put, error) {
	out := store.Put{Artefact: p.Artefact, AsOfGiven: p.AsOfGiven, PartBytes: p.PartBytes, Counter: counter.Name(), Unknown: p.Unknown}
	if p.Source != nil {
		out.Source = *p.Source
	}
	if err := out.Artefact.Check(); err != nil {
		return out, err
	}
	for i := range p.Pages {
		n := &p.Pages[i]
		if n.Text == nil || len(n.Salt) != store.DigestSaltSize {
			return out, store.Invalid(fmt.Sprintf("pages[%d]", i), "no text, or no salt", "both")
		}
		page := store.NewPage{Text: *n.Text, Tokens: counter.Count(*n.Text), Hash: store.ContentHash(*n.Text), Salt: [store.DigestSaltSize]byte(n.Salt)}
		page.Digest = store.SaltedDigest(page.Salt[:], page.Text)
		if !bytes.Equal(page.Digest[:], n.Digest) {
			return out, store.Invalid(fmt.Sprintf("pages[%d].text", i), "a text that is not the one of its digest", "the text as it was exported")
		}
		out.Pages = append(out.Pages, page)
	}
	return out, nil
}
