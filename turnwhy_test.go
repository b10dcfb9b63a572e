package ctxpage_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
)

// talk puts a conversation, "Speaker: text", a turn a line.
func putTalk(t *testing.T, s *ctxpage.Scope, at time.Time, lines ...string) {
	require.NoError(t, s.Update(t.Context(), func(tx *ctxpage.Txn) error {
		for i, line := range lines {
			name, text, _ := strings.Cut(line, ": ")
			a := ctxpage.Artefact{
				ID: fmt.Sprintf("%s-%02d", at.Format("2006-01"), i), Kind: ctxpage.KindMessage, Role: "user", Name: name, Text: text,
				Group: at.Format("2006-01"), Seq: int64(i), CurrentAsOf: at,
			}
			if err := tx.Put(t.Context(), a); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Why tells each part of a score in words, and who spoke by name.
func TestWhyTellsOfTurns(t *testing.T) {
	db := open(t, ctxpage.Options{})
	s := db.Scope("talk")
	putTalk(t, s, time.Date(2023, 5, 8, 0, 0, 0, 0, time.UTC), "Caroline: I bought shoes yesterday", "Melanie: Caroline, these shoes are lovely", "Caroline: Thanks!")
	putTalk(t, s, time.Date(2023, 6, 8, 0, 0, 0, 0, time.UTC), "Melanie: Rain again", "Caroline: And wind")
	_, err := s.Put(t.Context(), ctxpage.Artefact{ID: "shop.md", Kind: ctxpage.KindChunk, Text: "Shoes to buy: all sizes."})
	require.NoError(t, err)

	a, err := s.Assemble(t.Context(), ctxpage.Query{Text: "Which shoes did Caroline buy in May 2023?", Budget: 2000})
	require.NoError(t, err)
	steps := func(id string) string {
		why, err := db.Why(t.Context(), a.Trace, ctxpage.Ref{ID: id})
		require.NoError(t, err)
		return strings.Join(why.Steps, "\n")
	}
	first := steps("2023-05-00")
	require.Contains(t, first, "spoken by Caroline, whom the question names")
	require.Contains(t, first, "said in May 2023: the question names the month")
	require.Contains(t, first, "its author tells of himself or herself")
	require.Contains(t, first, "an irregular form of a word of the question")
	require.NotContains(t, first, "no turn of a conversation")
	require.NotContains(t, steps("2023-05-01"), "spoken by")
	require.Contains(t, steps("2023-06-01"), "none of its words is asked for; it was a candidate by who speaks and when")
	require.Contains(t, steps("shop.md"), "it is no turn of a conversation")

	before := func(x, y string) {
		at := func(id string) float64 {
			for _, b := range a.Blocks {
				if b.Ref.ID == id {
					return b.Score
				}
			}
			return -1
		}
		require.Greater(t, at(x), at(y), "%s before %s", x, y)
	}
	before("2023-05-00", "2023-05-01") // who is named, and not who names her
	before("2023-05-00", "2023-06-01")
}
