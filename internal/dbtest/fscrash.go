package dbtest

import (
	"math/rand/v2"
	"path"
	"sort"
)

// Clone returns a copy of what is visible now, all of it durable: what another process finds after this one
// was killed. No faults, no limit, empty trace.
func (f *FS) Clone() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := NewFS()
	for dir := range f.now.dirs {
		c.now.dirs[dir], c.stable.dirs[dir] = true, true
	}
	for name, ino := range f.now.files {
		c.put(name, ino.now.share())
	}
	return c
}

// Killed returns what another process finds after this one was killed: what is visible now, and of it on the disk only
// what was synced. Directory entries that were not synced count as durable. No faults, no limit, empty trace.
func (f *FS) Killed() *FS {
	c := f.Clone()
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, ino := range f.now.files {
		k := c.now.files[name]
		k.stable, k.pending = ino.stable.share(), append([]change(nil), ino.pending...)
	}
	return c
}

// CrashClone returns what a power cut at this moment might leave: all that was synced, and of the rest each
// sector and each directory entry with a probability of keepPercent. The same state, seed and percentage
// give the same clone.
func (f *FS) CrashClone(seed uint64, keepPercent int) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	rng := rand.New(rand.NewPCG(seed, 0x6372617368))
	keep := func() bool { return rng.IntN(100) < keepPercent }
	t := newTree()
	for d := range f.stable.dirs {
		t.dirs[d] = true
	}
	for name, ino := range f.stable.files {
		t.files[name] = ino
	}
	for _, op := range f.dirOps {
		if keep() {
			op.apply(t)
		}
	}
	c := NewFS()
	for dir := range t.dirs {
		if t.reachable(dir) {
			c.now.dirs[dir], c.stable.dirs[dir] = true, true
		}
	}
	names := make([]string, 0, len(t.files))
	for name := range t.files {
		names = append(names, name)
	}
	sort.Strings(names) // the random numbers must not meet them in map order
	for _, name := range names {
		data := t.files[name].crash(keep)
		if t.reachable(path.Dir(name)) {
			c.put(name, data)
		}
	}
	return c
}

// reachable reports whether dir and all above it are there.
func (t tree) reachable(dir string) bool {
	return t.dirs[dir] && (dir == path.Dir(dir) || t.reachable(path.Dir(dir)))
}

// crash returns the stable image with the kept sectors of pending changes applied in order.
func (ino *inode) crash(keep func() bool) image {
	data := ino.stable.share()
	for _, ch := range ino.pending {
		if ch.data == nil {
			if keep() {
				data.apply(ch)
			}
			continue
		}
		for len(ch.data) > 0 {
			n := min(int64(len(ch.data)), sector-ch.off%sector)
			if keep() {
				data.apply(change{off: ch.off, data: ch.data[:n]})
			}
			ch = change{off: ch.off + n, data: ch.data[n:]}
		}
	}
	return data
}

func resize(b []byte, n int64) []byte {
	if n <= int64(len(b)) {
		return b[:n:n]
	}
	return append(b, make([]byte, n-int64(len(b)))...)
}

func overwrite(b []byte, ch change) []byte {
	if ch.off == int64(len(b)) {
		return append(b, ch.data...)
	}
	if end := ch.off + int64(len(ch.data)); end > int64(len(b)) {
		b = resize(b, end)
	}
	copy(b[ch.off:], ch.data)
	return b
}

// do applies a change to the visible image; it becomes durable with the next sync.
func (ino *inode) do(ch change) {
	ino.pending = append(ino.pending, ch)
	ino.now.apply(ch)
}

func (ino *inode) sync() {
	for _, ch := range ino.pending {
		ino.stable.apply(ch)
	}
	ino.pending = nil
}
