package folder

import (
	"strings"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// rows begins the key of the row of a recorded directory: scope, 0, prefix, 0, path.
const rows = "directory/"

// Recorded is a directory that a scope has recorded, as its row has it.
type Recorded struct {
	Dir     string // absolute
	Prefix  string // of ids
	MaxSize int64  // of a file, bytes
}

// RowKind says what a store must know of these rows.
func RowKind() store.StateKind { return store.StateKind{Prefix: rows, Copy: true} }

// Rows begins the keys of all recorded directories, RowsOf those of one scope.
func Rows() string { return rows }

// RowsOf begins the keys of the directories of a scope.
func RowsOf(scope string) string { return rows + scope + "\x00" }

// ScopeOf is the scope of a key.
func ScopeOf(key string) string {
	scope, _, _ := strings.Cut(strings.TrimPrefix(key, rows), "\x00")
	return scope
}

// Key is the key of its row in a scope.
func (r Recorded) Key(scope string) string { return RowsOf(scope) + r.Prefix + "\x00" + r.Dir }

// Pack encodes the row.
func (r Recorded) Pack() ([]byte, error) { return msgpack.Marshal([]any{r.Dir, r.Prefix, r.MaxSize}) }

// Unpack decodes a row.
func Unpack(row []byte) (Recorded, error) {
	var r struct {
		//lint:ignore U1000 msgpack looks for it
		_msgpack struct{} `msgpack:",as_array"`
		Dir      string
		Prefix   string
		MaxSize  int64
	}
	err := codec.Unpack(row, &r)
	return Recorded{r.Dir, r.Prefix, r.MaxSize}, err
}
