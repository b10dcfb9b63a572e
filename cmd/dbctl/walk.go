package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"

	"github.com/ctxpage/ctxpage"
)

// Why a file is not taken.
const (
	skipIgnored  = "ignored by .gitignore"
	skipBinary   = "not text"
	skipLarge    = "too large"
	skipEmpty    = "empty"
	skipKind     = "not a regular file"
	skipName     = "name is not usable as an id"
	skipUnread   = "could not be read"
	skipDatabase = "part of a ctxpage database"
	skipLimit    = "beyond the limit"
)

// found is a file worth taking.
type found struct {
	path string // absolute
	rel  string // below the directory, with slashes
	size int64
}

// skippedFile is a file that is not taken, or a directory of which nothing is.
type skippedFile struct {
	Path   string `json:"path"` // below the directory, with slashes; "." is the directory itself
	Reason string `json:"reason"`
}

// walker lists the text files of a directory. Git's own rules decide what is ignored, up to the root of the repository
// the directory lies in; .git is never entered, links are never followed.
type walker struct {
	dir     string
	maxSize int64
	maxFile int      // files at most; 0: no limit
	maxAll  int64    // bytes of all of them; 0: no limit
	except  []string // databases: paths whose files are left out
	files   []found
	bytes   int64 // of files
	skipped []skippedFile
	unread  []string // relative paths that could not be read: nothing is known of what is below
	prefix  []string // of dir below the root of the repository
}

func (w *walker) walk(ctx context.Context) error {
	st, err := os.Stat(w.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return failed("%s does not exist; expected a directory", w.dir)
	case err != nil:
		return failed("%v", err)
	case !st.IsDir():
		return failed("%s is a file; expected a directory", w.dir)
	}
	patterns := w.above()
	return w.enter(ctx, w.dir, "", patterns)
}

// above collects the patterns of the directories from the root of the repository down to dir, and of its exclude file.
func (w *walker) above() []gitignore.Pattern {
	root := w.dir
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
	rel, err := filepath.Rel(root, w.dir)
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

func (w *walker) enter(ctx context.Context, dir, rel string, patterns []gitignore.Pattern) error {
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
			w.skip(below, skipIgnored)
		case e.IsDir() && w.database(filepath.Join(dir, name)):
			w.skip(below, skipDatabase)
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
func (w *walker) names(rel string) []string {
	if rel == "" {
		return w.prefix
	}
	return append(slices.Clip(w.prefix), strings.Split(rel, "/")...)
}

func (w *walker) skip(rel, reason string) {
	w.skipped = append(w.skipped, skippedFile{cmp.Or(rel, "."), reason})
}

// skips counts what was skipped by reason.
func (w *walker) skips() map[string]int {
	counts := map[string]int{}
	for _, f := range w.skipped {
		counts[f.Reason]++
	}
	return counts
}

func (w *walker) cannot(rel string) {
	w.skip(rel, skipUnread)
	w.unread = append(w.unread, rel)
}

func (w *walker) file(path, rel string, e fs.DirEntry) {
	st, err := e.Info()
	switch {
	case err != nil:
		w.cannot(rel)
	case !st.Mode().IsRegular():
		w.skip(rel, skipKind)
	case w.database(path):
		w.skip(rel, skipDatabase)
	case st.Size() == 0:
		w.skip(rel, skipEmpty)
	case st.Size() > w.maxSize:
		w.skip(rel, skipLarge)
	case !usableID(rel):
		w.skip(rel, skipName)
	case w.maxFile > 0 && len(w.files) >= w.maxFile || w.maxAll > 0 && w.bytes+st.Size() > w.maxAll:
		w.skip(rel, skipLimit)
	default:
		w.files, w.bytes = append(w.files, found{path, rel, st.Size()}), w.bytes+st.Size()
	}
}

// database says whether a path belongs to one of the databases to leave out.
func (w *walker) database(path string) bool {
	for _, db := range w.except {
		for _, suffix := range []string{"", "-wal", "-manifest", ".lock"} {
			if path == db+suffix {
				return true
			}
		}
	}
	return false
}

func usableID(s string) bool {
	return len(s) <= ctxpage.MaxID && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// readText reads a file if it is text: UTF-8 without NUL.
func readText(path string) (text []byte, skip string) {
	b, err := os.ReadFile(path)
	switch {
	case err != nil:
		return nil, skipUnread
	case len(b) == 0:
		return nil, skipEmpty
	case bytes.IndexByte(b, 0) >= 0 || !utf8.Valid(b):
		return nil, skipBinary
	}
	return b, ""
}
