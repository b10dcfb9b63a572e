package portable

import (
	"fmt"

	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/store"
)

// A page of directives instructs the model in the name of the scope's user, so an import takes it only if the directives
// of the scope, as they are stored here after the import, say the same. Pages of directives are therefore kept back until
// all rows of state are written. One that says something else is counted as Other and left out.

// maxDirectives bounds the lines that are kept back, in bytes. A database keeps some 32 versions of a page for each scope.
const maxDirectives = 256 << 20

// decided has the directives that an import has read, until it may take their pages.
type decided struct {
	lines []*versionLine
	bytes int
	rows  map[string][]byte // the newest state row of a scope, as it is here after the import
}

// keepDirectives keeps a version of a page of directives back.
func (m *importer) keepDirectives(line *versionLine, bytes int) error {
	if m.decided.bytes += bytes; m.decided.bytes > maxDirectives {
		return store.Invalid("directives", fmt.Sprintf("more than %d MiB of pages of directives", maxDirectives>>20), "less; export the scopes one by one")
	}
	m.decided.lines = append(m.decided.lines, line)
	return nil
}

// sawState notes a row of directives as it is here after the import.
func (m *importer) sawState(key string, value []byte) {
	if scope, ok := directivelog.ScopeOfState(key); ok {
		if m.decided.rows == nil {
			m.decided.rows = map[string][]byte{}
		}
		m.decided.rows[scope] = value
	}
}

// directives takes the pages of directives that were kept back.
func (m *importer) directives() error {
	lines := m.decided.lines
	m.decided.lines = nil
	newest := map[string]*versionLine{}
	for _, l := range lines {
		newest[l.Scope] = l
	}
	agrees := map[string]bool{}
	for scope, l := range newest {
		ok, err := m.agrees(scope, l)
		if err != nil {
			return err
		}
		agrees[scope] = ok
	}
	for _, l := range lines {
		ref := store.Ref{Scope: l.Scope, ID: l.ID}
		if !agrees[l.Scope] {
			if !m.others[ref] {
				m.others[ref] = true
				m.other(&m.rep.Versions, 0, ref.String())
			}
			m.rep.Versions.Other += uint64(1 + len(l.Before))
			continue
		}
		if err := m.take(l); err != nil {
			return err
		}
	}
	if err := m.flush(); err != nil {
		return err
	}
	return m.wait()
}

// agrees reports whether the newest page of directives in the file may become the page of the scope: it is here already, or
// it says what the directives of the scope say.
func (m *importer) agrees(scope string, l *versionLine) (bool, error) {
	here, err := newestHead(m.ctx, m.st, store.Ref{Scope: scope, ID: l.ID})
	if err != nil || here != nil && here.Version >= l.Version {
		return err == nil, err
	}
	row, ok := m.decided.rows[scope]
	if !ok {
		is, err := m.st.State(m.ctx, directivelog.StateKey(scope))
		if err != nil {
			return false, err
		}
		row = is.Value
	}
	text, err := directivelog.TextOf(row)
	if err != nil {
		return false, err
	}
	if l.Deleted || l.ErasedBy != "" {
		return text == "", nil
	}
	if l.Artefact == nil || l.Artefact.Kind != store.KindSystem || len(l.Pages) != 1 {
		return false, nil
	}
	digest := store.SaltedDigest(l.Pages[0].Salt, text)
	return string(digest[:]) == string(l.Pages[0].Digest), nil
}
