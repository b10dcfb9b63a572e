// Package folder lists the text files of a directory as an import takes them: git's own rules decide what is ignored.
package folder

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/go-git/go-git/v5/plumbing/format/gitignore"

	"github.com/ctxpage/ctxpage/internal/plaintext"
	"github.com/ctxpage/ctxpage/store"
)

// Reasons for which a file is not taken.
const (
	Ignored    = "ignored by .gitignore"
	Binary     = "not text"
	Large      = "too large"
	Empty      = "empty"
	Kind       = "not a regular file"
	Name       = "name is not usable as an id"
	Twin       = "another file has the same name in another Unicode form"
	Unreadable = "could not be read"
	Database   = "part of a ctxpage database"
	Limit      = "beyond the limit"
)

// Found is a file worth taking.
type Found struct {
	Path string // absolute
	Rel  string // below the directory, with slashes
	Size int64
}

// Skipped is a file that is not taken, or a directory of which nothing is.
type Skipped struct {
	Path   string `json:"path"` // below the directory, with slashes; "." is the directory itself
	Reason string `json:"reason"`
}

// Walker lists the text files of a directory. Git's own rules decide what is ignored, up to the root of the repository
// the directory lies in; .git is never entered, links are never followed.
type Walker struct {
	Dir      string
	MaxSize  int64             // larger files are skipped
	MaxFiles int               // 0: no limit
	MaxBytes int64             // of all files; 0: no limit
	Except   []string          // databases: paths whose files are left out
	Usable   func(string) bool // whether a relative path may be an id; nil: any may

	Files   []Found
	Skipped []Skipped
	Unread  []string // relative paths that could not be read: nothing is known of what is below

	bytes  int64 // of Files
	ids    map[string]bool
	prefix []string // of Dir below the root of the repository
}

// Walk fills Files and Skipped.
func (w *Walker) Walk(ctx context.Context) error {
	st, err := os.Stat(w.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist; expected a directory", w.Dir)
	case err != nil:
		return err
	case !st.IsDir():
		return fmt.Errorf("%s is a file; expected a directory", w.Dir)
	}
	patterns := w.above()
	return w.enter(ctx, w.Dir, "", patterns)
}

// above collects the patterns of the directories from the root of the repository down to dir, and of its exclude file.
func (w *Walker) above() []gitignore.Pattern {
	root := w.Dir
	for {
		if _, err := os.Lstat(filepath.Join(root, ".git")); err == nil {
			break
		}
		up := filepath.Dir(root)
		if up == root {
			return nil // no repository: only what is below dir counts
		}
		root = up
	}
	patterns := readPatterns(filepath.Join(root, ".git", "info", "exclude"), nil)
	rel, err := filepath.Rel(root, w.Dir)
	if err != nil || rel == "." {
		return patterns
	}
	at := root
	for _, name := range strings.Split(rel, string(filepath.Separator)) {
		patterns = append(patterns, readPatterns(filepath.Join(at, ".gitignore"), w.prefix)...)
		at = filepath.Join(at, name)
		w.prefix = append(w.prefix, name)
	}
	return patterns
}

// readPatterns reads one ignore file; one that is missing or unreadable ignores nothing.
func readPatterns(path string, domain []string) []gitignore.Pattern {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var out []gitignore.Pattern
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		if s := strings.TrimSuffix(sc.Text(), "\r"); strings.TrimSpace(s) != "" && !strings.HasPrefix(s, "#") {
			out = append(out, gitignore.ParsePattern(s, domain))
		}
	}
	return out
}

func (w *Walker) enter(ctx context.Context, dir, rel string, patterns []gitignore.Pattern) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		w.cannot(rel)
		return nil
	}
	domain := w.names(rel)
	patterns = append(slices.Clip(patterns), readPatterns(filepath.Join(dir, ".gitignore"), domain)...)
	match := gitignore.NewMatcher(patterns)
	for _, e := range entries {
		name := e.Name()
		if name == ".git" {
			continue
		}
		below := name
		if rel != "" {
			below = rel + "/" + name
		}
		switch {
		case match.Match(append(slices.Clip(domain), name), e.IsDir()):
			w.Skip(below, Ignored)
		case e.IsDir() && w.database(filepath.Join(dir, name)):
			w.Skip(below, Database)
		case e.IsDir():
			if err := w.enter(ctx, filepath.Join(dir, name), below, patterns); err != nil {
				return err
			}
		default:
			w.file(filepath.Join(dir, name), below, e)
		}
	}
	return nil
}

// names is the path of a directory as git's rules see it.
func (w *Walker) names(rel string) []string {
	if rel == "" {
		return w.prefix
	}
	return append(slices.Clip(w.prefix), strings.Split(rel, "/")...)
}

// Skip notes that a file is not taken.
func (w *Walker) Skip(rel, reason string) {
	w.Skipped = append(w.Skipped, Skipped{cmp.Or(rel, "."), reason})
}

// Counts counts what was skipped by reason.
func (w *Walker) Counts() map[string]int {
	counts := map[string]int{}
	for _, f := range w.Skipped {
		counts[f.Reason]++
	}
	return counts
}

func (w *Walker) cannot(rel string) {
	w.Skip(rel, Unreadable)
	w.Unread = append(w.Unread, rel)
}

func (w *Walker) file(path, rel string, e fs.DirEntry) {
	st, err := e.Info()
	switch {
	case err != nil:
		w.cannot(rel)
	case !st.Mode().IsRegular():
		w.Skip(rel, Kind)
	case w.database(path):
		w.Skip(rel, Database)
	case st.Size() == 0:
		w.Skip(rel, Empty)
	case st.Size() > w.MaxSize && (!plaintext.Notebook(path) || st.Size() > store.MaxText): // most of a notebook is pictures
		w.Skip(rel, Large)
	case !w.usable(rel):
		w.Skip(rel, Name)
	case w.twin(rel):
		w.Skip(rel, Twin)
	case w.MaxFiles > 0 && len(w.Files) >= w.MaxFiles || w.MaxBytes > 0 && w.bytes+st.Size() > w.MaxBytes:
		w.Skip(rel, Limit)
	default:
		w.Files, w.bytes = append(w.Files, Found{path, rel, st.Size()}), w.bytes+st.Size()
	}
}

// database reports whether a path belongs to one of the databases to leave out.
func (w *Walker) database(path string) bool {
	for _, db := range w.Except {
		for _, suffix := range []string{"", "-wal", "-manifest", ".lock"} {
			if path == db+suffix {
				return true
			}
		}
	}
	return false
}

// twin reports whether a file that was taken before has the name of this one as ids are compared, so that both would be one
// artefact.
func (w *Walker) twin(rel string) bool {
	id := store.Canonical(rel)
	if w.ids == nil {
		w.ids = map[string]bool{}
	}
	was := w.ids[id]
	w.ids[id] = true
	return was
}

func (w *Walker) usable(rel string) bool { return w.Usable == nil || w.Usable(rel) }

// Unknown reports whether nothing is known of a path, because it or a directory above it could not be read.
func (w *Walker) Unknown(rel string) bool {
	for _, u := range w.Unread {
		if u == "" || rel == u || strings.HasPrefix(rel, u+"/") {
			return true
		}
	}
	return false
}

// ReadText reads a file if it is text, as plaintext.Of has it. The hash is that of its bytes, by which a source recognises it.
func ReadText(path string) (text string, hash uint64, skip string) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", 0, Unreadable
	}
	text, ok := plaintext.Of(path, b)
	switch {
	case !ok:
		return "", 0, Binary
	case plaintext.Empty(text, len(b)):
		return "", 0, Empty
	}
	return text, xxhash.Sum64(b), ""
}
