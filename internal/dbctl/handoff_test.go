package dbctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/handoff"
)

// A handoff into a contract that is there says what is new, and takes back what does not hold any more, whichever verb
// wrote it.
func TestHandoffGrowsAContract(t *testing.T) {
	file := filepath.Join(t.TempDir(), "h.ctx")
	contract := filepath.Join(t.TempDir(), "s.limn")
	ok(t, "", "init", file)
	ok(t, "hello\n", "session", "append", file, "acme", "chat", "--role", "user")
	ok(t, "use zerolog\n", "directive", file, "acme")
	ok(t, `{"done":["looked"],"open":["write"],"questions":[{"question":"who pays?","why_it_matters":""}]}`, "session", "notes", file, "acme", "chat")
	require.NoError(t, os.WriteFile(contract, []byte("remember a list called work-completed\nadd \"greeted\" to work-completed\n"), 0o600))
	grow := func(more ...string) string {
		return ok(t, "", append([]string{"handoff", file, "acme", "chat", contract, "--format", "limn"}, more...)...)
	}
	read := func() *handoff.Ledger {
		raw := must(os.ReadFile(contract))(t)
		l, err := handoff.ReadLedger(raw)
		require.NoError(t, err, "%s", raw)
		dbtest.Interpreted(t, raw, l)
		return l
	}
	ok(t, "", "session", "contract", file, "acme", "chat", contract)
	require.Contains(t, grow("--dry-run"), "handoff-packet-created")
	require.NotContains(t, read().List("tracked-decisions"), "handoff-packet-created")
	require.Contains(t, grow(), " bytes appended")
	l := read()
	require.Equal(t, []string{"greeted", "looked"}, l.List("work-completed"))
	require.Equal(t, []string{"write"}, l.List("work-remaining"))
	require.Contains(t, strings.Join(l.List("tracked-decisions"), " "), "zerolog")

	ok(t, "remove policy zerolog\n", "directive", file, "acme")
	ok(t, `{"done":["wrote"]}`, "session", "notes", file, "acme", "chat")
	grow("--to", "night")
	l = read()
	require.Equal(t, []string{"greeted", "wrote"}, l.List("work-completed"))
	require.Empty(t, l.List("work-remaining"))
	require.Empty(t, l.List("open-questions"))
	require.Equal(t, []string{"handoff-packet-created", "handoff-packet-created"}, l.List("tracked-decisions"))

	ok(t, `{"done":["wrote","sent"]}`, "session", "notes", file, "acme", "chat")
	ok(t, "", "session", "contract", file, "acme", "chat", contract)
	require.Equal(t, []string{"greeted", "wrote", "sent"}, read().List("work-completed"))
	require.Equal(t, exitUsage, dbctl("", "handoff", file, "acme", "chat", contract).code)
	require.Equal(t, exitUsage, dbctl("", "handoff", file, "acme", "chat", "--dry-run").code)
}
