package directivelog

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/codec"
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

// Keys of state rows. A log key ends in a version, which has no slash, so no two scopes share one.
const (
	prefix      = "directive/"
	statePrefix = prefix + "state/"
	logPrefix   = prefix + "log/"
)

// StateKey is the key of the newest version of a scope's directives.
func StateKey(scope string) string { return statePrefix + scope }

// ScopeOfState returns the scope of the key of a newest version.
func ScopeOfState(key string) (scope string, ok bool) { return strings.CutPrefix(key, statePrefix) }

// TextOf returns the text that a model is shown for the row of a version; "" for no row.
func TextOf(row []byte) (string, error) {
	if row == nil {
		return "", nil
	}
	e, err := unpack(row)
	return e.After.State.Text(), err
}

// LogKey is the key of one version.
func LogKey(scope string, version uint64) string {
	return logPrefix + scope + "/" + strconv.FormatUint(version, 10)
}

// StateKind says what a store must know of these rows.
func StateKind() store.StateKind {
	return store.StateKind{Prefix: prefix, Scope: ScopeOf, Copy: true, Unit: unit, Check: check, Journal: &store.StateJournal{Keep: keptVersions, Entry: entry, At: writtenAt, Head: StateKey}}
}

// check refuses a row that is no version of directives.
func check(_ string, row []byte) error {
	_, err := unpack(row)
	return err
}

// keptVersions is how many versions of a scope's directives stay whatever their age.
const keptVersions = 32

// entry returns the scope of a journal row, and its version.
func entry(key string) (scope string, version uint64) {
	rest, ok := strings.CutPrefix(key, logPrefix)
	at := strings.LastIndexByte(rest, '/')
	if !ok || at < 0 {
		return "", 0
	}
	version, err := strconv.ParseUint(rest[at+1:], 10, 64)
	if err != nil {
		return "", 0
	}
	return rest[:at], version
}

func writtenAt(row []byte) (int64, error) {
	e, err := unpack(row)
	return codec.Micros(e.At), err
}

// unit is the rows of one scope, without whose state row the journal says nothing.
func unit(key string) store.StateUnit {
	scope, ok := strings.CutPrefix(key, statePrefix)
	if !ok {
		scope = strings.TrimPrefix(key, logPrefix)
		scope = scope[:max(0, strings.LastIndexByte(scope, '/'))]
	}
	return store.StateUnit{Name: "directives of " + scope, Key: StateKey(scope), Page: store.Ref{Scope: scope, ID: PageID}}
}

// rowVersion is the version of the row of a version of directives.
const rowVersion = 1

// entryFields are that row; the state row repeats the newest. Tags are never given twice.
var entryFields = codec.Record[directive.Entry]{Name: "a version of directives", Fields: []codec.Field[directive.Entry]{
	codec.Uint(1, "Version", func(e *directive.Entry) *uint64 { return &e.Version }),
	codec.Moment(2, "At", func(e *directive.Entry) *time.Time { return &e.At }),
	codec.Text(3, "Actor", func(e *directive.Entry) *string { return &e.Actor }),
	codec.Text(4, "Action", func(e *directive.Entry) *string { return &e.Action }),
	codec.Text(5, "Input", func(e *directive.Entry) *string { return &e.Input }),
	codec.Uint(6, "Decision.Kind", func(e *directive.Entry) *directive.Kind { return &e.Decision.Kind }),
	codec.Flag(7, "Decision.Changed", func(e *directive.Entry) *bool { return &e.Decision.Changed }),
	codec.Text(8, "Decision.Prompt", func(e *directive.Entry) *string { return &e.Decision.Prompt }),
	codec.Text(9, "Decision.Code", func(e *directive.Entry) *string { return &e.Decision.Code }),
	codec.Texts(10, "Decision.Repair", func(e *directive.Entry) *[]string { return &e.Decision.Repair }),
	codec.Text(11, "Decision.Scope", func(e *directive.Entry) *string { return &e.Decision.Scope }),
	{Tag: 12, Name: "After",
		Write: func(e *codec.Encoder, of *directive.Entry) { e.Raw(directive.ExportCheckpoint(of.After)) },
		Read: func(d *codec.Decoder, of *directive.Entry) {
			after, err := directive.ImportCheckpoint(d.Rest())
			if of.After = after; err != nil {
				d.Fail()
			}
		}},
}}

// Pack encodes the row of a version.
func Pack(e *directive.Entry) []byte { return codec.Row(&entryFields, rowVersion, e, 256+len(e.Input)) }

func unpack(row []byte) (out directive.Entry, err error) {
	err = codec.ReadRow(&entryFields, row, rowVersion, &out)
	if err == nil && out.Version == 0 {
		err = fmt.Errorf("%w: directives of version 0", codec.ErrMalformed)
	}
	if out.Decision.Kind == directive.Update {
		out.Decision.State = out.After.State
	}
	return out, err
}

// Journal reads the directives of a store. The zero value is of no use.
type Journal struct {
	Store store.Store
	File  string // names the database in an error
}

// At returns one version. ErrGone when gc dropped it, ErrNotFound when the scope never had it.
func (j Journal) At(ctx context.Context, scope string, version uint64) (directive.Entry, error) {
	e, _, err := j.row(ctx, LogKey(scope, version))
	if err != nil || e.Version != 0 {
		return e, err
	}
	newest, err := j.Newest(ctx, scope)
	switch {
	case err != nil:
		return e, err
	case version > 0 && version < newest.Version:
		return e, fmt.Errorf("%w: gc dropped version %d of the directives of %s", store.ErrGone, version, scope)
	}
	return e, fmt.Errorf("%w: the directives of %s have no version %d", store.ErrNotFound, scope, version)
}

// Newest returns the version that holds; its Version is 0 before the first change.
func (j Journal) Newest(ctx context.Context, scope string) (directive.Entry, error) {
	e, _, err := j.row(ctx, StateKey(scope))
	return e, err
}

// row reads a row of directives, with the LSN of its last change; version and LSN are 0 when there is none.
func (j Journal) row(ctx context.Context, key string) (out directive.Entry, lsn uint64, err error) {
	row, err := j.Store.State(ctx, key)
	if err != nil || row.Value == nil {
		return out, 0, err
	}
	if out, err = unpack(row.Value); err != nil {
		return out, 0, &store.CorruptError{File: j.File, Err: fmt.Errorf("state row %q: %w", key, err)}
	}
	return out, row.LSN, nil
}

// ScopeOf is the scope of a key.
func ScopeOf(key string) string { return unit(key).Page.Scope }
