package commands

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/internal/handoff"
	"github.com/ctxpage/ctxpage/session"
)

// vocabulary is the reference pager's own word list (not the interpreter's).
var vocabulary = strings.Fields(`add set to from
	retained-blocks paged-blocks evicted-blocks last-pager-pass
	block session contract open close begin end note retain page evict
	active resolved noise intent keyword score alpha beta delta turn
	similarity threshold pass pager true false`)

// buckets are the lists of a contract, by action.
var buckets = [...]string{session.Retain: "retained-blocks", session.Page: "paged-blocks", session.Evict: "evicted-blocks"}

// BlockError names the block of a history that was refused, and the field at fault.
type BlockError struct {
	Index int    // position in the history, from 0
	ID    string // empty where the id itself is at fault
	Field string
	Err   error
}

func (e *BlockError) Error() string {
	if e.ID == "" {
		return fmt.Sprintf("pager: block %d, field %q: %v", e.Index, e.Field, e.Err)
	}
	return fmt.Sprintf("pager: block %d (%q), field %q: %v", e.Index, e.ID, e.Field, e.Err)
}

// Unwrap returns the reason.
func (e *BlockError) Unwrap() error { return e.Err }

// stampLayout is UTC in whole seconds, never with a Z.
const stampLayout = "2006-01-02T15:04:05+00:00"

// ErrVocabulary means that a word of a statement is not one of the pager's.
var ErrVocabulary = errors.New("pager: word outside the contract vocabulary")

// statement files a block, without its newline. The id is pasted unchanged, as the reference does: anything that passes
// the word gate is accepted, even an injected statement. A session.Ledger writes safe names instead.
func statement(id string, a session.Action) (string, error) {
	line := fmt.Sprintf(`add "%s" to %s`, id, buckets[a])
	return line, gate(line)
}

// gate checks each word of a statement against the vocabulary.
func gate(statement string) error {
	for _, w := range strings.FieldsFunc(strings.ReplaceAll(statement, `"`, " "), pythonSpace) {
		if !strings.HasPrefix(w, "block-") && !dated(w) && !slices.Contains(vocabulary, w) {
			return fmt.Errorf("%w: %q (an id starts with \"block-\")", ErrVocabulary, w)
		}
	}
	return nil
}

// dated reports whether a word starts like a timestamp: four, two and two decimal
// digits of any script, then a t.
func dated(w string) bool {
	for _, c := range "dddd-dd-ddt" {
		r, size := utf8.DecodeRuneInString(w)
		switch {
		case c == 'd' && !unicode.Is(unicode.Nd, r):
			return false
		case c == '-' && r != '-':
			return false
		case c == 't' && r != 't' && r != 'T':
			return false
		}
		w = w[size:]
	}
	return true
}

// pythonSpace is Python's idea of white space: Unicode's and the four
// information separators U+001C to U+001F.
func pythonSpace(r rune) bool {
	return unicode.IsSpace(r) || r >= 0x1C && r <= 0x1F
}

// mark is the statement that ends a pass, without its newline.
func mark(at time.Time) string { return "set last-pager-pass to " + at.UTC().Format(stampLayout) }

// ExportPass returns the lines of a pass of a database as the reference writes them, to be appended with one write: every
// block, then the pass marker. tail is the current end of the file (its last byte is enough); a torn last line is ended
// first. A repeated pass returns nothing.
func ExportPass(r *session.StoredPass, tail []byte) ([]byte, error) {
	if r.Repeated {
		return nil, nil
	}
	var out bytes.Buffer
	if len(tail) > 0 && !bytes.HasSuffix(tail, []byte("\n")) {
		out.WriteByte('\n')
	}
	for i, v := range r.Verdicts {
		line, err := statement(handoff.ContractName(v.ID), v.Action)
		if err != nil {
			return nil, &BlockError{Index: i, ID: v.ID, Field: "id", Err: err}
		}
		fmt.Fprintln(&out, line)
	}
	fmt.Fprintln(&out, mark(r.At))
	return out.Bytes(), nil
}
