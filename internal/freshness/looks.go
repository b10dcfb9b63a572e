package freshness

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/store"
)

// maxProbes is how many sources are asked at once.
const maxProbes = 16

// failed reports whether a look took as long as a source may. Those behind the first began later than the time, and are probed
// by themselves.
func (g *glances) failed(i int, state int32) bool { return state == lookBegun && i < maxProbes }

// glances are looks at files. Those who look may outlive the deadline of who waits for them, so nobody else writes here.
type glances struct {
	files *Files
	looks []look
	step  int64 // how many looks one takes at a time; 0: one
	next  atomic.Int64
	left  atomic.Int64  // who still looks; the last closes done
	done  chan struct{} // all were looked at
}

// look is one file, and what it was known by.
type look struct {
	at    int // in the heads
	key   string
	have  store.Validator
	state atomic.Int32
}

// The states of a look. Unless it is the same, a file is probed by itself.
const (
	lookOpen = iota
	lookBegun
	lookSame
	lookOther
)

func (g *glances) run() {
	n := min(len(g.looks), maxProbes)
	g.left.Store(int64(n))
	for range n {
		go g.work()
	}
}

func (g *glances) work() {
	step := max(g.step, 1)
	o := opened{files: g.files}
	for i := g.next.Add(step) - step; i < int64(len(g.looks)); i = g.next.Add(step) - step {
		for n := i; n < min(i+step, int64(len(g.looks))); n++ {
			l := &g.looks[n]
			l.state.Store(lookBegun)
			if o.same(l) {
				l.state.Store(lookSame)
			} else {
				l.state.Store(lookOther)
			}
		}
	}
	o.close()
	if g.left.Add(-1) == 0 {
		close(g.done)
	}
}

// opened is the directory that one who looks at files has open: files mostly come in the order of their paths, and to
// walk down from the root for each takes longer than the look. Directories are not kept for the next time: one may be
// replaced by another of its name.
type opened struct {
	files *Files
	name  string
	root  *os.Root
}

func (o *opened) close() {
	if o.root != nil {
		o.root.Close()
	}
	o.root = nil
}

// same reports whether a file looks as it did. A link that leads out of its directory is looked at from the root, by a probe.
func (o *opened) same(l *look) bool {
	dir, rel, err := o.files.nearest(l.key)
	if err != nil {
		return false
	}
	below, name := filepath.Split(rel)
	if at := dir + "\x00" + below; o.root == nil || o.name != at {
		o.close()
		root, err := os.OpenRoot(dir)
		if err != nil {
			return false
		}
		if below != "" {
			top := root
			root, err = top.OpenRoot(below)
			top.Close()
			if err != nil {
				return false
			}
		}
		o.name, o.root = at, root
	}
	return o.files.unchanged(o.root, name, l.have)
}

// Unfetched says that an artefact cannot be brought up to date.
func Unfetched(err error) Finding {
	return Finding{Dirty: true, Reason: reasonOf(err), Err: err}
}

// writeTogether commits what several sources gave as few transactions: after a checkout hundreds of files change at
// once, and a commit waits for the disk. What it cannot write, a conflict among it, is left to be written one by one.
func (s *View) writeTogether(ctx context.Context, heads []*store.Head, open []int, out []Finding, c *round) {
	byScope := map[string][]int{}
	var scopes []string
	for _, i := range open {
		h := heads[i]
		r := c.own[KeyOf(h)]
		if !out[i].pending || r == nil || r.err != nil || r.got.Validator.Hash == 0 || len(h.DerivedFrom) > 0 || strings.HasPrefix(h.Artefact.Source, "page:") || s.replaced(ctx, h) {
			continue
		}
		if byScope[h.Scope] == nil {
			scopes = append(scopes, h.Scope)
		}
		byScope[h.Scope] = append(byScope[h.Scope], i)
	}
	for _, name := range scopes {
		group, bytes := []int{}, 0
		flush := func() {
			if len(group) > 1 {
				s.writeGroup(ctx, heads, group, c)
			}
			group, bytes = group[:0], 0
		}
		for _, i := range byScope[name] {
			size := len(c.own[KeyOf(heads[i])].got.Text)
			if bytes+size > batchBytes || len(group) == BatchFiles {
				flush()
			}
			group, bytes = append(group, i), bytes+size
		}
		flush()
	}
}

// What one transaction of files takes.
const (
	BatchFiles = 300
	batchBytes = 8 << 20
)

func (s *View) writeGroup(ctx context.Context, heads []*store.Head, group []int, c *round) {
	hs, got := make([]*store.Head, len(group)), make([]Got, len(group))
	for n, i := range group {
		hs[n], got[n] = heads[i], c.own[KeyOf(heads[i])].got
	}
	if err := s.Write(ctx, hs, got); err != nil && !errors.Is(err, store.ErrConflict) {
		s.Logger.Warn("changed sources were not written together; they are written one by one", "error", err)
	}
}
