package engine

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// facts are the subjects, tags and metadata of the page versions, for filters. Each combination is
// kept once, as bytes in one arena, so that a million pages cost the garbage collector nothing. A
// page names its combination by number; 0 has nothing. A combination stays until the database is
// opened again, even if no page has it any more.
//
// Keys and values are kept up to one byte more than a filter may compare (store.MaxFilterValue). A
// longer one then decides every comparison as the whole would.
type facts struct {
	arena []byte
	at    []uint64 // by number-1: where it begins
	table []uint32 // open addressing: numbers by hash
	made  []byte   // memory of encode
}

// factBytes bounds the part of a key or a value that is kept.
const factBytes = store.MaxFilterValue + 1

// get returns a combination: subject, tags, then keys and values.
func (f *facts) get(n uint32) []byte {
	if n == 0 {
		return nil
	}
	end := uint64(len(f.arena))
	if int(n) < len(f.at) {
		end = f.at[n]
	}
	return f.arena[f.at[n-1]:end]
}

// number returns the number of a combination, a new one if it is not known.
//
// The caller holds cat.mu for writing, or is an open. The bytes are copied into the arena, so the
// caller may use b again.
func (f *facts) number(b []byte) uint32 {
	if 4*(len(f.at)+1) > 3*len(f.table) {
		f.grow()
	}
	i := f.slot(b)
	if f.table[i] == 0 {
		f.at = append(f.at, uint64(len(f.arena)))
		f.arena = append(f.arena, b...)
		f.table[i] = uint32(len(f.at))
	}
	return f.table[i]
}

// slot returns where a combination is in the table, or would be.
func (f *facts) slot(b []byte) uint64 {
	mask := uint64(len(f.table) - 1)
	i := xxhash.Sum64(b) & mask
	for f.table[i] != 0 && !bytes.Equal(f.get(f.table[i]), b) {
		i = (i + 1) & mask
	}
	return i
}

// grow doubles the table and places every combination anew.
func (f *facts) grow() {
	f.table = make([]uint32, max(64, 2*len(f.table)))
	for n := range f.at {
		f.table[f.slot(f.get(uint32(n+1)))] = uint32(n + 1)
	}
}

// Tags of the fields that filters ask for, in the fields of a head and of its artefact
// (internal/format, fields.go).
const (
	tagArtefact = 1
	tagSubject  = 18
	tagTags     = 22
	tagMeta     = 23
)

// ofRow sets t.Facts to the number of the combination in a row, and t.Ever. The decoder stands
// behind the page rows. Other fields are not decoded: an open reads a million rows.
func (f *facts) ofRow(t *format.Hot, d codec.Decoder) error {
	if format.CutTail(&d); d.Err != nil {
		return d.Err
	}
	var subject, tags, meta, source, group, derived []byte
	eachField(d.B, func(tag uint64, artefact []byte) {
		if tag == tagArtefact {
			eachField(artefact, func(tag uint64, v []byte) {
				switch tag {
				case tagSubject:
					subject = v
				case tagTags:
					tags = v
				case tagMeta:
					meta = v
				case tagSource:
					source = v
				case tagGroup:
					group = v
				case tagDerived:
					derived = v
				}
			})
		}
	})
	if len(subject)+len(tags)+len(meta) > 0 {
		t.Facts = f.number(f.encode(subject, tags, meta))
	}
	t.Ever = historyOf(t, subject, meta, source, group, derived)
	return nil
}

// eachField calls fn with the fields of a record. Damage ends it; decoding the row reports the
// damage.
func eachField(b []byte, fn func(tag uint64, value []byte)) {
	for d := (codec.Decoder{B: b}); len(d.B) > 0; {
		tag, v := d.Uvarint(), d.Bytes()
		if d.Err != nil {
			return
		}
		fn(tag, v)
	}
}

// encode makes a combination from its fields as a row has them.
//
// It reads the fields as they are in the row, without making strings. The result is valid
// until the next call.
func (f *facts) encode(subject, tags, meta []byte) []byte {
	b := appendText(f.made[:0], subject, len(subject))
	b = appendTexts(b, tags, len(tags))
	b = appendTexts(b, meta, factBytes)
	f.made = b
	return b
}

// appendText appends a length and at most most bytes of a text.
func appendText(b, text []byte, most int) []byte {
	text = text[:min(len(text), most)]
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// appendTexts copies a list, each text up to a length.
func appendTexts(b, list []byte, most int) []byte {
	d := codec.Decoder{B: list}
	n := 0
	if len(list) > 0 {
		n = d.Count(1)
	}
	b = binary.AppendUvarint(b, uint64(n))
	for range n {
		b = appendText(b, d.Bytes(), most)
	}
	return b
}

// asked is the part of a filter that facts decide, ready for comparison.
type asked struct {
	subject          []byte
	tagsAny, tagsAll []string
	meta             store.Conditions
	keys             map[string]bool // the keys in meta
}

// newAsked takes from a filter what facts decide; false: it asks for nothing of the kind, and no
// combination needs a look.
func newAsked(f *store.Filter) (a asked, any bool) {
	a = asked{subject: []byte(f.Subject), tagsAny: f.TagsAny, tagsAll: f.TagsAll, meta: f.Meta, keys: map[string]bool{}}
	for i := range f.Meta {
		a.keys[f.Meta[i].Key] = true
	}
	return a, len(a.subject)+len(a.tagsAny)+len(a.tagsAll)+len(a.meta) > 0
}

// holds reports whether a combination meets the conditions.
//
// It walks the bytes in the order in which encode wrote them. The caller remembers the answer by
// number, so a combination is compared once for a filter and not once for a page.
func (a *asked) holds(b []byte) bool {
	d := codec.Decoder{B: b}
	var subject []byte
	if len(b) > 0 {
		subject = d.Bytes()
	}
	if len(a.subject) > 0 && !bytes.Equal(subject, a.subject) {
		return false
	}
	return a.holdTags(&d) && a.holdMeta(&d)
}

// holdTags reads the tags of a combination: one of tagsAny must be among them, and all of tagsAll.
// It leaves the decoder behind the tags, where the metadata begins.
func (a *asked) holdTags(d *codec.Decoder) bool {
	n, some, found := uint64(0), len(a.tagsAny) == 0, 0
	if len(d.B) > 0 {
		n = d.Uvarint()
	}
	had := make([]bool, len(a.tagsAll)) // an artefact may have a tag twice
	for range n {
		t := d.Bytes()
		some = some || slices.ContainsFunc(a.tagsAny, func(x string) bool { return string(t) == x })
		for i, x := range a.tagsAll {
			if !had[i] && string(t) == x {
				had[i] = true
				found++
			}
		}
	}
	return some && found == len(a.tagsAll)
}

// holdMeta reads the metadata of a combination and compares the keys that the filter names. A key
// that the page does not have is compared as absent.
func (a *asked) holdMeta(d *codec.Decoder) bool {
	if len(a.meta) == 0 {
		return true
	}
	n := uint64(0)
	if len(d.B) > 0 {
		n = d.Uvarint() / 2
	}
	values := map[string]string{}
	for range n {
		k, v := d.Bytes(), d.Bytes()
		if a.keys[string(k)] {
			values[string(k)] = string(v)
		}
	}
	for i := range a.meta {
		c := &a.meta[i]
		if v, ok := values[c.Key]; !c.Holds(v, ok) {
			return false
		}
	}
	return true
}

// An erase must find every version of every artefact that is about a person, or was made from what
// goes. To read and prove a million heads to find a thousand took longer than to copy the file.
// So the catalogue keeps for each artefact what any of its versions ever had (catalogue.history), and a
// listing with ScanQuery.Ever reads only the heads of artefacts that may matter. It may list too
// many artefacts, and never too few:
//
//	install   looks at every version that the catalogue gets: from the rows, from the log, or from a commit    note
//	sticky    a bit is never taken back, although gc or an erase may have taken the version since
//	subject   of an artefact whose versions all have the same one, the column of its page has it; otherwise historyVaried
//	group     likewise, the column of the artefact has it; otherwise historyMoved
//
// A check compares every head row with what the catalogue would say of it (I7). Which fields link an
// artefact to others is said in historyOf. An erase that learns to follow another field must add it
// there, and give the snapshot of the columns a new version: the bits in it are of the old rule.
//
// Rejected: a filter by the hash of each subject. It needs no comparison of versions, but in seven
// bits it lets a seventh of all artefacts through where each has a subject.

// Bits of catalogue.history, which has a byte for each artefact: artCol has none left.
const (
	historyLinked   = 1 << iota // a version may have been made from another artefact
	historyReplaces             // a version supersedes others
	historySubject              // a version has a subject
	historyVaried               // two versions differ in subject
	historyMoved                // two versions differ in group
)

// Tags of the fields that link an artefact to others, beside the tags above.
const (
	tagSource  = 10
	tagGroup   = 16
	tagDerived = 19
)

// pageSource begins the source of an artefact that is a copy of another one.
const pageSource = "page:"

// historyOf returns the bits of one version by the fields of its artefact. A page of a packet that a
// session received names what it came from in its metadata; to the engine, any scratch page of a
// group with metadata may be one.
func historyOf(t *format.Hot, subject, meta, source, group, derived []byte) (ever uint8) {
	if len(derived) > 0 || bytes.HasPrefix(source, []byte(pageSource)) || t.Kind == store.KindScratch && len(meta) > 0 && len(group) > 0 {
		ever |= historyLinked
	}
	if t.Flags&format.FlagSupersedes != 0 {
		ever |= historyReplaces
	}
	if len(subject) > 0 {
		ever |= historySubject
	}
	return ever
}

// subject returns the subject in a combination. It is borrowed from the arena, which is never
// changed.
func (f *facts) subject(n uint32) []byte {
	if n == 0 {
		return nil
	}
	d := codec.Decoder{B: f.get(n)}
	return d.Bytes()
}

// subjectOf returns the subject in the column of an artefact's first page; nil without a page.
func (c *catalogue) subjectOf(a *artCol) []byte {
	if !a.live() {
		return nil
	}
	return c.facts.subject(c.page(uint64(a.first)).facts)
}

// before is the state of an artefact before an install, for note.
type before struct {
	fresh   bool // no version of it was known
	subject []byte
	group   uint32
}

// note adds what a version has to what its artefact ever had. The version is installed.
//
// Invariant: without historyVaried, each subject that a version ever had is the one in the column of
// the first page. The column loses a subject only here: was.subject is then another one. A version
// may have a subject that no column shows, as a deletion does.
func (c *catalogue) note(t *format.Hot, was before) {
	a, ever := c.art(t.Art), c.history.at(t.Art-1)
	now, own := c.subjectOf(a), c.facts.subject(t.Facts)
	lost := func(subject []byte) bool { return len(subject) > 0 && !bytes.Equal(subject, now) }
	if lost(was.subject) || lost(own) {
		*ever |= historyVaried
	}
	if !was.fresh && was.group != uint32(t.Group) {
		*ever |= historyMoved
	}
}

// historyAtOnce is the number of artefacts that one page of a listing looks at: about a millisecond, in which
// commits wait for cat.mu.
const historyAtOnce = 16384

// historyMatch decides which artefacts a listing with ScanQuery.Ever includes.
type historyMatch struct {
	bits    uint8  // any of them
	group   uint64 // 0: none
	subject []byte // nil: none
}

// newHistoryMatch returns nil for a listing of all artefacts. The caller holds cat.mu.
func (c *catalogue) newHistoryMatch(scope uint32, e *store.Ever) *historyMatch {
	if e == nil {
		return nil
	}
	m := &historyMatch{bits: historyLinked, subject: []byte(e.Subject)}
	if e.Replaces {
		m.bits |= historyReplaces
	}
	if e.Subject != "" {
		m.bits |= historyVaried
	}
	if e.Group != "" {
		m.bits |= historyMoved
		m.group = c.named[artKey{scope, e.Group}]
	}
	return m
}

// holds reports whether an artefact may matter. Most are decided by one byte.
func (m *historyMatch) holds(c *catalogue, num uint64) bool {
	a, ever := c.art(num), *c.history.at(num - 1)
	switch {
	case c.newestOf(a).version == 0 || ever&m.bits != 0: // forgotten, and its rows may still be in the file
		return true
	case m.group != 0 && uint64(a.group) == m.group:
		return true
	}
	return len(m.subject) > 0 && ever&historySubject != 0 && bytes.Equal(c.subjectOf(a), m.subject)
}

// overlooked reports whether an erase would not look at an artefact although this version of it says
// that it should. A check asks it of every head row. The caller holds mu for reading.
func (c *catalogue) overlooked(h *store.Head) bool {
	if h.Art == 0 || h.Art > uint64(c.arts.len()) {
		return false // told already
	}
	missed := func(e store.Ever) bool {
		return !c.newHistoryMatch(c.byName[h.Scope], &e).holds(c, h.Art)
	}
	a := &h.Artefact
	linked := len(a.DerivedFrom) > 0 || strings.HasPrefix(a.Source, pageSource) || a.Kind == store.KindScratch && len(a.Meta) > 0 && a.Group != ""
	return linked && missed(store.Ever{}) || len(a.Supersedes) > 0 && missed(store.Ever{Replaces: true}) ||
		a.Subject != "" && missed(store.Ever{Subject: a.Subject}) || a.Group != "" && missed(store.Ever{Group: a.Group})
}
