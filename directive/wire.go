package directive

import "errors"

// What an import may refuse; nothing is changed then.
var (
	ErrJSON              = errors.New("directive: invalid JSON")
	ErrState             = errors.New("directive: invalid state")
	ErrStateVersion      = errors.New("directive: unsupported state version")
	ErrCheckpoint        = errors.New("directive: invalid directive checkpoint")
	ErrCheckpointVersion = errors.New("directive: unsupported directive checkpoint version")
)

// ErrorCode returns the wire code of an import error ("invalid_json", …), "" for others.
func ErrorCode(err error) string { panic("skeleton") }

// ExportJSON writes a state as canonical JSON.
func ExportJSON(s State) []byte { panic("skeleton") }

// ImportJSON reads a state strictly.
func ImportJSON(data []byte) (State, error) { panic("skeleton") }

// ExportCheckpoint writes a session, an open question included, as canonical JSON.
func ExportCheckpoint(s Session) []byte { panic("skeleton") }

// ImportCheckpoint reads a directive checkpoint strictly.
func ImportCheckpoint(data []byte) (Session, error) { panic("skeleton") }
