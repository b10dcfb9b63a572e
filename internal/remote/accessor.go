package remote

import (
	"fmt"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Accessors of the structs that come in hundreds: candidates, and the pages of a manifest. Each
// field is written out, because reflection took more time than the search that found the
// candidates. TestPackedKeepsEverything and TestPackedLeaves fail where a field is missing.

// accessor writes and reads one field of a T as a column of a packed table. A column has a loop of
// its own: a call of a function for each value took longer than the value.
type accessor[T any] struct {
	name   string
	zero   func(*T) bool
	none   func([]T) bool // all of a column are zero
	same   func([]T) bool // all rows have the value of the first; nil: values cannot be compared
	spread func([]T)      // gives all rows that value
	pack   func([]byte, []T) []byte
	unpack func([]byte, []T) ([]byte, error) // returns what is left
}

// newAccessor makes an accessor of the field that at points to.
func newAccessor[T any, F comparable](name string, at func(*T) *F, pack func([]byte, []T) []byte, unpack func([]byte, []T) ([]byte, error)) accessor[T] {
	var zero F
	return accessor[T]{
		name: name, pack: pack, unpack: unpack,
		zero: func(v *T) bool { return *at(v) == zero },
		none: func(rows []T) bool {
			for i := range rows {
				if *at(&rows[i]) != zero {
					return false
				}
			}
			return true
		},
		same: func(rows []T) bool {
			first := *at(&rows[0])
			for i := range rows {
				if *at(&rows[i]) != first {
					return false
				}
			}
			return true
		},
		spread: func(rows []T) {
			first := *at(&rows[0])
			for i := range rows {
				*at(&rows[i]) = first
			}
		},
	}
}

// flags, reals, texts, whole and spans are accessors by the kind of the field.
func flags[T any](name string, at func(*T) *bool) accessor[T] {
	return newAccessor(name, at, packFlags(at), unpackFlags(at))
}

// reals: see flags.
func reals[T any](name string, at func(*T) *float64) accessor[T] {
	return newAccessor(name, at, packReals(at), unpackReals(at))
}

// texts: see flags.
func texts[T any](name string, at func(*T) *string) accessor[T] {
	return newAccessor(name, at, packTexts(at), unpackTexts(at))
}

// whole: see flags. A number that does not fit the field is an error, not a wrong number.
func whole[T any, N ~int | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64](name string, at func(*T) *N) accessor[T] {
	return newAccessor(name, at, packWhole(at), unpackWhole(at))
}

// spans is the only field of a page that is a list.
func spans[T any](name string, at func(*T) *[][2]uint32) accessor[T] {
	return accessor[T]{
		name: name, pack: packSpans(at), unpack: unpackSpans(at),
		none: func(rows []T) bool {
			for i := range rows { // slices.ContainsFunc would copy each row to the heap
				if *at(&rows[i]) != nil {
					return false
				}
			}
			return true
		},
	}
}

// cosines is the column of Candidate.Cosine, a number that may be absent.
func cosines() accessor[store.Candidate] {
	return accessor[store.Candidate]{
		name: "Cosine", pack: packCosines, unpack: unpackCosines,
		none: func(rows []store.Candidate) bool {
			for i := range rows {
				if rows[i].Cosine != nil {
					return false
				}
			}
			return true
		},
	}
}

// misfitError is the error for a number that does not fit its field.
func misfitError[N any](n any) error {
	var fits N
	return fmt.Errorf("%v does not fit a %T", n, fits)
}

// accessorAt finds a field by its name, first behind the one before; -1: this program does not know
// it. Messages of this program have their fields in order, so the first loop ends at once.
func accessorAt[T any](all []accessor[T], at int, name []byte) int {
	for i := at; i < len(all); i++ {
		if all[i].name == string(name) {
			return i
		}
	}
	for i := range min(at, len(all)) {
		if all[i].name == string(name) {
			return i
		}
	}
	return -1
}

var candidateFields = []accessor[store.Candidate]{
	whole("Key.Num", func(c *store.Candidate) *uint64 { return &c.Key.Num }),
	whole("Key.Version", func(c *store.Candidate) *uint32 { return &c.Key.Version }),
	texts("Ref.Scope", func(c *store.Candidate) *string { return &c.Ref.Scope }),
	texts("Ref.ID", func(c *store.Candidate) *string { return &c.Ref.ID }),
	whole("Ref.Page", func(c *store.Candidate) *int { return &c.Ref.Page }),
	whole("Ref.Version", func(c *store.Candidate) *uint32 { return &c.Ref.Version }),
	whole("Kind", func(c *store.Candidate) *store.Kind { return &c.Kind }),
	whole("Provenance", func(c *store.Candidate) *store.Provenance { return &c.Provenance }),
	whole("AsOf", func(c *store.Candidate) *int64 { return &c.AsOf }),
	whole("Tokens", func(c *store.Candidate) *int { return &c.Tokens }),
	whole("Pages", func(c *store.Candidate) *int { return &c.Pages }),
	flags("Pinned", func(c *store.Candidate) *bool { return &c.Pinned }),
	flags("Recent", func(c *store.Candidate) *bool { return &c.Recent }),
	whole("Group", func(c *store.Candidate) *uint64 { return &c.Group }),
	texts("GroupName", func(c *store.Candidate) *string { return &c.GroupName }),
	whole("Seq", func(c *store.Candidate) *int64 { return &c.Seq }),
	whole("Lexical.Num", func(c *store.Candidate) *uint64 { return &c.Lexical.Num }),
	reals("Lexical.Score", func(c *store.Candidate) *float64 { return &c.Lexical.Score }),
	reals("Lexical.Own", func(c *store.Candidate) *float64 { return &c.Lexical.Own }),
	reals("Lexical.Near", func(c *store.Candidate) *float64 { return &c.Lexical.Near }),
	reals("Lexical.Group", func(c *store.Candidate) *float64 { return &c.Lexical.Group }),
	reals("Lexical.Speaker", func(c *store.Candidate) *float64 { return &c.Lexical.Speaker }),
	reals("Lexical.Date", func(c *store.Candidate) *float64 { return &c.Lexical.Date }),
	reals("Lexical.First", func(c *store.Candidate) *float64 { return &c.Lexical.First }),
	reals("Lexical.Forms", func(c *store.Candidate) *float64 { return &c.Lexical.Forms }),
	reals("Lexical.Level", func(c *store.Candidate) *float64 { return &c.Lexical.Level }),
	whole("Lexical.Via", func(c *store.Candidate) *uint64 { return &c.Lexical.Via }),
	flags("Near", func(c *store.Candidate) *bool { return &c.Near }),
	cosines(),
	reals("Beside", func(c *store.Candidate) *float64 { return &c.Beside }),
	texts("Excluded", func(c *store.Candidate) *string { return &c.Excluded }),
}

var pageFields = []accessor[manifest.Page]{
	whole("Num", func(p *manifest.Page) *uint64 { return &p.Num }),
	whole("Version", func(p *manifest.Page) *uint32 { return &p.Version }),
	whole("Form", func(p *manifest.Page) *manifest.Form { return &p.Form }),
	spans("Ranges", func(p *manifest.Page) *[][2]uint32 { return &p.Ranges }),
	whole("Tokens", func(p *manifest.Page) *int { return &p.Tokens }),
	whole("Score", func(p *manifest.Page) *manifest.Score { return &p.Score }),
	whole("R", func(p *manifest.Page) *manifest.Score { return &p.R }),
	whole("P", func(p *manifest.Page) *manifest.Score { return &p.P }),
	whole("S", func(p *manifest.Page) *manifest.Score { return &p.S }),
	whole("LexOwn", func(p *manifest.Page) *manifest.Score { return &p.LexOwn }),
	whole("LexNear", func(p *manifest.Page) *manifest.Score { return &p.LexNear }),
	whole("LexGroup", func(p *manifest.Page) *manifest.Score { return &p.LexGroup }),
	whole("LexSpeaker", func(p *manifest.Page) *manifest.Score { return &p.LexSpeaker }),
	whole("LexFirst", func(p *manifest.Page) *manifest.Score { return &p.LexFirst }),
	whole("LexDate", func(p *manifest.Page) *manifest.Score { return &p.LexDate }),
	whole("LexForms", func(p *manifest.Page) *manifest.Score { return &p.LexForms }),
	whole("LexLevel", func(p *manifest.Page) *manifest.Score { return &p.LexLevel }),
	whole("Vector", func(p *manifest.Page) *manifest.Score { return &p.Vector }),
	whole("Tag", func(p *manifest.Page) *manifest.Tag { return &p.Tag }),
	texts("Reason", func(p *manifest.Page) *string { return &p.Reason }),
	flags("Dirty", func(p *manifest.Page) *bool { return &p.Dirty }),
	flags("Refetched", func(p *manifest.Page) *bool { return &p.Refetched }),
	flags("Stale", func(p *manifest.Page) *bool { return &p.Stale }),
	whole("Via", func(p *manifest.Page) *uint64 { return &p.Via }),
}
