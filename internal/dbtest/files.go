package dbtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// Files reads the regular files at and below some places, by path; a database may live there. If a file vanishes between the
// listing and its reading, all is read again: what it had may be in a file that was read before.
func Files(places ...string) (files map[string][]byte, err error) {
	err = Again(func() error {
		files, err = readOnce(places, nothing)
		return err
	})
	return files, err
}

func nothing(string) {}

// readOnce is one time of Files. It calls before with each path that it is about to read; all are listed by then.
func readOnce(places []string, before func(path string)) (map[string][]byte, error) {
	var paths []string
	for _, place := range places {
		if err := filepath.WalkDir(place, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() { // a socket holds nothing
				paths = append(paths, path)
			}
			return err
		}); err != nil {
			return nil, err
		}
	}
	files := make(map[string][]byte, len(paths))
	for _, path := range paths {
		before(path)
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files[path] = b
	}
	return files, nil
}

// Again does something with the files of a database that may live, and does it again while a file vanishes under it, as one does that
// a checkpoint renames. It returns the error of the last time when a file is missing for good.
func Again(do func() error) (err error) {
	for range 1000 {
		if err = do(); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// Copy copies the files of a database, as they are at one moment, to another path: what a crash at this moment would leave if nothing
// written were lost. The lock, and what the next open can do without, are not copied. A checkpoint in the background takes from one file
// what it wrote into another, so all are read until they are twice the same: so they were at the moment between. Beside writers that
// never rest Copy fails.
func Copy(from, to string) error {
	files, err := still(from, nothing)
	if err != nil {
		return err
	}
	for _, suffix := range []string{"-wal", "-manifest"} {
		if _, err := os.Stat(from + suffix); err == nil {
			if err := os.MkdirAll(to+suffix, 0o700); err != nil {
				return err
			}
		}
	}
	for path, b := range files {
		if err := os.WriteFile(to+strings.TrimPrefix(path, from), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// still reads the files of a database at one moment, and calls before as readOnce does.
func still(path string, before func(path string)) (map[string][]byte, error) {
	var last map[string][]byte
	for range 100 {
		places := []string{path}
		for _, suffix := range []string{".keys", "-wal", "-manifest"} { // the first of an encrypted one
			if _, err := os.Stat(path + suffix); err == nil {
				places = append(places, path+suffix)
			}
		}
		files, err := readOnce(places, before)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if files != nil && last != nil && maps.EqualFunc(files, last, bytes.Equal) {
			return files, nil
		}
		last = files
	}
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%s is written all the time", path)
}

// Giant returns a file of 1 GiB that nobody stored: a beginning, and then the same over and over.
func Giant(head, again string) io.Reader {
	return io.LimitReader(io.MultiReader(strings.NewReader(head), &repeating{text: again}), 1<<30)
}

// repeating is a text without an end.
type repeating struct {
	text string
	at   int
}

func (r *repeating) Read(p []byte) (n int, err error) {
	for n < len(p) {
		k := copy(p[n:], r.text[r.at:])
		n, r.at = n+k, (r.at+k)%len(r.text)
	}
	return n, nil
}
