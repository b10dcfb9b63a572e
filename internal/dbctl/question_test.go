package dbctl

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
)

// TestManifestShowsTheQuestion: in the table and in JSON, beside a living agent and after it, and of a database that keeps
// digests alone it is said so.
func TestManifestShowsTheQuestion(t *testing.T) {
	ctx := context.Background()
	for _, mode := range []ctxpage.QuestionMode{ctxpage.KeepQuestions, ctxpage.DigestQuestions} {
		file := t.TempDir() + "/agent.ctx"
		db, err := ctxpage.Open(file, ctxpage.Options{Questions: mode})
		require.NoError(t, err)
		s := db.Scope("acme")
		_, err = s.Put(ctx, ctxpage.Artefact{ID: "policy", Text: "Refunds take 14 days."})
		require.NoError(t, err)
		a, err := s.Assemble(ctx, ctxpage.Query{Text: "How long does a refund take?", Budget: 500})
		require.NoError(t, err)
		kept := mode == ctxpage.KeepQuestions
		show := func() map[string]any {
			return asJSON(t, "", "manifest", "show", file, a.Trace)["leaves"].([]any)[0].(map[string]any)
		}
		want := func() {
			t.Helper()
			leaf, table := show(), ok(t, "", "manifest", "show", file, a.Trace)
			if kept {
				require.Equal(t, "How long does a refund take?", leaf["question"])
				require.Equal(t, "kept", leaf["question_state"])
				require.Contains(t, table, "How long does a refund take?")
				return
			}
			require.NotContains(t, leaf, "question")
			require.Equal(t, notKept, leaf["question_state"])
			require.Contains(t, table, notKept)
		}
		want() // beside the agent: in the log
		_, err = db.Admin().Checkpoint(ctx)
		require.NoError(t, err)
		require.NoError(t, db.Close())
		want()
		why := ok(t, "", "why", file, a.Trace, "policy")
		if kept {
			require.Contains(t, why, "How long does a refund take?")
		} else {
			require.Contains(t, why, notKept)
		}
	}
}
