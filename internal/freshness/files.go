package freshness

import (
	"context"
	"errors"
	"fmt"
	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// racy is how long after its mtime a file may still be written without the mtime changing: a stamp taken within it
// proves nothing, so the content is hashed (git calls such entries racily clean).
const racy = 2 * time.Second

// A file that was changed a moment ago may be half written: editors and shells empty a file and then write it, in two steps
// or many. Fetch reads a file when it has been quiet for quietTime, and believes that it is empty after emptyTime. A file that
// does not rest, as a log, is read as it is after restless.
const (
	quietTime = 20 * time.Millisecond
	emptyTime = 250 * time.Millisecond
	restless  = time.Second
)

// Files is the source of file: artefacts. It reads files below one of its roots, through os.Root: no path, link or .. leads out of them.
// Paths are compared with slashes on every system: file:C:/notes/a.md.
type Files struct {
	// Host names the machine whose files they are, where a database is used by several; "": it is not recorded. It is set
	// before the first call.
	Host string

	mu    sync.RWMutex
	roots []string
	limit int64
	now   func() time.Time
	quiet fileClock
}

// fileClock is the time of the file system, and how to let it pass. Tests have their own.
type fileClock struct {
	now  func() time.Time
	wait func(context.Context, time.Duration) error
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// NewFiles makes a source of files of at most limit bytes. No directory is allowed yet.
func NewFiles(limit int64, now func() time.Time) *Files {
	return &Files{limit: limit, now: now, quiet: fileClock{time.Now, wait}}
}

// Allowed reports whether a path is below an allowed directory. The error is a *FileRootError.
func (s *Files) Allowed(path string) error {
	_, _, err := s.nearest(path)
	return err
}

// AllowedDir reports whether a directory is an allowed one, or below one. The error is a *FileRootError.
func (s *Files) AllowedDir(dir string) error {
	err := s.Allowed(filepath.Join(dir, "x"))
	var root *store.FileRootError
	if errors.As(err, &root) {
		root.Path = dir
	}
	return err
}

// isElsewhere reports whether a file that a host read is on another host. Where nobody recorded hosts it is taken to be here.
func (s *Files) isElsewhere(host string) bool { return host != "" && s.Host != "" && host != s.Host }

// AddRoot allows a directory. Longer roots are tried first, so that the nearest one answers.
func (s *Files) AddRoot(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("ctxpage: file root %q: %w", dir, err)
	}
	abs = filepath.ToSlash(abs)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.roots {
		if r == abs {
			return nil
		}
	}
	s.roots = append(s.roots, abs)
	return nil
}

// within opens the nearest root that holds the path, and returns the rest of it. The caller closes the root.
func (s *Files) within(key string) (root *os.Root, rel string, err error) {
	dir, rel, err := s.nearest(key)
	if err != nil {
		return nil, "", err
	}
	root, err = os.OpenRoot(dir)
	return root, rel, err
}

// nearest names the nearest root that holds the path, and the rest of it.
func (s *Files) nearest(key string) (dir, rel string, err error) {
	if strings.ContainsRune(key, 0) || !filepath.IsAbs(key) {
		return "", "", fmt.Errorf("ctxpage: source file:%s: expected an absolute path", key)
	}
	key = filepath.ToSlash(key)
	s.mu.RLock()
	roots := s.roots
	s.mu.RUnlock()
	for _, r := range roots {
		if name, ok := Below(r, key); ok && len(r) >= len(dir) {
			dir, rel = r, name
		}
	}
	if dir == "" {
		return "", "", &store.FileRootError{Path: key}
	}
	return dir, rel, nil
}

func (s *Files) open(key string) (*os.File, error) {
	root, rel, err := s.within(key)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not keep the reader waiting
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		err = fmt.Errorf("%w: %w", store.ErrVanished, err) // the root is there, so it is the file that went
	}
	return f, err
}

// Below returns the path relative to a root, when it is lexically below it; os.Root guards the rest.
func Below(root, path string) (string, bool) {
	if path == root {
		return "", false
	}
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(root, "/"))
	rest, slash := strings.CutPrefix(rest, "/")
	return rest, ok && slash && rest != ""
}

func (s *Files) stat(key string) (*os.File, fs.FileInfo, error) {
	f, err := s.open(key)
	if err != nil {
		return nil, nil, err
	}
	fi, err := f.Stat()
	switch {
	case err != nil:
	case !fi.Mode().IsRegular():
		err = fmt.Errorf("ctxpage: source file:%s: expected a regular file, found %v", key, fi.Mode().Type())
	case fi.Size() > s.limit:
		err = fmt.Errorf("ctxpage: source file:%s: %d bytes, expected at most %d", key, fi.Size(), s.limit)
	default:
		return f, fi, nil
	}
	f.Close()
	return nil, nil, err
}

// fileStamp recognises a file without reading it: size, mtime, ctime and inode. Whoever writes a file can
// set its mtime back, but not its ctime, and a file that another one was moved over has another inode. A stamp taken
// before the clock of the file system has moved on since the last change proves nothing, and is made so that no later one
// equals it.
func fileStamp(fi fs.FileInfo) string {
	b := appendStamp(nil, fi)
	if ctime, _ := changeOf(fi); time.Since(ctime) <= settles(ctime) {
		b = append(b, "/unsettled"...)
	}
	return string(b)
}

// settles is how long after its ctime a file may still be changed without the ctime changing: a tick of the kernel, or
// the unit of file systems that count whole seconds.
func settles(ctime time.Time) time.Duration {
	if ctime.Nanosecond() == 0 {
		return racy
	}
	return 20 * time.Millisecond
}

func appendStamp(b []byte, fi fs.FileInfo) []byte {
	ctime, inode := changeOf(fi)
	b = append(strconv.AppendInt(b, fi.Size(), 10), '/')
	b = append(strconv.AppendInt(b, fi.ModTime().UnixNano(), 10), '/')
	b = append(strconv.AppendInt(b, ctime.UnixNano(), 10), '/')
	return strconv.AppendUint(b, inode, 10)
}

// unchanged reports whether the stamp alone proves that a file did not change. It does not open the file: this is all
// that a context of fifty files does fifty times.
func (s *Files) unchanged(root *os.Root, rel string, have store.Validator) bool {
	if have.Hash == 0 {
		return false
	}
	var buf [96]byte
	fi, err := root.Stat(rel)
	return err == nil && fi.Mode().IsRegular() && fi.Size() <= s.limit && format.StampOf(string(appendStamp(buf[:0], fi)), s.Host) == have.Stamp && have.At.Sub(fi.ModTime()) > racy
}

// Probe compares stamps, and hashes only when they differ or were too fresh to prove anything.
func (s *Files) Probe(ctx context.Context, key string, have store.Validator) (store.Validator, error) {
	if root, rel, err := s.within(key); err == nil {
		same := s.unchanged(root, rel, have)
		root.Close()
		if same {
			return have, nil
		}
	}
	f, fi, err := s.stat(key)
	if err != nil {
		return store.Validator{}, err
	}
	defer f.Close()
	v := store.Validator{Stamp: format.StampOf(fileStamp(fi), s.Host), At: s.now()}
	h := xxhash.New()
	if _, err := io.Copy(h, io.LimitReader(f, s.limit+1)); err != nil {
		return store.Validator{}, err
	}
	v.Hash = h.Sum64()
	return v, ctx.Err()
}

// Fetch reads the file whole, again and again until it is quiet.
func (s *Files) Fetch(ctx context.Context, key string) (store.Fetched, error) {
	for waited := time.Duration(0); ; waited += quietTime {
		got, quiet, err := s.read(key)
		if err != nil || quiet || waited >= restless {
			return got, err
		}
		if err := s.quiet.wait(ctx, quietTime); err != nil {
			return store.Fetched{}, err
		}
	}
}

// read reads the file whole, and reports whether nobody seems to be writing it.
func (s *Files) read(key string) (got store.Fetched, quiet bool, err error) {
	f, fi, err := s.stat(key)
	if err != nil {
		return got, false, err
	}
	defer f.Close()
	at := s.now()
	b, err := io.ReadAll(io.LimitReader(f, s.limit+1))
	if err != nil {
		return got, false, err
	}
	if int64(len(b)) > s.limit {
		return got, false, fmt.Errorf("ctxpage: source file:%s: more than %d bytes", key, s.limit)
	}
	after, err := f.Stat()
	if err != nil {
		return got, false, err
	}
	text, ok := PlainText(key, b)
	if !ok {
		text = string(b) // whoever stores it says why not
	}
	return store.Fetched{
		Text: text, AsOf: fi.ModTime(),
		Validator: store.Validator{Stamp: format.StampOf(fileStamp(fi), s.Host), Hash: xxhash.Sum64(b), At: at},
	}, s.isQuiet(after, len(b)), nil
}

// Settle waits as long as it takes to believe that a file is empty, or gone.
func (s *Files) Settle(ctx context.Context) error { return s.quiet.wait(ctx, emptyTime) }

// isQuiet reports whether a file of so many bytes was changed long enough ago. A change in the future, by another clock, says nothing.
func (s *Files) isQuiet(fi fs.FileInfo, size int) bool {
	rest := quietTime
	if size == 0 {
		rest = emptyTime
	}
	changed, _ := changeOf(fi)
	age := s.quiet.now().Sub(changed)
	return age < 0 || age >= rest
}

// LooksLikeText reads the beginning of a file: what is refused here is not read whole at every refresh.
func (s *Files) LooksLikeText(path string) bool {
	f, err := s.open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	b := make([]byte, 8<<10)
	n, err := io.ReadFull(f, b)
	if n == 0 || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false
	}
	if n == len(b) {
		return BeginsAsText(b, false)
	}
	text, ok := PlainText(path, b[:n]) // all of it
	return ok && !NoText(text, n)
}
