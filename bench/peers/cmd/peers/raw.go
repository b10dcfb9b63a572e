package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// raw is what the disk allows: texts written to a file and one fdatasync for all who wait meanwhile. Appending changes
// the size of the file, which the file system journals; overwriting writes into space that was filled and synced before.
type raw struct {
	unsearchable
	overwrite bool

	file *os.File
	mu   sync.Mutex
	next *rawGroup // gathers writers while the group before it syncs
	turn sync.Mutex
	at   int64
}

type rawGroup struct {
	buf  []byte
	once sync.Once
	err  error
}

const preallocated = 64 << 20

func (r *raw) name() string {
	if r.overwrite {
		return "raw overwrite"
	}
	return "raw append"
}

func (r *raw) open(dir string) (err error) {
	r.next = &rawGroup{}
	if r.file, err = os.OpenFile(filepath.Join(dir, "raw"), os.O_RDWR|os.O_CREATE, 0o600); err != nil || !r.overwrite {
		return err
	}
	zero := make([]byte, 1<<20)
	for at := int64(0); at < preallocated; at += int64(len(zero)) {
		if _, err := r.file.WriteAt(zero, at); err != nil {
			return err
		}
	}
	return r.file.Sync()
}

func (r *raw) close() error { return r.file.Close() }

func (r *raw) put(_ context.Context, _, text string) error {
	r.mu.Lock()
	g := r.next
	g.buf = append(g.buf, text...)
	r.mu.Unlock()
	g.once.Do(func() {
		r.turn.Lock()
		defer r.turn.Unlock()
		r.mu.Lock()
		r.next = &rawGroup{}
		r.mu.Unlock()
		g.err = r.write(g.buf)
	})
	return g.err
}

func (r *raw) write(b []byte) error {
	if r.overwrite && r.at+int64(len(b)) > preallocated {
		r.at = 0
	}
	if _, err := r.file.WriteAt(b, r.at); err != nil {
		return err
	}
	r.at += int64(len(b))
	return unix.Fdatasync(int(r.file.Fd()))
}

func (r *raw) fill(ctx context.Context, _, texts []string) error {
	return r.put(ctx, "", strings.Join(texts, ""))
}

func (r *raw) get(context.Context, string) (string, error) { return "", errUnsupported }
func (r *raw) settle(context.Context) error                { return nil }

// holds reports whether a text stands in the file. It is how the stored bytes of a system without ids are verified.
func (r *raw) holds(text string) (bool, error) {
	b, err := os.ReadFile(r.file.Name())
	return strings.Contains(string(b), text), err
}
