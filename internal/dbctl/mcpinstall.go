package dbctl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maxConfig bounds a client's configuration file. Claude Code keeps its history in it.
const maxConfig = 64 << 20

// configFile is a client's configuration file as it was read.
type configFile struct {
	path  string // links followed: many keep such files elsewhere and link them
	text  []byte
	mode  fs.FileMode
	there bool
}

func readConfig(path string) (*configFile, error) {
	f := &configFile{path: path, mode: 0o600}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err == nil {
			return nil, failed("%s is a link to a file that is not there; nothing was changed", path)
		}
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	f.path, f.there = real, true
	fi, err := os.Stat(real)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, failed("%s: expected a file", path)
	}
	if fi.Size() > maxConfig {
		return nil, failed("%s has %d bytes, expected at most %d", path, fi.Size(), maxConfig)
	}
	f.mode = fi.Mode().Perm()
	f.text, err = os.ReadFile(real)
	return f, err
}

// replace keeps a backup beside the file and puts the text in its place, at once: a reader sees the old file or the new
// one. A client that has changed the file since it was read is not overwritten.
func (f *configFile) replace(text []byte, now time.Time) (backup string, err error) {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return "", err
	}
	if f.there {
		if backup, err = f.backUp(now); err != nil {
			return "", err
		}
	}
	tmp, err := os.CreateTemp(filepath.Dir(f.path), "."+filepath.Base(f.path)+".*")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name()) // gone by then if all went well
	if err := errors.Join(fill(tmp, text, f.mode), tmp.Close()); err != nil {
		return "", err
	}
	is, err := os.ReadFile(f.path)
	if f.there != (err == nil) || !bytes.Equal(is, f.text) {
		return "", failed("%s changed while it was edited; nothing was written, run this again", f.path)
	}
	return backup, os.Rename(tmp.Name(), f.path)
}

// backUp copies the file beside itself, under a name that nothing has yet.
func (f *configFile) backUp(now time.Time) (string, error) {
	base := f.path + ".ctxpage-" + now.UTC().Format("20060102T150405Z")
	for n := 0; ; n++ {
		path := base + ".bak"
		if n > 0 {
			path = fmt.Sprintf("%s-%d.bak", base, n)
		}
		out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		return path, errors.Join(fill(out, f.text, f.mode), out.Close())
	}
}

// fill writes a file's text to the disk.
func fill(w *os.File, text []byte, mode fs.FileMode) error {
	if _, err := io.Copy(w, bytes.NewReader(text)); err != nil {
		return err
	}
	return errors.Join(w.Chmod(mode), w.Sync())
}

// diffOf shows the lines that differ between two texts, with three lines around them.
func diffOf(path, old, changed string) string {
	const around = 3
	all := diffLines(slices.Collect(strings.Lines(old)), slices.Collect(strings.Lines(changed)))
	differs := func(l string) bool { return l[0] != ' ' }
	out := []string{"--- " + path, "+++ " + path}
	for i, l := range all {
		if slices.ContainsFunc(all[max(0, i-around):min(len(all), i+around+1)], differs) {
			out = append(out, strings.TrimSuffix(l, "\n"))
		}
	}
	return strings.Join(out, "\n") + "\n"
}
