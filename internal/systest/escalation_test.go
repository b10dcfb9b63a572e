package systest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
	"github.com/stretchr/testify/require"
)

// The published scenario, a billing escalation. The store holds 847 artefacts of six months. The refund limit was $200
// until two weeks ago and is $400 now; a knowledge-base article was loaded before it was corrected; a note has heard of
// $1,000; another agent of the desk keeps a confidential note on the same customer. Seeds change names, amounts, wording
// and order, not what must come out. Each failure has plain retrieval over the same store as its control.

const (
	company, desk, agent, sibling = "acme", "acme/support", "acme/support/agent-7", "acme/support/agent-9"
	day, window                   = 24 * time.Hour, 40_000
)

type entry struct {
	scope    string
	age      time.Duration
	verified bool   // a person answers for it
	file     string // the text of its file; "": it has no source
	art      ctxpage.Artefact
}

// story is the data of one seed.
type story struct {
	rng                                             *rand.Rand
	now                                             time.Time
	entries                                         []entry
	customer, firm, invoice, question, secret, card string
	corrected                                       string // what the article's file says since two weeks ago
}

func count(text string) int { return token.Default().Count(text) }

func (s *story) add(scope string, age time.Duration, kind store.Kind, id, text string) *entry {
	s.entries = append(s.entries, entry{scope: scope, age: age, art: ctxpage.Artefact{ID: id, Kind: kind, Text: text, CurrentAsOf: s.now.Add(-age)}})
	return &s.entries[len(s.entries)-1]
}

func (s *story) policy(scope string, age time.Duration, id, text string) *entry {
	e := s.add(scope, age, store.KindFact, id, text)
	e.verified = true
	return e
}

// between is an age of whole seconds.
func (s *story) between(younger, older time.Duration) time.Duration {
	return (younger + time.Duration(s.rng.Int64N(int64(older-younger)))).Truncate(time.Second)
}

// talk strings sentences together until they take so many tokens. None comes again before all were said.
func (s *story) talk(sentences string, tokens int) string {
	all := strings.Split(sentences, "|")
	fill := strings.NewReplacer("{invoice}", s.invoice, "{customer}", s.customer, "{card}", s.card)
	var b strings.Builder
	for n, order, minute := 0, []int(nil), 540+s.rng.IntN(300); n < tokens; minute++ {
		if len(order) == 0 {
			order = s.rng.Perm(len(all))
		}
		line := fmt.Sprintf("[%02d:%02d] %s\n", minute/60%24, minute%60, fill.Replace(all[order[0]]))
		order, n = order[1:], n+count(line)
		b.WriteString(line)
	}
	return b.String()
}

// What people say, a sentence between two bars.
const (
	caseLines = "I see the charge two times on my card statement, both from the same day.|Your system says paid once, my bank says paid twice, and I trust the bank.|Is it one invoice or two? I only ever received {invoice}." +
		"|The card ends in {card}, the holder is {customer}, you can check that.|I have {invoice} open in front of me, give me a moment to read what was written before." +
		"|The second capture has no order behind it, so it looks like a repeated request of the payment page.|Before I send money back I have to check which rule applies to me today." +
		"|Finance has to confirm that the second capture was settled, not only authorised.|I will not close the ticket before you have told me that the money has arrived." +
		"|The contract lists {customer} as the person for billing, so I may talk about amounts with you."
	refundLines = "I was charged twice on the same invoice and I want a refund of the second charge.|Can you refund the charge today, or does a manager have to nod first?" +
		"|The refund was promised on the invoice, and the second charge is still there.|A customer who is charged twice should not have to beg for the refund.|The refund limit is $200, anything above goes to a manager." +
		"|I checked: the refund limit is $200, so I may refund this charge myself.|Above the limit a manager has to nod, I call him while you are on the line." +
		"|The refund is within the limit, the customer gets a mail about the second charge.|I take the refund of the second charge to the manager on duty.|The customer was charged twice, I wrote that into the refund form."
	otherLines = "The parcel says delivered, but the porter has nothing for us.|I cannot sign in since the new phone, the codes go to the old number.|Two of the training seats show up under the wrong team." +
		"|The export stops at row ten thousand without any message.|The label printer prints everything rotated since the update.|Could the courier come after four? The gate is closed before." +
		"|I reset the second factor, you get a mail with a link that works for an hour.|Administrators are added under settings, people, roles.|Only live files are counted, snapshots are free for thirty days."
	articleLines = "A customer who was charged twice sees both charges on one invoice, so ask for the invoice first.|The second charge is the one to refund, the first one belongs to the order." +
		"|Agents never split a charge to stay below what is allowed.|If the second charge was only authorised, there is nothing to refund, it falls off by itself.|Refunds go to the card that was charged, without exception."
)

func tell(seed uint64) *story {
	s := &story{rng: rand.New(rand.NewPCG(seed, 847)), now: time.Date(2026, 3, 16, 10, 0, 0, 0, time.UTC)}
	pick := func(of string) string { all := strings.Fields(of); return all[s.rng.IntN(len(all))] }
	s.customer, s.firm = pick("Ada Bela Carla Emil Greta Hiro Ines")+" "+pick("Abel Brandt Castro Ekdal Haddad Ivers"), pick("Northgate Harbour Linden Tideline")
	s.invoice, s.card, s.secret = fmt.Sprintf("INV-%d", 20000+s.rng.IntN(9999)), fmt.Sprintf("%04d", s.rng.IntN(10000)), fmt.Sprintf("quietly insolvent, file %04d", s.rng.IntN(10000))
	s.question = fmt.Sprintf("Customer %s of %s was charged twice on invoice %s, $%d each time. What is the refund limit for agents per case, "+
		"and may the second charge be refunded without asking a manager?", s.customer, s.firm, s.invoice, 210+s.rng.IntN(180))
	for _, part := range []func(){s.rules, s.aside, s.caseFile, s.fillUp} {
		part()
	}
	return s
}

// rules are the old limit, which has run out, the new one, policies close to it, and two articles in files that change.
func (s *story) rules() {
	s.add(desk, 170*day, store.KindSystem, "instructions", "You help customers of the billing desk. Name the policy you rely on. Promise nothing that no policy allows.")
	s.policy(company, 182*day, "policy-2025", "Refund policy. The refund limit is $200 for agents, per case. Within the refund limit an agent may refund a customer who was charged twice "+
		"on an invoice, without asking a manager: the second charge is refunded to the card. Above the limit the agent asks the manager on duty.").art.ExpiresAt = s.now.Add(-14 * day)
	s.policy(company, 14*day, "policy-2026", "Billing policy 2026/2, in force since the second of March. For mistaken bookings the refund limit is $400 for each open matter. Up to this sum the support agent decides alone.")
	for i, text := range []string{"Goodwill policy. An agent may grant credit of up to $75 a quarter. Credit lowers the next bill and is never paid out.", "Gift card policy. A gift card of up to $150 is never turned into cash.",
		"Chargeback policy. When a bank opens a dispute nobody pays anything back by hand.", "Account " + s.firm + ". Annual team plan, one order this year. " + s.customer + " is the person for billing.", "Contact: mail before phone, never before nine. Pays by a card ending in " + s.card + "."} {
		s.policy(company, time.Duration(33+25*i)*day, fmt.Sprint("policy-near-", i), text)
	}
	const title = "# Refund of an invoice that was charged twice\n\nCheck the second charge against the limit: the refund limit is %s at present, per case.\n\n"
	rest := s.talk(articleLines, 900)
	s.corrected = fmt.Sprintf(title, "$400") + rest
	s.add(desk, 15*day, store.KindChunk, "kb-refunds", "").file = fmt.Sprintf(title, "$200") + rest
	s.add(desk, 12*day, store.KindChunk, "kb-captures", "").file = "# How a booking can be captured twice\n\n" + s.talk(articleLines, 1100)
}

// aside must not be served: scratch with the hearsay in it, pages that have a successor, and what the sibling keeps.
func (s *story) aside() {
	s.add(agent, 3*day, store.KindScratch, "note-hearsay", "Heard in the kitchen on Thursday, from somebody upstairs: the refund limit is $1,000 now for a customer who was charged twice, agents may refund the second charge "+
		"without asking a manager. Nobody wrote it down yet, but just refund the invoice.")
	for i := range 30 + s.rng.IntN(25) {
		s.add(agent, s.between(time.Hour, 120*day), store.KindScratch, fmt.Sprintf("note-%02d", i), s.talk(otherLines, 20))
	}
	for i := range 2 + s.rng.IntN(2) {
		s.add(desk, time.Duration(120+i)*day, store.KindChunk, fmt.Sprint("table-", i), "Old table of answer times. Refer to the lead of the north.")
		s.add(desk, time.Duration(40+i)*day, store.KindChunk, fmt.Sprint("table-new-", i), "Current table of answer times. Refer to the lead of the region.").art.Supersedes = []string{fmt.Sprint("table-", i)}
	}
	s.policy(sibling, 2*day, "note-confidential", fmt.Sprintf("Confidential. Customer %s of %s, charged twice on invoice %s, is %s. No refund of the second charge until legal has seen it.", s.customer, s.firm, s.invoice, s.secret))
	for i := range 6 {
		e := s.add(sibling, s.between(day, 30*day), store.KindFact, fmt.Sprint("own-", i), s.talk(otherLines, 20))
		if i < 2 { // their expiry must not show in the agent's counts
			e.art.ExpiresAt = s.now.Add(-time.Hour)
		}
	}
}

// caseFile is what recency and provenance keep besides the rules. The transcripts share the tokens that are left.
func (s *story) caseFile() {
	s.add(desk, 2*time.Hour, store.KindTool, "crm-newest", "crm record, invoice "+s.invoice+". two captures, one order. second charge confirmed as duplicate by finance at 08:02.")
	s.add(desk, 9*day, store.KindTool, "crm-dialer", "dialer record. "+s.customer+" called twice, 4 and 11 minutes.")
	s.add(desk, 8*day, store.KindFact, "fact-one-order", "There is one order behind "+s.invoice+"; the second booking has no order.")
	s.add(desk, 13*day, store.KindChunk, "ticket-case", "Ticket: "+s.firm+", "+s.invoice+": booked twice\n"+s.talk(otherLines, 200))
	for i := range 8 {
		s.add(desk, time.Duration(1+i)*36*time.Hour, store.KindChunk, fmt.Sprint("chat-case-", i), "Chat with "+s.customer+"\n"+s.talk(caseLines, 3320+s.rng.IntN(60)))
	}
}

// fillUp adds what has expired, 312 in all, some of it at this very moment, then what is older than the case, up to 847.
func (s *story) fillUp() {
	filler := func(id string, refunds bool, younger time.Duration) *entry {
		text := s.talk(otherLines, 30+s.rng.IntN(300))
		if refunds {
			text = s.talk(refundLines, 1300+s.rng.IntN(600))
		}
		return s.add(desk, s.between(younger, 178*day), store.KindChunk, "chat-"+id, text)
	}
	for i := range 311 { // and the old policy
		e := filler(fmt.Sprintf("e%03d", i), i < 29, 30*time.Hour)
		e.art.ExpiresAt = s.now.Add(-time.Duration(s.rng.Int64N(int64(e.age))))
		if i < 3 {
			e.art.ExpiresAt = s.now
		}
	}
	for i := range 4 {
		filler(fmt.Sprint("minute-", i), false, 40*day).art.ExpiresAt = s.now.Add(time.Minute)
	}
	for i := 0; len(s.entries) < 847; i++ {
		filler(fmt.Sprintf("o%03d", i), i < 14, 16*day)
	}
}

// words embeds a text by its words, and counts the texts.
type words struct{ texts atomic.Int64 }

func (w *words) Model() string { return "words/1" }

func (w *words) Embed(_ context.Context, texts []string) (out [][]float32, err error) {
	w.texts.Add(int64(len(texts)))
	for _, t := range texts {
		out = append(out, embed(t))
	}
	return out, nil
}

func embed(text string) []float32 {
	v := make([]float32, 2048)
	for w := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if h := fnv.New32a(); len(w) >= 4 {
			h.Write([]byte(w))
			v[h.Sum32()%2048]++
		}
	}
	for i, n := range v {
		if n > 0 {
			v[i] = float32(1 + math.Log(float64(n)))
		}
	}
	length := float32(math.Sqrt(max(dot(v, v), 1)))
	for i := range v {
		v[i] /= length
	}
	return v
}

func dot(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// store writes the story in the order of its time, with a file behind each article, and changes two files at the end.
func (s *story) store(t *testing.T, seed uint64) (*ctxpage.DB, *words) {
	ctx, dir, model := context.Background(), t.TempDir(), &words{}
	dir = dbtest.Must(filepath.EvalSymlinks(dir))(t)
	var clock atomic.Int64
	clock.Store(s.now.Add(-183 * day).UnixNano())
	db, err := ctxpage.Open(filepath.Join(dir, "agent.ctx"), ctxpage.Options{PageTokens: store.MaxPageTokens, FileRoots: []string{dir}, Embedder: model, Rand: rand.NewChaCha8([32]byte{byte(seed)}),
		Clock: func() time.Time { return time.Unix(0, clock.Load()).UTC() }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	write := func(id, text string, age time.Duration) {
		path := filepath.Join(dir, id)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, os.Chtimes(path, s.now.Add(-age), s.now.Add(-age)))
	}
	slices.SortStableFunc(s.entries, func(a, b entry) int { return cmp.Compare(b.age, a.age) })
	for i, e := range s.entries {
		if i%40 == 0 || e.verified {
			clock.Store(s.now.Add(-e.age).UnixNano())
		}
		if e.file != "" {
			write(e.art.ID, e.file, e.age)
			e.art.Source = "file:" + filepath.Join(dir, e.art.ID)
		}
		if e.verified {
			_, err = db.Admin().PutVerified(ctx, e.scope, "head-of-billing", e.art)
		} else {
			_, err = db.Scope(e.scope).Put(ctx, e.art)
		}
		require.NoError(t, err, e.art.ID)
	}
	clock.Store(s.now.UnixNano())
	write("kb-refunds", s.corrected, 14*day)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "kb-captures"), s.now.Add(-day), s.now.Add(-day)))
	return db, model
}

var limitWords = regexp.MustCompile(`refund limit is (\$[\d,]*\d)`)

// limitIn is the model of this scenario: it believes the limit that it reads first.
func limitIn(text string) string { return limitWords.FindString(text)[len("refund limit is "):] }

// plain asks an index that knows no expiry, provenance, source, scope and budget: the 50 nearest, cut at the window.
func (s *story) plain(t *testing.T) {
	q := embed(s.question)
	near := map[string]float64{}
	for _, e := range s.entries {
		near[e.art.ID] = dot(q, embed(e.art.Text+e.file))
	}
	docs := slices.DeleteFunc(slices.Clone(s.entries), func(e entry) bool { return e.art.Kind == store.KindSystem })
	slices.SortStableFunc(docs, func(a, b entry) int { return cmp.Compare(near[b.art.ID], near[a.art.ID]) })
	wanted, text, served, dropped := 0, "", map[string]bool{}, map[string]bool{}
	for _, e := range docs[:50] {
		if wanted += count(e.art.Text + e.file); wanted > window {
			dropped[e.art.ID] = true
			continue
		}
		served[e.art.ID] = true
		text += e.art.Text + e.file + "\n"
	}
	require.Equal(t, "$200", limitIn(text))
	require.True(t, served["policy-2025"] && served["note-hearsay"], "what has expired and what nobody wrote down")
	require.True(t, served["note-confidential"], "of the sibling")
	require.Greater(t, wanted, window*14/10)
	require.True(t, dropped["crm-newest"], "the newest record of the case is cut off")
}

func TestEscalation(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			s := tell(seed)
			s.plain(t)
			s.play(t, seed)
		})
	}
}

func (s *story) play(t *testing.T, seed uint64) {
	db, model := s.store(t, seed)
	ctx, sc := context.Background(), db.Scope(agent)
	st := dbtest.Must(db.Stats(ctx))(t)
	require.Equal(t, 847, st.Artefacts)
	require.Equal(t, 847, st.Pages, "every artefact is one page, so counts of pages are counts of artefacts")
	query := ctxpage.Query{Text: s.question, Vector: embed(s.question), Budget: window, Reserve: 2000, Preset: "START"}
	before := model.texts.Load()
	a := dbtest.Must(sc.Assemble(ctx, query))(t)
	require.InDelta(t, 10, model.texts.Load()-before, 10, "only what was kept is embedded")
	s.context(t, db, a)
	s.gate(t, db, a, query)

	// Scope bleeding: nothing of the sibling's on any path; the sibling finds it the same way.
	pry := ctxpage.Query{Text: "confidential " + s.secret + " " + s.question, Budget: window, TopK: 100, Floor: store.Scratch}
	prying := dbtest.Must(sc.Assemble(ctx, pry))(t)
	found := dbtest.Must(sc.Search(ctx, pry.Text, 100))(t)
	var export strings.Builder
	dbtest.Must(sc.Export(ctx, &export))(t)
	for _, text := range []string{a.Text(), prying.Text(), fmt.Sprint(a.Left, prying.Left, found.Hits), export.String()} {
		require.NotContains(t, text, s.secret)
		require.NotContains(t, text, "note-confidential")
	}
	own := dbtest.Must(db.Scope(sibling).Assemble(ctx, pry))(t)
	require.Contains(t, own.Text(), s.secret)
	_, there := sc.Get(ctx, "note-confidential")
	require.ErrorIs(t, there, store.ErrNotFound)
}

// context checks what was served, what was not, and that the audit says why.
func (s *story) context(t *testing.T, db *ctxpage.DB, a *ctxpage.Assembly) {
	ctx, excluded := context.Background(), map[triage.Reason]int{}
	for _, e := range a.Manifest.Excluded {
		excluded[e.Reason] = e.Count
	}
	require.Equal(t, 312, excluded[triage.Expired])
	require.Greater(t, excluded[triage.BelowFloor], 30)
	require.Positive(t, excluded[triage.Superseded])
	require.Len(t, a.Blocks, 21, "the instructions, and the 20 that recency and provenance keep")
	require.Equal(t, "$400", limitIn(a.Text()))
	require.InDelta(t, 29_700, a.Tokens, 700)
	require.EqualValues(t, 1, a.Tier)
	require.True(t, slices.ContainsFunc(a.Blocks, func(b ctxpage.Block) bool { return b.Ref.ID == "crm-newest" && b.Form == manifest.FormFull }))
	touched := slices.DeleteFunc(slices.Clone(a.Manifest.Pages), func(p manifest.Page) bool { return !p.Dirty || !p.Refetched })
	require.Len(t, touched, 1, "one article was fetched again; the other file was only touched")
	for id, step := range map[string]string{"policy-2025": "expired", "note-hearsay": "below the provenance floor", "kb-refunds": "fetched anew"} {
		w := dbtest.Must(db.Why(ctx, a.Trace, ctxpage.Ref{ID: id}))(t)
		require.Equal(t, id == "kb-refunds", w.In)
		require.Contains(t, strings.Join(w.Steps, "\n"), step)
	}
	past := dbtest.Must(db.Replay(ctx, a.Trace))(t)
	require.True(t, past.Same && past.Text == a.Text())
}

// gate commits an answer at .88 and has one at .6 held. A later query sees the first and not the second.
func (s *story) gate(t *testing.T, db *ctxpage.DB, a *ctxpage.Assembly, query ctxpage.Query) {
	ctx, sc := context.Background(), db.Scope(agent)
	draft := func(trace, id, text string, confidence float64) error {
		tx := dbtest.Must(sc.Resume(ctx, trace))(t)
		defer tx.Rollback()
		require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: id, Text: text}))
		return tx.Commit(ctx, ctxpage.Verdict{Confidence: confidence, By: "billing-checker"})
	}
	require.NoError(t, draft(a.Trace, "answer", "Refund answer albatross: the second booking is within the "+limitIn(a.Text())+" an agent decides alone.", .88))
	again := dbtest.Must(sc.Assemble(ctx, query))(t)
	var held *store.HeldError
	require.True(t, errors.As(draft(again.Trace, "guess", "Refund guess pelican: this customer may be refunded without any limit.", .6), &held))
	require.Equal(t, "confidence below the gate", held.Reason)
	list := dbtest.Must(loop.Collect(db.Review().Batches(ctx, agent, false)))(t)
	require.InDelta(t, .6, list[0].Confidence, 1e-9)
	for word, seen := range map[string]bool{"albatross": true, "pelican": false} {
		later := dbtest.Must(sc.Assemble(ctx, ctxpage.Query{Text: "refund " + word, Budget: window, TopK: 100, Floor: store.Scratch}))(t)
		require.Equal(t, seen, strings.Contains(later.Text(), word))
		found := dbtest.Must(sc.Search(ctx, "refund "+word, 50))(t)
		require.Equal(t, seen, strings.Contains(fmt.Sprint(found.Hits), word))
	}
}
