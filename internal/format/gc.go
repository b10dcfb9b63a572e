package format

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Version is a version of an artefact as gc judges it.
type Version struct {
	Head  *store.Head
	Ended int64  // when it stopped being current, in microseconds
	By    uint64 // LSN of the commit that ended it; 0: it expired
	Why   string // why it may go, such as GoneSuperseded; "": it is current
	Kept  string // what keeps it, such as KeptYoung; "": it goes
	Pages int    // how many go with it: those that no newer version has
	Bytes int64  // of their texts
}

// Ref names the version.
func (v *Version) Ref() store.Ref {
	return store.Ref{Scope: v.Head.Scope, ID: v.Head.ID, Version: v.Head.Version}
}

// Judge says of the versions of one artefact, oldest first and whole, what goes and what keeps the
// rest. Versions without content are left out. named says what names a version or reads it, "" for
// nothing; it is asked last, of versions that would go otherwise.
func Judge(heads []*store.Head, job *store.GCJob, now time.Time, named func(*Version) string) []*Version {
	vs := versions(heads, job, codec.Micros(now))
	for i, v := range vs {
		if v.Kept = whyKept(v, len(vs)-1-i, job, codec.Micros(now)); v.Kept == "" {
			v.Kept = named(v)
		}
	}
	keepShared(vs)
	return vs
}

// versions returns the versions that still have content, oldest first. A version ended with the
// commit of the next one, or when it expired if that was earlier and expired versions may go.
//
// The pages and bytes of a version are those that go if all older versions go too: pages that no
// newer version has. So the sums in the report count each page once.
func versions(heads []*store.Head, job *store.GCJob, now int64) (vs []*Version) {
	for i, h := range heads {
		if h.Gone || len(h.Rows) == 0 {
			continue
		}
		v, expires := &Version{Head: h}, codec.Micros(h.ExpiresAt)
		switch current := i == len(heads)-1; {
		case current && expires != 0 && expires <= now:
			v.Ended, v.Why = expires, GoneExpired
		case !current:
			next := heads[i+1]
			v.Ended, v.By, v.Why = codec.Micros(next.PutAt), next.LSN, GoneSuperseded
			if next.Deleted {
				v.Why = GoneDeleted
			}
			if job.Expired && expires != 0 && expires < v.Ended {
				v.Ended = expires
			}
		}
		vs = append(vs, v)
	}
	for i, v := range vs {
		for j, r := range v.Head.Rows { // a page keeps its place
			if i == len(vs)-1 || j >= len(vs[i+1].Head.Rows) || vs[i+1].Head.Rows[j].Num != r.Num {
				v.Pages++
				v.Bytes += int64(r.Bytes)
			}
		}
	}
	return vs
}

// whyKept says what the job keeps; newer is the number of newer versions of the artefact.
func whyKept(v *Version, newer int, job *store.GCJob, now int64) string {
	keep, _ := KeepIn(job, v.Head.Scope)
	switch {
	case v.Why == "" || newer < keep.Versions:
		return KeptNewest
	case v.Why == GoneExpired && !job.Expired:
		return KeptExpired
	case v.Ended > now-keep.For.Microseconds():
		return KeptYoung
	}
	return ""
}

// keepShared keeps versions that share pages with versions that stay. A page is known by the newest
// version that has it, so that one stays if any does. And a version whose pages all stay
// would free nothing, so it stays too.
//
// Its time grows as the number of page rows does: one walk down the ages is enough, because a
// version that is made to stay is never older than the one that made it stay.
func keepShared(vs []*Version) {
	newest := map[uint64]*Version{} // by page
	for _, v := range vs {
		for _, r := range v.Head.Rows {
			newest[r.Num] = v
		}
	}
	for _, v := range vs { // oldest first: what one makes stay is not older
		for i := 0; i < len(v.Head.Rows) && v.Kept != ""; i++ {
			if n := newest[v.Head.Rows[i].Num]; n.Kept == "" {
				n.Kept = KeptShared
			}
		}
	}
	for _, v := range vs {
		if v.Kept == "" && !slices.ContainsFunc(v.Head.Rows, func(r store.PageRow) bool { return newest[r.Num].Kept == "" }) {
			v.Kept = KeptShared
		}
	}
}

// Tallies are the lines of a report while it is made, by reason.
type Tallies map[string]*tally

type tally struct {
	store.GCTally
	ended []int64 // of Nearest: when each ended, rising
}

// nearest bounds the versions that a line names.
const nearest = 5

// Add counts a version in the line of a reason.
func (t Tallies) Add(reason string, v *Version) {
	if t[reason] == nil {
		t[reason] = &tally{GCTally: store.GCTally{Reason: reason}}
	}
	Count(&t[reason].GCTally, v)
}

// AddKept counts a version that has ended and is kept, and names those that ended first.
func (t Tallies) AddKept(v *Version) {
	if v.Why == "" {
		return // it has not ended
	}
	t.Add(v.Kept, v)
	l := t[v.Kept]
	if at, _ := slices.BinarySearch(l.ended, v.Ended+1); at < nearest {
		l.ended, l.Nearest = slices.Insert(l.ended, at, v.Ended), slices.Insert(l.Nearest, at, v.Ref())
		n := min(len(l.ended), nearest)
		l.ended, l.Nearest = l.ended[:n], l.Nearest[:n]
	}
}

// Lines returns the lines in the order of their reasons.
func (t Tallies) Lines() (lines []store.GCTally) {
	for _, reason := range slices.Sorted(maps.Keys(t)) {
		lines = append(lines, t[reason].GCTally)
	}
	return lines
}

// Count adds a version, with what it frees, to a tally.
func Count(t *store.GCTally, v *Version) {
	t.Versions++
	t.Pages += v.Pages
	t.Bytes += v.Bytes
}

// ScopedGC reports whether the job is restricted to scopes, and so skips data that belongs to no single
// scope.
func ScopedGC(j *store.GCJob) bool { return j.Scope != "" || j.Scopes != nil }

// KeepIn returns what the job keeps in a scope; false means that the job does not touch the scope.
func KeepIn(j *store.GCJob, scope string) (store.GCKeep, bool) {
	if j.Scopes != nil {
		keep, ok := j.Scopes[scope]
		return keep, ok
	}
	return store.GCKeep{For: j.KeepFor, Versions: j.KeepVersions}, j.Scope == "" || j.Scope == scope
}

// What gc keeps by default: tombstones of each artefact, and names of deleted artefacts in the whole database.
const (
	DefaultKeepRecords = 4
	DefaultKeepNames   = 1024
)

// JournalRow is a row of a journal: its key, its number, and when it was written, in microseconds.
type JournalRow struct {
	Key    string
	Number uint64
	At     int64
}

// Replaced returns the rows of one journal that gc drops, without values. They are the oldest, without
// a gap, except for rows that the head row needs: the next row was written before limit,
// and the row is not among the newest. head reads the head row; it is asked only if
// rows may go.
func Replaced(j *store.StateJournal, rows []JournalRow, limit int64, keepVersions int, head func() ([]byte, error)) (old []store.StateRow, err error) {
	sort.Slice(rows, func(i, j int) bool { return rows[i].Number < rows[j].Number })
	last := len(rows) - max(1, j.Keep, keepVersions)
	if last <= 0 || rows[1].At > limit {
		return nil, nil
	}
	value, err := head()
	if err != nil {
		return nil, err
	}
	var needs []uint64
	if j.Needs != nil && value != nil {
		if needs, err = j.Needs(value); err != nil {
			return nil, err
		}
	}
	for i := 0; i < last && rows[i+1].At <= limit; i++ {
		if !slices.Contains(needs, rows[i].Number) {
			old = append(old, store.StateRow{Key: rows[i].Key})
		}
	}
	return old, nil
}

// Names has the references that keep versions from gc: by reference, by the LSN of the commit that wrote them, or
// by the number of a page. The values are the reasons in the report.
type Names struct {
	Refs map[store.Ref]string
	LSNs map[Written]string
	Nums map[uint64]string
	// passed has the pages of dropped versions that later versions have: a reference to such a page
	// leads to those.
	passed map[store.Ref][]uint64
}

// Written names the version of an artefact that a commit wrote.
type Written struct {
	Scope, ID string
	LSN       uint64
}

// NewNames makes an empty set.
func NewNames() Names {
	return Names{Refs: map[store.Ref]string{}, LSNs: map[Written]string{}, Nums: map[uint64]string{}, passed: map[store.Ref][]uint64{}}
}

// Held adds what a batch that waits for review was written from: the pages of its context, the
// versions that it expects to find unchanged, and the parents of its puts. Its reviewer must be able
// to see them.
func (n Names) Held(b *store.Batch) {
	for _, c := range b.Context {
		n.Nums[c.Num] = KeptHeld
	}
	for _, e := range b.Expect {
		n.LSNs[Written{e.Ref.Scope, e.Ref.ID, e.LSN}] = KeptHeld
	}
	for i := range b.Puts {
		n.lineage(b.Scope, &b.Puts[i].Artefact, KeptHeld, KeptHeld)
	}
}

// Lineage adds the versions that a live artefact of a scope was made from.
func (n Names) Lineage(scope string, a *store.Artefact) {
	n.lineage(scope, a, KeptParent, KeptSource)
}

// lineage adds DerivedFrom, and a "page:" source of a fixed version. The source may name no scope;
// then any scope of the chain can be meant.
func (n Names) lineage(scope string, a *store.Artefact, parent, source string) {
	for _, r := range a.DerivedFrom {
		n.ref(store.Ref{Scope: r.Scope, ID: r.ID, Version: r.Version}, parent)
	}
	key, ok := strings.CutPrefix(a.Source, "page:")
	if ref, err := store.SourceRef(key); ok && err == nil && ref.Version != 0 {
		for _, s := range store.ScopeChain(scope) {
			n.ref(store.Ref{Scope: cmp.Or(ref.Scope, s), ID: ref.ID, Version: ref.Version}, source)
		}
	}
}

// ref adds a reference, with the pages of later versions that it leads to.
func (n Names) ref(r store.Ref, why string) {
	n.Refs[r] = why
	for _, num := range n.passed[r] {
		n.Nums[num] = why
	}
}

// Pass adds a dropped version whose pages nums later versions still have.
func (n Names) Pass(h *store.Head, nums []uint64) {
	r := store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}
	n.passed[r] = nums
	if why := n.Refs[r]; why != "" {
		n.ref(r, why)
	}
}

// State adds what a state row names.
func (n Names) State(k *store.StateKind, row []byte) error {
	nums, err := k.Names(row)
	for _, num := range nums {
		n.Nums[num] = KeptSession
	}
	return err
}

// Why says what names a version; "": nothing does. The order of the three look-ups decides the
// reason in the report, not whether the version stays.
func (n Names) Why(h *store.Head) string {
	why := cmp.Or(n.Refs[store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}], n.LSNs[Written{h.Scope, h.ID, h.LSN}])
	for i := 0; i < len(h.Rows) && why == ""; i++ {
		why = n.Nums[h.Rows[i].Num]
	}
	return why
}

// Tombstone returns what stays of a dropped version: what names it and its pages, what it replaced
// (which stays replaced), and what the index knows its pages by, because newer versions may have
// them. Unknown fields stay: this program cannot tell whether they are content.
func Tombstone(h *store.Head, by string) *store.Head {
	return &store.Head{
		Artefact: store.Artefact{
			ID: h.ID, Kind: h.Kind, Provenance: h.Provenance, Priority: h.Priority, CurrentAsOf: h.CurrentAsOf, ExpiresAt: h.ExpiresAt,
			Seq: h.Seq, Name: h.Name, Source: h.Artefact.Source, Supersedes: h.Supersedes, Unknown: h.Artefact.Unknown,
		},
		Unknown: h.Unknown,
		Scope:   h.Scope, Art: h.Art, Version: h.Version, LSN: h.LSN, PutAt: h.PutAt, GroupNum: h.GroupNum, Rows: h.Rows, Gone: true, GoneBy: by,
	}
}

// Erase returns what an erase leaves of the versions of an artefact, which are given oldest first. It takes those that were
// written up to an LSN, and deletions right behind them. end is a deletion by a commit of LSN lsn and time at; nil if a newer
// version stays. rest has what names each version that goes. It counts in t what is taken; t has the trace of the run and its
// operator. Both are nil if nothing is left to take.
func Erase(heads []*store.Head, upTo, lsn uint64, at time.Time, t *store.EraseReport) (end *store.Head, rest []*store.Head) {
	n := 0
	for n < len(heads) && (heads[n].LSN <= upTo || n > 0 && heads[n].Deleted) {
		n++
	}
	stays := map[uint64]bool{} // pages that newer versions have
	for _, h := range heads[n:] {
		for i := range h.Rows {
			stays[h.Rows[i].Num] = true
		}
	}
	if n == 0 || n == len(heads) && heads[n-1].Deleted && heads[n-1].ErasedBy != "" {
		return nil, nil
	}
	for _, h := range heads[:n] {
		if Live(h) {
			t.Versions++
		}
		for i := range h.Rows {
			if r := &h.Rows[i]; Live(h) && r.Version == h.Version && !stays[r.Num] {
				t.Pages, t.Bytes = t.Pages+1, t.Bytes+int64(r.Bytes)
			}
		}
		if h.ErasedBy == "" {
			rest = append(rest, erased(h, t))
		}
	}
	if n == len(heads) {
		end = erased(heads[n-1], t)
		end.Version, end.LSN, end.PutAt, end.Actor = heads[n-1].Version+1, lsn, at, store.OperatorScope
		end.Deleted, end.Gone, end.Floor, end.Rows, end.Supersedes = true, false, false, nil, nil
	}
	if end != nil || len(rest) > 0 {
		t.Artefacts++
	}
	return end, rest
}

// erased returns the remainder of a version: the names of the version, its group and its pages, and
// Supersedes, so that superseded artefacts do not come back. By the group an erase of a session with
// Names finds what an earlier one left. Sizes go, and so do unknown fields: this program cannot tell
// them from content.
func erased(h *store.Head, run *store.EraseReport) *store.Head {
	rows := make([]store.PageRow, len(h.Rows))
	for i, r := range h.Rows {
		rows[i] = store.PageRow{Num: r.Num, Version: r.Version, LSN: r.LSN}
	}
	return &store.Head{
		Artefact: store.Artefact{ID: h.ID, Kind: h.Kind, Provenance: h.Provenance, Group: h.Group, Supersedes: h.Supersedes},
		Scope:    h.Scope, Art: h.Art, Version: h.Version, LSN: h.LSN, PutAt: h.PutAt, GroupNum: h.GroupNum, Rows: rows,
		Deleted: h.Deleted, Floor: h.Floor, Gone: true, GoneBy: run.Trace, ErasedBy: run.By,
	}
}

// NameSet finds audit leaves that name what an erase takes. Where a name is in a field of its own it is compared as such. In
// text that somebody wrote (notes, reasons, filters, actors) it counts where it is a word, so a short name may take leaves that
// mean something else: rather one body too many than a name too few.
type NameSet struct {
	refs, sessions map[store.Ref]bool
	scopes, words  []string
}

// NewNameSet makes the set of what a job names.
func NewNameSet(n *store.Named) *NameSet {
	s := &NameSet{refs: map[store.Ref]bool{}, sessions: map[store.Ref]bool{}, scopes: n.Scopes, words: n.Words}
	for _, r := range n.Refs {
		s.refs[r] = true
	}
	for _, r := range n.Sessions {
		s.sessions[r] = true
	}
	return s
}

// InLeaf reports whether a leaf names anything of the set.
func (n *NameSet) InLeaf(r *manifest.Record) bool {
	if n.inScope(r.Scope) || n.sessions[store.Ref{Scope: r.Scope, ID: r.Session}] {
		return true
	}
	for _, w := range r.Writes {
		if n.ref(w.Ref) {
			return true
		}
	}
	for _, c := range r.Conflicts {
		if n.ref(c.Ref) {
			return true
		}
	}
	reason := r.Reason
	if from, is := Promoted(r); is { // it is a reference, and the leaf is needed while the original stays
		if n.ref(from.String()) {
			return true
		}
		reason = ""
	}
	for _, text := range []string{r.Note, reason, r.Action, r.Filter, r.Actor, r.By, r.Evaluator, r.Session, r.Trace, r.Parent, r.Batch, r.Status} {
		if n.in(text) {
			return true
		}
	}
	return slices.ContainsFunc(r.Stale, func(s manifest.Stale) bool { return n.in(s.Reason) })
}

// InBatch reports whether a held batch names anything of the set.
func (n *NameSet) InBatch(b *store.Batch) bool {
	named := func(scope, id string) bool { return n.refs[store.Ref{Scope: scope, ID: id}] || n.inScope(scope) }
	if named(b.Scope, "") || slices.ContainsFunc(b.Deletes, func(id string) bool { return named(b.Scope, id) }) {
		return true
	}
	if slices.ContainsFunc(b.Context, func(c store.Seen) bool { return named(c.Scope, c.ID) }) ||
		slices.ContainsFunc(b.Expect, func(e store.Precondition) bool { return named(e.Ref.Scope, e.Ref.ID) }) {
		return true
	}
	return slices.ContainsFunc(b.Puts, func(p store.Put) bool {
		a := &p.Artefact
		return named(b.Scope, a.ID) || n.sessions[store.Ref{Scope: b.Scope, ID: a.Group}] ||
			slices.ContainsFunc(a.Supersedes, func(id string) bool { return named(b.Scope, id) }) ||
			slices.ContainsFunc(a.DerivedFrom, func(r store.Ref) bool { return named(r.Scope, r.ID) })
	})
}

// inScope reports whether a scope is one of the set, or below it.
func (n *NameSet) inScope(scope string) bool {
	return slices.ContainsFunc(n.scopes, func(s string) bool { return scope == s || strings.HasPrefix(scope, s+"/") })
}

// ref reports whether a reference of the audit is one of what goes.
func (n *NameSet) ref(text string) bool {
	ref, err := store.ParseRef(text)
	if err != nil {
		return n.in(text)
	}
	return n.refs[store.Ref{Scope: ref.Scope, ID: ref.ID}] || n.inScope(ref.Scope)
}

// in reports whether a text has one of the words.
func (n *NameSet) in(text string) bool {
	return text != "" && slices.ContainsFunc(n.words, func(w string) bool { return hasWord(text, w) })
}

func hasWord(text, word string) bool {
	for at := 0; ; {
		k := strings.Index(text[at:], word)
		if k < 0 {
			return false
		}
		before, _ := utf8.DecodeLastRuneInString(text[:at+k])
		after, _ := utf8.DecodeRuneInString(text[at+k+len(word):])
		if !partOfWord(before) && !partOfWord(after) {
			return true
		}
		at += k + 1
	}
}

func partOfWord(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// PromotedFrom begins the reason in the leaf of a promotion; the reference of the original follows.
const PromotedFrom = "promoted from "

// Promoted reads the original in the leaf of a promotion.
func Promoted(r *manifest.Record) (from store.Ref, is bool) {
	text, is := strings.CutPrefix(r.Reason, PromotedFrom)
	if r.Type != manifest.TypePromote || !is {
		return from, false
	}
	from, err := store.ParseRef(text)
	return from, err == nil
}

// EraseCounts returns the counts as the leaf of an erase holds them.
func EraseCounts(r *store.EraseReport) string {
	s := fmt.Sprintf("artefacts %d, versions %d, pages %d, bytes %d, held %d, questions %d, state %d", r.Artefacts, r.Versions, r.Pages, r.Bytes, r.Held, r.Questions, r.State)
	if r.Bodies > 0 {
		s += fmt.Sprintf(", bodies %d", r.Bodies)
	}
	return s
}

// TakeEraseCounts parses what Counts returned.
func TakeEraseCounts(r *store.EraseReport, note string) error {
	_, err := fmt.Sscanf(note, "artefacts %d, versions %d, pages %d, bytes %d, held %d, questions %d, state %d",
		&r.Artefacts, &r.Versions, &r.Pages, &r.Bytes, &r.Held, &r.Questions, &r.State)
	if _, bodies, ok := strings.Cut(note, ", bodies "); ok && err == nil {
		r.Bodies, err = strconv.ParseUint(bodies, 10, 64)
	}
	return err
}

// AskedOf returns a keyed digest of a name that was erased; kind is, for example, "subject".
// Without the database's secret nobody can test a guess against it.
func AskedOf(secret []byte, kind, name string) string {
	d := store.SaltedMAC(secret[:min(len(secret), 32)], func(b []byte) []byte { return append(append(append(append(b, "asked"...), kind...), 0), name...) })
	return kind + ":" + hex.EncodeToString(d[:16])
}

// AskedDigest returns the digest of Asked and Cascade for the leaf of an erase; nil if both are
// empty.
func AskedDigest(asked []string, cascade string) []byte {
	if len(asked) == 0 {
		return nil
	}
	d := sha256.Sum256([]byte(strings.Join(append([]string{cascade}, asked...), "\n")))
	return d[:]
}

// EraseRows is the key prefix of the state rows that record, by trace, how far each erase has come.
const EraseRows = "erase/"

// ReceiptRows is the key prefix of the state rows that remember, by database and trace, the erases
// of other databases whose receipts an import was given.
const ReceiptRows = "receipt/"

// CheckErase rejects a job that erases nothing, or that lacks By or Reason.
func CheckErase(j *store.EraseJob) error {
	if j == nil || len(j.Refs)+len(j.Held)+len(j.Questions)+len(j.State)+len(j.Leaves) == 0 {
		return store.Invalid("erase", "nothing", "artefacts, held batches, questions, rows of state or bodies of leaves")
	}
	if err := store.CheckID("by", j.By); err != nil {
		return err
	}
	if err := store.CheckID("reason", j.Reason); err != nil {
		return err
	}
	for _, r := range j.Refs {
		if r.Scope == "" || r.ID == "" || r.Page != 0 || r.Version != 0 {
			return store.Invalid("erase", r.String(), "a scope and an id: an erase takes all versions of an artefact")
		}
	}
	return nil
}
