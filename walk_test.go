package ctxpage_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/budget"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/listing"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/token"
	"github.com/stretchr/testify/require"
)

// The walk of one datum: a policy is put, committed, checkpointed, read, found dirty, fetched anew, assembled into a
// context, and an answer to it is held, then committed. Each step names the file where it happens; `make walk` tells it
// as it goes. README, "Reading the source", is this test in words.
func TestWalk(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "refunds.md")
	writeFile(t, file, "# Refunds\nRefunds up to $200 need no approval.\n")
	db := open(t, Options{FileRoots: []string{dir}})
	s := db.Scope("acme/support", WithActor("agent-7"))
	stat := func() Stats {
		return must(db.Stats(ctx))(t)
	}

	t.Log("1  txn.go, page.go: a put makes pages: split, counted, digested. They wait in the transaction, seen by nobody else")
	require.NoError(t, s.Update(ctx, func(tx *Txn) error {
		require.NoError(t, tx.Put(ctx, Artefact{ID: "refunds", Source: "file:" + file}))
		must(tx.Get(ctx, "refunds"))(t)
		require.ErrorIs(t, errOf(s.Get(ctx, "refunds")), ErrNotFound)
		return nil
	}))

	t.Log("2  sequence.go: the commit got the next LSN; it was durable, then visible, then answered")
	require.EqualValues(t, 1, stat().LSN)
	v := get(t, s, "refunds")
	require.Equal(t, []any{uint32(1), KindChunk, Chunk}, []any{v.Version, v.Kind, v.Provenance})
	_, written, err := db.Manifests().Written(ctx, v.Pages[0].Num, 1)
	require.NoError(t, err)
	require.Equal(t, v.Pages[0].Digest[:], []byte(written.Digest), "the audit holds its digest, not its text")

	t.Log("3  checkpoint.go: the log's effect goes into the file; it changes no answer")
	require.Positive(t, stat().Overlay)
	must(db.Admin().Checkpoint(ctx))(t)
	require.Zero(t, stat().Overlay)
	require.EqualValues(t, 1, stat().Applied)

	t.Log("4  pagetable.go: a read finds the page in memory and pins it while it looks at it")
	hits := stat().Table.Hits
	get(t, s, "refunds")
	require.Equal(t, hits+1, stat().Table.Hits)
	require.Zero(t, stat().Table.Pinned)

	t.Log("5  internal/freshness: the file changed. The next read finds the page dirty and fetches it anew; the source is the author")
	writeFile(t, file, "# Refunds\nRefunds up to $400 need no approval.\n")
	v = get(t, s, "refunds")
	require.Equal(t, []any{uint32(2), "source"}, []any{v.Version, v.Actor})
	require.Contains(t, v.Text, "$400")
	require.EqualValues(t, 1, stat().Table.Refetches)

	t.Log("6  assemble.go: the index proposes, triage orders, the budget decides, the manifest is written")
	tx := begin(t, s)
	question := "How much may I refund without approval?"
	a := must(tx.Assemble(ctx, Query{Text: question, Budget: 1000, Reserve: 200}))(t)
	require.Equal(t, []string{"refunds"}, ids(a))
	require.LessOrEqual(t, a.Tokens, 800)
	t.Logf("   the model gets, in %d of 800 tokens:\n%s", a.Tokens, a.Text())

	t.Log("7  txn.go: the answer is a draft: in this transaction, nowhere else")
	answer := Artefact{ID: "answer-1", Text: "Up to $400; above that a colleague decides.", DerivedFrom: []Ref{{ID: "refunds"}}}
	require.NoError(t, tx.Put(ctx, answer))
	own := must(tx.Get(ctx, "answer-1"))(t)
	require.Equal(t, []any{Validated, v.Ref}, []any{own.Provenance, own.DerivedFrom[0]})

	t.Log("8  txn.go, sequence.go: a checker is not convinced (0.6): held. The same answer at 0.88 is committed")
	err = tx.Commit(ctx, Verdict{Confidence: .6, By: "checker"})
	held := heldAs(t, err, ReasonLowConfidence)
	invisible(t, s, "answer-1", "colleague")
	tx = must(s.Resume(ctx, a.Trace))(t)
	require.NoError(t, tx.Put(ctx, answer))
	require.NoError(t, tx.Commit(ctx, Verdict{Confidence: .88, By: "checker"}))
	require.Equal(t, Validated, get(t, s, "answer-1").Provenance)

	t.Log("9  manifest/, explain.go: one trace leads from the context to both answers; the context can be had again")
	leaves := must(db.Manifests().ByTrace(ctx, a.Trace))(t)
	var told []string
	for _, l := range leaves {
		told = append(told, l.Type.String()+" "+l.Status)
		t.Logf("   %-9s %-8s lsn %d  confidence %.2f  %s", l.Type, l.Status, l.LSN, l.Confidence, l.Reason)
	}
	require.Equal(t, []string{"assemble ", "held held", "commit applied"}, told)
	require.Equal(t, held.Batch, leaves[1].Batch)
	why := must(db.Why(ctx, a.Trace, Ref{ID: "refunds"}))(t)
	require.True(t, why.In)
	t.Log("   " + strings.Join(why.Steps, "\n   "))
	writeFile(t, file, "# Refunds\nNo refunds.\n")
	require.Contains(t, get(t, s, "refunds").Text, "No refunds")
	require.Equal(t, a.Text(), must(db.Replay(ctx, a.Trace))(t).Text, "whatever changed since")
	head := must(db.Head(ctx))(t)
	require.Empty(t, must(db.Manifests().Verify(ctx, &head, nil))(t).Problems)
	require.Equal(t, manifest.TypeRefetch, lastOf(t, db).Type)
}

// lastOf is the newest leaf that is no read.
func lastOf(t testing.TB, db *DB) *manifest.Record {
	t.Helper()
	for i := dbtest.SizeOf(db.Manifests()); i > 0; i-- {
		l := must(db.Manifests().Leaf(ctx, i-1))(t)
		if !l.Type.Reads() {
			return l
		}
	}
	return nil
}

// plain is retrieval without a lifecycle, the control of each failure: all that was ever written, ranked by how many
// words of the question it has, joined until the budget is full and cut there, as a provider would cut it. It has no
// clock, no sources, no trust, no gate and no scopes.
type plain struct{ notes []string }

func (p *plain) write(text string) { p.notes = append(p.notes, text) }

func (p *plain) context(question string, budget int) string {
	score := func(note string) (n int) {
		for _, w := range strings.Fields(strings.ToLower(question)) {
			if strings.Contains(strings.ToLower(note), strings.Trim(w, "?.,")) {
				n++
			}
		}
		return n
	}
	best := slices.Clone(p.notes)
	slices.SortStableFunc(best, func(a, b string) int { return score(b) - score(a) })
	return cut(strings.Join(best[:min(5, len(best))], "\n"), budget)
}

// history is all of it in the order of writing, which is how a long conversation gets sent.
func (p *plain) history(budget int) string { return cut(strings.Join(p.notes, "\n"), budget) }

func cut(text string, budget int) string {
	for token.Default().Count(text) > budget {
		text = text[:len(text)-len(text)/50-1]
	}
	return text
}

// The failures that a context without a lifecycle runs into, by the names they were published under, and a sixth. In
// each the plain way fails and the database does not.
func TestFailures(t *testing.T) {
	const question = "What is the refund limit for a billing escalation?"
	const old, new = "The refund limit for a billing escalation is $200.", "The refund limit for a billing escalation is $400."

	t.Run("stale artefact loaded", func(t *testing.T) {
		clk := newClock()
		dir := t.TempDir()
		db := open(t, Options{Clock: clk.now, FileRoots: []string{dir}})
		s := db.Scope("acme/support")
		file := filepath.Join(dir, "policy.md")
		writeFile(t, file, old)
		put(t, s, Artefact{ID: "policy", Source: "file:" + file})
		put(t, s, Artefact{ID: "campaign", Text: "Until March the refund limit for a billing escalation is $150.", TTL: time.Hour})
		var p plain
		p.write(old)
		p.write("Until March the refund limit for a billing escalation is $150.")

		clk.add(time.Hour)
		writeFile(t, file, new)
		p.write(new)
		require.Contains(t, p.context(question, 500), "$200", "control: the plain way serves the old policy")
		require.Contains(t, p.context(question, 500), "$150", "control: and the expired one")
		a := assemble(t, s, Query{Text: question})
		require.Contains(t, a.Text(), "$400", "the dirty page was fetched anew before use")
		require.NotContains(t, a.Text(), "$200")
		require.NotContains(t, a.Text(), "$150", "its TTL excludes it")
		require.Equal(t, []string{"expired"}, left(a, "campaign"))
	})

	t.Run("unvalidated note taken as fact", func(t *testing.T) {
		db := open(t, Options{})
		s := db.Scope("acme/support")
		const note = "Note: what is the refund limit for a billing escalation? I believe the refund limit is $9000."
		put(t, s, Artefact{ID: "policy", Kind: KindChunk, Text: new})
		put(t, s, Artefact{ID: "note", Kind: KindScratch, Text: note})
		var p plain
		p.write(new)
		p.write(note)
		require.True(t, strings.HasPrefix(p.context(question, 500), "Note:"), "control: the plain way puts the note first, being closest")
		a := assemble(t, s, Query{Text: question})
		require.Equal(t, []string{"policy"}, ids(a))
		require.Equal(t, []string{"below the provenance floor"}, left(a, "note"))
	})

	t.Run("token budget overflow", func(t *testing.T) {
		db := open(t, Options{})
		s := db.Scope("acme/support")
		var p plain
		put(t, s, Artefact{ID: "system", Kind: KindSystem, Text: "You answer billing questions."})
		for i := range 12 {
			text := "Refund limit escalation transcript: billing " + words(i, 150) + "."
			put(t, s, Artefact{ID: "transcript-" + string(rune('a'+i)), Kind: KindChunk, Text: text})
			p.write(text)
		}
		must(db.Admin().PutVerified(ctx, "acme/support", "anna", Artefact{ID: "newest", Text: new}))(t)
		p.write(new)
		require.NotContains(t, p.history(900), "$400", "control: the plain way is cut, and the newest update falls off")
		for _, ladder := range []bool{false, true} {
			tier := budget.Tier(0)
			for _, size := range []int{12000, 3300, 900, 150} {
				a := assemble(t, s, Query{Text: question, Budget: size, Ladder: ladder})
				require.LessOrEqual(t, a.Tokens, size)
				require.LessOrEqual(t, token.Default().Count(a.Text()), size, "nothing for a provider to cut")
				require.GreaterOrEqual(t, a.Tier, tier, "a smaller budget is a later step")
				tier = a.Tier
				require.Equal(t, a.Tier < budget.TierMinimal, slices.Contains(ids(a), "newest"), "%v %d", ladder, size)
				require.Contains(t, ids(a), "system")
				require.Equal(t, 14, len(a.Blocks)+len(a.Left), "what is not in is named")
			}
			require.Equal(t, budget.TierMinimal, tier)
		}
	})

	t.Run("hallucination persisted", func(t *testing.T) {
		db := open(t, Options{})
		s := db.Scope("acme/support")
		const wrong = "The refund limit for a billing escalation is $4000, approved by finance."
		put(t, s, Artefact{ID: "policy", Kind: KindChunk, Text: new})
		tx := begin(t, s)
		must(tx.Assemble(ctx, Query{Text: question, Budget: 1000}))(t)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "answer", Text: wrong}))
		heldAs(t, tx.Commit(ctx, Verdict{Confidence: .6, By: "checker"}), ReasonLowConfidence)
		var p plain
		p.write(new)
		p.write(wrong)
		require.Contains(t, p.context(question, 500), "$4000", "control: the plain way remembers it")
		invisible(t, s, "answer", "finance")
		require.NotContains(t, assemble(t, s, Query{Text: question}).Text(), "$4000")
		list := must(listing.Collect(db.Review().Batches(ctx, "", false)))(t)
		require.Equal(t, wrong, must(db.Review().Show(ctx, list[0].ID))(t).Writes[0].Text, "and yet it is not lost")
	})

	t.Run("no audit trail", func(t *testing.T) {
		opts := Options{}
		db := open(t, opts)
		s := db.Scope("acme/support", WithActor("agent-7"))
		put(t, s, Artefact{ID: "policy", Kind: KindChunk, Text: new})
		put(t, s, Artefact{ID: "note", Kind: KindScratch, Text: "refund limit: see escalation desk"})
		tx := begin(t, s)
		a := must(tx.Assemble(ctx, Query{Text: question, Budget: 1000}))(t)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "answer", Text: "Up to $400."}))
		require.NoError(t, tx.Commit(ctx, Verdict{Confidence: .88, By: "checker"}))
		head := must(db.Head(ctx))(t)

		db = reopen(t, db, opts)
		leaves := must(db.Manifests().ByTrace(ctx, a.Trace))(t)
		read, commit := leaves[0], leaves[1]
		require.Equal(t, []any{manifest.TypeAssemble, "agent-7", "acme/support", 1}, []any{read.Type, read.Actor, read.Scope, read.Tier})
		require.Equal(t, a.Blocks[0].Num, read.Pages[0].Num)
		require.Equal(t, []any{"applied", .88, "checker"}, []any{commit.Status, commit.Confidence, commit.By})
		why := must(db.Why(ctx, a.Trace, Ref{ID: "note"}))(t)
		require.Contains(t, strings.Join(why.Steps, "\n"), "below the provenance floor")
		require.Equal(t, a.Text(), must(db.Replay(ctx, a.Trace))(t).Text)
		v := must(db.Manifests().Verify(ctx, &head, nil))(t)
		require.Empty(t, v.Problems)
		head.Root[0] ^= 1
		v, err := db.Manifests().Verify(ctx, &head, nil)
		require.True(t, err != nil || len(v.Problems) > 0, "control: another log is found out")
	})

	t.Run("scope bleeding", func(t *testing.T) {
		db := open(t, Options{})
		mine, theirs := db.Scope("acme/support/a"), db.Scope("acme/support/b")
		const secret = "Confidential: the refund limit for a billing escalation of this customer is $7000."
		put(t, db.Scope("acme"), Artefact{ID: "policy", Kind: KindChunk, Text: new})
		put(t, theirs, Artefact{ID: "note", Kind: KindChunk, Text: secret, Pinned: true})
		var p plain
		p.write(new)
		p.write(secret)
		require.Contains(t, p.context(question, 500), "$7000", "control: the plain way knows no scopes")
		require.Contains(t, assemble(t, theirs, Query{Text: question}).Text(), "$7000")
		a := assemble(t, mine, Query{Text: question, Floor: Scratch})
		require.Equal(t, []string{"policy"}, ids(a))
		require.Empty(t, a.Left)
		require.Empty(t, a.Manifest.Excluded)
		invisible(t, mine, "note", "confidential")
		_, err := mine.Recall(ctx, Ref{Scope: "acme/support/b", ID: "note"})
		_, none := mine.Recall(ctx, Ref{Scope: "acme/support/c", ID: "note"})
		require.ErrorIs(t, err, ErrNotFound)
		require.Equal(t, none.Error(), err.Error(), "what is hidden looks like what does not exist")
	})
}
