package portable

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ctxpage/ctxpage/internal/eraseplan"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// An export made before an erase has the erased content. The header names the erases that the database knew. Later ones are known from
// receipts, which the database remembers, and from this database if the export is of it. The import finds the erased content before it
// writes anything, by the rules of the erase, and leaves it out.

// later are the erases that came after the export was made. The error matches ops.ErrReceipt for a receipt that proves nothing.
func (m *importer) later() (secret []byte, list []store.EraseReport, err error) {
	info, err := m.st.Info(m.ctx)
	if err != nil {
		return nil, nil, err
	}
	for i, r := range m.opts.Receipts {
		if err := r.Verify(nil); err != nil {
			return nil, nil, fmt.Errorf("receipt %d: %w", i+1, err)
		}
		switch {
		case r.DB != m.head.Database:
			return nil, nil, fmt.Errorf("%w: receipt %d is of database %s, the export of %s", ops.ErrReceipt, i+1, r.DB, m.head.Database)
		case len(r.Done.Asked) == 0:
			return nil, nil, fmt.Errorf("%w: receipt %d does not say what was asked for, so it cannot be found in the export; erase it by name after the import", ops.ErrReceipt, i+1)
		}
		list = append(list, r.Done)
	}
	m.given = slices.Clone(list)
	remembered, err := eraseplan.Remembered(m.ctx, m.st, m.head.Database)
	if err != nil {
		return nil, nil, err
	}
	list = append(list, remembered...)
	if info.ID == m.head.Database {
		own, err := eraseplan.Reports(m.ctx, m.st, false)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, own...)
	}
	known := map[string]bool{}
	for _, trace := range m.head.Erasures {
		known[trace] = true
	}
	list = slices.DeleteFunc(list, func(r store.EraseReport) bool {
		was := known[r.Trace]
		known[r.Trace] = true // a receipt of an erase that this database knows, too
		return was
	})
	switch {
	case len(m.head.Secret) > 0:
		secret = m.head.Secret
	case info.ID == m.head.Database:
		secret = info.Secret
	case len(list) > 0:
		return nil, nil, store.Invalid("receipts", "an export without the secret of its database", "a whole export with the secret, or an import into that database: receipts have no names, only digests that are keyed with the secret")
	}
	return secret, list, nil
}

// findErased reads the file once more, for the content that later erases took.
func (m *importer) findErased(r io.Reader) error {
	secret, list, err := m.later()
	if err != nil || len(list) == 0 {
		return err
	}
	s, ok := r.(io.ReadSeeker)
	if !ok {
		return store.Invalid("file", "a stream", fmt.Sprintf("a file, which can be read twice: %d erases came after the export was made, and what they took must be found first", len(list)))
	}
	at, err := s.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = s.Seek(m.began, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("ctxpage: import: %w", err)
	}
	e := eraseplan.NewEarlier(secret, list)
	if err := m.eachVersion(r, e.Version); err != nil {
		return err
	}
	e.Follow()
	if _, err := s.Seek(at, io.SeekStart); err != nil {
		return fmt.Errorf("ctxpage: import: %w", err)
	}
	m.gone = e
	for i := range list {
		m.rep.Erasures = append(m.rep.Erasures, list[i].Trace)
	}
	return nil
}

// remember writes the receipts that the database does not have, before anything that they leave out could come in.
func (m *importer) remember() error {
	var b store.Batch
	for i := range m.given {
		row, err := eraseplan.ReceiptRow(m.head.Database, &m.given[i])
		if err != nil {
			return err
		}
		is, err := m.st.State(m.ctx, row.Key)
		if err != nil {
			return err
		}
		if is.Value == nil && !slices.ContainsFunc(b.State, func(r store.StateRow) bool { return r.Key == row.Key }) {
			b.State, b.ExpectState = append(b.State, row), append(b.ExpectState, store.StatePre{Key: row.Key})
		}
	}
	if len(b.State) == 0 || m.opts.DryRun {
		return nil
	}
	return m.commit(b)
}

// eachVersion calls fn for what each version in a file says of itself, without its texts.
func (m *importer) eachVersion(r io.Reader, fn func(*store.Head)) error {
	in := newLineReader(r)
	for {
		b, err := in.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && in.line%1024 == 0 {
			err = m.ctx.Err()
			m.opts.Progress("erased before", uint64(in.line), m.want.Lines)
		}
		if err != nil {
			return err
		}
		var line struct {
			Type string `json:"type"`
			named
			Before []named `json:"before"`
		}
		if line.Type, err = typeOf(b); err != nil || line.Type != typeVersion {
			continue // the import says what is wrong with it
		}
		if err := json.Unmarshal(b, &line); err != nil {
			return in.jsonError(err)
		}
		for _, n := range append(line.Before, line.named) {
			fn(n.head())
		}
	}
}

type named struct {
	Scope    string         `json:"scope"`
	ID       string         `json:"id"`
	Artefact store.Artefact `json:"artefact"`
}

func (n *named) head() *store.Head {
	h := &store.Head{Scope: n.Scope, Artefact: n.Artefact}
	h.ID = n.ID
	return h
}
