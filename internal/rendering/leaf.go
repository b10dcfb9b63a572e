package rendering

import (
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Tag is triage's tag as a leaf has it.
func Tag(t triage.Tag) manifest.Tag {
	switch t {
	case triage.Red:
		return manifest.TagRed
	case triage.Yellow:
		return manifest.TagYellow
	case triage.Green:
		return manifest.TagGreen
	case triage.Black:
		return manifest.TagBlack
	}
	return manifest.TagNone
}

// CandidatePage is a candidate as a leaf names it, the parts of its score as shares of the best of all candidates.
func CandidatePage(c *store.Candidate, best float64) manifest.Page {
	p := manifest.Page{Num: c.Key.Num, Version: c.Key.Version, Tokens: c.Tokens, Via: c.Lexical.Via}
	if l := &c.Lexical; best > 0 {
		share := func(part float64) manifest.Score { return manifest.Quantise(part / best) }
		p.LexOwn, p.LexNear, p.LexGroup = share(l.Own), share(l.Near), share(l.Group)
		p.LexSpeaker, p.LexFirst, p.LexDate, p.LexForms, p.LexLevel = share(l.Speaker), share(l.First), share(l.Date), share(l.Forms), share(l.Level)
	}
	return p
}
