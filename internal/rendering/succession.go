package rendering

import (
	"slices"

	"github.com/ctxpage/ctxpage/store"
)

// Supersedes remembers what the writes of one transaction supersede, so that they cannot supersede each other in a circle.
// The zero value is ready.
type Supersedes struct {
	by   map[string]int  // how many writes name an id
	seen map[string]bool // of a walk; kept for the next one
}

// Note takes in a write.
func (s *Supersedes) Note(p *store.Put) {
	for _, id := range p.Artefact.Supersedes {
		if s.by == nil {
			s.by = map[string]int{}
		}
		s.by[id]++
	}
}

// Forget takes a write out that Note took in; nil is none.
func (s *Supersedes) Forget(p *store.Put) {
	if p == nil {
		return
	}
	for _, id := range p.Artefact.Supersedes {
		if s.by[id]--; s.by[id] == 0 {
			delete(s.by, id)
		}
	}
}

// Leads reports whether the artefacts named, as the writes have them, lead to one that supersedes id. Where nothing names
// id nothing can lead there, so a chain that is written in order costs nothing; what id superseded before was looked at.
func (s *Supersedes) Leads(ids []string, id string, writes map[string]*store.Put) bool {
	if s.by[id] == 0 {
		return false
	}
	var before []string
	if w := writes[id]; w != nil {
		before = w.Artefact.Supersedes
	}
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	clear(s.seen)
	var open []string
	for _, x := range ids {
		if !slices.Contains(before, x) {
			open = append(open, x)
		}
	}
	for len(open) > 0 {
		x := open[len(open)-1]
		open = open[:len(open)-1]
		if x == id {
			return true
		}
		if w := writes[x]; w != nil && !s.seen[x] {
			s.seen[x] = true
			open = append(open, w.Artefact.Supersedes...)
		}
	}
	return false
}
