package freshness

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	// MaxListed is how many sourced artefacts a scope may have for their files to be listed.
	MaxListed = 10_000
	// aheadTimeout bounds a look at all files: a mount that hangs must not stop every question. Candidates are probed
	// again, each under Host.Timeout.
	aheadTimeout = time.Second
	// aheadStep is how many files one of those who look takes at a time: neighbours share a directory.
	aheadStep = 16
	// maxSourced is how many entries are remembered for all scopes together: one for a scope, one for each of its files.
	maxSourced = 1 << 16
)

// sourcedScopes remembers which artefacts of a scope come from a source. It follows the catalogue by LSN, so that a scope
// in which no such artefact changed costs one comparison. The scopes asked for least recently are forgotten first, which
// costs a scan when they are asked for again. Scopes differ in size, so the bound is on entries, and golang-lru's own
// bound on its length is never reached.
type sourcedScopes struct {
	mu sync.Mutex
	in *simplelru.LRU[string, *sourcedScope]
	n  int // entries
}

// sourcedScope is immutable once made.
type sourcedScope struct {
	lsn  uint64
	n    int    // artefacts with a source
	list []File // those with a file: source, by id; nil when n is above maxListed
}

// File is an artefact that comes from a file.
type File struct {
	Page    store.PageKey
	key     VersionKey
	Path    string
	have    store.Validator
	host    string // that read it
	expires int64
	Pages   int
	lone    bool // derived from nothing else: the file alone decides whether it is clean
}

// Origin names an artefact whatever its version.
type Origin struct{ Scope, ID string }

// OriginOf names the artefact that a head is of.
func OriginOf(h *store.Head) Origin { return Origin{h.Scope, h.ID} }

// Origin names the artefact that comes from the file.
func (f *File) Origin() Origin { return Origin{f.key.scope, f.key.id} }

// of returns the sourced artefacts of a scope as they are now.
func (c *sourcedScopes) of(ctx context.Context, st store.Store, scope string) (*sourcedScope, error) {
	last := c.get(scope)
	found, err := st.Scan(ctx, c.asks(scope, last))
	if err != nil || found.Same {
		return last, err
	}
	next := &sourcedScope{lsn: found.LSN, n: len(found.Keys)}
	if next.n <= MaxListed {
		if next.list, err = listSourced(ctx, st, scope, last.list, found.Keys); err != nil {
			return nil, err
		}
	}
	c.put(scope, next)
	return next, nil
}

// asks is the question whether what is known of a scope still holds.
func (c *sourcedScopes) asks(scope string, last *sourcedScope) store.ScanQuery {
	return store.ScanQuery{What: store.ScanSourced, Scopes: store.Scopes{scope}, Known: last.lsn}
}

// get returns what is known of a scope; of an unknown one, that nothing was read yet.
func (c *sourcedScopes) get(scope string) *sourcedScope {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.in != nil {
		if known, ok := c.in.Get(scope); ok {
			return known
		}
	}
	return &sourcedScope{}
}

func (c *sourcedScopes) put(scope string, next *sourcedScope) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.in == nil {
		c.in, _ = simplelru.NewLRU(math.MaxInt32, func(_ string, old *sourcedScope) { c.n -= old.entries() })
	}
	c.in.Remove(scope) // Add would replace the value without the callback
	c.in.Add(scope, next)
	for c.n += next.entries(); c.n > maxSourced; {
		c.in.RemoveOldest()
	}
}

// entries returns the entries of a scope that count towards maxSourced. A scope without files counts too: there may be any number of them.
func (s *sourcedScope) entries() int { return 1 + len(s.list) }

// listSourced describes the artefacts named by keys, taking over what is known of them.
func listSourced(ctx context.Context, st store.Store, scope string, known []File, keys []store.PageKey) ([]File, error) {
	have := make(map[store.PageKey]*File, len(known))
	for i := range known {
		have[known[i].Page] = &known[i]
	}
	if len(keys) == 0 { // a store elsewhere need not be asked
		return nil, nil
	}
	var missing []store.PageKey
	for _, k := range keys {
		if have[k] == nil {
			missing = append(missing, k)
		}
	}
	loaded, err := st.Load(ctx, store.Scopes{scope}, missing, store.WantHead)
	if err != nil {
		return nil, err
	}
	for i := range loaded {
		h := loaded[i].Head
		if loaded[i].Err != nil || h == nil {
			continue // whoever reads it is told
		}
		path, _ := strings.CutPrefix(h.Artefact.Source, "file:")
		if path == h.Artefact.Source {
			path = ""
		}
		have[missing[i]] = &File{
			Page: missing[i], key: KeyOf(h), Path: path, have: h.Source, host: format.SourceHost(h), expires: codec.Micros(h.ExpiresAt), Pages: len(h.Rows), lone: len(h.DerivedFrom) == 0,
		}
	}
	list := make([]File, 0, len(keys))
	for _, k := range keys {
		if r := have[k]; r != nil && r.Path != "" {
			list = append(list, *r)
		}
	}
	return list, nil
}

// LookAt compares files with what is known of them, and returns those that do not look the same, and how many could not be
// looked at in time. Those that do are marked as seen by a sweep.
func (s *View) LookAt(ctx context.Context, files []File, policy time.Duration, now time.Time, sweep uint64) (changed []int, unasked int) {
	g := &glances{files: s.Files, done: make(chan struct{}), looks: make([]look, 0, len(files)), step: aheadStep}
	memory := &s.memory
	memory.mu.Lock()
	for i := range files {
		f := &files[i]
		if f.expires != 0 && f.expires <= codec.Micros(now) || s.Files.isElsewhere(f.host) {
			continue
		}
		have := f.have
		if last, known := memory.seen[f.key]; known {
			if age := now.Sub(last.at); age >= 0 && age < policy {
				continue
			}
			have = last.v
		}
		g.looks = append(g.looks, look{at: i, key: f.Path, have: have})
	}
	memory.mu.Unlock()
	if len(g.looks) == 0 {
		return nil, 0
	}
	ctx, cancel := context.WithTimeout(ctx, min(aheadTimeout, s.Timeout))
	defer cancel()
	g.run()
	select {
	case <-g.done:
	case <-ctx.Done():
		g.next.Store(int64(len(g.looks)))
	}
	memory.mu.Lock()
	defer memory.mu.Unlock()
	for i := range g.looks {
		l := &g.looks[i]
		switch f := &files[l.at]; l.state.Load() {
		case lookSame:
			if f.lone {
				memory.enter(f.key, probed{at: now, v: l.have, sweep: sweep})
			}
		case lookOther:
			changed = append(changed, l.at)
		default:
			unasked++
		}
	}
	return changed, unasked
}

// rows begins the key of the row of a recorded directory: scope, 0, prefix, 0, path.
const rows = "directory/"

// Recorded is a directory that a scope has recorded, as its row has it.
type Recorded struct {
	Dir     string // absolute
	Prefix  string // of ids
	MaxSize int64  // of a file, bytes
}

// DirectoryKind says what a store must know of these rows.
func DirectoryKind() store.StateKind {
	return store.StateKind{Prefix: rows, Scope: DirectoryScope, Copy: true, Paths: paths}
}

// paths returns the row if keep accepts its directory. The key and the value name it; both count.
func paths(key string, value []byte, keep func(dir string) bool) (kept []byte, left []string, err error) {
	r, err := ReadDirectory(store.StateRow{Key: key, Value: value})
	if err != nil {
		return nil, nil, err
	}
	if r.Key(DirectoryScope(key)) != key {
		return nil, nil, store.Invalid("directory", fmt.Sprintf("%q under another key", r.Dir), "the key that its scope, prefix and path make")
	}
	if !keep(r.Dir) {
		return nil, []string{r.Dir}, nil
	}
	return value, nil, nil
}

// DirectoryRows begins the keys of all recorded directories.
func DirectoryRows() string { return rows }

// DirectoryRowsOf begins the keys of the directories of a scope.
func DirectoryRowsOf(scope string) string { return rows + scope + "\x00" }

// DirectoryScope is the scope of a key.
func DirectoryScope(key string) string {
	scope, _, _ := strings.Cut(strings.TrimPrefix(key, rows), "\x00")
	return scope
}

// Key is the key of its row in a scope.
func (r Recorded) Key(scope string) string { return DirectoryRowsOf(scope) + r.Prefix + "\x00" + r.Dir }

const recordedVersion = 1

// recordedFields are the row. Tags are never given twice.
var recordedFields = codec.Record[Recorded]{Name: "a recorded directory", Fields: []codec.Field[Recorded]{
	codec.Text(1, "Dir", func(r *Recorded) *string { return &r.Dir }),
	codec.Text(2, "Prefix", func(r *Recorded) *string { return &r.Prefix }),
	codec.Int(3, "MaxSize", func(r *Recorded) *int64 { return &r.MaxSize }),
}}

// Pack encodes the row.
func (r Recorded) Pack() []byte { return codec.Row(&recordedFields, recordedVersion, &r, 64) }

// ReadDirectory reads the row of a recorded directory.
func ReadDirectory(row store.StateRow) (r Recorded, err error) {
	if err = codec.ReadRow(&recordedFields, row.Value, recordedVersion, &r); err != nil {
		err = fmt.Errorf("ctxpage: directories of %s: %w", DirectoryScope(row.Key), err)
	}
	return r, err
}

// Directories reads the directories recorded for a scope, by prefix and path.
func Directories(ctx context.Context, st store.Store, scope string) (list []Recorded, err error) {
	err = format.Walk(ctx, st, DirectoryRowsOf(scope), func(row store.StateRow) error {
		r, err := ReadDirectory(row)
		list = append(list, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Normalised returns r with an absolute path, with slashes, and a size, or the rule that r breaks.
func (r Recorded) Normalised(size int64) (Recorded, error) {
	abs, err := filepath.Abs(r.Dir)
	if err != nil {
		return r, fmt.Errorf("ctxpage: directory %q: %w", r.Dir, err)
	}
	r.Dir = filepath.ToSlash(abs)
	if r.MaxSize == 0 {
		r.MaxSize = size
	}
	if r.MaxSize < 0 || r.MaxSize > store.MaxText {
		return r, store.Invalid("max_size", strconv.FormatInt(r.MaxSize, 10), "1 to "+strconv.Itoa(store.MaxText))
	}
	if r.Prefix == "" {
		return r, nil
	}
	return r, store.CheckID("prefix", r.Prefix)
}

// Holds reports whether an artefact was imported from a file of the directory: its id and its source together tell.
func (r Recorded) Holds(id, source string) (rel string, ok bool) {
	rel, ok = strings.CutPrefix(source, "file:"+strings.TrimSuffix(r.Dir, "/")+"/")
	return rel, ok && rel != "" && id == r.ID(rel)
}

// ID is the id of a file, from its path below the directory.
func (r Recorded) ID(rel string) string { return r.Prefix + rel }
