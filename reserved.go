package ctxpage

import (
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/store"
)

// checkPut refuses an artefact that breaks a rule or a limit, or that supersedes a page of the database's own.
func checkPut(a *Artefact) error {
	if err := a.Check(); err != nil {
		return err
	}
	if a.Text == "" && len(a.Parts) == 0 && a.Source == "" && len(a.ToolCalls) == 0 && a.Role != "tool" {
		return store.Invalid("text", "none", "a text, parts, or a source to read it from: an artefact without words is never found")
	}
	for _, id := range a.Supersedes {
		if err := checkReserved("supersedes", id); err != nil {
			return err
		}
	}
	return nil
}

// checkReserved refuses ids that the database keeps for its own pages.
func checkReserved(field, id string) error {
	if !strings.HasPrefix(id, store.ReservedPrefix) {
		return nil
	}
	expected := "an id that does not begin with " + store.ReservedPrefix + ", which the database keeps for its own pages"
	if id == directivelog.PageID {
		expected += "; directives change through Scope.Directives"
	}
	return store.Invalid(field, strconv.Quote(id), expected)
}
