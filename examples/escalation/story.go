package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/token"
)

// The scopes of the story. The agent sees its own, the desk's and the company's; not its sibling's.
const (
	company = "acme"
	desk    = "acme/support"
	agent   = "acme/support/agent-7"
	sibling = "acme/support/agent-9"
)

// What the data is built to. Nothing that the program prints is taken from here: it is counted in the database, in the
// manifest and in the rendered text, and would be different if the pipeline were.
const (
	planned        = 847    // artefacts in the store, the sibling's included
	plannedExpired = 312    // of those the agent can see
	plannedTokens  = 31_200 // of the context
)

const day = 24 * time.Hour

// Ids of the pieces the story is about.
const (
	idSystem    = "desk-instructions"
	idOldPolicy = "policy-refunds-2025"
	idPolicy    = "policy-refunds"
	idNote      = "note-refund-hearsay"
	idArticle   = "kb-refunds-howto"
	idTouched   = "kb-duplicate-captures"
	idNewest    = "crm-duplicate-confirmed"
	idSecret    = "note-confidential"
)

// entry is one artefact and how it got into the store.
type entry struct {
	scope    string
	at       time.Time // when it was written, and what it is current as of
	verified string    // the person who answers for it; "": nobody
	file     string    // the file its text lives in; "": it has no source
	text     string
	art      ctxpage.Artefact
}

// story is the data of one seed. Seeds change names, amounts, wording, order and the sizes of most groups.
type story struct {
	rng     *rand.Rand
	now     time.Time
	count   func(string) int
	entries []entry

	customer, firm, invoice, amount, card string
	question                              string
	secret                                string // words that only the sibling's note has
	changedArticle                        string // what the article's file says since two weeks ago
}

func tell(seed uint64) *story {
	s := &story{
		rng: rand.New(rand.NewPCG(seed, 847)), count: token.Default().Count,
		now: time.Date(2026, 3, 16, 10, 0, 0, 0, time.UTC),
	}
	s.customer = s.pick(firstNames) + " " + s.pick(lastNames)
	s.firm = s.pick(companies)
	s.invoice = fmt.Sprintf("INV-%d", 20000+s.rng.IntN(9999))
	s.amount = fmt.Sprintf("$%d.%02d", 210+s.rng.IntN(180), s.rng.IntN(100))
	s.card = fmt.Sprintf("%04d", s.rng.IntN(10000))
	s.question = fmt.Sprintf("Customer %s of %s was charged twice on invoice %s, %s each time. What is the refund limit for agents per case, "+
		"and may the second charge be refunded without asking a manager?", s.customer, s.firm, s.invoice, s.amount)
	s.policies()
	s.articles()
	s.notes()
	s.superseded()
	s.siblings()
	s.caseFile() // last of what survives: it fills the context up to its size
	s.expired()
	s.others()
	return s
}

func (s *story) pick(list []string) string { return list[s.rng.IntN(len(list))] }

// before is a time so long before now.
func (s *story) before(d time.Duration) time.Time { return s.now.Add(-d) }

// between is a time between two ages, the older one first.
func (s *story) between(older, younger time.Duration) time.Time {
	return s.before(younger + time.Duration(s.rng.Int64N(int64(older-younger)))).Truncate(time.Second)
}

func (s *story) add(e entry) {
	e.art.CurrentAsOf = e.at
	s.entries = append(s.entries, e)
}

// fill replaces the slots of a sentence.
func (s *story) fill(text string) string {
	return inSlots(text, "{customer}", s.customer, "{invoice}", s.invoice, "{amount}", s.amount, "{card}", s.card,
		"{product}", products[int(s.card[0]-'0')%len(products)])
}

// inSlots puts each value into its slots; no value holds one. A strings.Replacer is for many texts, and these are for one.
func inSlots(text string, slotsAndValues ...string) string {
	for i := 0; i < len(slotsAndValues); i += 2 {
		text = strings.ReplaceAll(text, slotsAndValues[i], slotsAndValues[i+1])
	}
	return text
}

// fillOther replaces the slots with somebody else's data.
func (s *story) fillOther(text string) string {
	return inSlots(text, "{customer}", s.pick(firstNames)+" "+s.pick(lastNames), "{invoice}", fmt.Sprintf("INV-%d", 10000+s.rng.IntN(9999)),
		"{amount}", fmt.Sprintf("$%d.%02d", 20+s.rng.IntN(400), s.rng.IntN(100)), "{product}", s.pick(products))
}

// policies: the old limit, which ran out when the new one came; the new one; and policies close to it that say nothing
// about refunds of a charge. A person answers for each of them.
func (s *story) policies() {
	s.add(entry{scope: desk, at: s.before(170 * day), art: ctxpage.Artefact{ID: idSystem, Kind: ctxpage.KindSystem,
		Text: "You help customers of the billing desk. Rely on the pages below and name the policy you rely on. Promise nothing that no policy allows. If pages disagree, say so and ask."}})
	old := "Refund policy. The refund limit is $200 for agents, per case. Within the refund limit an agent may refund a customer who was charged twice " +
		"on an invoice, without asking a manager: the second charge is refunded to the card. Above the limit the agent asks the manager on duty."
	s.add(entry{scope: company, at: s.before(182 * day), verified: "head-of-billing", art: ctxpage.Artefact{ID: idOldPolicy, Text: old, ExpiresAt: s.before(14 * day)}})
	now := "Billing policy 2026/2, in force since the second of March. For mistaken bookings the refund limit is $400 for each open matter. Up to this sum the " +
		"support agent decides alone and notes the reference of the booking. Beyond it two people decide. Money goes back the way it came. " +
		"Fees of a customer's bank are looked at separately. Earlier sums are no longer in use."
	s.add(entry{scope: company, at: s.before(14 * day), verified: "head-of-billing", art: ctxpage.Artefact{ID: idPolicy, Text: now}})
	for i, p := range []struct{ id, text string }{
		{"policy-goodwill", "Goodwill policy. An agent may grant credit of up to $75 a quarter for trouble that was our fault. Credit is not money: it lowers the next bill and is never paid out."},
		{"policy-gift-cards", "Gift card policy. A gift card of up to $150 can be exchanged once, unused, by whoever holds it. It is never turned into cash, whatever the reason given."},
		{"policy-chargebacks", "Chargeback policy. When a bank opens a dispute nobody pays anything back by hand; the payment team answers the bank within seven days and bears the fee of $25."},
	} {
		s.add(entry{scope: company, at: s.before(time.Duration(60+25*i) * day), verified: "head-of-billing", art: ctxpage.Artefact{ID: p.id, Text: p.text}})
	}
	s.add(entry{scope: desk, at: s.before(90 * day), verified: "account-manager", art: ctxpage.Artefact{ID: "account-contract",
		Text: fmt.Sprintf("Account %s. Contract since 2020, annual team plan, one order this year. %s is the person for billing and may discuss amounts.", s.firm, s.customer)}})
	s.add(entry{scope: desk, at: s.before(33 * day), verified: "account-manager", art: ctxpage.Artefact{ID: "account-contact",
		Text: fmt.Sprintf("Contact for %s: mail before phone, never before nine. Payments by a company card ending in %s.", s.firm, s.card)}})
}

// articles live in files. One of them changes after it was loaded, one is only touched, the others stay as they are.
func (s *story) articles() {
	article := func(limit string) string {
		return s.article("Refund of an invoice that was charged twice", refundArticleLines, 900,
			"Find both charges of the invoice and compare reference, time and sum: one order and two captures is the usual picture.",
			"Check the second charge against the limit: the refund limit is "+limit+" at present, per case.",
			"Within the limit agents refund the charge themselves, above it a manager is asked, with both references.",
			"Tell the customer on which day the refund of the second charge should be on the card.")
	}
	state := *s.rng // the same sentences around the changed one
	s.file(idArticle, 15*day, article("$200"))
	after := *s.rng
	*s.rng = state
	s.changedArticle = article("$400")
	*s.rng = after
	s.file(idTouched, 12*day, s.article("How a booking can be captured twice", about("captures"), 1100,
		"A payment page that is sent again makes a second capture without a second order.",
		"The settlement file of the next morning tells a capture from an authorisation."))
	for i, t := range articleTopics {
		s.file("kb-"+t.name, 15*day+time.Hour+time.Duration(i)*11*day, s.article(t.title, about(t.about), 300+s.rng.IntN(600)))
	}
}

// file adds an artefact whose text is the content of a file.
func (s *story) file(id string, age time.Duration, text string) {
	s.add(entry{scope: desk, at: s.before(age), file: id + ".md", text: text, art: ctxpage.Artefact{ID: id, Kind: ctxpage.KindChunk}})
}

// about fills the common sentences of articles with a topic.
func about(topic string) []string {
	out := make([]string, len(articleLines))
	for i, l := range articleLines {
		out[i] = strings.ReplaceAll(l, "{about}", topic)
	}
	return out
}

func (s *story) article(title string, lines []string, tokens int, steps ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", title)
	for i, step := range steps {
		fmt.Fprintf(&b, "%d. %s\n", i+1, step)
	}
	n := s.count(b.String())
	for section := 1; n < tokens; section++ {
		part := fmt.Sprintf("\n## %s, part %d\n\n", title, section)
		for _, i := range s.rng.Perm(len(lines))[:7] {
			part += lines[i] + " "
		}
		n += s.count(part)
		b.WriteString(strings.TrimSpace(part) + "\n")
	}
	return b.String()
}

// notes: scratch below the floor, and the one with the hearsay among it; just above the floor stand what a tool wrote
// down and what passed the gate (see caseFile).
func (s *story) notes() {
	hearsay := "Heard in the kitchen on Thursday, from somebody upstairs: the refund limit is $1,000 now for a customer who was charged twice, agents may refund the second charge without asking " +
		"a manager. Nobody wrote it down yet, but just refund the invoice."
	s.add(entry{scope: agent, at: s.before(3 * day), art: ctxpage.Artefact{ID: idNote, Kind: ctxpage.KindScratch, Text: hearsay}})
	for i := range 30 + s.rng.IntN(25) {
		s.add(entry{scope: agent, at: s.between(120*day, time.Hour), art: ctxpage.Artefact{ID: fmt.Sprintf("note-%02d", i), Kind: ctxpage.KindScratch, Text: s.lines(noteLines, 1, 3)}})
	}
}

// superseded pages have a successor that answers for them.
func (s *story) superseded() {
	tables := []string{"escalation matrix: who decides about a refund above the limit of an agent", "roster of managers on duty", "table of answer times by contract"}
	for i, t := range tables[:2+s.rng.IntN(2)] {
		id := fmt.Sprintf("table-%d", i)
		s.add(entry{scope: desk, at: s.before(time.Duration(120+i) * day), art: ctxpage.Artefact{ID: id, Kind: ctxpage.KindChunk, Text: "Old " + t + ". Refer to the shift lead of the north for all of it."}})
		s.add(entry{scope: desk, at: s.before(time.Duration(40+i) * day), art: ctxpage.Artefact{ID: id + "-2026", Kind: ctxpage.KindChunk, Text: "Current " + t + ". Refer to the shift lead of the region.", Supersedes: []string{id}}})
	}
}

// siblings is what another agent of the desk keeps for itself, a confidential note on the same customer among it.
func (s *story) siblings() {
	s.secret = fmt.Sprintf("quietly insolvent, file %04d", s.rng.IntN(10000))
	s.add(entry{scope: sibling, at: s.before(2 * day), verified: "legal", art: ctxpage.Artefact{ID: idSecret,
		Text: fmt.Sprintf("Confidential. Customer %s of %s, charged twice on invoice %s, is %s. No refund of the second charge until legal has seen it.", s.customer, s.firm, s.invoice, s.secret)}})
	for i := range 6 {
		e := entry{scope: sibling, at: s.between(30*day, day), art: ctxpage.Artefact{ID: fmt.Sprintf("own-%d", i), Kind: ctxpage.KindFact, Text: s.lines(factLines, 1, 2)}}
		if i < 2 { // their expiry must not show in the agent's counts
			e.art.ExpiresAt = s.before(time.Hour)
		}
		s.add(e)
	}
}

// caseFile is what happened around this customer in the last two weeks: what recency and provenance keep. The
// transcripts share what is left of the tokens the context is meant to have.
func (s *story) caseFile() {
	s.add(entry{scope: desk, at: s.before(2 * time.Hour), art: ctxpage.Artefact{ID: idNewest, Kind: ctxpage.KindTool,
		Text: fmt.Sprintf("crm record. customer %s, invoice %s. settlement file of today: two captures, one order. second charge confirmed as duplicate by finance at 08:02, owner billing desk.", s.customer, s.invoice)}})
	s.add(entry{scope: desk, at: s.before(9 * day), art: ctxpage.Artefact{ID: "crm-dialer-note", Kind: ctxpage.KindTool,
		Text: fmt.Sprintf("dialer record. %s called twice, 4 and 11 minutes. tags: billing, duplicate booking. recording kept for thirty days.", s.customer)}})
	s.add(entry{scope: desk, at: s.before(8 * day), art: ctxpage.Artefact{ID: "fact-one-order", Kind: ctxpage.KindFact,
		Text: fmt.Sprintf("There is one order and one licence behind %s; the second booking has no order. Confirmed from the order system.", s.invoice)}})
	s.add(entry{scope: desk, at: s.before(13*day + 6*time.Hour), art: ctxpage.Artefact{ID: "ticket-case", Kind: ctxpage.KindChunk,
		Text: s.ticket(fmt.Sprintf("%s, %s: booked twice", s.firm, s.invoice), 12)}})
	const transcripts, header = 8, 46 // tokens of a rendered page's header and fence, about
	left := plannedTokens
	for _, e := range s.entries {
		if e.survives() {
			left -= s.count(e.text+e.art.Text) + header
		}
	}
	for i := range transcripts {
		share := left / (transcripts - i)
		if i < transcripts-1 {
			share += s.rng.IntN(share/3) - share/6
		}
		text := s.transcript(s.customer, s.fill, caseCustomer, caseAgent, share-header)
		left -= s.count(text) + header
		s.add(entry{scope: desk, at: s.before(time.Duration(1+i)*36*time.Hour + time.Duration(s.rng.IntN(3600))*time.Second),
			art: ctxpage.Artefact{ID: fmt.Sprintf("chat-case-%d", i+1), Kind: ctxpage.KindChunk, Text: text}})
	}
}

// survives says what is meant to reach the context, to know how much room the transcripts have.
func (e *entry) survives() bool {
	switch {
	case e.scope == sibling || !e.art.ExpiresAt.IsZero():
		return false
	case e.verified != "" || e.file == idArticle+".md" || e.file == idTouched+".md" || e.art.Kind == ctxpage.KindSystem:
		return true
	}
	return strings.HasPrefix(e.art.ID, "crm-") || e.art.ID == "fact-one-order" || e.art.ID == "ticket-case"
}

// expired fills up to the planned number, with edges on both sides: expiring at this very moment, a minute ago, and (not
// among them) in a minute. Some are fresh and would be first by recency, many are about refunds and would be first by
// their words.
func (s *story) expired() {
	n := 0
	for _, e := range s.entries {
		if e.scope != sibling && !e.art.ExpiresAt.IsZero() {
			n++
		}
	}
	for i := 0; n < plannedExpired; i, n = i+1, n+1 {
		at := s.between(178*day, 30*time.Hour)
		ends := at.Add(time.Duration(1 + s.rng.Int64N(int64(s.now.Sub(at)))))
		switch {
		case i < 3:
			ends = s.now
		case i < 6:
			ends = s.before(time.Minute)
		}
		e := s.filler(fmt.Sprintf("e%03d", i), i < 29, at)
		e.art.ExpiresAt = ends
		s.add(e)
	}
	for i := range 4 {
		e := s.filler(fmt.Sprintf("edge-%d", i), false, s.between(100*day, 40*day))
		e.art.ExpiresAt = s.now.Add(time.Minute)
		s.add(e)
	}
}

// others fills the store up with what lives and is older than the case: first pages that are only just too old to be
// kept, one of each provenance.
func (s *story) others() {
	for i := 0; len(s.entries) < planned; i++ {
		var e entry
		switch i {
		case 0:
			e = entry{scope: desk, at: s.before(15*day + time.Hour), art: ctxpage.Artefact{ID: "edge-ticket", Kind: ctxpage.KindChunk, Text: s.ticket("charged twice, refund limit asked for", 3)}}
		case 1:
			e = entry{scope: desk, at: s.before(12*day + 12*time.Hour), art: ctxpage.Artefact{ID: "edge-crm", Kind: ctxpage.KindTool, Text: "crm record. status closed. refund limit asked for, no charge found."}}
		case 2:
			e = entry{scope: desk, at: s.before(12 * day), art: ctxpage.Artefact{ID: "edge-fact", Kind: ctxpage.KindFact, Text: "Refunds of the region go out on Tuesdays and Fridays."}}
		default:
			e = s.filler(fmt.Sprintf("o%03d", i), i < 16, s.between(178*day, 16*day))
			if s.rng.IntN(3) == 0 {
				e.art.ExpiresAt = s.now.Add(time.Duration(1+s.rng.IntN(90)) * day)
			}
		}
		s.add(e)
	}
}

// filler is a transcript, a ticket, a CRM record or a fact about somebody else.
func (s *story) filler(name string, refunds bool, at time.Time) entry {
	e := entry{scope: desk, at: at}
	e.art.Kind = ctxpage.KindChunk
	who := s.pick(firstNames) + " " + s.pick(lastNames)
	kind := s.rng.IntN(10)
	switch {
	case refunds:
		e.art.ID, e.art.Text = "chat-"+name, s.transcript(who, s.fillOther, refundCustomer, refundAgent, 800+s.rng.IntN(1000))
	case kind < 2:
		e.art.ID, e.art.Text = "chat-"+name, s.transcript(who, s.fillOther, otherCustomer, otherAgent, 600+s.rng.IntN(900))
	case kind < 6:
		e.art.ID, e.art.Text = "ticket-"+name, s.ticket(s.fillOther(s.pick(otherCustomer)), 2+s.rng.IntN(6))
	case kind < 9:
		e.art.ID, e.art.Kind = "crm-"+name, ctxpage.KindTool
		e.art.Text = fmt.Sprintf("crm record. contact %s. plan %s. %s", who, s.pick(products), s.lines(factLines, 1, 3))
	default:
		e.art.ID, e.art.Kind, e.art.Text = "fact-"+name, ctxpage.KindFact, s.lines(factLines, 1, 2)
	}
	return e
}

func (s *story) lines(list []string, least, most int) string {
	var out []string
	for _, i := range s.rng.Perm(len(list))[:least+s.rng.IntN(most-least+1)] {
		out = append(out, list[i])
	}
	return strings.Join(out, " ")
}

func (s *story) ticket(title string, lines int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Ticket: %s\n", title)
	for i := range lines {
		fmt.Fprintf(&b, "- step %d, %s: %s\n", i+1, s.pick(firstNames), s.pick(ticketLines))
	}
	return b.String()
}

// transcript lets two people talk until about so many tokens are said. No sentence comes again before all were said.
func (s *story) transcript(who string, fill func(string) string, customer, helper []string, tokens int) string {
	var b strings.Builder
	name, _, _ := strings.Cut(who, " ")
	by := s.pick(firstNames)
	at := 9*60 + s.rng.IntN(400)
	fmt.Fprintf(&b, "Chat with %s\n", who)
	n := s.count(b.String())
	var asks, says []int
	for n < tokens {
		if len(asks) == 0 || len(says) == 0 {
			asks, says = s.rng.Perm(len(customer)), s.rng.Perm(len(helper))
		}
		at += 1 + s.rng.IntN(3)
		line := fmt.Sprintf("[%02d:%02d] %s: %s\n[%02d:%02d] %s (desk): %s\n", at/60%24, at%60, name, fill(customer[asks[0]]), at/60%24, at%60, by, fill(helper[says[0]]))
		asks, says = asks[1:], says[1:]
		n += s.count(line)
		b.WriteString(line)
	}
	return b.String()
}
