package ctxpage_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/ctxpage/ctxpage"
)

// A question of stop words alone finds the texts that have them. What the index knows of them, names and texts of
// nothing else, comes first. Rules of other searches hold: scopes, floor, expiry, the drafts of a transaction.
func TestSearchByStopWords(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme/a")
	for id, text := range map[string]string{
		"allergy": "The user is not allergic to peanuts.", "hamlet": "To be or not to be", "band": "The Who is a band from London.",
		"dept": "IT department handles laptops.", "us": "Call us on weekdays.", "plain": "Invoices are paid monthly.",
	} {
		put(t, s, Artefact{ID: id, Text: text})
	}
	put(t, db.Scope("acme"), Artefact{ID: "parent", Text: "Do not refund above 400."})
	put(t, db.Scope("acme/b"), Artefact{ID: "sibling", Text: "Do not tell anyone."})
	put(t, s, Artefact{ID: "draft", Text: "It is not certain.", Provenance: Scratch})

	search := func(find func() (Found, error)) (ids []string) {
		found, err := find()
		require.NoError(t, err)
		for i, h := range found.Hits {
			ids = append(ids, h.Ref.ID)
			require.Positive(t, h.Score)
			require.True(t, i == 0 || h.Score <= found.Hits[i-1].Score)
		}
		return ids
	}
	ask := func(question string, opts ...ReadOption) []string {
		return search(func() (Found, error) { return s.Search(ctx, question, 10, opts...) })
	}
	require.Equal(t, []string{"hamlet", "parent", "allergy"}, ask("not"))
	require.Equal(t, []string{"band"}, ask("the who")[:1])
	require.Equal(t, []string{"us"}, ask("us"))
	require.Equal(t, []string{"dept"}, ask("IT"), "a name, and not the pronoun")
	require.Contains(t, ask("not", WithFloor(Scratch)), "draft")
	require.Equal(t, []string{"plain"}, ask("not monthly")[:1], "beside other words they are ignored")
	require.Len(t, ask("not monthly"), 1)
	require.Equal(t, ask("not"), ask("not"))

	tx, err := s.Begin(ctx)
	require.NoError(t, err)
	defer tx.Rollback()
	require.NoError(t, tx.Put(ctx, Artefact{ID: "mine", Text: "That was not said."}))
	require.NoError(t, tx.Put(ctx, Artefact{ID: "hamlet", Text: "A play."}))
	require.ElementsMatch(t, []string{"parent", "allergy", "mine"}, search(func() (Found, error) { return tx.Search(ctx, "not", 10) }))
}

// The pages read for stop words are bounded: the newest are.
func TestSearchByStopWordsIsBounded(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "oldest", Text: "not this"})
	put(t, s, Artefact{ID: "old", Text: "not found in an old page"})
	err := s.Update(ctx, func(tx *Txn) error {
		for i := range 1000 {
			if err := tx.Put(ctx, Artefact{ID: fmt.Sprint(i), Text: fmt.Sprint("page ", i)}); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
	found, err := s.Search(ctx, "not", 10)
	require.NoError(t, err)
	require.Len(t, found.Hits, 1, "the index has the text of stop words alone")
	require.Equal(t, "oldest", found.Hits[0].Ref.ID)
}
