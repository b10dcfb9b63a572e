package ctxpage_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The database against a model that a reader takes in at one sitting: maps of slices of versions, judged by the rules
// of the documentation. Whatever the working set holds, and whenever a checkpoint or a reopen comes, the answers are
// the same.

// mver is one version of an artefact.
type mver struct {
	text    string
	expires time.Time
	deleted bool
	prov    store.Provenance
	serial  int // of the commit, in the place of an LSN
	at      time.Time
	page    int // of a single page: its number
	gone    bool
	instead []string // of what it stands
}

type mkey struct{ scope, id string }

type mart struct {
	versions []mver
	by       *mkey // the artefact that supersedes it
}

func (a *mart) last() *mver {
	if a == nil || len(a.versions) == 0 {
		return nil
	}
	return &a.versions[len(a.versions)-1]
}

// live is the newest version unless it is a tombstone.
func (a *mart) live() *mver {
	if v := a.last(); v != nil && !v.deleted {
		return v
	}
	return nil
}

// mtx is a transaction of the model, open or held.
type mtx struct {
	scope  string
	writes map[string]string // id → text
	drops  map[string]bool
	expect map[string]int // id → serial
	saw    map[mkey]string
	pages  map[mkey]int // of what it saw
	begun  time.Time
	serial int // of the newest commit when it began
}

type model struct {
	clk    *clock
	arts   map[mkey]*mart
	serial int
	pages  int
	held   map[string]*mtx
}

func chainOf(scope string) []string {
	out := []string{scope}
	for i := strings.LastIndex(scope, "/"); i >= 0; i = strings.LastIndex(scope, "/") {
		scope = scope[:i]
		out = append(out, scope)
	}
	return out
}

func (m *model) art(scope, id string) *mart { return m.arts[mkey{scope, id}] }

func (m *model) expired(v *mver) bool { return !v.expires.IsZero() && !v.expires.After(m.clk.now()) }

// serialOf is 0 for what is absent or deleted.
func (m *model) serialOf(scope, id string) int {
	if v := m.art(scope, id).live(); v != nil {
		return v.serial
	}
	return 0
}

// find is the nearest live artefact.
func (m *model) find(chain []string, id string) (mkey, *mver) {
	for _, s := range chain {
		if v := m.art(s, id).live(); v != nil {
			return mkey{s, id}, v
		}
	}
	return mkey{}, nil
}

func (m *model) get(scope, id string) (*mver, error) {
	_, v := m.find(chainOf(scope), id)
	switch {
	case v == nil:
		return nil, store.ErrNotFound
	case m.expired(v):
		return nil, store.ErrExpired
	}
	return v, nil
}

// write is one artefact of a commit. A version that repeats the newest is none.
func (m *model) write(scope, id string, v mver, supersedes ...string) {
	k := mkey{scope, id}
	if m.arts[k] == nil {
		m.arts[k] = &mart{}
	}
	a := m.arts[k]
	stands := func(id string) bool { x := m.arts[mkey{scope, id}]; return x.live() != nil && x.by == nil }
	if old := a.live(); old != nil && a.by == nil && !v.deleted && old.text == v.text && old.expires.Equal(v.expires) && old.prov == v.prov &&
		slices.Equal(old.instead, supersedes) && !slices.ContainsFunc(supersedes, stands) {
		return
	}
	v.serial, v.at, v.instead = m.serial, m.clk.now(), supersedes
	if m.pages++; a.by == nil && a.live() != nil && a.live().text == v.text {
		v.page = a.live().page
	} else {
		v.page = m.pages
	}
	a.versions = append(a.versions, v)
	if !v.deleted {
		a.by = nil
	}
	for _, s := range supersedes {
		if old := m.art(scope, s); old != nil && old.last().serial < m.serial {
			old.by = &k
		}
	}
}

// finds reports whether a word leads to an artefact: through its own versions since it was last absent, or through an
// artefact that it replaced.
func (m *model) finds(k mkey, word string, seen map[mkey]bool) bool {
	if seen[k] {
		return false
	}
	seen[k] = true
	a := m.arts[k]
	for i := len(a.versions) - 1; i >= 0 && !a.versions[i].deleted; i-- {
		if !a.versions[i].gone && strings.Contains(a.versions[i].text, word) {
			return true
		}
	}
	for old, x := range m.arts {
		if x.by != nil && *x.by == k && x.live() != nil && m.finds(old, word, seen) {
			return true
		}
	}
	return false
}

func (m *model) search(scope, word string) []string {
	var out []string
	for k, a := range m.arts {
		v := a.live()
		if v == nil || a.by != nil || m.expired(v) || v.prov < store.Tool || !slices.Contains(chainOf(scope), k.scope) {
			continue
		}
		if m.finds(k, word, map[mkey]bool{}) {
			out = append(out, k.scope+":"+k.id)
		}
	}
	slices.Sort(out)
	return out
}

// stale reports whether a page that was seen is not the page of its artefact any more. A text that was superseded and is
// put again comes as another page.
func (m *model) stale(tx *mtx) bool {
	for k, page := range tx.pages {
		if k.scope == tx.scope && (tx.drops[k.id] || tx.writes[k.id] != "") {
			continue
		}
		a := m.arts[k]
		if v := a.live(); v == nil || v.page != page || m.expired(v) || a.by != nil {
			return true
		}
	}
	return false
}

func (m *model) conflict(tx *mtx) bool {
	for id, serial := range tx.expect {
		if (tx.drops[id] || tx.writes[id] != "") && m.serialOf(tx.scope, id) != serial {
			return true
		}
	}
	return false
}

func (m *model) apply(tx *mtx, prov store.Provenance) {
	m.serial++
	for id, text := range tx.writes {
		m.write(tx.scope, id, mver{text: text, prov: prov})
	}
	for id := range tx.drops {
		if m.art(tx.scope, id).live() != nil {
			m.write(tx.scope, id, mver{deleted: true})
		}
	}
}

// mayGo reports whether gc may drop a version, its neighbours and pages aside. newer is how many versions with content are.
func (m *model) mayGo(k mkey, i, newer int, o GCOptions, open []*mtx) bool {
	vs := m.arts[k].versions
	v := &vs[i]
	live := i == len(vs)-1
	var ended time.Time
	by := 0
	switch {
	case live && !(o.Expired && m.expired(v)), newer < o.KeepVersions:
		return false
	case live:
		ended = v.expires
	default:
		ended, by = vs[i+1].at, vs[i+1].serial
		if o.Expired && !v.expires.IsZero() && v.expires.Before(ended) {
			ended = v.expires
		}
	}
	if ended.After(m.clk.now().Add(-max(o.KeepFor, 0))) {
		return false
	}
	for _, x := range open {
		if x.serial < by || by == 0 && !ended.Before(x.begun) {
			return false
		}
	}
	for _, x := range m.held {
		writes := k.scope == x.scope && (x.drops[k.id] || x.writes[k.id] != "")
		if writes && x.expect[k.id] == v.serial || !writes && x.saw[k] != "" && x.pages[k] == v.page {
			return false
		}
	}
	return true
}

// gc returns the versions of an artefact of single pages that go: those that may, unless one stays that has the same page.
func (m *model) gc(k mkey, o GCOptions, open []*mtx) map[int]bool {
	may, stay := map[int]bool{}, map[int]bool{}
	newer := 0
	for i := len(m.arts[k].versions) - 1; i >= 0; i-- {
		v := &m.arts[k].versions[i]
		if v.gone || v.deleted {
			continue
		}
		may[i] = m.mayGo(k, i, newer, o, open)
		stay[v.page] = stay[v.page] || !may[i]
		newer++
	}
	for i := range may {
		if !may[i] || stay[m.arts[k].versions[i].page] {
			delete(may, i)
		}
	}
	return may
}

// machine runs the two side by side.
type machine struct {
	*model
	db    *DB
	path  string
	texts int // makes drafts unique, so that no draft is an echo
	open  []*Txn
	txs   []*mtx
}

var (
	modelScopes = []string{"a", "a/b", "a/c", "a/b/d"}
	modelIDs    = []string{"k1", "k2", "k3", "long"}
	modelWords  = []string{"zebra", "apple", "violin", "harbour", "copper"}
)

func (m *machine) options(rt *rapid.T) Options {
	return Options{
		Clock: m.clk.now, PageTokens: 16, WorkingSet: rapid.SampledFrom([]int64{-1, 1500, 6000, 0}).Draw(rt, "working set"),
	}
}

func (m *machine) reopen(rt *rapid.T) {
	require.NoError(rt, m.db.Close())
	db := must(Open(m.path, m.options(rt)))(rt)
	m.db, m.open, m.txs = db, nil, nil // open transactions are lost, as after a rollback
}

func (m *machine) text(rt *rapid.T, id string) string {
	n, same := 3, ""
	if id == "long" { // several pages, of which the first are often those of another version
		n = rapid.IntRange(1, 20).Draw(rt, "length")
		same = strings.Repeat("zebra apple ", rapid.IntRange(0, 20).Draw(rt, "same"))
	}
	return same + strings.Join(rapid.SliceOfN(rapid.SampledFrom(modelWords), n, n).Draw(rt, "text"), " ")
}

func (m *machine) draft(rt *rapid.T) string {
	m.texts++
	return rapid.SampledFrom(modelWords).Draw(rt, "word") + fmt.Sprintf(" draft%d", m.texts)
}

func (m *machine) put(rt *rapid.T) {
	scope, id := rapid.SampledFrom(modelScopes).Draw(rt, "scope"), rapid.SampledFrom(modelIDs).Draw(rt, "id")
	v := mver{text: m.text(rt, id), prov: rapid.SampledFrom([]store.Provenance{store.Validated, store.Scratch, store.Chunk}).Draw(rt, "provenance")}
	if old := m.art(scope, id).live(); old != nil && old.prov != store.HumanVerified && rapid.IntRange(0, 3).Draw(rt, "again") == 0 {
		v.text, v.prov = old.text, old.prov // the same words again, often a touch
	}
	a := Artefact{ID: id, Text: v.text, Provenance: v.prov}
	if rapid.IntRange(0, 3).Draw(rt, "expires") == 0 {
		v.expires = m.clk.now().Add(time.Duration(rapid.IntRange(0, 3).Draw(rt, "hours")) * time.Hour)
		a.ExpiresAt = v.expires
	}
	if rapid.IntRange(0, 5).Draw(rt, "supersedes") == 0 {
		if old := rapid.SampledFrom(modelIDs).Draw(rt, "old"); old != id && m.art(scope, old).last() != nil { // of nothing is refused
			a.Supersedes = []string{old}
		}
	}
	ref := must(m.db.Scope(scope).Put(ctx, a))(rt)
	m.serial++
	m.write(scope, id, v, a.Supersedes...)
	require.Equal(rt, uint32(len(m.art(scope, id).versions)), ref.Version)
}

func (m *machine) delete(rt *rapid.T) {
	scope, id := rapid.SampledFrom(modelScopes).Draw(rt, "scope"), rapid.SampledFrom(modelIDs).Draw(rt, "id")
	err := m.db.Scope(scope).Delete(ctx, id)
	if m.art(scope, id).live() == nil {
		require.ErrorIs(rt, err, store.ErrNotFound)
		return
	}
	require.NoError(rt, err)
	m.serial++
	m.write(scope, id, mver{deleted: true})
}

// update adds to the first word of what is there, or starts it.
func (m *machine) update(rt *rapid.T) {
	scope, id := rapid.SampledFrom(modelScopes).Draw(rt, "scope"), rapid.SampledFrom(modelIDs[:3]).Draw(rt, "id")
	add := m.draft(rt)
	fail := rapid.IntRange(0, 4).Draw(rt, "fail") == 0
	mine := errors.New("mine")
	text := add
	if v, err := m.get(scope, id); err == nil {
		text = strings.Fields(v.text)[0] + " " + add
	}
	err := m.db.Scope(scope).Update(ctx, func(tx *Txn) error {
		v, err := tx.Get(ctx, id)
		switch {
		case err == nil:
			if err := tx.Put(ctx, Artefact{ID: id, Text: strings.Fields(v.Text)[0] + " " + add}); err != nil {
				return err
			}
		case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrExpired):
			if err := tx.Put(ctx, Artefact{ID: id, Text: add}); err != nil {
				return err
			}
		default:
			return err
		}
		if fail {
			return mine
		}
		return nil
	})
	if fail {
		require.ErrorIs(rt, err, mine)
		return
	}
	require.NoError(rt, err)
	m.serial++
	m.write(scope, id, mver{text: text, prov: store.Validated})
}

func (m *machine) begin(rt *rapid.T) {
	if len(m.open) >= 3 {
		return
	}
	scope := rapid.SampledFrom(modelScopes).Draw(rt, "scope")
	tx := must(m.db.Scope(scope, WithActor("agent")).Begin(ctx))(rt)
	m.open = append(m.open, tx)
	m.txs = append(m.txs, &mtx{scope: scope, writes: map[string]string{}, drops: map[string]bool{}, expect: map[string]int{}, saw: map[mkey]string{}, pages: map[mkey]int{}, begun: m.clk.now(), serial: m.serial})
}

func (m *machine) pick(rt *rapid.T) (int, *Txn, *mtx) {
	if len(m.open) == 0 {
		m.begin(rt)
	}
	i := rapid.IntRange(0, len(m.open)-1).Draw(rt, "transaction")
	return i, m.open[i], m.txs[i]
}

// sawAt remembers what a write of an artefact replaces: the oldest version that was seen, 0 for none.
func (x *mtx) sawAt(id string, serial int) {
	if was, ok := x.expect[id]; !ok || serial != 0 && serial < was {
		x.expect[id] = serial
	}
}

func (m *machine) txGet(rt *rapid.T) {
	_, tx, x := m.pick(rt)
	id := rapid.SampledFrom(modelIDs[:3]).Draw(rt, "id")
	v, err := tx.Get(ctx, id)
	if own := x.writes[id]; own != "" {
		require.NoError(rt, err)
		require.Equal(rt, own, v.Text)
		return
	}
	chain := chainOf(x.scope)
	if x.drops[id] {
		chain = chain[1:]
	}
	k, want := m.find(chain, id)
	switch {
	case want == nil:
		require.ErrorIs(rt, err, store.ErrNotFound)
		if !x.drops[id] {
			x.sawAt(id, 0)
		}
		return
	case m.expired(want):
		require.ErrorIs(rt, err, store.ErrExpired)
		return
	}
	require.NoError(rt, err)
	require.Equal(rt, want.text, v.Text)
	switch {
	case k.scope == x.scope:
		x.sawAt(id, want.serial)
	case !x.drops[id]:
		x.sawAt(id, 0)
	}
	if _, before := x.saw[k]; !before { // the oldest version that was seen stands
		x.saw[k], x.pages[k] = want.text, want.page
	}
}

func (m *machine) txWrite(rt *rapid.T) {
	_, tx, x := m.pick(rt)
	id := rapid.SampledFrom(modelIDs[:3]).Draw(rt, "id")
	if rapid.IntRange(0, 3).Draw(rt, "drop") > 0 {
		text := m.draft(rt)
		require.NoError(rt, tx.Put(ctx, Artefact{ID: id, Text: text}))
		if _, ok := x.expect[id]; !ok {
			x.expect[id] = m.serialOf(x.scope, id)
		}
		x.writes[id] = text
		delete(x.drops, id)
		return
	}
	err := tx.Delete(ctx, id)
	there := m.art(x.scope, id).live() != nil
	if !there && x.writes[id] == "" {
		require.ErrorIs(rt, err, store.ErrNotFound)
		return
	}
	require.NoError(rt, err)
	if _, ok := x.expect[id]; !ok {
		x.expect[id] = m.serialOf(x.scope, id)
	}
	delete(x.writes, id)
	if there {
		x.drops[id] = true
	}
}

func (m *machine) commit(rt *rapid.T) {
	i, tx, x := m.pick(rt)
	m.open, m.txs = slices.Delete(m.open, i, i+1), slices.Delete(m.txs, i, i+1)
	if rapid.IntRange(0, 4).Draw(rt, "rollback") == 0 {
		require.NoError(rt, tx.Rollback())
		require.ErrorIs(rt, tx.Commit(ctx, good), store.ErrTxnDone)
		return
	}
	v := rapid.SampledFrom([]Verdict{good, {Confidence: .7, By: "checker"}, {Confidence: .6, By: "checker"}, {Confidence: 1, By: "agent"}, {}}).Draw(rt, "verdict")
	err := tx.Commit(ctx, v)
	reason := ""
	switch {
	case m.conflict(x):
		require.ErrorIs(rt, err, store.ErrConflict)
		return
	case v.By == "":
		reason = ReasonNoVerdict
	case v.By == "agent":
		reason = ReasonSelfCertified
	case v.Confidence < .7:
		reason = ReasonLowConfidence
	case m.stale(x):
		reason = store.ReasonStaleContext
	}
	if reason == "" {
		require.NoError(rt, err)
		m.apply(x, store.Validated)
		return
	}
	var held *store.HeldError
	require.ErrorAs(rt, err, &held)
	require.Equal(rt, reason, held.Reason)
	m.held[held.Batch] = x
}

func (m *machine) review(rt *rapid.T) {
	list := must(loop.Collect(m.db.Review().Batches(ctx, "", false)))(rt)
	require.Len(rt, list, len(m.held))
	if len(list) == 0 {
		return
	}
	h := rapid.SampledFrom(list).Draw(rt, "held")
	x := m.held[h.ID]
	require.NotNil(rt, x)
	require.Len(rt, h.Writes, len(x.writes))
	shown, err := m.db.Review().Show(ctx, h.ID) // a list has no texts
	require.NoError(rt, err)
	for _, w := range shown.Writes {
		require.Equal(rt, x.writes[w.ID], w.Text)
	}
	if rapid.Bool().Draw(rt, "reject") {
		must(m.db.Review().Reject(ctx, h.ID, "anna", ""))(rt)
		delete(m.held, h.ID)
		return
	}
	a := Approval{By: "anna", Stale: rapid.Bool().Draw(rt, "stale"), HumanVerified: rapid.Bool().Draw(rt, "verified")}
	_, err = m.db.Review().Approve(ctx, h.ID, a)
	switch {
	case m.conflict(x):
		require.ErrorIs(rt, err, store.ErrConflict)
		return
	case m.stale(x) && !a.Stale:
		require.ErrorIs(rt, err, store.ErrStaleContext)
		return
	}
	require.NoError(rt, err)
	delete(m.held, h.ID)
	m.apply(x, map[bool]store.Provenance{true: store.HumanVerified, false: store.Validated}[a.HumanVerified])
}

// gc runs gc and takes over what it dropped. What goes of the artefact of several pages, which versions may share, it is
// told, and sees to it that it may.
func (m *machine) gc(rt *rapid.T) {
	o := GCOptions{
		KeepFor: time.Duration(rapid.SampledFrom([]int{-1, 1, 2}).Draw(rt, "keep for")) * time.Hour, KeepVersions: rapid.IntRange(0, 2).Draw(rt, "keep versions"),
		KeepRecords: 1 << 30, KeepNames: 1 << 30, // the model lists them all
		Expired: rapid.Bool().Draw(rt, "expired"), DryRun: rapid.IntRange(0, 3).Draw(rt, "dry") == 0,
	}
	rep := must(m.db.Admin().GC(ctx, o))(rt)
	got, want := map[Ref]bool{}, map[Ref]bool{}
	for _, r := range rep.Refs {
		got[r] = true
	}
	require.Len(rt, got, rep.Dropped.Versions)
	for k := range m.arts {
		goes := m.model.gc(k, o, m.txs)
		if k.id == "long" {
			goes = map[int]bool{}
			for r := range got {
				if i := int(r.Version) - 1; r.ID == k.id && r.Scope == k.scope {
					goes[i] = true
					require.False(rt, m.arts[k].versions[i].gone || m.arts[k].versions[i].deleted)
				}
			}
			newer := 0
			for i := len(m.arts[k].versions) - 1; i >= 0; i-- {
				if v := &m.arts[k].versions[i]; !v.gone && !v.deleted {
					require.True(rt, !goes[i] || m.mayGo(k, i, newer, o, m.txs))
					newer++
				}
			}
		}
		for i := range goes {
			want[Ref{Scope: k.scope, ID: k.id, Version: uint32(i + 1)}] = true
		}
	}
	require.Equal(rt, want, got)
	if o.DryRun {
		return
	}
	for r := range want {
		k := mkey{r.Scope, r.ID}
		m.arts[k].versions[r.Version-1].gone = true
		if int(r.Version) == len(m.arts[k].versions) { // expired
			m.serial++
			m.write(r.Scope, r.ID, mver{deleted: true})
		}
	}
}

// compare reads everything there is to read from some scopes.
func (m *machine) compare(rt *rapid.T, scopes ...string) {
	for _, scope := range scopes {
		s := m.db.Scope(scope)
		for _, id := range modelIDs {
			m.compareArtefact(rt, s, id)
		}
		list := must(loop.Collect(s.Artefacts(ctx, "")))(rt)
		var got, want []string
		for _, v := range list {
			got = append(got, v.ID)
		}
		for _, id := range modelIDs {
			if m.art(scope, id).live() != nil {
				want = append(want, id)
			}
		}
		require.Equal(rt, want, got)
	}
	st := must(m.db.Stats(ctx))(rt)
	live := 0
	for _, a := range m.arts {
		if a.live() != nil {
			live++
		}
	}
	require.Equal(rt, []int{live, len(m.held)}, []int{st.Artefacts, st.Held})
}

func (m *machine) compareArtefact(rt *rapid.T, s *Scope, id string) {
	want, wantErr := m.get(s.Name(), id)
	v, err := s.Get(ctx, id)
	require.ErrorIs(rt, err, wantErr, "%s:%s", s.Name(), id)
	if wantErr == nil {
		require.Equal(rt, []any{want.text, want.prov}, []any{v.Text, v.Provenance}, "%s:%s", s.Name(), id)
		joined := ""
		for _, p := range v.Pages {
			joined += p.Text
		}
		require.Equal(rt, v.Text, joined)
		by := ""
		if k := m.art(v.Ref.Scope, id).by; k != nil {
			by = k.id
		}
		require.Equal(rt, by, v.SupersededBy)
	}
	// History is of the nearest scope that ever had the name.
	history, err := loop.Collect(s.Versions(ctx, id))
	for _, scope := range chainOf(s.Name()) {
		a := m.art(scope, id)
		if a == nil {
			continue
		}
		require.NoError(rt, err)
		require.Len(rt, history, len(a.versions))
		for i, h := range history {
			want := a.versions[len(a.versions)-1-i]
			require.Equal(rt, []any{want.deleted, want.gone, uint32(len(a.versions) - i)}, []any{h.Deleted, h.Gone, h.Version})
			old, err := s.Recall(ctx, Ref{Scope: scope, ID: id, Version: h.Version})
			switch {
			case want.deleted:
				require.ErrorIs(rt, err, store.ErrNotFound)
			case want.gone:
				require.ErrorIs(rt, err, store.ErrGone)
			case i == 0 && m.expired(&want):
				require.ErrorIs(rt, err, store.ErrExpired)
			default:
				require.NoError(rt, err)
				require.Equal(rt, want.text, old.Text)
			}
		}
		return
	}
	require.ErrorIs(rt, err, store.ErrNotFound)
}

func (m *machine) search(rt *rapid.T) {
	scope, word := rapid.SampledFrom(modelScopes).Draw(rt, "scope"), rapid.SampledFrom(modelWords).Draw(rt, "word")
	hits := must(hitsOf(m.db.Scope(scope).Search(ctx, word, 200)))(rt)
	got := []string{}
	for _, h := range hits {
		if k := h.Ref.Scope + ":" + h.Ref.ID; !slices.Contains(got, k) {
			got = append(got, k)
		}
	}
	slices.Sort(got)
	require.Equal(rt, append([]string{}, m.model.search(scope, word)...), got, "%s in %s", word, scope)
}

// TestModel compares with the model after each step, of a database that is opened anew after each, and of one that runs on
// between the reopens that are steps themselves.
func TestModel(t *testing.T) {
	t.Parallel()
	t.Run("reopened", func(t *testing.T) { t.Parallel(); checkModel(t, true) })
	t.Run("running", func(t *testing.T) { t.Parallel(); checkModel(t, false) })
}

func checkModel(t *testing.T, reopen bool) {
	dir := filepath.Dir(dbtest.MemoryPath(t))
	rapid.Check(t, func(rt *rapid.T) {
		sub := must(os.MkdirTemp(dir, ""))(rt)
		defer os.RemoveAll(sub)
		m := &machine{model: &model{clk: newClock(), arts: map[mkey]*mart{}, held: map[string]*mtx{}}, path: sub + "/agent.ctx"}
		m.db = must(Open(m.path, m.options(rt)))(rt)
		defer func() { m.db.Close() }()
		rt.Repeat(map[string]func(*rapid.T){
			"put":    m.put,
			"put2":   m.put,
			"delete": m.delete,
			"update": m.update,
			"get":    m.txGet,
			"get2":   m.txGet,
			"write":  m.txWrite,
			"write2": m.txWrite,
			"commit": m.commit,
			"review": m.review,
			"gc":     m.gc,
			"search": m.search,
			"clock":  func(rt *rapid.T) { m.clk.add(time.Duration(rapid.IntRange(-1, 3).Draw(rt, "hours")) * time.Hour) },
			"checkpoint": func(rt *rapid.T) {
				must(m.db.Admin().Checkpoint(ctx))(rt)
			},
			"reopen": m.reopen,
			"": func(rt *rapid.T) {
				if reopen {
					m.reopen(rt)
				}
				m.compare(rt, rapid.SampledFrom(modelScopes).Draw(rt, "look"))
			},
		})
		m.compare(rt, modelScopes...)
		checkAndClose(rt, m.db)
	})
}

// archiveOf writes a hundred and some artefacts of every kind: batch of them in a transaction, a checkpoint after so many
// transactions (0: none).
func archiveOf(t testing.TB, db *DB, clk *clock, batch, checkpoint int) {
	t.Helper()
	var puts []func(tx *Txn) error
	add := func(a Artefact) { puts = append(puts, func(tx *Txn) error { return tx.Put(ctx, a) }) }
	start := clk.now()
	at := func(i int) time.Time { return start.Add(-time.Duration(i) * 7 * time.Hour) }
	add(Artefact{ID: "system", Kind: store.KindSystem, Text: "You answer questions about parcels.", CurrentAsOf: at(0)})
	for i := range 40 {
		add(Artefact{ID: fmt.Sprint("doc-", i), Kind: store.KindChunk, Text: words(i, 10+i*3), CurrentAsOf: at(i), Tags: []string{"t"}})
		add(Artefact{ID: fmt.Sprint("fact-", i), Text: words(i+100, 12), CurrentAsOf: at(i + 3), Pinned: i == 7})
	}
	for i := range 24 {
		add(Artefact{ID: fmt.Sprint("turn-", i), Role: []string{"user", "assistant"}[i%2], Group: "chat", Seq: int64(i), Text: words(i+200, 15), CurrentAsOf: at(24 - i)})
	}
	for i := range 12 { // some again, some gone, some replaced, some that will expire
		add(Artefact{ID: fmt.Sprint("doc-", i), Kind: store.KindChunk, Text: words(i+300, 30), CurrentAsOf: at(i)})
		add(Artefact{ID: fmt.Sprint("new-", i), Text: words(i+400, 14), Supersedes: []string{fmt.Sprint("fact-", i+20)}, CurrentAsOf: at(1)})
		add(Artefact{ID: fmt.Sprint("brief-", i), Text: words(i+500, 14), ExpiresAt: start.Add(time.Duration(i-6) * time.Hour), CurrentAsOf: at(1)})
	}
	s := db.Scope("acme/support")
	for i := 0; len(puts) > 0; i++ {
		n := min(batch, len(puts))
		require.NoError(t, s.Update(ctx, func(tx *Txn) error {
			for _, p := range puts[:n] {
				if err := p(tx); err != nil {
					return err
				}
			}
			return nil
		}))
		puts = puts[n:]
		if checkpoint > 0 && i%checkpoint == checkpoint-1 {
			must(db.Admin().Checkpoint(ctx))(t)
		}
	}
	must(db.Admin().PutVerified(ctx, "acme", "anna", Artefact{ID: "verified", Text: words(600, 20), CurrentAsOf: at(90)}))(t)
}

var determined = []Query{
	{Text: words(3, 6), Budget: 1500, Reserve: 100},
	{Text: words(203, 6), Budget: 900, Session: "chat"},
	{Text: words(420, 8), Budget: 4000, Ladder: true, Preset: "START", Floor: store.Scratch},
	{Text: "", Budget: 700},
}

// body is a leaf without what names the call itself; of what was asked it has the text.
func body(a *Assembly) manifest.Record {
	r := *a.Manifest
	r.Trace, r.Parent, r.Index = "", "", 0
	if r.QuestionKept { // then the digest has a salt of its own, as those of pages have
		r.Query = nil
	}
	return r
}

// Same pages, same clock, same question, same bytes, and the same manifest: on one processor or eight, with no memory,
// a page's worth, or all, before and after a checkpoint and a reopen, alone or beside others.
func TestDeterminism(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	clk := newClock()
	opts := Options{Clock: clk.now, Rand: seeded(1)}
	db := open(t, opts)
	archiveOf(t, db, clk, 1, 0)
	type answer struct {
		text string
		leaf manifest.Record
	}
	want := make([]answer, len(determined))
	runs := make([]int, len(determined))
	look := func(s *Scope, i int) {
		a, err := s.Assemble(ctx, determined[i])
		if err != nil {
			t.Error(err)
			return
		}
		if want[i].text == "" {
			want[i] = answer{a.Text(), body(a)}
			require.NotEmpty(t, a.Blocks)
		}
		require.Equal(t, want[i].text, a.Text())
		require.Equal(t, want[i].leaf, body(a))
		runs[i]++
	}
	all := func() {
		for i := range determined {
			look(db.Scope("acme/support"), i)
		}
	}
	all()
	for _, size := range []int64{-1, 700, 64 << 20} {
		opts.WorkingSet = size
		db = reopen(t, db, opts)
		for _, procs := range []int{1, 2, 8} {
			runtime.GOMAXPROCS(procs)
			for range 6 {
				all()
			}
			must(db.Admin().Checkpoint(ctx))(t)
			for range 5 {
				all()
			}
		}
	}
	require.GreaterOrEqual(t, slices.Min(runs), 100)
	var wg sync.WaitGroup
	texts := make([][]string, 8)
	for g := range texts {
		wg.Go(func() {
			for i := range determined {
				a, err := db.Scope("acme/support").Assemble(ctx, determined[(i+g)%len(determined)])
				if err != nil {
					t.Error(err)
					return
				}
				texts[g] = append(texts[g], a.Text())
			}
		})
	}
	wg.Wait()
	for g := range texts {
		for i := range texts[g] {
			require.Equal(t, want[(i+g)%len(determined)].text, texts[g][i])
		}
	}
	t.Run("control: another clock is another answer", func(t *testing.T) {
		clk.add(3 * time.Hour)
		require.NotEqual(t, want[0].leaf, body(assemble(t, db.Scope("acme/support"), determined[0])))
	})
}

// How the writes were batched, and when a checkpoint cut them into segments, is not in the answer.
func TestBatchingDoesNotMatter(t *testing.T) {
	t.Parallel()
	var want []string
	var leaves []manifest.Record
	for _, c := range []struct{ batch, checkpoint int }{{1, 0}, {1, 1}, {1, 9}, {7, 0}, {7, 2}, {40, 1}} {
		clk := newClock()
		opts := Options{Clock: clk.now, Rand: seeded(1), Identity: store.Info{ID: "01KJMGW6W0PFJ1X8EKYMKH1C7P", Secret: make([]byte, 32)}} // the same fence
		db := open(t, opts)
		archiveOf(t, db, clk, c.batch, c.checkpoint)
		var got []string
		var bodies []manifest.Record
		for _, q := range determined {
			a := assemble(t, db.Scope("acme/support"), q)
			b := body(a)
			b.LSN = 0 // counts transactions
			got, bodies = append(got, a.Text()), append(bodies, b)
		}
		if want == nil {
			want, leaves = got, bodies
		}
		require.Equal(t, want, got, c)
		require.Equal(t, leaves, bodies, c)
	}
}

// TestReopenAfterNewHead: an artefact that changed its group and author but not its text is found as before, whether its
// words are in memory, analysed again after a reopen, or in a segment.
func TestReopenAfterNewHead(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	s := db.Scope("acme")
	for i := range 6 {
		put(t, s, Artefact{ID: fmt.Sprint("turn-", i), Text: fmt.Sprint("zebra crossing number ", i), Group: "chat", Name: "ann", Seq: int64(i)})
	}
	put(t, s, Artefact{ID: "else", Text: "of another matter", Group: "b"})
	put(t, s, Artefact{ID: "turn-1", Text: "zebra crossing number 1", Group: "b", Name: "zebra"})
	find := func() []Hit {
		hits := must(hitsOf(s.Search(ctx, "zebra crossing", 10)))(t)
		require.NotEmpty(t, hits)
		return hits
	}
	first := find()
	for _, step := range []func() error{func() error { return nil }, func() error { _, err := db.Admin().Checkpoint(ctx); return err }} {
		require.NoError(t, step())
		require.Equal(t, first, find())
		db = reopen(t, db, Options{})
		s = db.Scope("acme")
		require.Equal(t, first, find())
	}
}
