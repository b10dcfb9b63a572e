package manifest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"golang.org/x/mod/sumdb/tlog"
)

// Head vouches for a log: a number of leaves and their root. Keep it outside the machine,
// and Verify can compare the log with it.
type Head struct {
	DB   string `json:"db"` // database id
	Size uint64 `json:"size"`
	Root Hash   `json:"root"`
	Time int64  `json:"time,omitempty"` // when it was made, unix µs; for people, not checked
}

// headTag begins a head line. The number changes with the form of the line.
const headTag = "ctxpage-head/"

// String returns one line of text that can be kept elsewhere:
//
//	ctxpage-head/1 DB SIZE ROOT [TIME]
//
// with the root in base64 and the time as RFC 3339 in UTC.
func (h Head) String() string {
	db := h.DB
	if db == "" {
		db = "-"
	}
	s := fmt.Sprintf("%s1 %s %d %s", headTag, db, h.Size, h.Root)
	if h.Time != 0 {
		s += " " + time.UnixMicro(h.Time).UTC().Format(time.RFC3339Nano)
	}
	return s
}

// ParseHead reads a line made by String. A line of a later form matches
// ctxpage.ErrNewerFormat.
func ParseHead(line string) (Head, error) {
	words := strings.Fields(line)
	if len(words) > 0 {
		if v, err := strconv.Atoi(strings.TrimPrefix(words[0], headTag)); err == nil && v > 1 && strings.HasPrefix(words[0], headTag) {
			return Head{}, fmt.Errorf("head line of shape %d: %w", v, codec.ErrNewerFormat)
		}
	}
	h, err := parseHead(words)
	if err != nil {
		return Head{}, fmt.Errorf("manifest: no head line: %w; expected %q", err, headTag+"1 DB SIZE ROOT [TIME]")
	}
	return h, nil
}

// parseHead reads the words of a head line of form 1. Its error says which word is wrong.
func parseHead(words []string) (h Head, err error) {
	if len(words) < 4 || len(words) > 5 || words[0] != headTag+"1" {
		return h, fmt.Errorf("%d words", len(words))
	}
	if h.DB = words[1]; h.DB == "-" {
		h.DB = ""
	}
	if h.Size, err = strconv.ParseUint(words[2], 10, 63); err != nil {
		return h, fmt.Errorf("size %q", words[2])
	}
	if h.Root, err = tlog.ParseHash(words[3]); err != nil {
		return h, fmt.Errorf("root %q", words[3])
	}
	if len(words) == 5 {
		t, err := time.Parse(time.RFC3339Nano, words[4])
		if err != nil {
			return h, fmt.Errorf("time %q", words[4])
		}
		h.Time = t.UnixMicro()
	}
	return h, nil
}

// Hash is a node of the tree: SHA-256 as in RFC 6962; its text is base64.
type Hash = tlog.Hash

// Span is a range of leaves, half open.
type Span [2]uint64

// Pruned says when the body of a leaf was removed and by whom, according to the prune leaf.
type Pruned struct {
	Trace  string `json:"trace"`        // of the prune leaf
	Leaf   uint64 `json:"leaf"`         // its index
	At     int64  `json:"at"`           // unix µs
	By     string `json:"by,omitempty"` // "": no leaf vouches for the stub
	Action string `json:"action"`       // pruned or erased
}

// String is the sentence for people: what was done, when, by whom.
func (p *Pruned) String() string {
	if p.By == "" {
		return "pruned, and no leaf of the audit says by whom; verify the audit"
	}
	return fmt.Sprintf("%s at %s by %s", p.Action, time.UnixMicro(p.At).UTC().Format(time.RFC3339), p.By)
}

// Filter selects leaves. A zero field selects all.
type Filter struct {
	Type    Type
	Scope   string // exactly this one, not those below it
	Session string
	Actor   string
	Since   time.Time // at this time or later
	Until   time.Time // before this time
}

// Match reports whether a leaf passes the filter. The session and actor of a leaf whose body was pruned are unknown: it
// does not pass a filter that names one.
func (f *Filter) Match(r *Record) bool {
	return (f.Type == 0 || r.Type == f.Type) && (f.Scope == "" || r.Scope == f.Scope) && (f.Session == "" || r.Session == f.Session) &&
		(f.Actor == "" || r.Actor == f.Actor) && (f.Since.IsZero() || r.Time >= f.Since.UnixMicro()) && (f.Until.IsZero() || r.Time < f.Until.UnixMicro())
}

var (
	// ErrNoLeaf: the log has no leaf at that index, or none of that trace.
	ErrNoLeaf = errors.New("manifest: no such leaf")

	// ErrNoQuestion: the text of a question is not there, only its digest.
	ErrNoQuestion = errors.New("manifest: the question was erased or not kept")

	// ErrPruned: the body of the leaf was removed. Its hash stays, so proofs hold.
	ErrPruned = errors.New("manifest: the body of the leaf is gone")

	// ErrHead: the log does not contain what the given head vouches for.
	ErrHead = errors.New("manifest: the log does not agree with the head")

	// ErrProof: a proof does not prove what it claims.
	ErrProof = errors.New("manifest: the proof does not hold")
)
