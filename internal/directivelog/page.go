package directivelog

import (
	"bytes"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/store"
)

// Reserved begins the ids of the pages the database writes itself.
const Reserved = store.ReservedPrefix

// PageID is the id of the page that tells a model what a scope's user has decided.
const PageID = Reserved + "directives"

// IsPage tells a page of directives from others of kind system.
func IsPage(k store.Kind, id string) bool { return k == store.KindSystem && id == PageID }

// Page returns the page that the new versions lead to: changed reports whether it differs from the present one, a nil page
// that none is left. It is one page however long it is, so that no line of it is torn.
func (c *Chain) Page() (page *store.Artefact, changed bool, err error) {
	text := c.Now().State.Text()
	switch {
	case text == c.Own.After.State.Text():
		return nil, false, nil
	case text == "":
		return nil, true, nil
	case len(text) > store.MaxText:
		return nil, false, store.Invalid("directives", fmt.Sprintf("%d bytes of premise and policies", len(text)), fmt.Sprintf("at most %d; remove policies first", store.MaxText))
	}
	page = &store.Artefact{ID: PageID, Kind: store.KindSystem, Text: text}
	page.KindDefaults()
	return page, true, nil
}

// Ruling says how one page of directives stands beside the others of a context.
type Ruling struct {
	Out  bool        // nothing of it
	Keep [][2]uint32 // the ranges that hold; nil: all of it
	Why  string      // for the manifest, "" where all of it holds
}

// Reasons in a manifest for pages of directives.
const (
	Overruled     = "directives: a prohibition stands against all of it"
	OverruledPart = "directives: uses that a prohibition stands against are left out"
)

var (
	lineUse      = []byte("- use ")
	lineProhibit = []byte("- prohibit ")
	linePolicies = []byte("policies:\n")
)

// Overrule leaves out of the pages of directives of a context the uses that a prohibition of another level stands
// against: the model must not be shown both. A step cannot write such a pair, but an ancestor may prohibit later what a
// scope below has in use. It is decided on the pages as they were read, so that it holds for a context of the past as
// well, and is recorded as ranges, so that a replay asks nobody.
func Overrule(pages []string) []Ruling {
	prohibited := map[string]bool{}
	for _, text := range pages {
		for line := range bytes.Lines([]byte(text)) {
			if item, ok := bytes.CutPrefix(line, lineProhibit); ok {
				prohibited[string(item)] = true
			}
		}
	}
	out := make([]Ruling, len(pages))
	for i, text := range pages {
		keep, left := holding([]byte(text), prohibited)
		switch {
		case !left:
		case len(keep) == 0:
			out[i] = Ruling{Out: true, Why: Overruled}
		default:
			out[i] = Ruling{Keep: keep, Why: OverruledPart}
		}
	}
	return out
}

// holding returns the ranges of a page of directives that hold, and whether anything is left out. The heading of policies
// goes with the last of them.
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
	return prose.JoinRanges(lines, take), left
}
