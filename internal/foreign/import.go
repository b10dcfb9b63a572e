package foreign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/store"
)

// Options say how a file is read.
type Options struct {
	// Format of the file; "": it is detected, which takes an io.ReadSeeker.
	Format Format
	// Session is the session of messages of a file that names no conversation; "": FORMAT/Name. The ids of messages without an id
	// are made of the session and their place, so give each file a session or a name of its own.
	Session string
	// Name stands for the conversation of a file that names none, as the name of the file may; "": "chat".
	Name string
	// Map is for JSONL: from a name of FieldNames to the path of a field, as in {"id": ".key", "text": ".body.text"}.
	Map map[string]string
	// Branches also takes the turns of a ChatGPT conversation that were regenerated or edited away.
	Branches bool
	// SkipUnknown leaves out and counts the lines of a transcript that have words and a type that the format does not know. They are
	// an error otherwise.
	SkipUnknown bool
	// Trust is the provenance of facts and of what the user said: Tool, Validated or Chunk; 0: Scratch. By and Why go into the audit,
	// and By is required. Messages of assistants, tools and systems are scratch in any case.
	Trust   store.Provenance
	By, Why string
	// DryRun reads and compares, and writes nothing.
	DryRun bool
	// Progress, if not nil, hears how many bytes were read, and of how many, 0 if that is not known.
	Progress store.Progress

	size uint64
}

// Left counts what a file has beside its items.
type Left struct {
	Empty int `json:"empty"` // items without words
	// Repeated counts items whose id comes again later in the file, and lines that only repeat another one.
	Repeated int `json:"repeated"`
	// Undated counts the times that cannot be read; their items have none. A time of expiry that cannot be read is an error.
	Undated int `json:"undated"`
	// Types counts lines of a transcript that are no turns, by type, and memories that are not in use, by state.
	Types map[string]int `json:"types,omitempty"`
	// Unknown counts lines with words that SkipUnknown left out, by type.
	Unknown map[string]int `json:"unknown,omitempty"`
}

// Report says what an import did.
type Report struct {
	Format Format `json:"format"`
	// Why says how the format was detected; "": it was given.
	Why     string `json:"why,omitempty"`
	Items   int    `json:"items"`
	New     int    `json:"new"`
	Changed int    `json:"changed"` // they have another version now
	Same    int    `json:"same"`
	Kept    int    `json:"kept"` // left alone: deleted or erased here, or raised here and said otherwise by the file
	// Live counts turns that were left out because their session has turns from elsewhere.
	Live  int      `json:"live"`
	Kepts []string `json:"kept_ids"` // up to 100 of those kept
	// Sessions are up to 100 of the sessions that the turns are in, and SessionCount how many there are.
	Sessions     []string `json:"sessions"`
	SessionCount int      `json:"session_count"`
	Trust        string   `json:"trust"`
	DryRun       bool     `json:"dry_run,omitempty"`
	Left
}

func (o *Options) check() error {
	if o.Format == JSONL {
		if err := CheckMap(o.Map); err != nil {
			return err
		}
	}
	switch {
	case o.Trust == 0, o.Trust == store.Scratch:
	case o.Trust == store.HumanVerified || !o.Trust.Valid():
		return store.Invalid("trust", o.Trust.String(), "scratch, tool, validated or chunk; Admin.Raise gives human-verified, by name")
	case o.By == "":
		return store.Invalid("by", "nobody", "who vouches for the file, for the audit")
	}
	_, err := ParseFormat(string(o.Format))
	return err
}

// Read reads a file and calls fn for each item as an artefact: scratch, with the metadata of its origin. It counts what is left out.
// The error is a *portable.LineError for what is wrong in the file, one of fn, or one of r.
func Read(ctx context.Context, r io.Reader, opts Options, fn func(a store.Artefact, line int) error) (Left, error) {
	if err := opts.check(); err != nil {
		return Left{}, err
	}
	x := newReading(opts)
	x.fn = fn
	err := x.read(ctx, r)
	if err == nil {
		err = x.end()
	}
	return x.left, err
}

// How much one transaction takes.
const (
	batchItems = 500
	batchBytes = 8 << 20
	maxNamed   = 100
)

// Import reads a file into a scope. An item that is there as the file says it is left alone, so a second run writes nothing.
//
// An io.ReadSeeker is read twice: a file that is wrong is found before anything is written, and of items with one id only the last
// counts. Of another reader, what came before an error may be in the scope, and items with one id become versions.
//
// A turn is not written to a session that has turns from elsewhere: two conversations would be mixed.
func Import(ctx context.Context, scope *ctxpage.Scope, r io.Reader, opts Options) (*Report, error) {
	x, why, err := begin(ctx, r, opts)
	if err != nil {
		return nil, err
	}
	return bring(ctx, scope, r, x, why, false)
}

func begin(ctx context.Context, r io.Reader, opts Options) (x *reading, why string, err error) {
	if opts.Format == "" {
		s, ok := r.(io.ReadSeeker)
		if !ok {
			return nil, "", store.Invalid("format", "none, and a file that can be read only once", "one of "+names())
		}
		if opts.Format, why, err = Detect(ctx, s); err != nil {
			return nil, "", err
		}
		if _, err := s.Seek(0, io.SeekStart); err != nil {
			return nil, "", fmt.Errorf("ctxpage: import: %w", err)
		}
	}
	if err := opts.check(); err != nil {
		return nil, "", err
	}
	return newReading(opts), why, nil
}

// bring imports what a reader has. If x goes on, it keeps the turn that waits for further lines, and a clone of it is written.
func bring(ctx context.Context, scope *ctxpage.Scope, r io.Reader, x *reading, why string, goesOn bool) (*Report, error) {
	rep := &Report{Format: x.opts.Format, Why: why, Kepts: []string{}, Sessions: []string{}, Trust: max(x.opts.Trust, store.Scratch).String(), DryRun: x.opts.DryRun}
	b := &bringer{ctx: ctx, scope: scope, rep: rep, opts: &x.opts, seen: map[string]bool{}, sessions: map[string]*bool{}}
	if err := b.look(r, x); err != nil {
		return rep, err
	}
	x.fn = b.take
	err := x.read(ctx, r)
	last := x
	if goesOn {
		last = x.clone()
		last.left = x.left
	}
	if err == nil {
		err = last.end()
	}
	last.left.Repeated += rep.Repeated
	if rep.Left = last.left; err == nil {
		err = b.flush()
	}
	rep.SessionCount = len(b.sessions)
	rep.Sessions = slices.Sorted(maps.Keys(b.sessions))
	rep.Sessions = rep.Sessions[:min(len(rep.Sessions), maxNamed)]
	return rep, err
}

type bringer struct {
	ctx   context.Context
	scope *ctxpage.Scope
	rep   *Report
	batch []store.Artefact
	bytes int
	opts  *Options
	seen  map[string]bool // ids in the batch
	twice *repeats        // nil: the file can be read only once
	// sessions has the sessions of the file. The value reports whether one has turns from elsewhere; nil: not asked yet.
	sessions map[string]*bool
	before   []string // sessions before the import, sorted
}

func (b *bringer) look(r io.Reader, x *reading) error {
	s, ok := r.(io.ReadSeeker)
	if !ok {
		return nil
	}
	begin, err := s.Seek(0, io.SeekCurrent)
	if err != nil { // a pipe
		return nil
	}
	if end, err := s.Seek(0, io.SeekEnd); err == nil {
		x.opts.size = uint64(end - begin)
	}
	if _, err := s.Seek(begin, io.SeekStart); err != nil {
		return fmt.Errorf("ctxpage: import: %w", err)
	}
	first := x.clone()
	if told := x.opts.Progress; told != nil {
		first.opts.Progress = func(_ string, done, total uint64) { told("bytes checked", done, total) }
	}
	twice, n := &repeats{marked: make([]uint64, repeatBits/64), last: map[uint64]int{}}, 0
	first.fn = func(a store.Artefact, _ int) error {
		twice.note(a.ID, n)
		n++
		return nil
	}
	err = first.read(b.ctx, r)
	if err == nil {
		err = first.end()
	}
	if err != nil {
		return err
	}
	if _, err := s.Seek(begin, io.SeekStart); err != nil {
		return fmt.Errorf("ctxpage: import: %w", err)
	}
	b.twice = twice
	return nil
}

func (b *bringer) take(a store.Artefact, line int) error {
	if b.rep.Items++; b.twice.repeated(a.ID, b.rep.Items-1) {
		b.rep.Repeated++
		return nil
	}
	if b.seen[a.ID] { // twice in a file that is read once: the later one counts
		if err := b.flush(); err != nil {
			return err
		}
	}
	b.seen[a.ID] = true
	b.batch = append(b.batch, a)
	b.bytes += len(a.Text)
	for i := range a.Parts {
		b.bytes += len(a.Parts[i].Text) + len(a.Parts[i].Detail)
	}
	if len(b.batch) >= batchItems || b.bytes >= batchBytes {
		return b.flush()
	}
	return nil
}

func (b *bringer) flush() error {
	batch := b.batch
	b.batch, b.bytes = nil, 0
	clear(b.seen)
	var puts []store.Artefact
	for i := range batch {
		a := &batch[i]
		if turnOf(a) && b.sessions[a.Group] == nil {
			b.sessions[a.Group] = nil // it counts, whoever its turns are from
		}
		if b.opts.Trust > store.Scratch && (a.Kind == store.KindFact || a.Role == user) {
			a.Provenance = b.opts.Trust
		}
		is, err := b.newest(a.ID)
		if err == nil && (is == nil || is.Meta[MetaDigest] != a.Meta[MetaDigest]) {
			var live bool
			if live, err = b.live(a); err == nil && live {
				b.rep.Live++
				continue
			}
		}
		switch {
		case err != nil:
			return err
		case is == nil:
			b.rep.New++
		case is.Meta[MetaDigest] == a.Meta[MetaDigest] && !is.Deleted && is.Provenance >= a.Provenance:
			b.rep.Same++
			continue
		case is.Deleted || is.Provenance > a.Provenance:
			if b.rep.Kept++; len(b.rep.Kepts) < maxNamed {
				b.rep.Kepts = append(b.rep.Kepts, a.ID)
			}
			continue
		default:
			b.rep.Changed++
		}
		puts = append(puts, *a)
	}
	if b.rep.DryRun || len(puts) == 0 {
		return nil
	}
	return b.scope.Update(b.ctx, func(tx *ctxpage.Txn) error {
		for _, a := range puts {
			if err := tx.Put(b.ctx, a); err != nil {
				return err
			}
		}
		return nil
	}, ctxpage.VouchedBy(b.opts.By, b.opts.Why))
}

// live reports whether the session of a turn has turns that did not come from a file of this format. It asks once for each session.
func (b *bringer) live(a *store.Artefact) (live bool, err error) {
	if !turnOf(a) {
		return false, nil
	}
	if known := b.sessions[a.Group]; known != nil {
		return *known, nil
	}
	if b.before == nil {
		if b.before, err = loop.Collect(b.scope.Sessions(b.ctx)); err != nil {
			return false, err
		}
		slices.Sort(b.before)
	}
	if _, there := slices.BinarySearch(b.before, a.Group); there {
		w, err := b.scope.Session(a.Group).Inspect(b.ctx)
		if err != nil {
			return false, err
		}
		for _, t := range w.Turns {
			live = live || !strings.HasPrefix(t.ID, string(b.opts.Format)+":")
		}
	}
	b.sessions[a.Group] = &live
	return live, nil
}

func turnOf(a *store.Artefact) bool { return a.Group != "" && a.Seq > 0 && a.Kind != store.KindFact }

func (b *bringer) newest(id string) (*ctxpage.Version, error) {
	for v, err := range b.scope.Versions(b.ctx, id) {
		if errors.Is(err, store.ErrNotFound) || err == nil && v.Ref.Scope != b.scope.Name() { // an ancestor's is another one
			return nil, nil
		}
		return v, err
	}
	return nil, nil
}
