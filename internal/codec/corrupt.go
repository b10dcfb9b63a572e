package codec

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ctxpage/ctxpage/internal/system"
)

// Why nothing can be read: damage, a format, or a closed handle. Nothing in the files was changed.
var (
	ErrCorrupt     = errors.New("ctxpage: database is damaged")     // matched by every *CorruptError
	ErrNewerFormat = errors.New("ctxpage: file has a newer format") // a later release wrote them; use that release
	ErrOldFormat   = errors.New("ctxpage: made before v0.1.0")
	ErrClosed      = errors.New("ctxpage: database is closed")
)

// Unit says what CorruptError.Num counts.
type Unit string

// The units in which a position is told.
const (
	UnitLSN    Unit = "lsn"    // a commit
	UnitRecord Unit = "record" // a record of the log, from 1
	UnitLeaf   Unit = "leaf"   // a leaf of the audit, from 0
)

// CorruptError is the error of every layer of a database for damaged bytes: the log, the audit, the store and the engine above
// them. There is one type, so that a caller asks once and no layer has to translate.
//
// It says which bytes are damaged, what is wrong with them, and what to do. Content that fails a check is never
// returned, and nothing was cut or changed. It matches ErrCorrupt and unwraps to its cause.
type CorruptError struct {
	File   string // path, base name in the archive, or what the bytes belong to
	Offset int64  // of the first wrong byte in File; 0 if it is not known
	Unit   Unit   // what Num counts; empty if no single commit, record or leaf is concerned
	Num    uint64
	Err    error  // what was expected and what was found
	Hint   string // what to do; may be empty
}

// Error returns all fields in one line. A hint that the cause already contains is not repeated.
func (e *CorruptError) Error() string {
	s := "ctxpage: " + e.File
	if e.Offset > 0 {
		s += fmt.Sprintf(" at offset %d", e.Offset)
	}
	if e.Unit != "" {
		s += fmt.Sprintf(" (%s %d)", e.Unit, e.Num)
	}
	s += " is damaged"
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Hint != "" && !strings.Contains(s, e.Hint) {
		s += "; " + e.Hint
	}
	return s
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// Unread reports whether the system could not read now: another try may succeed. Bytes that were read and
// are wrong are not that. It must never be reported as damage: a person would restore a backup over a
// sound database.
func Unread(err error) bool {
	return system.Passing(err)
}
