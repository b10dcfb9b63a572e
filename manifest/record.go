package manifest

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
)

// Type says what a leaf records. The set only grows: a number is never given a
// second meaning.
type Type uint8

// The leaf types. Those up to TypeExport are reads, which returned page
// contents; the rest are ends of transactions and events of the database.
const (
	TypeGet Type = iota + 1
	TypeSearch
	TypeAssemble
	TypeRecall
	TypeExport
	TypeCommit    // writes became visible
	TypeHeld      // writes wait for review
	TypeApprove   // a held batch became visible
	TypeReject    // a held batch was refused
	TypeRollback  // a transaction was dropped by its owner
	TypeConflict  // a commit was refused: an artefact that it overwrites had changed
	TypeRefetch   // a source wrote a new version of its own page
	TypeRecovered // the database was opened after an unclean end
	TypeRestored  // the database was opened from a backup
	TypeDirective // premise or policy of a scope changed
	TypePass      // the pager ran over a session
	TypeGC        // versions that nothing names were dropped
	TypePromote   // the operator copied a page to an ancestor scope
	TypeHandoff   // a session was packaged for another agent
	TypeErase     // content was erased everywhere
	TypeBackup    // a copy of the database was begun; its Note names the file. With a Parent: that one failed
	TypePrune     // bodies of leaves were removed, their hashes stay; Covers names them
	TypeColumns   // a snapshot of the columns was written: Root is its digest, Size its bytes, LSN what it is of
)

// typeNames is indexed by Type; its strings are part of dbctl's output.
var typeNames = [...]string{
	TypeGet: "get", TypeSearch: "search", TypeAssemble: "assemble", TypeRecall: "recall",
	TypeExport: "export", TypeCommit: "commit", TypeHeld: "held", TypeApprove: "approve",
	TypeReject: "reject", TypeRollback: "rollback", TypeConflict: "conflict",
	TypeRefetch: "refetch", TypeRecovered: "recovered", TypeRestored: "restored",
	TypeDirective: "directive", TypePass: "pass", TypeGC: "gc", TypePromote: "promote",
	TypeHandoff: "handoff", TypeErase: "erase", TypeBackup: "backup",
	TypePrune:   "prune",
	TypeColumns: "columns",
}

// Known reports whether this program knows the type. A leaf of an unknown type
// can still be read, listed and verified.
func (t Type) Known() bool { return t > 0 && int(t) < len(typeNames) }

// Reads reports whether leaves of this type say that page contents were served.
func (t Type) Reads() bool { return t >= TypeGet && t <= TypeExport }

// String is the lower-case name, or "type-N" for a type of a newer program.
func (t Type) String() string {
	if t.Known() {
		return typeNames[t]
	}
	return "type-" + strconv.Itoa(int(t))
}

// ParseType is the inverse of String for the types this program knows.
func ParseType(s string) (Type, error) {
	for t, name := range typeNames {
		if name == s && name != "" {
			return Type(t), nil
		}
	}
	return 0, fmt.Errorf("manifest: %q is no leaf type; expected one such as get, assemble or commit", s)
}

// MarshalText is String.
func (t Type) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is ParseType.
func (t *Type) UnmarshalText(b []byte) (err error) {
	*t, err = ParseType(string(b))
	return err
}

// Form says how much of a page was served.
type Form uint8

// The forms, from most to least text.
const (
	FormFull    Form = iota // the whole page
	FormRange               // the byte ranges in Page.Ranges
	FormSummary             // a summary page stood in for it; Page.Via names it
	FormStub                // its header only; the text is one recall away
)

var formNames = [...]string{FormFull: "full", FormRange: "range", FormSummary: "summary", FormStub: "stub"}

// String is the lower-case name.
func (f Form) String() string {
	if int(f) < len(formNames) {
		return formNames[f]
	}
	return "form-" + strconv.Itoa(int(f))
}

// MarshalText is String.
func (f Form) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText is the inverse of String.
func (f *Form) UnmarshalText(b []byte) error {
	for i, name := range formNames {
		if name == string(b) {
			*f = Form(i)
			return nil
		}
	}
	return fmt.Errorf("manifest: %q is no page form; expected full, range, summary or stub", b)
}

// Tag is the colour triage gave a page.
type Tag uint8

// The tags; TagNone is for reads that rank nothing.
const (
	TagNone Tag = iota
	TagRed
	TagYellow
	TagGreen
	TagBlack
)

var tagNames = [...]string{TagNone: "", TagRed: "red", TagYellow: "yellow", TagGreen: "green", TagBlack: "black"}

// String is the lower-case name; empty for TagNone.
func (t Tag) String() string {
	if int(t) < len(tagNames) {
		return tagNames[t]
	}
	return "tag-" + strconv.Itoa(int(t))
}

// MarshalText is String.
func (t Tag) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is the inverse of String.
func (t *Tag) UnmarshalText(b []byte) error {
	for i, name := range tagNames {
		if name == string(b) {
			*t = Tag(i)
			return nil
		}
	}
	return fmt.Errorf("manifest: %q is no tag; expected red, yellow, green, black or nothing", b)
}

// Match says how well a context matches its question; "": the question has no words of its own.
type Match string

// The matches.
const (
	MatchNone Match = "none" // pages have less than a fifth of the words of the question, and none is near in meaning
	MatchWeak Match = "weak" // pages have less than three fifths of the words, or are near in meaning
	MatchGood Match = "good" // pages have more of the words
)

// Score is a number of 0..1 in steps of 1/65535, so that a leaf has the same
// bytes on every machine.
type Score uint16

// Quantise rounds f to the nearest step. Values below 0 and NaN become 0, values above 1 become 1.
func Quantise(f float64) Score {
	switch {
	case !(f > 0):
		return 0
	case f >= 1:
		return math.MaxUint16
	}
	return Score(math.Round(f * math.MaxUint16))
}

// Float returns the number that a Score stands for.
func (s Score) Float() float64 { return float64(s) / math.MaxUint16 }

// text is the number with five digits, enough to tell steps apart.
func (s Score) text() string { return strconv.FormatFloat(s.Float(), 'f', 5, 64) }

// MarshalJSON writes the number with five digits, enough to read the same step
// back.
func (s Score) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, s.Float(), 'f', 5, 64), nil
}

// UnmarshalJSON reads a number of 0..1.
func (s *Score) UnmarshalJSON(b []byte) error {
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || f < 0 || f > 1 {
		return fmt.Errorf("manifest: score %q is not a number of 0..1", b)
	}
	*s = Quantise(f)
	return nil
}

// Digest is a salted or keyed digest. The caller computes it: this package sees no contents. JSON
// shows it in hexadecimal.
type Digest []byte

// String is hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d) }

// MarshalText is String.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads hexadecimal.
func (d *Digest) UnmarshalText(b []byte) (err error) {
	*d, err = hex.DecodeString(string(b))
	return err
}

// Record is one audit leaf. Empty and nil mean the same; a decoded Record has
// nil for every empty slice.
type Record struct {
	Index  uint64 `json:"index"` // position in the log; given by place, not part of the bytes
	Type   Type   `json:"type"`
	Trace  string `json:"trace"`            // ULID of this call
	Parent string `json:"parent,omitempty"` // trace it belongs to: the assembly of a commit, the held batch's commit of an approval
	Time   int64  `json:"time"`             // clock of the call, unix µs
	Scope  string `json:"scope,omitempty"`
	Actor  string `json:"actor,omitempty"`
	LSN    uint64 `json:"lsn"` // snapshot of a read, or the LSN a commit got

	ReadOnly   bool `json:"read_only,omitempty"`
	ServeStale bool `json:"serve_stale,omitempty"` // dirty pages whose fetch failed might be served
	Review     bool `json:"review,omitempty"`      // tier 4: a person should look

	// The question of a read, and what the read served.
	Query Digest `json:"query,omitempty"` // digest of the question: salted where its text is kept, else keyed
	// QuestionKept: the text of the question was kept in a row beside the leaf,
	// which can be erased. Question is that text where the reader has it; it is
	// no part of the bytes.
	QuestionKept bool   `json:"question_kept,omitempty"`
	Question     string `json:"question,omitempty"`

	Session  string      `json:"session,omitempty"`
	AsOf     int64       `json:"as_of,omitempty"` // unix µs
	Budget   int         `json:"budget,omitempty"`
	Reserve  int         `json:"reserve,omitempty"`
	Tokens   int         `json:"tokens,omitempty"` // of everything served
	Tier     int         `json:"tier,omitempty"`   // 1–4; 0 where nothing was fitted
	Overflow string      `json:"overflow,omitempty"`
	Preset   string      `json:"preset,omitempty"`
	Counter  string      `json:"counter,omitempty"` // token counter by name
	Renderer int         `json:"renderer,omitempty"`
	Shape    string      `json:"shape,omitempty"`    // form that was rendered: dense or long
	Rendered Digest      `json:"rendered,omitempty"` // digest of the rendered bytes
	Embedder string      `json:"embedder,omitempty"` // model whose vectors took part; Note says why none did
	Match    Match       `json:"match,omitempty"`    // of an assembly: how well it matches the question
	Covered  Score       `json:"covered,omitempty"`  // the share of the question's words that its pages have
	Pages    []Page      `json:"pages,omitempty"`    // in the order served
	Excluded []Exclusion `json:"excluded,omitempty"`
	// Filter restricted the read, as JSON (store.Filter); "":
	// nothing. Unlike a question it cannot be erased.
	Filter string `json:"filter,omitempty"`

	// The end of a transaction.
	Batch      string     `json:"batch,omitempty"` // id of the batch
	From       string     `json:"from,omitempty"`  // held batch that was approved or rejected
	Status     string     `json:"status,omitempty"`
	Reason     string     `json:"reason,omitempty"` // why held, refused or dropped
	Confidence float64    `json:"confidence,omitempty"`
	Gate       float64    `json:"gate,omitempty"` // the gate it was compared with
	By         string     `json:"by,omitempty"`   // the author of the verdict
	Evaluator  string     `json:"evaluator,omitempty"`
	Note       string     `json:"note,omitempty"`
	Writes     []Write    `json:"writes,omitempty"`
	Stale      []Stale    `json:"stale,omitempty"`
	Conflicts  []Conflict `json:"conflicts,omitempty"`
	Rows       []Digest   `json:"rows,omitempty"` // salted digests of the rows the batch wrote: heads, then the held batch
	// State is of the state rows it wrote or deleted, 24 bytes each: 8 that
	// stand for the key, keyed; then a salted digest of the row, zeros where it
	// was deleted.
	State []Digest `json:"state,omitempty"`

	// Events of the database.
	Action string `json:"action,omitempty"` // what a directive, pass or gc did
	Cut    uint64 `json:"cut,omitempty"`    // recovered: LSN after which the log was cut
	Lost   uint64 `json:"lost,omitempty"`   // recovered: bytes that were cut
	Size   uint64 `json:"size,omitempty"`   // restored: leaves the backup vouched for
	Root   Digest `json:"root,omitempty"`   // restored: their root; prune: digest of what Covers names

	// Covers are the leaves whose bodies a prune removed. Size counts them.
	Covers []Span `json:"covers,omitempty"`
	// Pruned says that the body was removed, and who did it. Only the fields that a stub keeps are
	// left of the leaf (StubOf). Pruned is not part of the bytes of a leaf.
	Pruned *Pruned `json:"pruned,omitempty"`
}

// Page is one page version in a read leaf. Its digest is in the leaf of the
// commit that wrote the version (Log.Written).
type Page struct {
	Num     uint64      `json:"num"`
	Version uint32      `json:"version"`
	Form    Form        `json:"form"`
	Ranges  [][2]uint32 `json:"ranges,omitempty"` // half-open byte ranges, ascending; FormRange only
	Tokens  int         `json:"tokens"`           // as served

	Score    Score `json:"score"` // what it was ranked by; R, P and S are its parts
	R        Score `json:"r"`     // recency
	P        Score `json:"p"`     // provenance
	S        Score `json:"s"`     // semantic: lexical, vector or both
	LexOwn   Score `json:"lex_own,omitempty"`
	LexNear  Score `json:"lex_near,omitempty"`  // from neighbours
	LexGroup Score `json:"lex_group,omitempty"` // from its group
	// The parts of a turn's score for its speaker, for words in the first
	// person, for its month, and for irregular forms.
	LexSpeaker Score `json:"lex_speaker,omitempty"`
	LexFirst   Score `json:"lex_first,omitempty"`
	LexDate    Score `json:"lex_date,omitempty"`
	LexForms   Score `json:"lex_forms,omitempty"`
	// LexLevel is added to other pages in a search that also finds turns, so
	// that the speaker's part does not put turns first.
	LexLevel Score `json:"lex_level,omitempty"`
	Vector   Score `json:"vector,omitempty"` // (1 + cosine) / 2 of its vector and the question's; 0 also where it has none

	Tag       Tag    `json:"tag,omitempty"`
	Reason    string `json:"reason,omitempty"`    // short code: why it is in, or out
	Dirty     bool   `json:"dirty,omitempty"`     // its source had changed when it was read
	Refetched bool   `json:"refetched,omitempty"` // and was fetched again
	Stale     bool   `json:"stale,omitempty"`     // and was served all the same, as the query asked
	Via       uint64 `json:"via,omitempty"`       // page number of the superseded hit or of the summary that led here, or of the page that stands for it
}

// Exclusion is one reason for which pages were left out, how many, and the
// nearest by score.
type Exclusion struct {
	Reason  string `json:"reason"`
	Count   int    `json:"count"`
	Nearest []Page `json:"nearest,omitempty"`
}

// Write is one page version that a commit wrote, deleted or touched, or one
// version of an artefact that gc dropped. It is the only place that has the
// digest of a version.
type Write struct {
	Num     uint64 `json:"num"`
	Ref     string `json:"ref"`
	Version uint32 `json:"version"`
	Digest  Digest `json:"digest,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
	Touch   bool   `json:"touch,omitempty"` // repeated a live page word for word; no new version
	Gone    bool   `json:"gone,omitempty"`  // dropped by gc; Num is its first page
}

// Stale is a page version that a transaction saw and that was no longer current
// when it ended.
type Stale struct {
	Num    uint64 `json:"num"`
	Seen   uint32 `json:"seen"`
	Now    uint32 `json:"now,omitempty"` // 0: expired or deleted
	Reason string `json:"reason,omitempty"`
}

// Conflict is an artefact whose newest version was not the expected one. LSN 0
// means absent.
type Conflict struct {
	Ref    string `json:"ref"`
	Expect uint64 `json:"expect"`
	Found  uint64 `json:"found"`
}
