package format

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// OutcomeDays bounds the age of a batch id whose outcome is remembered. A batch with an older id is
// refused, and so never applied twice.
const OutcomeDays = 7 * 24 * time.Hour

// idAhead bounds by how much the clock of the maker of a batch id is ahead of Batch.Now.
const idAhead = 12 * time.Hour

// Admit makes the checks of a batch that need nothing but the batch, and sets Bound if it is nil.
//
// The two limits on the age of an id belong together: an id is refused when it is older than
// outcomes are kept, so a repeated id is never applied twice; and an id from the future is refused
// because the newest id is the clock by which outcomes are forgotten.
func Admit(b *store.Batch) error {
	if err := store.CheckClock(b.Now); err != nil {
		return err
	}
	if age := b.Now.Sub(ulid.Time(b.ID.Time())); age > OutcomeDays {
		return fmt.Errorf("%w: %s is %s old; use a new id", store.ErrTxnExpired, b.ID, age.Round(time.Hour))
	}
	if now := max(b.Now.UnixMilli(), 0); b.ID.Time() > uint64(now+idAhead.Milliseconds()) {
		return store.Invalid("batch id", b.ID.String()+", of "+ulid.Time(b.ID.Time()).UTC().Format(time.DateOnly), "a ULID of about now")
	}
	if err := CheckIDs(b); err != nil {
		return err
	}
	if b.Bound == nil {
		Bind(b)
	}
	return nil
}

// Decision names the state of a held batch after an action: "" for one that decides nothing.
func Decision(a store.Action) string {
	return map[store.Action]string{store.ActApprove: "approved", store.ActReject: "rejected"}[a]
}

// Decided returns the first outcome of a held batch that was decided before in the way b asks for,
// or ErrReviewed if it was decided in the other way. Both are nil while the batch waits.
func Decided(b *store.Batch, h *store.HeldBatch) (*store.Outcome, error) {
	switch h.Decided {
	case "":
		return nil, nil
	case Decision(b.Action):
		return &h.Outcome, nil
	}
	return nil, fmt.Errorf("%w: %s was %s by %s", store.ErrReviewed, b.From, h.Decided, h.By)
}

// TakeOver makes a review write what the held batch wanted, in the name of its writer. The puts are
// shared with h; Raise changes them. Rows of state are not taken over: a held batch has none, and a row that a damaged or
// forged file claims for it would be applied unseen.
func TakeOver(b *store.Batch, h *store.Batch) {
	b.Scope, b.Actor, b.Trace = h.Scope, h.Actor, h.Trace
	if b.Action != store.ActApprove {
		return
	}
	b.Expect, b.Context = h.Expect, h.Context
	b.Puts, b.Deletes = h.Puts, h.Deletes
	for i := range b.Puts {
		if b.Raise {
			b.Puts[i].Artefact.Provenance = store.HumanVerified
		}
	}
}

// AfterStale returns the reason to hold a batch, or the error that refuses it. If both are zero the
// batch is applied. A rejection ignores staleness, because it writes nothing. An approval must name
// it (Force), so that the reviewer has seen it.
func AfterStale(b *store.Batch, stale []store.Ref) (hold string, err error) {
	switch {
	case b.Action == store.ActReject:
		return "", nil
	case b.Action == store.ActHold:
		return b.Reason, nil
	case len(stale) == 0 || b.OnStale == store.AllowStale || b.Force:
		return "", nil
	case b.Action == store.ActApprove:
		return "", fmt.Errorf("%w: %v; look at them, and approve them as stale if they do not matter", store.ErrStaleContext, stale)
	case b.OnStale == store.FailStale || len(b.State) > 0: // a held batch has no rows of state
		return "", fmt.Errorf("%w: %v", store.ErrStaleContext, stale)
	}
	return store.ReasonStaleContext, nil
}

// Hold makes the held batch of a batch, which may have been held or decided in another database.
func Hold(b *store.Batch, reason string, stale []store.Ref, lsn uint64) store.HeldBatch {
	was := cmp.Or(b.Hold, &store.CarriedHold{})
	return store.HeldBatch{
		Batch: *b, Reason: reason, Stale: stale, At: b.Now, LSN: lsn,
		Decided: was.Decided, By: was.By, Note: was.Note, Outcome: was.Outcome,
	}
}

// Deletion is the version that a batch makes of an artefact when it deletes it. It supersedes
// nothing; else it would retire what was put again since.
func Deletion(newest *store.Head, b *store.Batch, lsn uint64) *store.Head {
	h := *newest
	h.Deleted, h.Version, h.LSN, h.PutAt, h.Actor = true, newest.Version+1, lsn, b.Now, b.Actor
	h.Rows, h.Supersedes, h.Turn = nil, nil, nil
	return &h
}

// WrittenFrom is the trace that a version keeps, from its batch. What a user said was written from no context.
func WrittenFrom(b *store.Batch, p *store.Put) string {
	if p.Artefact.Role == "user" {
		return ""
	}
	return b.Trace
}

// Live reports whether a version has content: it is not a deletion, and neither gc nor an erase
// took it.
func Live(h *store.Head) bool { return !h.Deleted && !h.Gone }

// Ruled has the fields of a live page that the rules ask for.
type Ruled struct {
	Expires    int64 // microseconds; 0: never
	Kind       store.Kind
	Provenance store.Provenance
	Turn       bool // an agent or a tool said it in a conversation
	Own        bool // it is a turn of the session that asks; needed only of turns and below the floor
}

// Rule returns the first rule that keeps a page out of the candidates; "": none does. It defines the rules and the order in
// which they are reported, for every store: an expired page below the floor counts as expired.
func Rule(q *store.CandidateQuery, p *Ruled) triage.Reason {
	switch {
	case p.Expires != 0 && p.Expires <= q.Now.UnixMicro():
		return triage.Expired
	case p.Kind == store.KindSystem:
		return ""
	case p.Provenance < q.Floor && !p.Own:
		return triage.BelowFloor
	case p.Turn && !p.Own:
		return triage.OtherSession
	case len(q.Kinds) > 0 && !slices.Contains(q.Kinds, p.Kind):
		return triage.OtherKind
	}
	return ""
}

// LeavesOut reports whether the filter excludes a version that has not been put yet, as of the
// given time.
func LeavesOut(q *store.CandidateQuery, h *store.Head, now time.Time) bool {
	if q.Filter.IsZero() || !q.Strict && h.Kind == store.KindSystem || q.Session != "" && h.Group == q.Session {
		return false
	}
	if h.PutAt.IsZero() {
		put := *h
		put.PutAt = now
		h = &put
	}
	return !q.Filter.Match(h)
}

// CarriedConflict is the first artefact that the carried versions do not continue; nil: there is
// none. newest returns the newest version of an artefact, nil if there is none. A version that does
// not follow it means that one is missing between, or that both databases wrote the artefact since:
// neither can be merged, so the caller decides.
func CarriedConflict(b *store.Batch, newest func(scope, id string) *store.Head) *store.ConflictError {
	if len(b.Carry) == 0 {
		return nil
	}
	seen := map[store.Ref]bool{}
	for i := range b.Carry {
		h := &b.Carry[i].Head
		ref := store.Ref{Scope: h.Scope, ID: h.ID}
		if seen[ref] { // Batch.CheckIDs compared those
			continue
		}
		seen[ref] = true
		switch p := newest(h.Scope, h.ID); {
		case p == nil && (h.Version == 1 || h.Floor):
		case p == nil:
			return &store.ConflictError{Ref: ref}
		case p.Version+1 != h.Version || h.Floor:
			return &store.ConflictError{Ref: ref, Now: p.LSN}
		}
	}
	return nil
}

// PageOf finds the page of a version that a carried row describes; nil: it has none. Pages are the
// same if salt and digest are: salts come along with a carried version.
func PageOf(h *store.Head, r *store.PageRow) *store.PageRow {
	for i := 0; h != nil && i < len(h.Rows); i++ {
		if SameRow(&h.Rows[i], r) {
			return &h.Rows[i]
		}
	}
	return nil
}

// CarriedPage finds page i of a carried version in its predecessor, which is nil if there is none. fresh: its text is to be
// stored, because the predecessor does not have it, or lost it. It is an error if that text is missing or has another digest.
func CarriedPage(prev *store.Head, c *store.Carried, i int) (known *store.PageRow, text string, fresh bool, err error) {
	known = PageOf(prev, &c.Head.Rows[i])
	if c.Head.Gone || known != nil && !prev.Gone {
		return known, "", false, nil
	}
	text, ok := CarriedText(c, i)
	if !ok {
		err = store.Invalid("carried version", c.Head.PageRef(i+1).String()+", whose text is missing or is not that of its digest", "the text of each page that the version before does not have")
	}
	return known, text, true, err
}

// checkCarried rejects what no database can have had. A version that is gone must be followed by a
// later one of its artefact in the same batch: otherwise the artefact could not be read in between.
func checkCarried(b *store.Batch) error {
	if b.Hold != nil && (b.Action != store.ActHold || b.Reason == "") {
		return store.Invalid("batch", "a hold of another database that is not held", "ActHold and a Reason")
	}
	if b.Hold != nil && b.Hold.Decided != "" && b.Hold.Decided != "approved" && b.Hold.Decided != "rejected" {
		return store.Invalid("decided", strconv.Quote(b.Hold.Decided), "approved, rejected or nothing")
	}
	if len(b.Carry) == 0 {
		return nil
	}
	if b.Action != store.ActApply || len(b.Puts)+len(b.Deletes) > 0 {
		return store.Invalid("batch", "carried versions beside other writes", "ActApply and no puts and deletes")
	}
	last, open := map[store.Ref]*store.Head{}, 0
	for i := range b.Carry {
		c := &b.Carry[i]
		h := &c.Head
		ref := store.Ref{Scope: h.Scope, ID: h.ID}
		prev := last[ref]
		if prev != nil && (!prev.Gone || h.Version != prev.Version+1) {
			return store.Invalid("batch", "two writes of "+strconv.Quote(h.ID), "each artefact to be written once; versions that are gone come before the one that follows them")
		}
		if err := checkVersion(c); err != nil {
			return err
		}
		if last[ref] = h; h.Gone && prev == nil {
			open++
		} else if !h.Gone && prev != nil {
			open--
		}
	}
	if open > 0 {
		return store.Invalid("batch", "a version that is gone, and none that follows it", "the version that follows it in the same batch")
	}
	return nil
}

// checkVersion looks at one carried version.
func checkVersion(c *store.Carried) error {
	h := &c.Head
	if err := store.CheckScope(h.Scope); err != nil {
		return err
	}
	if err := h.Artefact.Check(); err != nil {
		return err
	}
	where := store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}.String()
	switch {
	case h.Version == 0 || h.PutAt.IsZero() || !h.Provenance.Valid() || h.Kind == store.KindAuto:
		return store.Invalid("carried version", where+" without number, time, kind or provenance", "all of them")
	case h.Floor && !h.Gone, h.Gone && h.Deleted && h.ErasedBy == "", h.Forgotten:
		return store.Invalid("carried version", where+" with marks that exclude each other", "a version as a database has it")
	case h.Deleted && len(h.Rows) > 0, h.ErasedBy != "" && len(h.Rows) > 0, !h.Deleted && !h.Gone && len(h.Rows) == 0:
		return store.Invalid("carried version", where+" with "+strconv.Itoa(len(h.Rows))+" pages", "at least one; none of what is deleted or erased")
	case len(c.Texts) > len(h.Rows):
		return store.Invalid("carried version", where+" with more texts than pages", "a text for each page")
	}
	for i := range h.Rows {
		if v := h.Rows[i].Version; v == 0 || v > h.Version {
			return store.Invalid("carried version", where+" with a page of version "+strconv.FormatUint(uint64(v), 10), "1 to the version")
		}
	}
	return nil
}

// carriedText returns the text of a page; "" if none is given.
func carriedText(c *store.Carried, i int) string {
	if i < len(c.Texts) {
		return c.Texts[i]
	}
	return ""
}

// CarriedText returns the text of page i, counted from 0. ok reports whether it matches the digest in its
// row.
func CarriedText(c *store.Carried, i int) (text string, ok bool) {
	r := &c.Head.Rows[i]
	text = carriedText(c, i)
	return text, int(r.Bytes) == len(text) && r.Hash == store.ContentHash(text) && r.Digest == store.SaltedDigest(r.Salt[:], text)
}

// SameRow reports whether two rows describe the same page. Salts are random, so an equal salt
// means the same page.
func SameRow(a, b *store.PageRow) bool {
	return a.Salt == b.Salt && a.Digest == b.Digest && a.Salt != [store.DigestSaltSize]byte{}
}

// SamePage finds the page of the prev version that a new page repeats word for word. The fast hash
// only proposes: a text made to collide with it must not pass for the prev one, so the salted
// digest decides.
func SamePage(prev *store.Head, i int, np *store.NewPage) *store.PageRow {
	if prev == nil || i >= len(prev.Rows) {
		return nil
	}
	r := &prev.Rows[i]
	if r.Hash != np.Hash || int(r.Bytes) != len(np.Text) || store.SaltedDigest(r.Salt[:], np.Text) != r.Digest {
		return nil
	}
	return r
}

// Repeats reports whether a put says what its artefact says already.
func Repeats(prev, h *store.Head, put *store.Put) bool {
	return SameTexts(prev, put) && SameHead(prev, h, put.AsOfGiven)
}

// SameTexts reports whether a put has the pages of a version.
func SameTexts(prev *store.Head, put *store.Put) bool {
	for i := range put.Pages {
		if SamePage(prev, i, &put.Pages[i]) == nil {
			return false
		}
	}
	return len(prev.Rows) == len(put.Pages)
}

// SameHead reports whether a put changes nothing but the time of its writing and the stamp of its
// source. The host of the source is no mere stamp: the put of another host makes a version, which
// that host can check.
func SameHead(prev, h *store.Head, asOf bool) bool {
	fields := sameFields
	if asOf {
		fields = sameFieldsAsOf
	}
	told := len(h.Artefact.Unknown) == 0 || bytes.Equal(prev.Artefact.Unknown, h.Artefact.Unknown) // silence changes nothing
	return told && prev.Source.Hash == h.Source.Hash && SourceHost(prev) == SourceHost(h) && codec.Same(fields, prev, h)
}

// noteFields are the fields of an artefact that are information beside its text.
var noteFields = codec.But(&ArtefactFields, "ID", "Kind", "Provenance", "Text", "Name", "ToolCallID", "TTL", "CurrentAsOf", "Priority", "Relevance", "Seq").Known()

// PlainNote reports whether an artefact has nothing but a text and a kind. Any other field is
// information that an echo of its text would lose.
func PlainNote(a *store.Artefact) bool {
	var e codec.Encoder
	noteFields.Append(&e, a)
	return len(e.B) == 0
}

// Why a version goes (GCTally.Reason).
const (
	GoneSuperseded = "superseded"
	GoneDeleted    = "deleted"
	GoneExpired    = "expired"
)

// What keeps a version that has ended (GCTally.Reason).
const (
	KeptNewest  = "among the newest versions"
	KeptYoung   = "ended too recently"
	KeptExpired = "expired, which was not asked for"
	KeptHeld    = "named by a held batch"
	KeptParent  = "a live artefact is derived from it"
	KeptSource  = "the source of a live artefact"
	KeptSession = "named by a session"
	KeptInUse   = "in use by a transaction or a read"
	KeptShared  = "its pages are needed for a version that stays"
	KeptChanged = "its artefact was written to meanwhile"
)

// GoneError returns the error of a version that gc or an erase took: it says which version, when,
// and by which run. page 0 means the whole artefact.
func GoneError(h *store.Head, page int) error {
	if h.ErasedBy != "" {
		return erasedError(h, page)
	}
	ref := store.Ref{Scope: h.Scope, ID: h.ID, Page: page, Version: h.Version}
	when := ""
	if id, err := ulid.ParseStrict(h.GoneBy); err == nil {
		when = " at " + ulid.Time(id.Time()).UTC().Format(time.RFC3339)
	}
	return fmt.Errorf("%w: %s, dropped by gc %s%s", store.ErrGone, ref, h.GoneBy, when)
}

// erasedError says who erased a version and when.
func erasedError(h *store.Head, page int) error {
	ref := store.Ref{Scope: h.Scope, ID: h.ID, Page: page, Version: h.Version}
	return fmt.Errorf("%w at %s by %s: %s, trace %s", store.ErrErased, timeOf(h.GoneBy), h.ErasedBy, ref, h.GoneBy)
}

func timeOf(trace string) string {
	id, err := ulid.ParseStrict(trace)
	if err != nil {
		return "a time that is not known"
	}
	return ulid.Time(id.Time()).UTC().Format(time.RFC3339)
}

// NearFloor is the least cosine of a page that is proposed for its meaning. Without it a question about something that no page
// mentions would have an answer. Of 200 paraphrases (embed/static) nine in ten are above it with the small model, of pairs that have
// nothing in common one in twelve.
const NearFloor = .2

// A page takes a share of its neighbours' cosines: a question often uses words of the turn before
// the one it asks for.
const (
	LendNext  = .63
	LendAfter = .56
)

// CheckVectors refuses vectors that do not belong to their numbers one by one.
func CheckVectors(nums []uint64, vecs [][]float32) error {
	if len(nums) != len(vecs) {
		return store.Invalid("vectors", fmt.Sprintf("%d numbers and %d vectors", len(nums), len(vecs)), "a vector for each number")
	}
	for i, v := range vecs {
		if len(v) == 0 {
			return store.Invalid("vectors", fmt.Sprintf("a vector of no numbers for page %d", nums[i]), "1 number or more")
		}
	}
	return nil
}

// CheckUnknown refuses a batch whose places for fields of later releases have anything else: rows with them could not be
// read any more.
func CheckUnknown(b *store.Batch) error {
	err := unknown(&batchFields, b.Unknown)
	for i := 0; i < len(b.Puts) && err == nil; i++ {
		if err = unknown(&PutFields, b.Puts[i].Unknown); err == nil {
			err = unknown(&ArtefactFields, b.Puts[i].Artefact.Unknown)
		}
	}
	for i := 0; i < len(b.Carry) && err == nil; i++ {
		if err = unknown(coldFields, b.Carry[i].Head.Unknown); err == nil {
			err = unknown(&ArtefactFields, b.Carry[i].Head.Artefact.Unknown)
		}
	}
	return err
}

func unknown[T any](of *codec.Record[T], raw []byte) error {
	if len(raw) == 0 || codec.CheckUnknown(of, raw) == nil {
		return nil
	}
	return store.Invalid("unknown", fmt.Sprintf("%d bytes that are no fields of a later release", len(raw)), "the bytes that were read with the record, unchanged")
}

// boundBytes of the digest of a batch are in its outcome.
const boundBytes = 16

// Bind sets Bound to a digest of what the batch asks for. The digest leaves out what comes from
// the clock, the salts, the gate and the state of the database, so a host that repeats the batch
// after a crash computes the same one.
func Bind(b *store.Batch) {
	w := binders.Get().(*binder)
	defer w.keep()
	w.Str(b.Scope)
	w.Count(len(b.Puts))
	for i := range b.Puts {
		w.put(&b.Puts[i])
	}
	w.Count(len(b.Deletes))
	for _, id := range b.Deletes {
		w.Str(id)
	}
	for i := range b.Carry {
		h := &b.Carry[i].Head
		w.Str(h.Scope)
		w.Str(h.ID)
		w.U32(h.Version)
	}
	d := sha256.Sum256(w.B)
	b.Bound = d[:boundBytes:boundBytes]
}

// binder collects what a digest is made of.
type binder struct {
	codec.Encoder
	artefact store.Artefact // memory for put
}

// binders keep their memory: a batch has more bytes to collect than most else that a put of 1 KiB
// allocates.
var binders = sync.Pool{New: func() any { return new(binder) }}

// maxKeptBinder bounds the memory that a binder keeps, bytes.
const maxKeptBinder = 64 << 10

func (w *binder) keep() {
	if cap(w.B) <= maxKeptBinder {
		w.B, w.artefact = w.B[:0], store.Artefact{}
		binders.Put(w)
	}
}

// put appends what a put asks for.
func (w *binder) put(p *store.Put) {
	w.artefact = p.Artefact
	a := &w.artefact
	a.ExpiresAt, a.TTL = time.Time{}, 0
	if !p.AsOfGiven || a.Source != "" {
		a.CurrentAsOf = time.Time{}
	}
	if len(a.DerivedFrom) > 0 {
		a.Provenance = 0 // the lowest of its parents', as they are by now
	}
	a.DerivedFrom = slices.Clone(a.DerivedFrom)
	for i, r := range a.DerivedFrom {
		a.DerivedFrom[i] = store.Ref{Scope: r.Scope, ID: r.ID}
	}
	from := w.Begin()
	ArtefactFields.Append(&w.Encoder, a)
	w.End(from)
	if a.Source != "" {
		return // its text is the source's, which may have changed by now
	}
	size := 0
	for i := range p.Pages {
		size += len(p.Pages[i].Text)
	}
	w.Count(size)
	for i := range p.Pages { // joined: where a text is cut is no part of it
		w.B = append(w.B, p.Pages[i].Text...)
	}
}

// hostMark ends the stamp of a file where a host is recorded; its name follows.
const hostMark = "\nhost "

// StampOf is the stamp of a file of a host; with host "" it is the stamp alone.
func StampOf(stamp, host string) string {
	if host == "" {
		return stamp
	}
	return stamp + hostMark + host
}

// JoinParts joins the text parts of a message. It also returns the length in bytes of each part's
// text, 0 for a part that is not text.
func JoinParts(parts []store.Part) (string, []int) {
	var b strings.Builder
	sizes := make([]int, len(parts))
	for i, p := range parts {
		if p.Type == "text" {
			b.WriteString(p.Text)
			sizes[i] = len(p.Text)
		}
	}
	return b.String(), sizes
}

// StripParts copies parts without their texts, the form in which a Head has them.
func StripParts(parts []store.Part) []store.Part {
	out := slices.Clone(parts)
	for i := range out {
		if out[i].Type == "text" {
			out[i].Text = ""
		}
	}
	return out
}

// ClampUnit clamps a confidence to 0..1; NaN becomes 0.
func ClampUnit(x float64) float64 {
	if math.IsNaN(x) || x < 0 {
		return 0
	}
	return math.Min(x, 1)
}

// QuotaRows is the key prefix of the state rows that hold quotas, by scope. Stores read them; write
// them with ExpectState.
const QuotaRows = "quota/"

// DecodeQuota decodes the state row of a quota.
func DecodeQuota(row store.StateRow) (store.StoredQuota, error) {
	var q store.StoredQuota
	err := json.Unmarshal(row.Value, &q)
	if err == nil && q.Scope != strings.TrimPrefix(row.Key, QuotaRows) {
		err = fmt.Errorf("it is of scope %q", q.Scope)
	}
	if err == nil {
		err = q.Check()
	}
	if err != nil {
		err = &store.CorruptError{File: "state row " + row.Key, Err: err}
	}
	return q, err
}
