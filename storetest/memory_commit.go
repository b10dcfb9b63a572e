package storetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// commit is a commit that is being made: its batch, its outcome and its leaf. Its view stays that of its predecessor
// while versions are written.
type commit struct {
	view
	batch *store.Batch
	out   store.Outcome
	leaf  manifest.Record
}

// commit judges a batch and makes a commit that writes, holds or rejects it. The batch is the store's own. A refused batch
// leaves a leaf and nothing else: its id may be used again.
func (v view) commit(b *store.Batch) (store.Outcome, error) {
	if known, err := v.known(b); known != nil || err != nil {
		return *cmp.Or(known, &store.Outcome{}), err
	}
	c := v.begin(b)
	hold, err := c.judge()
	switch {
	case err != nil:
		if c.leaf.Type, c.leaf.LSN = manifest.TypeConflict, v.lsn; c.leaf.Status != "" {
			err = cmp.Or(c.leave(&c.leaf), err)
		}
		return store.Outcome{}, err
	case hold != "":
		c.out.Status, c.out.Reason, c.leaf.Type, c.leaf.Reason = store.StatusHeld, hold, manifest.TypeHeld, hold
		h := format.Hold(b, hold, c.out.Stale, c.out.LSN)
		h.Batch.Hold = nil
		c.held[b.ID] = h
	case b.Action == store.ActReject:
		c.out.Status, c.leaf.Type = store.StatusRejected, manifest.TypeReject
	case b.Action == store.ActApprove:
		c.leaf.Type = manifest.TypeApprove
		c.write()
	default:
		c.leaf.Type = cmp.Or(c.leaf.Type, manifest.TypeCommit)
		c.write()
	}
	if h, ok := c.held[b.From]; ok {
		h.Decided, h.By, h.Note, h.Outcome = format.Decision(b.Action), c.leaf.By, c.leaf.Note, c.out
		c.held[b.From] = h
	}
	return c.out, c.end()
}

// known refuses an invalid batch, and returns the outcome of one that was committed before. A review takes over what the held
// batch wanted; one that decides what was decided before has that outcome.
func (v view) known(b *store.Batch) (*store.Outcome, error) {
	if err := format.Admit(b); err != nil {
		return nil, err
	}
	if o, ok := v.outcomes[b.ID]; ok {
		if !bytes.Equal(o.bound, b.Bound) {
			return nil, store.Invalid("batch id", b.ID.String(), "an id of your own")
		}
		return &o.Outcome, nil
	}
	if format.Decision(b.Action) == "" {
		return nil, nil
	}
	h, err := v.waiting(b.From)
	if err != nil {
		return nil, err
	}
	h = own(h)
	format.TakeOver(b, &h.Batch)
	return format.Decided(b, &h)
}

// begin starts a commit and its leaf.
func (v view) begin(b *store.Batch) *commit {
	c := &commit{view: v, batch: b, leaf: b.Leaf, out: store.Outcome{LSN: v.lsn + 1, Leaf: v.log.Size()}}
	c.leaf.Trace, c.leaf.Batch, c.leaf.Parent, c.leaf.Scope, c.leaf.Actor = b.ID.String(), b.ID.String(), b.Trace, b.Scope, b.Actor
	c.leaf.Time, c.leaf.LSN, c.leaf.Writes = b.Now.UnixMicro(), c.out.LSN, nil
	if b.From != (ulid.ULID{}) {
		c.leaf.From = b.From.String()
	}
	return c
}

// end makes the commit the newest.
func (c *commit) end() error {
	c.newest, c.outcomes[c.batch.ID] = c.out.LSN, outcome{c.batch.Bound, c.out}
	c.leaf.Status = c.out.Status.String()
	return c.leave(&c.leaf)
}

// judge says why a batch is refused or held, in this order: conflict, stale context, what was asked. A batch that was held in
// another database was judged there.
func (c *commit) judge() (hold string, err error) {
	b := c.batch
	if b.Hold != nil {
		c.out.Stale = b.Hold.Stale
		return b.Reason, nil
	}
	if is := c.conflict(); is != nil {
		c.leaf.Status, c.leaf.Conflicts = "conflict", []manifest.Conflict{{Ref: is.Name(), Expect: is.Have, Found: is.Now}}
		return "", is
	}
	for i := range b.Carry { // looked at before anything is written
		for j := range b.Carry[i].Head.Rows {
			if _, _, _, err := format.CarriedPage(c.at(nameOf(&b.Carry[i].Head), 0), &b.Carry[i], j); err != nil {
				return "", err
			}
		}
	}
	c.stale()
	if hold, err = format.AfterStale(b, c.out.Stale); err != nil {
		c.leaf.Status, c.leaf.Reason = "stale", store.ReasonStaleContext
	}
	return hold, err
}

// conflict is the first precondition that does not hold. What is absent or deleted has LSN 0.
func (c *commit) conflict() *store.ConflictError {
	for _, e := range c.batch.Expect {
		var is uint64
		if h := c.at(name{e.Ref.Scope, e.Ref.ID}, 0); format.Live(h) {
			is = h.LSN
		}
		if is != e.LSN {
			return &store.ConflictError{Ref: e.Ref, Have: e.LSN, Now: is}
		}
	}
	for _, e := range c.batch.ExpectState {
		if is := c.state[e.Key].LSN; is != e.LSN {
			return &store.ConflictError{Key: e.Key, Have: e.LSN, Now: is}
		}
	}
	return format.CarriedConflict(c.batch, func(scope, id string) *store.Head {
		if h := c.at(name{scope, id}, 0); h.Version > 0 {
			return h
		}
		return nil
	})
}

// stale notes what the batch was written from and is not current any more. A draft, or a page of another database, is neither.
func (c *commit) stale() {
	for _, seen := range c.batch.Context {
		p := c.page(seen.Num)
		if p == nil {
			continue
		}
		st := manifest.Stale{Num: seen.Num, Seen: p.row().Version}
		switch is := c.answers(p); {
		case is == nil:
			st.Reason = "deleted"
		case is != p:
			st.Reason, st.Now = "replaced", is.row().Version
		case expired(p.head, c.batch.Now):
			st.Reason = "expired"
		default:
			continue
		}
		c.leaf.Stale = append(c.leaf.Stale, st)
		c.out.Stale = append(c.out.Stale, store.Ref{Scope: seen.Scope, ID: seen.ID, Page: seen.Page, Version: st.Seen})
	}
}

func (c *commit) write() {
	for i := range c.batch.Carry {
		c.carry(&c.batch.Carry[i])
	}
	for i := range c.batch.Puts {
		c.put(&c.batch.Puts[i])
	}
	for _, id := range c.batch.Deletes {
		if h := c.at(name{c.batch.Scope, id}, 0); h.Version > 0 && !h.Deleted {
			c.delete(format.Deletion(h, c.batch, c.out.LSN))
		}
	}
	c.setState(c.batch.State)
}

func (c *commit) setState(rows []store.StateRow) {
	for _, r := range rows {
		if delete(c.state, r.Key); r.Value != nil {
			c.state[r.Key] = store.StateRow{Key: r.Key, Value: r.Value, LSN: c.out.LSN}
		}
	}
}

// put makes a version of an artefact, or none where the put repeats the newest one. It is no repeat where it supersedes an
// artefact that is current, or where its own was superseded and it has no source. A page with the text of the page in its
// place goes on under its number, unless the artefact was superseded, or the page would be found by other words or
// neighbours.
func (c *commit) put(p *store.Put) {
	b := c.batch
	h := &store.Head{Artefact: p.Artefact, Scope: b.Scope, PutAt: b.Now, Actor: b.Actor, Trace: format.WrittenFrom(b, p), Source: p.Source, PartBytes: p.PartBytes, Counter: p.Counter, Turn: p.Turn}
	old := c.at(nameOf(h), 0)
	c.number(h, len(p.Pages))
	h.Version = old.Version + 1
	superseded := c.successor(old) != nil
	supersedes := slices.ContainsFunc(h.Supersedes, func(id string) bool {
		s := c.at(name{b.Scope, id}, 0)
		return format.Live(s) && s.LSN > 0 && c.successor(s) == nil
	})
	sameTexts := slices.EqualFunc(old.Rows, p.Pages, c.says)
	repeats := sameTexts && sameHead(old, h, p.AsOfGiven)
	if repeats && !supersedes && (!superseded || h.Artefact.Source != "") {
		c.note(old, 0, old.Rows[0].Num).Touch = true
		c.out.Refs, c.out.Repeats = append(c.out.Refs, refOf(old, 0)), append(c.out.Repeats, refOf(old, 0))
		return
	}
	was, is := old.Artefact, h.Artefact
	if !p.AsOfGiven || !sameTexts {
		was.CurrentAsOf = is.CurrentAsOf
	}
	goesOn := !superseded && (repeats || old.GroupNum == h.GroupNum && format.FoundAlike(&was, &is))
	noted := len(c.leaf.Writes)
	for i, np := range p.Pages {
		row := store.PageRow{Version: h.Version, Bytes: uint32(len(np.Text)), Hash: np.Hash, Salt: np.Salt, Digest: np.Digest}
		if goesOn && i < len(old.Rows) && c.says(old.Rows[i], np) {
			row = old.Rows[i]
		} else {
			c.newPage(h, i, &row, np.Text)
		}
		row.Tokens = uint32(np.Tokens)
		h.Rows = append(h.Rows, row)
	}
	if len(c.leaf.Writes) == noted {
		c.note(h, 0, h.Rows[0].Num)
	}
	c.add(h)
	c.out.Refs = append(c.out.Refs, refOf(h, 0))
}

// says reports whether a page has the text of a new one.
func (c *commit) says(r store.PageRow, np store.NewPage) bool {
	p := c.page(r.Num)
	return !p.gone && p.text == np.Text
}

// sameHead compares all of two versions but who wrote them and when, the stamp of the source, and what a session or a counter measured. A
// source that another host read is another source.
func sameHead(old, h *store.Head, asOf bool) bool {
	plain := func(h store.Head) store.Head {
		h.Actor, h.Source, h.PutAt, h.LSN, h.Version, h.Rows, h.Turn, h.Counter = "", store.Validator{Hash: h.Source.Hash}, time.Time{}, 0, 0, nil, nil, ""
		h.ExpiresAt, h.TTL = h.ExpiresAt.UTC().Round(time.Microsecond), 0
		if h.CurrentAsOf = h.CurrentAsOf.UTC().Round(time.Microsecond); !asOf {
			h.CurrentAsOf = time.Time{}
		}
		return h
	}
	return format.SourceHost(old) == format.SourceHost(h) && reflect.DeepEqual(plain(*old), plain(*h))
}

// delete enters the deletion of an artefact.
func (c *commit) delete(h *store.Head) {
	for i, r := range c.at(nameOf(h), 0).Rows {
		c.note(h, i+1, r.Num).Deleted = true
	}
	c.add(h)
	c.out.Refs = append(c.out.Refs, refOf(h, 0))
}

// carry writes a version as another database had it, under numbers of this one. Versions below a floor are gone. A page that
// the version before has goes on under its number.
func (c *commit) carry(carried *store.Carried) {
	h := &carried.Head
	h.Superseded = ""
	c.number(h, len(h.Rows))
	for version := uint32(1); h.Floor && version < h.Version; version++ {
		below := format.BelowFloor(h, version)
		below.LSN = h.LSN
		c.add(below)
	}
	prev, noted := view{c.database, h.LSN}.at(nameOf(h), 0), len(c.leaf.Writes)
	for i := range h.Rows {
		r := &h.Rows[i]
		known, text, fresh, _ := format.CarriedPage(prev, carried, i)
		if known != nil {
			r.Num, r.LSN, r.Version = known.Num, known.LSN, known.Version
		} else {
			c.newPage(h, i, r, text)
		}
		if p := c.page(r.Num); fresh {
			p.first, p.text, p.vecs, p.gone = *h, text, map[string][]float32{}, false
		}
	}
	if len(c.leaf.Writes) == noted {
		c.note(h, 0, 0).Deleted = h.Deleted
	}
	c.add(h)
}

// number assigns its numbers to a version of the commit. The pages of one artefact are neighbours, too.
func (c *commit) number(h *store.Head, pages int) {
	h.LSN, h.Art, h.GroupNum = c.out.LSN, numberOf(c.arts, nameOf(h)), 0
	numberOf(c.scopes, h.Scope)
	if h.Group != "" || pages > 1 {
		h.GroupNum = numberOf(c.groups, name{h.Scope, groupOf(h)})
	}
}

func groupOf(h *store.Head) string { return cmp.Or(h.Group, "\x00"+h.ID) }

// numberOf is the number of a name, the next one if it has none.
func numberOf[T comparable](numbers map[T]uint64, name T) uint64 {
	if numbers[name] == 0 {
		numbers[name] = uint64(len(numbers)) + 1
	}
	return numbers[name]
}

// newPage assigns a number to a page of a version.
func (c *commit) newPage(h *store.Head, i int, r *store.PageRow, text string) {
	r.Num, r.LSN = uint64(len(c.pages))+1, h.LSN
	c.pages = append(c.pages, &page{num: r.Num, first: *h, text: text, vecs: map[string][]float32{}, gone: h.Gone})
	c.note(h, i+1, r.Num).Digest = r.Digest[:]
}

// add enters a version, and ends the pages that it leaves out.
func (d *database) add(h *store.Head) {
	if before := d.versions[nameOf(h)]; len(before) > 0 {
		for _, r := range before[len(before)-1].Rows {
			d.page(r.Num).ended = h.LSN
		}
	}
	d.heads, d.versions[nameOf(h)] = append(d.heads, h), append(d.versions[nameOf(h)], h)
	for i, r := range h.Rows {
		p := d.page(r.Num)
		p.head, p.at, p.ended = h, i+1, 0
	}
}

// note names in the leaf what is written of a version, and which page; 0: the version.
func (c *commit) note(h *store.Head, page int, num uint64) *manifest.Write {
	c.leaf.Writes = append(c.leaf.Writes, manifest.Write{Num: num, Ref: refOf(h, page).String(), Version: h.Version})
	return &c.leaf.Writes[len(c.leaf.Writes)-1]
}

// leave adds a leaf to the audit. It has the digest of its question, whose text is kept beside it.
func (d *database) leave(leaf *manifest.Record) error {
	leaf.Index = d.log.Size()
	if leaf.Question != "" && !leaf.QuestionKept {
		salt := make([]byte, store.DigestSaltSize)
		if _, err := io.ReadFull(d.cfg.Rand, salt); err != nil {
			return err
		}
		digest := store.SaltedDigest(salt, leaf.Question)
		leaf.Query, leaf.QuestionKept = digest[:], true
		d.asked[leaf.Index] = *leaf
	}
	body, err := archive.Encode(leaf)
	if err == nil {
		err = d.log.Add(leaf.Index, body)
	}
	return err
}

// question returns the text of a leaf's question if the digest matches.
func (d *database) question(_ context.Context, leaf *manifest.Record) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	asked, ok := d.asked[leaf.Index]
	switch {
	case !ok:
		return "", manifest.ErrNoQuestion
	case !bytes.Equal(leaf.Query, asked.Query):
		return "", fmt.Errorf("%w: leaf %d has the digest of another question", store.ErrCorrupt, leaf.Index)
	}
	return asked.Question, nil
}
