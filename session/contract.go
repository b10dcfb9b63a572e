package session

import "time"

// Dialect is a way to write a contract down.
type Dialect uint8

// The dialects of a contract.
const (
	Compat Dialect = iota // the reference pager's lines; the real interpreter refuses them
	Strict                // valid for the real interpreter
)

// Contract says what was written before, so that an export holds only what is
// new. The zero value is an empty compat contract.
type Contract struct {
	Dialect  Dialect
	Pass     int               // number of the pass, shown in a comment (strict)
	Previous map[string]Action // bucket of each contract name after the last export (strict)
	Started  bool              // the file has content: no heading, no declarations (strict)
	Unended  bool              // the file's last byte is not a newline: one is put first
	At       time.Time         // time of the pass
}

// Export gives the bytes to append in one write, and the buckets to hand in as
// Previous next time. Strict exports hold changes only; a repeated pass gives
// no bytes at all.
func (c Contract) Export(verdicts []Verdict) ([]byte, map[string]Action, error) { return nil, nil, nil }
