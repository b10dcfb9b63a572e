package ctxpage

import (
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/store"
)

// Ids that the database keeps for the pages it writes itself.
const (
	// ReservedPrefix begins these ids. Put, Delete and Supersedes refuse them with ErrInvalid.
	ReservedPrefix = directivelog.Reserved
	// DirectivesID is the id of the page that tells a model what the user of a scope has decided.
	DirectivesID = directivelog.PageID
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
	if !strings.HasPrefix(id, ReservedPrefix) {
		return nil
	}
	expected := "an id that does not begin with " + ReservedPrefix + ", which the database keeps for its own pages"
	if id == DirectivesID {
		expected += "; directives change through Scope.Directives"
	}
	return store.Invalid(field, strconv.Quote(id), expected)
}
