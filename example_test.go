package ctxpage_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/store"
)

// temporary is a database for an example: a fixed clock, so that what it prints stays the same.
func temporary() (*ctxpage.DB, func()) {
	dir, err := os.MkdirTemp("", "ctxpage")
	if err != nil {
		log.Fatal(err)
	}
	db, err := ctxpage.Open(filepath.Join(dir, "agent.ctx"), ctxpage.Options{
		Clock: func() time.Time { return time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC) },
	})
	if err != nil {
		log.Fatal(err)
	}
	return db, func() {
		if err := db.Close(); err != nil {
			log.Fatal(err)
		}
		os.RemoveAll(dir)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A process opens a file once, and each agent gets the handle of its scope.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "ctxpage")
	check(err)
	defer os.RemoveAll(dir)

	db, err := ctxpage.Open(filepath.Join(dir, "agent.ctx"), ctxpage.Options{})
	check(err)
	defer db.Close()
	agent := db.Scope("acme/support/agent-7") // sees acme/support and acme, too; writes only itself
	fmt.Println(agent.Name())

	again, err := ctxpage.Open(filepath.Join(dir, "agent.ctx"), ctxpage.Options{}) // of another process, say
	check(err)
	defer again.Close() // it asks the one that has the file
	_, err = ctxpage.Open(filepath.Join(dir, "agent.ctx"), ctxpage.Options{Exclusive: true})
	fmt.Println(errors.Is(err, store.ErrLocked)) // one process at a time has it to itself
	// Output:
	// acme/support/agent-7
	// true
}

// Putting an id again makes its next version; a repetition is a touch. Older versions stay readable.
func ExampleScope_Put() {
	db, done := temporary()
	defer done()
	s := db.Scope("acme/support")

	for _, text := range []string{"Refunds up to $200.", "Refunds up to $400.", "Refunds up to $400."} {
		ref, err := s.Put(ctx, ctxpage.Artefact{ID: "refunds", Text: text})
		check(err)
		fmt.Println(ref)
	}
	old, err := s.Recall(ctx, ctxpage.Ref{ID: "refunds", Version: 1})
	check(err)
	fmt.Println(old.Text)
	// Output:
	// acme/support:refunds@1
	// acme/support:refunds@2
	// acme/support:refunds@2
	// Refunds up to $200.
}

// A context is made for a question, under a budget. What did not get in is listed with its reason.
func ExampleScope_Assemble() {
	db, done := temporary()
	defer done()
	s := db.Scope("acme/support")
	for _, a := range []ctxpage.Artefact{
		{ID: "rules", Kind: store.KindSystem, Text: "You answer billing questions."},
		{ID: "refunds", Kind: store.KindChunk, Text: "Refunds up to $400 need no approval."},
		{ID: "hunch", Kind: store.KindScratch, Text: "Refunds up to $900 are fine, I think."},
		{ID: "campaign", Text: "Refunds are doubled in February.", ExpiresAt: time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC)},
	} {
		_, err := s.Put(ctx, a)
		check(err)
	}

	a, err := s.Assemble(ctx, ctxpage.Query{Text: "What may I refund without approval?", Budget: 2000, Reserve: 500})
	check(err)
	for _, b := range a.Blocks {
		fmt.Printf("in   %-9s %s\n", b.Ref.ID, b.Text)
	}
	for _, l := range a.Left {
		fmt.Printf("out  %-9s %s\n", l.Ref.ID, l.Reason)
	}
	fmt.Println("tier", int(a.Tier), "fits:", a.Tokens <= 1500)
	// Output:
	// in   rules     You answer billing questions.
	// in   refunds   Refunds up to $400 need no approval.
	// out  hunch     below the provenance floor
	// out  campaign  expired
	// tier 1 fits: true
}

// An answer is a draft until somebody other than its writer vouches for it.
func ExampleTxn_Commit() {
	db, done := temporary()
	defer done()
	s := db.Scope("acme/support", ctxpage.WithActor("agent-7"))
	_, err := s.Put(ctx, ctxpage.Artefact{ID: "refunds", Text: "Refunds up to $400 need no approval."})
	check(err)
	a, err := s.Assemble(ctx, ctxpage.Query{Text: "What may I refund?", Budget: 2000})
	check(err)

	for _, v := range []ctxpage.Verdict{
		{Confidence: 1, By: "agent-7"},
		{Confidence: .6, By: "checker"},
		{Confidence: .88, By: "checker"},
	} {
		tx, err := s.Resume(ctx, a.Trace) // what the model saw is the read set
		check(err)
		check(tx.Put(ctx, ctxpage.Artefact{ID: "answer-1", Text: "You may refund up to $400."}))
		err = tx.Commit(ctx, v)
		var held *store.HeldError
		switch {
		case errors.As(err, &held):
			_, err := s.Get(ctx, "answer-1")
			fmt.Println("held:", held.Reason, "· visible:", !errors.Is(err, store.ErrNotFound))
		case err == nil:
			answer, err := s.Get(ctx, "answer-1")
			check(err)
			fmt.Println("committed:", answer.Provenance)
		}
	}
	// Output:
	// held: self-certified · visible: false
	// held: confidence below the gate · visible: false
	// committed: validated
}

// What was held waits for a person.
func ExampleDB_Review() {
	db, done := temporary()
	defer done()
	s := db.Scope("acme/support", ctxpage.WithActor("agent-7"))
	tx, err := s.Begin(ctx)
	check(err)
	check(tx.Put(ctx, ctxpage.Artefact{ID: "finding", Text: "The gateway retries twice."}))
	fmt.Println(errors.Is(tx.Commit(ctx, ctxpage.Verdict{}), store.ErrHeld))

	waiting, err := loop.Collect(db.Review().Batches(ctx, "", false))
	check(err)
	for _, h := range waiting {
		shown, err := db.Review().Show(ctx, h.ID) // the list has no texts
		check(err)
		fmt.Println(h.Scope, h.Actor, h.Reason, shown.Writes[0].Text)
		_, err = db.Review().Approve(ctx, h.ID, ctxpage.Approval{By: "anna", HumanVerified: true})
		check(err)
	}
	v, err := s.Get(ctx, "finding")
	check(err)
	fmt.Println(v.Provenance)
	// Output:
	// true
	// acme/support agent-7 no verdict The gateway retries twice.
	// human-verified
}

// A past context comes back byte for byte, whatever changed since, and says why a page was in it.
func ExampleDB_Replay() {
	db, done := temporary()
	defer done()
	s := db.Scope("acme/support")
	_, err := s.Put(ctx, ctxpage.Artefact{ID: "refunds", Text: "Refunds up to $200."})
	check(err)
	a, err := s.Assemble(ctx, ctxpage.Query{Text: "refunds", Budget: 2000})
	check(err)
	_, err = s.Put(ctx, ctxpage.Artefact{ID: "refunds", Text: "Refunds up to $400."})
	check(err)

	past, err := db.Replay(ctx, a.Trace)
	check(err)
	fmt.Println(past.Text == a.Text())
	why, err := db.Why(ctx, a.Trace, ctxpage.Ref{ID: "refunds"})
	check(err)
	fmt.Println(why.In)
	fmt.Println(why.Steps[len(why.Steps)-2])
	// Output:
	// true
	// true
	// page in: version 1, clean
}

// A listing is a sequence for range. An error comes once, last; breaking out of the loop is always fine.
func ExampleScope_Artefacts() {
	db, done := temporary()
	defer done()
	s := db.Scope("acme/support")
	for _, id := range []string{"refunds", "returns", "vouchers"} {
		_, err := s.Put(ctx, ctxpage.Artefact{ID: id, Text: "About " + id})
		check(err)
	}

	for v, err := range s.Artefacts(ctx, "re") {
		check(err)
		fmt.Println(v.Ref)
	}
	// Output:
	// acme/support:refunds@1
	// acme/support:returns@1
}
