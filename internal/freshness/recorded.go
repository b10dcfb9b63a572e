package freshness

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
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

// DirectoryKind says what a store must know of these rows.
func DirectoryKind() store.StateKind {
	return store.StateKind{Prefix: rows, Scope: DirectoryScope, Copy: true, Paths: paths}
}

// paths returns the row if keep accepts its directory. The key and the value name it; both count.
func paths(key string, value []byte, keep func(dir string) bool) (kept []byte, left []string, err error) {
	r, err := ReadDirectory(store.StateRow{Key: key, Value: value})
	if err != nil {
		return nil, nil, err
	}
	if r.Key(DirectoryScope(key)) != key {
		return nil, nil, store.Invalid("directory", fmt.Sprintf("%q under another key", r.Dir), "the key that its scope, prefix and path make")
	}
	if !keep(r.Dir) {
		return nil, []string{r.Dir}, nil
	}
	return value, nil, nil
}

// DirectoryRows begins the keys of all recorded directories.
func DirectoryRows() string { return rows }

// DirectoryRowsOf begins the keys of the directories of a scope.
func DirectoryRowsOf(scope string) string { return rows + scope + "\x00" }

// DirectoryScope is the scope of a key.
func DirectoryScope(key string) string {
	scope, _, _ := strings.Cut(strings.TrimPrefix(key, rows), "\x00")
	return scope
}

// Key is the key of its row in a scope.
func (r Recorded) Key(scope string) string { return DirectoryRowsOf(scope) + r.Prefix + "\x00" + r.Dir }

const recordedVersion = 1

// recordedFields are the row. Tags are never given twice.
var recordedFields = codec.Record[Recorded]{Name: "a recorded directory", Fields: []codec.Field[Recorded]{
	codec.Text(1, "Dir", func(r *Recorded) *string { return &r.Dir }),
	codec.Text(2, "Prefix", func(r *Recorded) *string { return &r.Prefix }),
	codec.Int(3, "MaxSize", func(r *Recorded) *int64 { return &r.MaxSize }),
}}

// Pack encodes the row.
func (r Recorded) Pack() []byte { return recordedFields.Row(recordedVersion, &r, 64) }

// ReadDirectory reads the row of a recorded directory.
func ReadDirectory(row store.StateRow) (r Recorded, err error) {
	if err = recordedFields.ReadRow(row.Value, recordedVersion, &r); err != nil {
		err = fmt.Errorf("ctxpage: directories of %s: %w", DirectoryScope(row.Key), err)
	}
	return r, err
}

// Directories reads the directories recorded for a scope, by prefix and path.
func Directories(ctx context.Context, st store.Store, scope string) (list []Recorded, err error) {
	err = format.Walk(ctx, st, DirectoryRowsOf(scope), func(row store.StateRow) error {
		r, err := ReadDirectory(row)
		list = append(list, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Normalised returns r with an absolute path, with slashes, and a size, or the rule that r breaks.
func (r Recorded) Normalised(size int64) (Recorded, error) {
	abs, err := filepath.Abs(r.Dir)
	if err != nil {
		return r, fmt.Errorf("ctxpage: directory %q: %w", r.Dir, err)
	}
	r.Dir = filepath.ToSlash(abs)
	if r.MaxSize == 0 {
		r.MaxSize = size
	}
	if r.MaxSize < 0 || r.MaxSize > store.MaxText {
		return r, store.Invalid("max_size", strconv.FormatInt(r.MaxSize, 10), "1 to "+strconv.Itoa(store.MaxText))
	}
	if r.Prefix == "" {
		return r, nil
	}
	return r, store.CheckID("prefix", r.Prefix)
}

// Holds reports whether an artefact was imported from a file of the directory: its id and its source together tell.
func (r Recorded) Holds(id, source string) (rel string, ok bool) {
	rel, ok = strings.CutPrefix(source, "file:"+strings.TrimSuffix(r.Dir, "/")+"/")
	return rel, ok && rel != "" && id == r.ID(rel)
}

// ID is the id of a file, from its path below the directory.
func (r Recorded) ID(rel string) string { return r.Prefix + rel }
