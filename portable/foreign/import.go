package foreign

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

// Options say how a file is read.
type Options struct {
	// Format of the file; "": it is found out, which takes an io.ReadSeeker.
	Format Format
	// Session is the group of messages that the file gives no conversation for: OpenAI, Responses and Anthropic. Their ids are made
	// of it and of their place, so give each file one of its own; "": "chat".
	Session string
	// Map is for JSONL: from a name of FieldNames to the path of a field, as in {"id": ".key", "text": ".body.text"}.
	Map map[string]string
	// Branches also takes the turns of a ChatGPT conversation that were regenerated or edited away.
	Branches bool
	// DryRun reads and compares, and writes nothing.
	DryRun bool
	// Progress, if not nil, hears how many bytes were read.
	Progress store.Progress
}

// Report says what an import did.
type Report struct {
	Format Format `json:"format"`
	// Why says how the format was found out; "": it was given.
	Why     string `json:"why,omitempty"`
	Items   int    `json:"items"`
	New     int    `json:"new"`
	Changed int    `json:"changed"` // they have another version now
	Same    int    `json:"same"`
	Kept    int    `json:"kept"` // left alone: deleted or erased here, or lifted here and said otherwise by the file
	Empty   int    `json:"empty"`
	// Repeated counts items whose id comes again later in the file: only the last of them counts.
	Repeated int      `json:"repeated"`
	Kepts    []string `json:"kept_ids"` // up to 100 of those kept
	DryRun   bool     `json:"dry_run,omitempty"`
}

// Read reads a file and gives each item as an artefact: scratch, with the metadata of its origin. empty counts what has no words.
// The error is a *portable.LineError for what is wrong in the file, one of fn, or one of r.
func Read(ctx context.Context, r io.Reader, opts Options, fn func(a store.Artefact, line int) error) (empty int, err error) {
	if opts.Format == JSONL {
		if err := CheckMap(opts.Map); err != nil {
			return 0, err
		}
	}
	if _, err := ParseFormat(string(opts.Format)); err != nil {
		return 0, err
	}
	if opts.Session == "" {
		opts.Session = "chat"
	}
	x := &reading{opts: opts, seq: map[int]int64{}}
	s := newScanner(ctx, r, lists[opts.Format]...)
	if opts.Format == ChatGPT || opts.Format == Claude {
		s.limit = MaxChat
	}
	if opts.Progress != nil {
		s.told = func(n int64) { opts.Progress("bytes read", uint64(n), 0) }
	}
	err = s.each(func(e element) error {
		if e.rest {
			return x.container(e)
		}
		if err := check(e); err != nil {
			return err
		}
		all, err := x.items(e)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			empty++
		}
		for i := range all {
			if err := all[i].Check(); err != nil {
				var bad *store.InvalidError
				field := ""
				if errors.As(err, &bad) {
					field = bad.Field
				}
				return e.wrong(field, err)
			}
			if err := fn(all[i], e.line); err != nil {
				return err
			}
		}
		return nil
	})
	return empty, err
}

// reading is a file on its way through.
type reading struct {
	opts Options
	seq  map[int]int64 // turns of a chat so far, by container
}

// container looks at what a file says beside its items.
func (x *reading) container(e element) error {
	if x.opts.Format == PAM {
		return pamVersion(e)
	}
	return nil
}

// items are the artefacts of one element.
func (x *reading) items(e element) ([]store.Artefact, error) {
	one := func(a store.Artefact, err error) ([]store.Artefact, error) {
		if err != nil {
			return nil, err
		}
		return []store.Artefact{a}, nil
	}
	switch x.opts.Format {
	case Mem0:
		return mem0(e)
	case MCPMemory:
		return mcpMemory(e)
	case ChatGPT:
		return chatGPT(e, x.opts.Branches)
	case Claude:
		return claude(e)
	case LangGraph:
		return one(langGraph(e))
	case PAM:
		return one(pam(e))
	case JSONL:
		return one(mapped(e, x.opts.Map))
	}
	return x.chat(e)
}

// chat are the turns of a message. A file is one conversation, unless each of its lines is a list of messages.
func (x *reading) chat(e element) (out []store.Artefact, err error) {
	group, n := x.opts.Session, 0
	if e.key != "" && e.container > 0 {
		n = e.container
		group = fmt.Sprintf("%s-%d", group, n+1)
	}
	turns, err := messages(e)
	if err != nil {
		return nil, err
	}
	for _, m := range turns {
		x.seq[n]++
		a, ok := m.artefact()
		if !ok {
			continue
		}
		a.Group, a.Seq = label(group), x.seq[n]
		key := fmt.Sprintf("%s/%d", group, a.Seq)
		if m.ID != "" && x.opts.Format == Responses {
			key = group + "/" + m.ID
		}
		out = append(out, item(x.opts.Format, key, a, nil))
	}
	return out, nil
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
func Import(ctx context.Context, scope *ctxpage.Scope, r io.Reader, opts Options) (*Report, error) {
	rep := &Report{Format: opts.Format, Kepts: []string{}, DryRun: opts.DryRun}
	if opts.Format == "" {
		s, ok := r.(io.ReadSeeker)
		if !ok {
			return nil, store.Invalid("format", "none, and a file that can be read only once", "one of "+list())
		}
		var err error
		if opts.Format, rep.Why, err = Detect(ctx, s); err != nil {
			return nil, err
		}
		if _, err := s.Seek(0, io.SeekStart); err != nil {
			return nil, fmt.Errorf("ctxpage: import: %w", err)
		}
		rep.Format = opts.Format
	}
	b := &bringer{ctx: ctx, scope: scope, rep: rep, seen: map[string]bool{}}
	if err := b.look(r, opts); err != nil {
		return rep, err
	}
	empty, err := Read(ctx, r, opts, b.take)
	rep.Empty = empty
	if err == nil {
		err = b.flush()
	}
	return rep, err
}

// bringer puts items in transactions.
type bringer struct {
	ctx   context.Context
	scope *ctxpage.Scope
	rep   *Report
	batch []store.Artefact
	bytes int
	seen  map[string]bool // ids in the batch
	twice *repeats        // nil: the file can be read only once
}

// look reads a file that can be read twice for the first time.
func (b *bringer) look(r io.Reader, opts Options) error {
	s, ok := r.(io.ReadSeeker)
	if !ok {
		return nil
	}
	begin, err := s.Seek(0, io.SeekCurrent)
	if err != nil { // a pipe
		return nil
	}
	if told := opts.Progress; told != nil {
		opts.Progress = func(_ string, done, total uint64) { told("bytes checked", done, total) }
	}
	twice, n := newRepeats(), 0
	if _, err := Read(b.ctx, r, opts, func(a store.Artefact, _ int) error {
		twice.note(a.ID, n)
		n++
		return nil
	}); err != nil {
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

// flush compares the batch with what is there, and puts what is new.
func (b *bringer) flush() error {
	batch := b.batch
	b.batch, b.bytes = nil, 0
	clear(b.seen)
	var puts []store.Artefact
	for i := range batch {
		a := &batch[i]
		is, err := b.newest(a.ID)
		switch {
		case err != nil:
			return err
		case is == nil:
			b.rep.New++
		case is.Meta[MetaDigest] == a.Meta[MetaDigest] && !is.Deleted:
			b.rep.Same++
			continue
		case is.Deleted || is.Provenance != store.Scratch:
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
	})
}

// newest is the newest version of an id, which may be deleted; nil: there is none.
func (b *bringer) newest(id string) (*ctxpage.Version, error) {
	for v, err := range b.scope.Versions(b.ctx, id) {
		if errors.Is(err, store.ErrNotFound) || err == nil && v.Ref.Scope != b.scope.Name() { // an ancestor's is another one
			return nil, nil
		}
		return v, err
	}
	return nil, nil
}
