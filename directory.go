package ctxpage

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A recorded directory is one state row of its scope. The id of a file is the directory's prefix followed by its path
// below Dir, with slashes; so two directories of one scope need different prefixes when they have files of the same
// name. A refresh works from the row: it finds files that were added since, and knows which artefacts came from
// the directory by their id and source together.

// Directory is a directory whose text files are artefacts of a scope. Scope.Refresh finds new, changed and vanished
// files of recorded directories.
type Directory struct {
	Dir    string `json:"dir"`    // absolute; a relative path is taken from the working directory
	Prefix string `json:"prefix"` // beginning of each id; the rest is the path below Dir, with slashes
	// MaxSize is the largest size of a file that is taken, in bytes; 0: 1 MiB.
	MaxSize int64 `json:"max_size"`
}

// AddDirectory records a directory for the scope. It imports nothing; the next Refresh does. The directory must lie
// below an allowed root (Options.FileRoots, Admin.AddFileRoot): otherwise the error matches ErrFileRoot and nothing is
// recorded. Recording it again changes MaxSize. DB.AddFolder does all three steps.
func (s *Scope) AddDirectory(ctx context.Context, d Directory) error {
	if err := s.hostOnly("AddDirectory"); err != nil {
		return err
	}
	d, err := d.normalised()
	if err != nil {
		return err
	}
	if err := s.db.checker.Files.AllowedDir(d.Dir); err != nil {
		return err
	}
	return s.setDirectory(ctx, d, freshness.Recorded(d).Pack(), "directory recorded")
}

// RemoveDirectory removes a recorded directory. Artefacts that were imported from it stay. ErrNotFound when it is not
// recorded.
func (s *Scope) RemoveDirectory(ctx context.Context, d Directory) error {
	if err := s.hostOnly("RemoveDirectory"); err != nil {
		return err
	}
	d, err := d.normalised()
	if err != nil {
		return err
	}
	known, err := loop.Collect(s.Directories(ctx))
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(known, func(k Directory) bool { return k.Dir == d.Dir && k.Prefix == d.Prefix }) {
		return fmt.Errorf("%w: no directory %s with prefix %q is recorded for %s", store.ErrNotFound, d.Dir, d.Prefix, s.name)
	}
	return s.setDirectory(ctx, d, nil, "directory forgotten")
}

// setDirectory writes or, with a nil row, deletes the row of a directory. It writes nothing if the row is unchanged.
func (s *Scope) setDirectory(ctx context.Context, d Directory, row []byte, action string) error {
	if s.db.opts.ReadOnly {
		return store.ErrReadOnly
	}
	return format.Retry(ctx, func() error {
		old, err := s.db.store.State(ctx, freshness.Recorded(d).Key(s.name))
		if err != nil || old.LSN != 0 && row != nil && string(old.Value) == string(row) {
			return err
		}
		_, err = s.db.commit(ctx, store.Batch{
			Scope: s.name, Actor: s.actor, State: []store.StateRow{{Key: old.Key, Value: row}},
			ExpectState: []store.StatePre{{Key: old.Key, LSN: old.LSN}},
			Leaf:        manifest.Record{Type: manifest.TypeCommit, Action: action, Reason: "vouched by the host"},
		})
		return err
	})
}

// normalised returns d with an absolute path and its defaults, or the rule that d breaks.
func (d Directory) normalised() (Directory, error) {
	r, err := freshness.Recorded(d).Normalised(defaultMaxFile)
	if err == nil {
		err = checkReserved("prefix", d.Prefix)
	}
	return Directory(r), err
}

// Directories ranges over the directories recorded for the scope, by prefix and path; AtMost applies. Directories that are
// recorded meanwhile may or may not be listed.
func (s *Scope) Directories(ctx context.Context, opts ...ReadOption) iter.Seq2[Directory, error] {
	return stateRows(ctx, s.db.store, s.err, readOpts(opts).part, freshness.DirectoryRowsOf(s.name), directoryOf)
}

// directoryOf reads the row of a recorded directory.
func directoryOf(row store.StateRow) (Directory, error) {
	r, err := freshness.ReadDirectory(row)
	return Directory(r), err
}
