package freshness

import (
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
	Path string // absolute, with slashes
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
	base   string // path of Dir below the root of the repository, "" or ending in a slash
	within bool   // Dir is in an ignored directory
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
	rules, within := w.above()
	w.within = within
	return w.enter(ctx, w.Dir, "", rules)
}

// above returns the rules of the directories from the root of the repository down to Dir, and of its exclude file. It sets base to the path of
// Dir below the root. within reports whether Dir is in a directory that these rules ignore.
func (w *Walker) above() (rules []rule, within bool) {
	root := w.Dir
	for {
		if _, err := os.Lstat(filepath.Join(root, ".git")); err == nil {
			break
		}
		up := filepath.Dir(root)
		if up == root {
			return nil, false // no repository: only what is below Dir counts
		}
		root = up
	}
	rules = readRules(filepath.Join(root, ".git", "info", "exclude"), "")
	rel, err := filepath.Rel(root, w.Dir)
	if err != nil || rel == "." {
		return rules, false
	}
	for name := range strings.SplitSeq(filepath.ToSlash(rel), "/") {
		rules = append(rules, readRules(filepath.Join(root, filepath.FromSlash(w.base), ".gitignore"), w.base)...)
		within = within || ignored(rules, w.base+name, true)
		w.base += name + "/"
	}
	return rules, within
}

func (w *Walker) enter(ctx context.Context, dir, rel string, rules []rule) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		w.cannot(strings.TrimSuffix(rel, "/"))
		return nil
	}
	rules = append(slices.Clip(rules), readRules(filepath.Join(dir, ".gitignore"), w.base+rel)...)
	for _, e := range entries {
		name, below := e.Name(), rel+e.Name()
		switch {
		case name == ".git":
		case w.within || ignored(rules, w.base+below, e.IsDir()):
			w.Skip(below, Ignored)
		case e.IsDir() && w.database(filepath.Join(dir, name)):
			w.Skip(below, Database)
		case e.IsDir():
			if err := w.enter(ctx, filepath.Join(dir, name), below+"/", rules); err != nil {
				return err
			}
		default:
			w.file(filepath.Join(dir, name), below, e)
		}
	}
	return nil
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
	case st.Size() > w.MaxSize && (!Notebook(path) || st.Size() > store.MaxText): // most of a notebook is pictures
		w.Skip(rel, Large)
	case !w.usable(rel):
		w.Skip(rel, Name)
	case w.twin(rel):
		w.Skip(rel, Twin)
	case w.MaxFiles > 0 && len(w.Files) >= w.MaxFiles || w.MaxBytes > 0 && w.bytes+st.Size() > w.MaxBytes:
		w.Skip(rel, Limit)
	default:
		w.Files, w.bytes = append(w.Files, Found{filepath.ToSlash(path), rel, st.Size()}), w.bytes+st.Size()
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

// ReadText reads a file if it is text, as PlainText has it. The hash covers its bytes; a source recognises the file by it.
func ReadText(path string) (text string, hash uint64, skip string) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", 0, Unreadable
	}
	text, ok := PlainText(path, b)
	switch {
	case !ok:
		return "", 0, Binary
	case NoText(text, len(b)):
		return "", 0, Empty
	}
	return text, xxhash.Sum64(b), ""
}
