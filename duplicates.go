package ctxpage

import (
	"github.com/ctxpage/ctxpage/internal/alike"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/triage"
)

// dropDuplicates leaves the worse of two winners out that say the same, and names the other. What a person verified, and
// what is protected, stands before what is only ranked higher. Turns of the session that asks are not compared, nor the
// pages of one artefact, and messages only with those of their speaker: who says it is part of what they say.
func (a *assembling) dropDuplicates() {
	seen := &a.room.sketched
	defer seen.Clear() // a page that was left out must not stay in memory
	for _, sure := range [...]bool{true, false} {
		for i := range a.ranked {
			it := a.ranked[i]
			if it.reason != "" || it.turn != nil || it.own != nil || (it.protected() || it.cand.Provenance == HumanVerified) != sure {
				continue
			}
			sketch := it.sketch()
			if other, found := seen.First(sketch, it.repeats); found && !sure {
				it.reason, it.via, it.twin = string(triage.Duplicate), other.cand.Key.Num, other.ref()
				continue
			}
			seen.Add(sketch, it)
		}
	}
}

// repeats says whether one of two pages is enough.
func (it *item) repeats(other *item) bool {
	if it.head.Scope == other.head.Scope && it.head.ID == other.head.ID {
		return false
	}
	message := it.cand.Kind == store.KindMessage
	if message != (other.cand.Kind == store.KindMessage) || message && it.head.Name != other.head.Name {
		return false
	}
	if same, known := it.sketch().Same(other.sketch()); known {
		return same
	}
	return alike.Same(it.text, other.text)
}

// sketch is made once for a page in memory.
func (it *item) sketch() *alike.Sketch {
	if it.frame != nil {
		if s := it.frame.sketch.Load(); s != nil {
			return s
		}
	}
	s := alike.Of(it.text)
	if it.frame != nil {
		it.frame.sketch.Store(&s)
	}
	return &s
}
