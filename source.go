package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// Source loads content of one scheme. Both methods run concurrently, under a deadline and under no lock of the
// database; they may call nothing of it. Key is the source without its scheme and colon.
type Source interface {
	// Probe says what the content is recognised by now. It must be cheap: given what is known, it may answer from a
	// stamp alone, and gives back have when nothing changed.
	Probe(ctx context.Context, key string, have Validator) (Validator, error)
	// Fetch loads the content; it may be a network.
	Fetch(ctx context.Context, key string) (Fetched, error)
}

// Fetched is what a source gave. Text must be UTF-8.
type Fetched struct {
	Text      string
	Validator Validator
	// AsOf is when the content was true; zero: now.
	AsOf time.Time

	trust Provenance // of the artefact that a page: source copies; 0: the source is a document
}

// CheckPolicy says when a read probes the sources of what it serves. The zero value probes at every read; CheckEvery
// at most every so often; CheckNever not at all.
type CheckPolicy time.Duration

// CheckNever trusts what is stored: neither sources nor what a derived page was made from are looked at.
const CheckNever CheckPolicy = -1

// CheckAlways probes at every read.
const CheckAlways CheckPolicy = 0

// CheckEvery probes a source when its last probe is at least d old.
func CheckEvery(d time.Duration) CheckPolicy { return CheckPolicy(max(d, 0)) }

// racy is how long after its mtime a file may still be written without the mtime changing: a stamp taken within it
// proves nothing, so the content is hashed (git calls such entries racily clean).
const racy = 2 * time.Second

// fileSource reads files below one of its roots, through os.Root: no path, link or .. leads out of them.
type fileSource struct {
	mu    sync.RWMutex
	roots []string
	limit int64
	now   func() time.Time
}

// addRoot allows a directory. Longer roots are tried first, so that the nearest one answers.
func (s *fileSource) addRoot(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("ctxpage: file root %q: %w", dir, err)
	}
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

// within opens the nearest root that holds the path, and gives the rest of it. The caller closes the root.
func (s *fileSource) within(key string) (root *os.Root, rel string, err error) {
	dir, rel, err := s.nearest(key)
	if err != nil {
		return nil, "", err
	}
	root, err = os.OpenRoot(dir)
	return root, rel, err
}

// nearest names the nearest root that holds the path, and the rest of it.
func (s *fileSource) nearest(key string) (dir, rel string, err error) {
	if strings.ContainsRune(key, 0) || !filepath.IsAbs(key) {
		return "", "", fmt.Errorf("ctxpage: source file:%s: expected an absolute path", key)
	}
	s.mu.RLock()
	roots := s.roots
	s.mu.RUnlock()
	for _, r := range roots {
		if name, ok := below(r, key); ok && len(r) >= len(dir) {
			dir, rel = r, name
		}
	}
	if dir == "" {
		return "", "", &FileRootError{Path: key}
	}
	return dir, rel, nil
}

func (s *fileSource) open(key string) (*os.File, error) {
	root, rel, err := s.within(key)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not keep the reader waiting
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		err = fmt.Errorf("%w: %w", ErrVanished, err) // the root is there, so it is the file that went
	}
	return f, err
}

// below gives the path relative to a root, when it is lexically below it; os.Root guards the rest.
func below(root, path string) (string, bool) {
	if path == root {
		return "", false
	}
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(root, "/"))
	rest, slash := strings.CutPrefix(rest, "/")
	return rest, ok && slash && rest != ""
}

func (s *fileSource) stat(key string) (*os.File, fs.FileInfo, error) {
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

// fileStamp is what a file is recognised by without reading it: size, mtime, ctime and inode. Whoever writes a file can
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

// unchanged says whether the stamp alone proves that a file is what it was. It does not open the file: this is all
// that a context of fifty files does fifty times.
func (s *fileSource) unchanged(root *os.Root, rel string, have Validator) bool {
	if have.Hash == 0 {
		return false
	}
	var room [96]byte
	fi, err := root.Stat(rel)
	return err == nil && fi.Mode().IsRegular() && fi.Size() <= s.limit && string(appendStamp(room[:0], fi)) == have.Stamp && have.At.Sub(fi.ModTime()) > racy
}

// Probe compares stamps, and hashes only when they differ or were too fresh to prove anything.
func (s *fileSource) Probe(ctx context.Context, key string, have Validator) (Validator, error) {
	if root, rel, err := s.within(key); err == nil {
		same := s.unchanged(root, rel, have)
		root.Close()
		if same {
			return have, nil
		}
	}
	f, fi, err := s.stat(key)
	if err != nil {
		return Validator{}, err
	}
	defer f.Close()
	v := Validator{Stamp: fileStamp(fi), At: s.now()}
	h := xxhash.New()
	if _, err := io.Copy(h, io.LimitReader(f, s.limit+1)); err != nil {
		return Validator{}, err
	}
	v.Hash = h.Sum64()
	return v, ctx.Err()
}

// Fetch reads the file whole.
func (s *fileSource) Fetch(_ context.Context, key string) (Fetched, error) {
	f, fi, err := s.stat(key)
	if err != nil {
		return Fetched{}, err
	}
	defer f.Close()
	at := s.now()
	b, err := io.ReadAll(io.LimitReader(f, s.limit+1))
	if err != nil {
		return Fetched{}, err
	}
	if int64(len(b)) > s.limit {
		return Fetched{}, fmt.Errorf("ctxpage: source file:%s: more than %d bytes", key, s.limit)
	}
	return Fetched{
		Text: string(b), AsOf: fi.ModTime(),
		Validator: Validator{Stamp: fileStamp(fi), Hash: xxhash.Sum64(b), At: at},
	}, nil
}

// pageSource reads another artefact of the visible chain: page:id or page:scope:id.
type pageSource struct {
	db     *DB
	scopes Scopes
}

func (p pageSource) locate(ctx context.Context, key string) (Located, error) {
	ref, err := store.SourceRef(key)
	if err != nil {
		return Located{}, err
	}
	l, err := p.db.store.Resolve(ctx, p.scopes, ref)
	if err == nil && l.Current && l.Expires != 0 && l.Expires <= codec.Micros(p.db.opts.Clock()) {
		err = fmt.Errorf("%w: source page:%s", ErrExpired, key)
	}
	return l, err
}

// Probe compares versions; it loads nothing.
func (p pageSource) Probe(ctx context.Context, key string, have Validator) (Validator, error) {
	l, err := p.locate(ctx, key)
	if err != nil {
		return Validator{}, err
	}
	stamp := strconv.FormatUint(l.LSN, 10)
	if stamp == have.Stamp {
		return have, nil
	}
	f, err := p.Fetch(ctx, key)
	return f.Validator, err
}

// Fetch loads the other artefact.
func (p pageSource) Fetch(ctx context.Context, key string) (Fetched, error) {
	l, err := p.locate(ctx, key)
	if err != nil {
		return Fetched{}, err
	}
	v, err := p.db.version(ctx, p.scopes, l)
	if err != nil {
		return Fetched{}, err
	}
	text := v.Text
	if len(v.Parts) > 0 {
		text, _ = joinParts(v.Parts)
	}
	return Fetched{
		Text: text, AsOf: v.CurrentAsOf, trust: v.Provenance,
		Validator: Validator{Stamp: strconv.FormatUint(l.LSN, 10), Hash: store.ContentHash(text), At: p.db.opts.Clock()},
	}, nil
}

// source finds who answers for a source, and the key without the scheme.
func (s *Scope) source(src string) (Source, string, error) {
	scheme, key, ok := strings.Cut(src, ":")
	if !ok || scheme == "" || key == "" {
		return nil, "", store.Invalid("source", strconv.Quote(src), "scheme:key, like file:/path/to/it")
	}
	if scheme == "page" {
		return pageSource{s.db, s.chain}, key, nil
	}
	if found := s.db.sources[scheme]; found != nil {
		return found, key, nil
	}
	return nil, "", &schemeError{&InvalidError{Field: "source", Got: strconv.Quote(src), Expected: "a scheme this database knows: file, page or one of Options.Sources"}}
}

// schemeError means that nobody here answers for the scheme of a source.
type schemeError struct{ *InvalidError }

func (e *schemeError) Unwrap() error { return e.InvalidError }

// unreadable is the reason a page is left out for whose source could not be asked. What this process may not read is
// told apart from what could not be read: the one is for who opened the database to mend.
func unreadable(err error) string {
	var scheme *schemeError
	switch {
	case errors.Is(err, ErrFileRoot):
		return store.ReasonNoRoot
	case errors.As(err, &scheme):
		return store.ReasonNoScheme
	case errors.Is(err, ErrVanished):
		return store.ReasonVanished
	}
	return store.ReasonFetchFailed
}

// fetch loads from a source under the deadline and checks what comes.
func (s *Scope) fetch(ctx context.Context, src string) (Fetched, error) {
	from, key, err := s.source(src)
	if err != nil {
		return Fetched{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.db.opts.SourceTimeout)
	defer cancel()
	f, err := callSource(ctx, func() (Fetched, error) { return from.Fetch(ctx, key) })
	switch {
	case err != nil:
		return f, fmt.Errorf("fetch %s: %w", src, err)
	case len(f.Text) > MaxText:
		return f, fmt.Errorf("fetch %s: %d bytes, expected at most %d", src, len(f.Text), MaxText)
	case !utf8.ValidString(f.Text):
		return f, fmt.Errorf("fetch %s: the content is not UTF-8 text", src)
	}
	if f.Validator.Hash == 0 {
		f.Validator.Hash = store.ContentHash(f.Text)
	}
	return f, nil
}

func (s *Scope) probe(ctx context.Context, src string, have Validator) (Validator, error) {
	from, key, err := s.source(src)
	if err != nil {
		return Validator{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.db.opts.SourceTimeout)
	defer cancel()
	return callSource(ctx, func() (Validator, error) { return from.Probe(ctx, key, have) })
}

// callSource lets a source, or an embedder, that ignores its context not hold up a read beyond the deadline: its answer is then dropped.
func callSource[T any](ctx context.Context, call func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	ch := make(chan answer, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				ch <- answer{err: fmt.Errorf("panicked: %v", r)}
			}
		}()
		v, err := call()
		ch <- answer{v, err}
	}()
	select {
	case a := <-ch:
		return a.v, a.err
	case <-ctx.Done():
		var zero T
		return zero, ctx.Err()
	}
}

// freshness is what a dirty check found of one artefact.
type freshness struct {
	dirty     bool   // its source moved on
	refetched bool   // and was fetched anew: resolve it again
	pending   bool   // it was fetched anew, or what it was made from, but nothing is written yet
	reason    string // why it cannot be served, "": it can
	err       error
}

// checks remembers when a source was probed and what it was, so that an unchanged stamp costs no hash next time.
type checks struct {
	sweeps atomic.Uint64 // looks ahead so far

	mu   sync.Mutex
	seen map[checkKey]checked
	busy map[checkKey]*refetching // the second who wants the same waits for the first
}

// refetching is a fetch under way. The fields are set before done is closed. It stays in checks.busy until who began it
// has written what came, so that nobody fetches the same again meanwhile.
type refetching struct {
	done   chan struct{}
	at     time.Time
	got    Fetched
	err    error
	gaveUp bool // its caller did: that says nothing about the source
}

// checking is one dirty check of several artefacts, in two rounds. In the first all sources are asked at once and
// nothing is written. In the second what changed is written, one after the other in the order of the artefacts: page
// numbers break ties, and must not depend on which source was quickest.
type checking struct {
	wrote bool // something was fetched anew and written

	mu  sync.Mutex
	got map[checkKey]*refetching
	own map[checkKey]*refetching // of those, the ones that this check began
}

type checkKey struct {
	scope, id string
	version   uint32
}

type checked struct {
	at    time.Time
	v     Validator
	sweep uint64 // the last look ahead that found it clean
}

const maxChecks = 1 << 16

func (c *checks) get(k checkKey) (checked, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.seen[k]
	return v, ok
}

func (c *checks) put(k checkKey, v checked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(k, v)
}

// keep is put under the lock.
func (c *checks) keep(k checkKey, v checked) {
	if len(c.seen) >= maxChecks {
		clear(c.seen) // forgetting costs a probe each, nothing else
	}
	c.seen[k] = v
}

func checkKeyOf(h *Head) checkKey { return checkKey{h.Scope, h.ID, h.Version} }

// ages says whether an artefact was made from something that may change.
func ages(h *Head) bool { return h.Artefact.Source != "" || len(h.DerivedFrom) > 0 }

// freshen checks the sources and the lineage of heads, concurrently, and fetches anew what is dirty.
func (s *Scope) freshen(ctx context.Context, heads []*Head, policy CheckPolicy) []freshness {
	out, _ := s.bringUpToDate(ctx, heads, policy)
	return out
}

// bringUpToDate is freshen, and says whether anything was written, be it of what a head was made from.
func (s *Scope) bringUpToDate(ctx context.Context, heads []*Head, policy CheckPolicy) (out []freshness, wrote bool) {
	out = make([]freshness, len(heads))
	if policy < 0 {
		return out, false
	}
	open := s.glance(ctx, heads, policy, out)
	if len(open) == 0 {
		return out, false
	}
	c := &checking{got: map[checkKey]*refetching{}, own: map[checkKey]*refetching{}}
	defer s.db.checks.release(c.own)
	g := newAncestry(s, policy, c)
	for _, i := range open {
		g.survey(ctx, heads[i])
	}
	g.ask(ctx, heads, open)
	for _, i := range open {
		out[i] = g.verdict(ctx, heads[i])
	}
	s.writeTogether(ctx, heads, open, out, c)
	g.write()
	for _, i := range open {
		if out[i].pending {
			out[i] = g.verdict(ctx, heads[i])
		}
	}
	return out, c.wrote
}

// maxProbes is how many sources are asked at once.
const maxProbes = 16

// glance settles the heads for which a look at a file's stamp is all there is to do, and gives the places of
// the others. Fifty looks go together, under one deadline: a goroutine, a timer and a handle of the root for each would
// take longer than the looks.
func (s *Scope) glance(ctx context.Context, heads []*Head, policy CheckPolicy, out []freshness) (open []int) {
	files, now := s.db.files, s.db.opts.Clock()
	g := &glances{files: files, done: make(chan struct{})}
	s.db.checks.mu.Lock()
	for i, h := range heads {
		if h == nil || !ages(h) {
			continue
		}
		key, ok := strings.CutPrefix(h.Artefact.Source, "file:")
		if !ok || len(h.DerivedFrom) > 0 || s.db.sources["file"] != Source(files) {
			open = append(open, i)
			continue
		}
		have := h.Source
		if last, known := s.db.checks.seen[checkKeyOf(h)]; known {
			if age := now.Sub(last.at); age >= 0 && age < time.Duration(policy) {
				continue
			}
			have = last.v
		}
		g.looks = append(g.looks, look{at: i, key: key, have: have})
	}
	s.db.checks.mu.Unlock()
	if len(g.looks) == 0 {
		return open
	}
	ctx, cancel := context.WithTimeout(ctx, s.db.opts.SourceTimeout)
	defer cancel()
	g.run()
	select {
	case <-g.done:
	case <-ctx.Done():
		g.next.Store(int64(len(g.looks))) // nobody waits for the rest
	}
	for i := range g.looks {
		l := &g.looks[i]
		switch state := l.state.Load(); {
		case state == lookSame:
			s.db.checks.put(checkKeyOf(heads[l.at]), checked{at: now, v: l.have})
		case g.failed(i, state):
			out[l.at] = freshness{dirty: true, reason: store.ReasonFetchFailed, err: ctx.Err()}
		default:
			open = append(open, l.at)
		}
	}
	slices.Sort(open)
	return open
}

// failed says whether a look took as long as a source may. Those behind the first began later than the time, and are probed
// by themselves.
func (g *glances) failed(i int, state int32) bool { return state == lookBegun && i < maxProbes }

// glances are looks at files. Those who look may outlive the deadline of who waits for them, so nobody else writes here.
type glances struct {
	files *fileSource
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
	have  Validator
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
	files *fileSource
	name  string
	root  *os.Root
}

func (o *opened) close() {
	if o.root != nil {
		o.root.Close()
	}
	o.root = nil
}

// same says whether a file looks as it did. A link that leads out of its directory is looked at from the root, by a probe.
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

// owner is the handle from which the source of an artefact is found: of the scope it lives in, not of the reader's. Else
// what a child scope calls by the same name would be written into its parent.
func (s *Scope) owner(h *Head) *Scope {
	if h.Scope == s.name {
		return s
	}
	o := *s
	o.name, o.chain = h.Scope, store.ScopeChain(h.Scope)
	return &o
}

// ask probes the source of an artefact and fetches it when it changed. Nothing is written yet.
func (s *Scope) ask(ctx context.Context, h *Head, policy CheckPolicy, c *checking) freshness {
	k := checkKeyOf(h)
	last, known := s.db.checks.get(k)
	now := s.db.opts.Clock()
	if age := now.Sub(last.at); known && age >= 0 && age < time.Duration(policy) {
		return freshness{}
	}
	have := h.Source
	if known {
		have = last.v
	}
	got, err := s.probe(ctx, h.Artefact.Source, have)
	switch {
	case err != nil:
		return unfetched(err)
	case sameContent(have, got):
		s.db.checks.put(k, checked{at: now, v: got})
		return freshness{}
	}
	return s.refetch(ctx, h, got, c)
}

// sameContent compares hashes where both are known, else stamps.
func sameContent(a, b Validator) bool {
	if a.Hash != 0 && b.Hash != 0 {
		return a.Hash == b.Hash
	}
	return a.Stamp == b.Stamp
}

// ended says why what an artefact was made from is not to be used any more, "" when it is. Its source is not asked then.
func (s *Scope) ended(h *Head, id string, parent *Located) string {
	switch {
	case parent.Expires != 0 && parent.Expires <= codec.Micros(s.db.opts.Clock()):
		return "expired"
	case parent.By != 0 && (parent.Scope != h.Scope || !slices.Contains(h.Supersedes, id)): // it supersedes within its scope
		return "another artefact supersedes"
	}
	return ""
}

// samePages says whether the pages a parent reference names are still the same content under a newer head.
func (s *Scope) samePages(ctx context.Context, parent Ref, now Located) bool {
	then, err := s.db.store.Resolve(ctx, s.chain, parent)
	if err != nil || parent.Page == 0 && len(then.Pages) != len(now.Pages) {
		return false
	}
	for i, k := range then.Pages {
		j := i
		if parent.Page > 0 {
			j = parent.Page - 1
		}
		if j >= len(now.Pages) || now.Pages[j].Num != k.Num {
			return false
		}
	}
	return true
}

// refetch loads a dirty artefact anew; writeRefetched commits it as a version written by its source: the source is the
// author, so there is no gate. Of several fetches in this process one does the work and the others take its result;
// another process's newer version is adopted. found is what the probe saw.
func (s *Scope) refetch(ctx context.Context, h *Head, found Validator, c *checking) freshness {
	if s.db.opts.ReadOnly || s.dry {
		return freshness{dirty: true, reason: store.ReasonReadOnly, err: ErrReadOnly}
	}
	switch r := s.fetchOnce(ctx, h, found, c); {
	case r == nil:
		return freshness{}
	case r.err != nil:
		return unfetched(r.err)
	}
	return freshness{dirty: true, pending: true}
}

// fetchOnce fetches what a dirty artefact is now, or takes what somebody else is fetching; nil when that was settled
// between our probe and now.
func (s *Scope) fetchOnce(ctx context.Context, h *Head, found Validator, up *checking) *refetching {
	k := checkKeyOf(h)
	c := &s.db.checks
	c.mu.Lock()
	if first := c.busy[k]; first != nil {
		c.mu.Unlock()
		select {
		case <-first.done:
			if first.gaveUp {
				return s.fetchOnce(ctx, h, found, up)
			}
			up.took(k, first)
			return first
		case <-ctx.Done():
			return &refetching{err: ctx.Err()}
		}
	}
	if last, ok := c.seen[k]; ok && sameContent(last.v, found) {
		c.mu.Unlock()
		return nil
	}
	r := &refetching{done: make(chan struct{}), at: s.db.opts.Clock()}
	c.busy[k] = r
	c.mu.Unlock()
	up.began(k, r)
	defer close(r.done)
	if s.replaced(ctx, h) { // it is adopted
		return r
	}
	if r.got, r.err = s.fetch(ctx, h.Artefact.Source); r.err == nil {
		s.db.table.refetches.Add(1)
	}
	if r.gaveUp = r.err != nil && ctx.Err() != nil; r.gaveUp {
		c.release(map[checkKey]*refetching{k: r})
	}
	return r
}

// writeRefetched commits what a source gave.
func (s *Scope) writeRefetched(ctx context.Context, h *Head, r *refetching) freshness {
	k := checkKeyOf(h)
	if last, ok := s.db.checks.get(k); s.replaced(ctx, h) || ok && sameContent(last.v, r.got.Validator) {
		return freshness{dirty: true, refetched: true} // somebody else wrote it, or found that nothing was to be written
	}
	err := s.db.writeFetched(ctx, []*Head{h}, []Fetched{r.got})
	if errors.Is(err, ErrConflict) { // somebody wrote a newer version meanwhile: adopt it
		err = nil
	}
	if err != nil {
		return freshness{dirty: true, reason: unreadable(err), err: err}
	}
	if !s.replaced(ctx, h) { // the content is what it was, under a new stamp: no new version carries it
		s.db.checks.put(k, checked{at: r.at, v: r.got.Validator})
	}
	return freshness{dirty: true, refetched: true}
}

// release lets others fetch again.
func (c *checks) release(own map[checkKey]*refetching) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, r := range own {
		if c.busy[k] == r {
			delete(c.busy, k)
		}
	}
}

func (c *checking) fetched(k checkKey) *refetching {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got[k]
}

func (c *checking) took(k checkKey, r *refetching) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[k] = r
}

func (c *checking) began(k checkKey, r *refetching) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[k], c.own[k] = r, r
}

// replaced says whether an artefact has another version than this one by now.
func (s *Scope) replaced(ctx context.Context, h *Head) bool {
	l, err := s.db.store.Resolve(ctx, s.chain, Ref{Scope: h.Scope, ID: h.ID})
	return err != nil || l.Version != h.Version
}
