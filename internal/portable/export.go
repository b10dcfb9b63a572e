package portable

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/ctxpage/ctxpage/internal/eraseplan"
	"github.com/ctxpage/ctxpage/store"
)

// ExportOptions configure an export.
type ExportOptions struct {
	// Scope or Subject restricts the export to a scope and the scopes below it, or to a person: everything that an erase of
	// them would remove, including held batches, state rows and questions. Both restrict it to the person in that scope and
	// those below it. Neither means the whole database.
	Scope, Subject string
	// NoSecret omits the secret of the database from a whole export. Contexts of the import then have other fences.
	NoSecret bool
	// Versions writes versions of artefacts only: no rows of state, no held batches, no questions, and no pages of
	// directives, which need their rows. State rows that are written meanwhile are then no conflict. A move begins with
	// such exports while writers go on (docs/scale.md).
	Versions bool
	// Since leaves out versions of commits up to an LSN: those that an export with this LSN in its header brought already.
	// Rows of state, held batches and pages of directives come whole, unless Versions is set. ErrConflict: something was
	// erased after that LSN, so the copy has content that must go.
	Since uint64
	// State describes the rows of state (ctxpage.StateKinds).
	State []store.StateKind
	// Now is the time in the header.
	Now time.Time
	// Resume continues an export that was cut off; see ReadPosition.
	Resume *Position
	// Progress, if not nil, is called from the calling goroutine.
	Progress store.Progress
}

// Exported counts what an export wrote.
type Exported struct {
	Database string `json:"database"`
	LSN      uint64 `json:"lsn"`
	Scope    string `json:"scope,omitempty"`
	Subject  string `json:"subject,omitempty"`
	Counts
	Bytes int64 `json:"bytes"`
}

type exporter struct {
	ctx  context.Context
	st   store.Store
	opts ExportOptions
	out  *lineWriter
	pick *selection // nil: all
	rep  Exported
}

// Export writes a database to w as of its newest commit. It needs 40 bytes of memory per version and a few megabytes. Reads and writes
// continue. If state rows are written, or content is erased, meanwhile, it returns ErrConflict: repeat it, or export a backup.
//
// Errors: ErrInvalid, ErrNotFound if nothing is held of a Subject or Scope, ErrConflict, errors of the store and of w.
func Export(ctx context.Context, st store.Store, w io.Writer, opts ExportOptions) (*Exported, error) {
	if opts.Progress == nil {
		opts.Progress = func(string, uint64, uint64) {}
	}
	x := &exporter{ctx: ctx, st: st, opts: opts, out: newLineWriter(w)}
	head, err := x.begin()
	if err != nil {
		return nil, err
	}
	ticket, err := st.Hold(ctx, store.Moment{}) // gc drops no version during the export, not even old ones
	if err != nil {
		return nil, err
	}
	defer st.Release(ticket)
	if err := x.choose(head); err != nil {
		return nil, err
	}
	steps := []func(*Header) error{x.versions, x.state, x.held, x.questions}
	if opts.Versions {
		steps = steps[:1]
	}
	for _, step := range steps {
		if err := step(head); err != nil {
			return nil, taken(err)
		}
	}
	if err := x.unerased(); err != nil { // it was asked before, for those who would wait for nothing
		return nil, err
	}
	return x.end()
}

// taken makes a conflict of content that went missing: because of the hold, only an erase takes what was listed before.
func taken(err error) error {
	if errors.Is(err, store.ErrGone) || errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%w: something was erased while the database was exported; export it again: %s", store.ErrConflict, err.Error())
	}
	return err
}

// begin makes the header, or takes it from the export that is resumed, and writes it.
func (x *exporter) begin() (*Header, error) {
	info, err := x.st.Info(x.ctx)
	if err != nil {
		return nil, err
	}
	head := &Header{Type: typeHeader, Format: Format, Version: Version, Database: info.ID, LSN: x.st.Mark().LSN, At: x.opts.Now.UTC(), Scope: x.opts.Scope, Subject: x.opts.Subject, Since: x.opts.Since, Versions: x.opts.Versions}
	if head.Since > head.LSN {
		return nil, store.Invalid("since", fmt.Sprintf("LSN %d", head.Since), fmt.Sprintf("the LSN of an earlier export of this database, which is at %d", head.LSN))
	}
	if x.opts.Scope == "" && x.opts.Subject == "" && !x.opts.NoSecret {
		head.Secret = info.Secret
	}
	if at := x.opts.Resume; at != nil {
		was := at.header
		if was.Database != head.Database || was.Scope != head.Scope || was.Subject != head.Subject || was.Since != head.Since || was.Versions != head.Versions || was.LSN > head.LSN {
			return nil, store.Invalid("resume", "an export of another database or of something else", "the export that was cut off, and the same options")
		}
		x.out.sum, x.out.lines, x.out.bytes = at.sum, at.lines, at.Bytes
		x.rep = Exported{Database: was.Database, LSN: was.LSN, Scope: was.Scope, Subject: was.Subject, Counts: at.counts}
		return &was, nil
	}
	signed, err := x.st.Head(x.ctx)
	if err != nil {
		return nil, err
	}
	head.Head = signed.String()
	done, err := eraseplan.Reports(x.ctx, x.st, true)
	if err != nil {
		return nil, err
	}
	if err := x.unerased(); err != nil {
		return nil, err
	}
	given, err := eraseplan.Remembered(x.ctx, x.st, "") // what they left out of an import is not here either
	if err != nil {
		return nil, err
	}
	done = append(done, given...)
	for i := range done {
		head.Erasures = append(head.Erasures, done[i].Trace)
	}
	x.rep = Exported{Database: head.Database, LSN: head.LSN, Scope: head.Scope, Subject: head.Subject}
	return head, x.out.line(head)
}

// unerased refuses to continue a copy that has what was erased since. An erase changes versions of earlier commits, which
// the rest of the copy does not have.
func (x *exporter) unerased() error {
	if x.opts.Since == 0 {
		return nil
	}
	list, err := eraseplan.Reports(x.ctx, x.st, false)
	if err != nil {
		return err
	}
	for i := range list {
		if r := &list[i]; r.LSN > x.opts.Since || r.LSN == 0 { // 0: it is not complete
			return fmt.Errorf("%w: erase %s came after lsn %d, so the copy may have what it took: erase the copy and export from the beginning", store.ErrConflict, r.Trace, x.opts.Since)
		}
	}
	return nil
}

func (x *exporter) end() (*Exported, error) {
	x.rep.Lines = x.out.lines + 1
	last := endLine{Type: typeEnd, Counts: x.rep.Counts, Digest: x.out.sum.Sum(nil)}
	if err := x.out.line(last); err != nil {
		return nil, err
	}
	x.rep.Bytes = x.out.bytes
	return &x.rep, x.out.flush()
}

func (x *exporter) versions(head *Header) error {
	var only map[store.Ref]bool
	if x.pick != nil {
		only = x.pick.refs
	}
	o, err := collect(x.ctx, x.st, head, only, x.opts.Progress)
	if err != nil {
		return err
	}
	x.rep.Artefacts = o.artefacts
	done, total := 0, len(o.entries)
	if at := x.opts.Resume; at != nil {
		if done = int(at.versions); done > total {
			return store.Invalid("resume", fmt.Sprintf("an export with %d versions", done), fmt.Sprintf("at most %d; gc ran since: begin anew", total))
		}
	}
	parts := make(chan loadedPart, 1)
	ctx, cancel := context.WithCancel(x.ctx)
	go x.load(ctx, o, o.entries[done:], parts)
	defer func() {
		cancel()
		for range parts { // nothing reads the store once this returns
		}
	}()
	for part := range parts {
		if part.err != nil {
			return part.err
		}
		if err := x.some(part.all); err != nil {
			return err
		}
		done += len(part.all)
		x.opts.Progress("versions", uint64(done), uint64(total))
	}
	return x.ctx.Err()
}

type loadedPart struct {
	all []pending
	err error
}

// load reads the versions part by part while the parts before are written.
func (x *exporter) load(ctx context.Context, o *plan, entries []entry, to chan<- loadedPart) {
	defer close(to)
	for len(entries) > 0 && ctx.Err() == nil {
		n := min(loadVersions, len(entries))
		all, err := x.heads(o, entries[:n])
		select {
		case to <- loadedPart{all, err}:
		case <-ctx.Done():
		}
		if entries = entries[n:]; err != nil {
			return
		}
	}
}

// The limits of one read.
const (
	loadVersions = 512
	loadBytes    = 8 << 20
)

// pending is a version on its way to its line.
type pending struct {
	head   *store.Head
	before []*store.Head // the versions right before it that have no content
	first  string        // the text of its first page, where that came with the head
	has    bool
}

func (x *exporter) some(all []pending) error {
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && (n == 0 || size < loadBytes) {
			for i := range all[n].head.Rows {
				size += int(all[n].head.Rows[i].Bytes)
			}
			n++
		}
		if err := x.write(all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// heads reads versions with the texts of their first pages, which are all that most have, and the versions before them that have no
// content.
func (x *exporter) heads(o *plan, part []entry) ([]pending, error) {
	var keys []store.PageKey
	for _, e := range part {
		if e.refAt == 0 {
			keys = append(keys, store.PageKey{Num: e.num, Version: e.version})
		}
	}
	loaded, err := x.st.Load(x.ctx, nil, keys, store.WantText)
	if err != nil {
		return nil, err
	}
	out := make([]pending, len(part))
	for i, e := range part {
		p := &out[i]
		if e.refAt > 0 {
			if p.head, p.before, err = x.headOf(o.refs[e.refAt-1], e.version); err != nil {
				return nil, err
			}
			continue
		}
		l := &loaded[0]
		loaded = loaded[1:]
		if l.Err != nil {
			return nil, fmt.Errorf("ctxpage: export: version %d of page %d: %w", e.version, e.num, l.Err)
		}
		p.head, p.first, p.has = l.Head, l.Text, true
	}
	return out, nil
}

// headOf finds a version in the history of its artefact, and the ones right before it that are gone.
func (x *exporter) headOf(ref store.Ref, version uint32) (head *store.Head, before []*store.Head, err error) {
	err = history(x.ctx, x.st, ref.Scope, ref.ID, func(h *store.Head) {
		switch {
		case h.Version == version:
			head = h
		case h.Version < version && h.Gone && head != nil && int(head.Version-h.Version) == len(before)+1:
			before = append([]*store.Head{h}, before...)
		}
	})
	if err == nil && head == nil {
		err = fmt.Errorf("ctxpage: export: %w: version %d of %s", store.ErrGone, version, ref)
	}
	if err != nil {
		return nil, nil, err
	}
	for _, h := range before {
		if h.Supersedes, err = x.stillSuperseded(h); err != nil {
			return nil, nil, err
		}
	}
	return head, before, nil
}

// stillSuperseded returns what a version without content still supersedes: its line comes late, and must not replace later puts.
func (x *exporter) stillSuperseded(h *store.Head) (ids []string, err error) {
	for _, id := range h.Supersedes {
		l, err := x.st.Resolve(x.ctx, store.Scopes{h.Scope}, store.Ref{Scope: h.Scope, ID: id})
		if err == nil && l.ByID == h.ID {
			ids = append(ids, id)
		}
		if err != nil && x.ctx.Err() != nil {
			return nil, err
		}
	}
	return ids, nil
}

func (x *exporter) write(all []pending) error {
	var keys []store.PageKey
	for i := range all {
		p := &all[i]
		for j := range p.head.Rows {
			if textHere(p.head, j, p.before) && (j > 0 || !p.has) {
				keys = append(keys, store.PageKey{Num: p.head.Rows[j].Num, Version: p.head.Version})
			}
		}
	}
	var texts []store.Loaded
	if len(keys) > 0 {
		var err error
		if texts, err = x.st.Load(x.ctx, nil, keys, store.WantText); err != nil {
			return err
		}
	}
	for i := range all {
		p := &all[i]
		line := versionLine{Type: typeVersion}
		line.of(p.head)
		for _, b := range p.before {
			line.Before = append(line.Before, oneVersion{})
			line.Before[len(line.Before)-1].of(b)
		}
		for j := range p.head.Rows {
			if !textHere(p.head, j, p.before) {
				continue
			}
			text := &p.first
			if j > 0 || !p.has {
				if texts[0].Err != nil {
					return fmt.Errorf("ctxpage: export: %s: %w", p.head.PageRef(j+1), texts[0].Err)
				}
				text, texts = &texts[0].Text, texts[1:]
			}
			line.Pages[j].Text, line.Pages[j].Hash = text, 0
			x.rep.Pages++
		}
		x.rep.Versions += uint64(1 + len(p.before))
		if err := x.out.line(&line); err != nil {
			return err
		}
	}
	return nil
}

// textHere reports whether the line of a version has the text of a page: where the page first appeared, or first has text.
func textHere(h *store.Head, i int, before []*store.Head) bool {
	return h.Rows[i].Version == h.Version || len(before) > 0
}

type lineWriter struct {
	w     *bufio.Writer
	sum   hash.Hash
	buf   bytes.Buffer
	enc   *json.Encoder
	lines uint64
	bytes int64
}

func newLineWriter(w io.Writer) *lineWriter {
	l := &lineWriter{w: bufio.NewWriterSize(w, 256<<10), sum: sha256.New()}
	l.enc = json.NewEncoder(&l.buf)
	l.enc.SetEscapeHTML(false)
	return l
}

func (l *lineWriter) line(v any) error {
	l.buf.Reset()
	if err := l.enc.Encode(v); err != nil {
		return fmt.Errorf("ctxpage: export: %w", err)
	}
	if l.buf.Len() > maxLine {
		return fmt.Errorf("ctxpage: export: %w", store.Invalid("line", fmt.Sprintf("%d bytes", l.buf.Len()), fmt.Sprintf("at most %d, which an import reads; a held batch with such texts can be decided first", maxLine)))
	}
	l.sum.Write(l.buf.Bytes())
	l.lines, l.bytes = l.lines+1, l.bytes+int64(l.buf.Len())
	if _, err := l.w.Write(l.buf.Bytes()); err != nil {
		return fmt.Errorf("ctxpage: export: %w", err)
	}
	if l.buf.Cap() > 4<<20 {
		l.buf = bytes.Buffer{}
	}
	return nil
}

func (l *lineWriter) flush() error {
	if err := l.w.Flush(); err != nil {
		return fmt.Errorf("ctxpage: export: %w", err)
	}
	return nil
}
