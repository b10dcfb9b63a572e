package portable

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/eraseplan"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
)

// An import reads lines and commits in the order of the file. Each kind is committed in full before the next begins, because later
// lines name versions of earlier ones.
//
// 	version   collected into a batch; flush commits it while the next lines are read (done, flying)
// 	state     collected into rows
// 	          then the pages of directives, which must be what the rows say (directives.go)
// 	held      one commit each
//
// Repeating is safe: what is in the database already is compared and skipped. importer belongs to one goroutine; the one that commits
// a batch touches only the store and done.
//
// Two old commits may share a new one. But a batch has at most one line of an artefact, and never an artefact beside one that
// supersedes it: their order would be lost.

// ImportOptions say how an export is brought in.
type ImportOptions struct {
	// By names the operator who vouches for the file; the audit has it.
	By string
	// State describes the rows of state (ctxpage.StateKinds).
	State []store.StateKind
	// Now and Rand are the clock and the randomness of batch ids.
	Now  func() time.Time
	Rand io.Reader
	// Roots are directories. File roots and recorded directories of the file are imported when they are at or below one of
	// them; the others are left out and listed (Imported.Withheld). Such rows let the database read files of this machine,
	// so a file that somebody else made brings none by default.
	Roots []string
	// Policies also imports retention policies and quotas. By default they are left out and listed: they make this
	// database drop what it holds, or refuse writes.
	Policies bool
	// Receipts are of erases that came after the export was made. The import leaves out what those erases took, by
	// their rules, and ignores receipts of erases that the export knows. The database remembers receipts for later
	// imports of exports of the same database. A database knows its own erases, so importing its own exports needs no
	// receipts.
	Receipts []*ops.Receipt
	// Counter counts the texts; nil: token.Default(). Admin.Import sets it to the counter of the database.
	Counter token.Counter
	// DryRun reads and compares everything, and writes nothing.
	DryRun bool
	// Progress, if not nil, is called from the calling goroutine.
	Progress store.Progress
}

// Tally counts what an import found of one kind.
type Tally struct {
	New   uint64 `json:"new"`   // written
	Same  uint64 `json:"same"`  // there already
	Other uint64 `json:"other"` // something else has the name; it stays, and what the file has is left out
}

// Imported says what an import did.
type Imported struct {
	Header   Header `json:"-"`
	Database string `json:"database"` // id of the database that the file is an export of
	LSN      uint64 `json:"lsn"`
	Versions Tally  `json:"versions"`
	State    Tally  `json:"state"`
	Held     Tally  `json:"held"`
	Erased   uint64 `json:"erased"` // versions left out, and rows with them: they were erased
	// Erasures are the traces of the erases after the export whose content the import looked for
	// and left out.
	Erasures []string `json:"erasures"`
	// Others are up to 100 names under which the database has something else.
	Others []string `json:"others"`
	// Withheld names what was left out because ImportOptions.Roots and Policies did not ask for it.
	Withheld []string `json:"withheld"`
	DryRun   bool     `json:"dry_run,omitempty"`
}

// The limits of one commit.
const (
	batchVersions = 1000
	batchBytes    = 8 << 20
	batchLeaf     = 1 << 20 // bytes of the audit leaf, about
	batchRows     = 500
	maxOthers     = 100
)

type importer struct {
	ctx  context.Context
	st   store.Store
	opts ImportOptions
	in   *lineReader
	rep  Imported
	head *Header
	want Counts // 0: not known

	counted counted

	began int64               // where the file begins, if it can seek
	gone  *eraseplan.Earlier  // what erases took after the export; nil: nothing
	given []store.EraseReport // by receipts

	batch    []store.Carried
	lsn      uint64 // of the last version in it, there
	bytes    int
	leaf     int
	inBatch  map[store.Ref]bool // that batch writes
	replaced map[store.Ref]bool // that batch supersedes
	rows     []store.StateRow
	done     chan error         // of the commit under way; nil: there is none
	flying   map[store.Ref]bool // that it writes

	others   map[store.Ref]bool   // artefacts that are something else here
	erased   map[store.Ref]bool   // artefacts whose erase the file has, too
	sessions map[string]bool      // that lost turns to an erase here: scope, 0, id
	lost     map[string]bool      // scopes of which something was erased here
	stays    map[string]bool      // scopes of which something is here, or comes
	dry      map[store.Ref]uint32 // newest version, as a dry run would have made it
	decided  decided
}

// Import brings an export into a database, up to a thousand versions with each commit. After a crash, repeat it. Content that the
// database has under the same name stays as it is and is counted (Tally.Other). If r is an io.Seeker, the whole file is verified
// before anything is written.
//
// Content that was erased after the export was made is left out. Import knows of such erases from this database, if the export is one
// of this database, or from Receipts. It then reads the file twice, so r must be an io.Seeker.
//
// Errors: *LineError with line and field for what is wrong in the file, ops.ErrReceipt, ErrNewerFormat, ErrConflict if the same
// artefacts are written during the import (repeat it), and errors of the store.
func Import(ctx context.Context, st store.Store, r io.Reader, opts ImportOptions) (*Imported, error) {
	if err := store.CheckID("by", opts.By); err != nil {
		return nil, err
	}
	if opts.Progress == nil {
		opts.Progress = func(string, uint64, uint64) {}
	}
	if opts.Counter == nil {
		opts.Counter = token.Default()
	}
	m := &importer{
		ctx: ctx, st: st, opts: opts, counted: counted{Counter: opts.Counter}, inBatch: map[store.Ref]bool{}, replaced: map[store.Ref]bool{}, others: map[store.Ref]bool{},
		erased: map[store.Ref]bool{}, sessions: map[string]bool{}, lost: map[string]bool{}, stays: map[string]bool{}, dry: map[store.Ref]uint32{}, rep: Imported{Others: []string{}, Erasures: []string{}, Withheld: []string{}, DryRun: opts.DryRun},
	}
	if s, ok := r.(io.ReadSeeker); ok {
		at, err := s.Seek(0, io.SeekCurrent)
		if err == nil {
			if _, m.want, err = Verify(ctx, r, opts.Progress); err != nil {
				return nil, err
			}
			if _, err = s.Seek(at, io.SeekStart); err != nil {
				return nil, fmt.Errorf("ctxpage: import: %w", err)
			}
			m.began = at
		}
	}
	m.in = newLineReader(r)
	var err error
	if m.head, err = m.in.header(); err != nil {
		return nil, err
	}
	m.rep.Header, m.rep.Database, m.rep.LSN = *m.head, m.head.Database, m.head.LSN
	if err = m.findErased(r); err == nil {
		err = m.remember()
	}
	if err != nil {
		return nil, err
	}
	err = m.lines()
	late := m.wait()
	return &m.rep, cmp.Or(err, late) // a full disk fails both batches with the same words
}

func (m *importer) lines() error {
	for {
		b, err := m.in.next()
		if err == nil && m.in.line%256 == 0 {
			err = m.ctx.Err()
			m.opts.Progress("lines", uint64(m.in.line), m.want.Lines)
		}
		if err != nil {
			return m.in.cutOff(err)
		}
		var is raw
		if is.Type, err = typeOf(b); err != nil {
			return m.in.jsonError(err)
		}
		if is.Type != typeEnd {
			m.in.sum.Write(b)
		}
		if is.Type != typeVersion {
			if err := cmp.Or(m.flush(), m.wait()); err != nil {
				return err
			}
		}
		switch is.Type {
		case typeVersion:
			err = m.version(b)
		case typeState:
			err = m.stateLine(b)
		case typeHeld:
			err = cmp.Or(m.flushRows(), m.directives(), m.heldLine(b))
		case typeQuestion: // for people
		case typeEnd:
			if err := cmp.Or(m.flushRows(), m.directives()); err != nil {
				return err
			}
			_, err = m.in.end(b)
			return err
		default:
			err = store.Invalid("type", fmt.Sprintf("%q", is.Type), "version, state, held, question or end")
		}
		if err != nil {
			return m.in.in(err)
		}
	}
}

// typeOf returns the type of a line. Export writes it first; a line of another program is decoded.
func typeOf(b []byte) (string, error) {
	if rest, ok := bytes.CutPrefix(b, []byte(`{"type":"`)); ok {
		if name, _, ok := bytes.Cut(rest[:min(len(rest), 16)], []byte(`"`)); ok {
			return string(name), nil
		}
	}
	var is raw
	err := json.Unmarshal(b, &is)
	return is.Type, err
}

func (m *importer) version(b []byte) error {
	line := new(versionLine)
	if err := m.in.decode(b, line); err != nil {
		return err
	}
	switch {
	case line.ID == directivelog.PageID:
		return m.keepDirectives(line, len(b))
	case strings.HasPrefix(line.ID, store.ReservedPrefix) && line.Artefact != nil && line.Artefact.Kind == store.KindSystem:
		return fieldError("artefact.kind", store.Invalid("kind", "system, of the reserved id "+strconv.Quote(line.ID), "another kind: only directives instruct under a reserved id"))
	}
	return m.take(line)
}

func (m *importer) take(line *versionLine) error {
	var all []store.Carried
	for i := range line.Before {
		c, err := line.Before[i].carried(&m.counted)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	c, err := line.carried(&m.counted)
	if err != nil {
		return err
	}
	all = append(all, c)
	ref := store.Ref{Scope: line.Scope, ID: line.ID}
	if m.gone != nil && m.gone.Takes(ref) {
		m.rep.Erased += uint64(len(all))
		return nil
	}
	if m.inBatch[ref] {
		if err := m.flush(); err != nil {
			return err
		}
	}
	if m.flying[ref] {
		if err := m.wait(); err != nil {
			return err
		}
	}
	if all, err = m.missing(ref, all); err != nil || len(all) == 0 {
		return err
	}
	if err := format.CheckIDs((&store.Batch{Carry: all})); err != nil {
		return err
	}
	return m.add(ref, all, line.LSN)
}

// add puts versions of an artefact into the batch. Versions of one old commit stay in one commit.
func (m *importer) add(ref store.Ref, all []store.Carried, lsn uint64) error {
	full := len(m.batch)+len(all) > batchVersions || m.bytes > batchBytes || m.leaf > batchLeaf || m.replaced[ref]
	for i := range all {
		for _, id := range all[i].Head.Supersedes {
			full = full || m.replaced[store.Ref{Scope: ref.Scope, ID: id}]
		}
	}
	if full && len(m.batch) > 0 && lsn != m.lsn {
		if err := m.flush(); err != nil {
			return err
		}
	}
	m.lsn = lsn
	for i := range all {
		for _, id := range all[i].Head.Supersedes {
			m.replaced[store.Ref{Scope: ref.Scope, ID: id}] = true
		}
		for _, text := range all[i].Texts {
			m.bytes += len(text)
		}
		m.leaf += (1 + len(all[i].Texts)) * (80 + 3*(len(ref.Scope)+len(ref.ID)))
	}
	m.inBatch[ref] = true
	if m.batch == nil {
		m.batch = make([]store.Carried, 0, batchVersions)
	}
	m.batch = append(m.batch, all...)
	return nil
}

func (m *importer) flush() error {
	if err := m.wait(); err != nil || len(m.batch) == 0 {
		return err
	}
	batch, refs := m.batch, m.inBatch
	m.batch, m.bytes, m.leaf, m.inBatch = nil, 0, 0, map[store.Ref]bool{}
	clear(m.replaced)
	m.rep.Versions.New += uint64(len(batch))
	if m.opts.DryRun {
		for i := range batch {
			h := &batch[i].Head
			m.dry[store.Ref{Scope: h.Scope, ID: h.ID}] = h.Version
		}
		return nil
	}
	done := make(chan error, 1)
	m.done, m.flying = done, refs
	go func() { done <- m.commit(store.Batch{Carry: batch}) }()
	return nil
}

func (m *importer) wait() error {
	if m.done == nil {
		return nil
	}
	err := <-m.done
	m.done, m.flying = nil, nil
	return err
}

func (m *importer) commit(b store.Batch) (err error) {
	if b.Now.IsZero() {
		b.Now = m.opts.Now()
	}
	if b.ID.IsZero() {
		if b.ID, err = store.NewID(b.Now, m.opts.Rand); err != nil {
			return err
		}
	}
	if b.Scope == "" {
		b.Scope, b.Actor = store.OperatorScope, "operator"
	}
	if b.Hold == nil {
		b.Leaf = manifest.Record{Type: manifest.TypeCommit, Action: "import", By: m.opts.By, Reason: fmt.Sprintf("import of database %s as of lsn %d", m.head.Database, m.head.LSN)}
	}
	if _, err = m.st.Commit(m.ctx, b); errors.Is(err, store.ErrOutcomeUnknown) && m.ctx.Err() == nil {
		_, err = m.st.Commit(m.ctx, b)
	}
	return err
}

func (m *importer) other(t *Tally, n uint64, name string) {
	t.Other += n
	if len(m.rep.Others) < maxOthers {
		m.rep.Others = append(m.rep.Others, name)
	}
}

// An import compares each version of the file with the database and writes only those that continue it. An artefact is
// imported, skipped as the same, or left alone as another one under the same name; it is never mixed from both.

// missing returns the versions of a line that are not here yet. Versions are the same if they were put at the same moment with the same
// salts, which are random, and digests. If any version differs, the artefact is not changed.
func (m *importer) missing(ref store.Ref, all []store.Carried) ([]store.Carried, error) {
	if m.others[ref] {
		m.rep.Versions.Other += uint64(len(all))
		return nil, nil
	}
	newest, err := m.newest(ref)
	if err != nil {
		return nil, err
	}
	last := &all[len(all)-1].Head
	if last.ErasedBy != "" && last.Deleted {
		m.erased[ref] = true
	}
	if newest == nil {
		m.stays[ref.Scope] = true
		if first := &all[0].Head; first.Version != 1 && !first.Floor {
			return nil, fieldError("version", store.Invalid("version", "a version whose predecessors are neither in the file nor here", "the versions before it first"))
		}
		return all, nil
	}
	if newest.ErasedBy != "" && newest.Deleted && !m.erased[ref] && last.ErasedBy == "" {
		m.rep.Erased += uint64(len(all))
		m.lost[ref.Scope] = true
		if g := last.Group; g != "" {
			m.sessions[ref.Scope+"\x00"+g] = true
		}
		return nil, nil
	}
	m.stays[ref.Scope] = true
	n := 0
	for n < len(all) && all[n].Head.Version <= newest.Version {
		same, err := m.sameVersion(newest, &all[n].Head)
		if err != nil {
			return nil, err
		}
		if !same {
			return nil, m.differs(ref, all)
		}
		n++
	}
	m.rep.Versions.Same += uint64(n)
	if all = all[n:]; len(all) > 0 && all[0].Head.Version != newest.Version+1 {
		return nil, m.differs(ref, all)
	}
	return all, nil
}

func (m *importer) differs(ref store.Ref, all []store.Carried) error {
	m.others[ref] = true
	m.other(&m.rep.Versions, uint64(len(all)), ref.String())
	return nil
}

func (m *importer) newest(ref store.Ref) (*store.Head, error) {
	if v := m.dry[ref]; v != 0 {
		return &store.Head{Artefact: store.Artefact{ID: ref.ID}, Scope: ref.Scope, Version: v}, nil
	}
	return newestHead(m.ctx, m.st, ref)
}

func newestHead(ctx context.Context, st store.Store, ref store.Ref) (*store.Head, error) {
	page, err := st.Scan(ctx, store.ScanQuery{What: store.ScanHistory, Scopes: store.Scopes{ref.Scope}, ID: ref.ID, Limit: 1})
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil || len(page.Heads) == 0 {
		return nil, err
	}
	return page.Heads[0], nil
}

// lsnOf returns the LSN of an artefact for preconditions; 0: there is none, or it is deleted.
func lsnOf(ctx context.Context, st store.Store, ref store.Ref) (uint64, error) {
	h, err := newestHead(ctx, st, store.Ref{Scope: ref.Scope, ID: ref.ID})
	if err != nil || h == nil || h.Deleted {
		return 0, err
	}
	return h.LSN, nil
}

// sameVersion compares a version of the file with the one in the database. If either has lost its content, the two count as
// the same.
func (m *importer) sameVersion(newest *store.Head, h *store.Head) (bool, error) {
	if m.opts.DryRun && m.dry[store.Ref{Scope: h.Scope, ID: h.ID}] != 0 {
		return true, nil
	}
	if newest.Version == h.Version {
		return sameHead(newest, h), nil
	}
	l, err := m.st.Resolve(m.ctx, store.Scopes{h.Scope}, store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version})
	switch {
	case errors.Is(err, store.ErrGone):
		return true, nil
	case errors.Is(err, store.ErrNotFound):
		return h.Deleted, nil
	case err != nil:
		return false, err
	}
	if h.Gone {
		return true, nil
	}
	got, err := m.st.Load(m.ctx, nil, l.Pages[:1], store.WantHead)
	if err != nil {
		return false, err
	}
	if errors.Is(got[0].Err, store.ErrGone) {
		return true, nil
	}
	return got[0].Err == nil && sameHead(got[0].Head, h), got[0].Err
}

func sameHead(a, b *store.Head) bool {
	if a.ErasedBy != "" || b.ErasedBy != "" {
		return true
	}
	if !a.PutAt.Equal(b.PutAt) || a.Deleted != b.Deleted || len(a.Rows) != len(b.Rows) {
		return false
	}
	for i := range a.Rows {
		if !format.SameRow(&a.Rows[i], &b.Rows[i]) {
			return false
		}
	}
	return true
}
