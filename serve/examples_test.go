package serve_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/serve"
)

// The example in Python runs as it is, and is short. clients/typescript/check runs the one for Node.
func TestExamples(t *testing.T) {
	for interpreter, file := range map[string]string{"python3": "../examples/python/chat.py"} {
		t.Run(interpreter, func(t *testing.T) {
			src := must(os.ReadFile(file))(t)
			require.LessOrEqual(t, strings.Count(string(src), "\n"), 60)
			if out, err := exec.CommandContext(t.Context(), interpreter, "--version").CombinedOutput(); err != nil {
				t.Skipf("%s is not here: %v %s", interpreter, err, out)
			}
			d := opened(t, serve.Options{Grant: serve.Host})
			cmd := exec.CommandContext(t.Context(), interpreter, file, d.path, "what may I refund?")
			cmd.Env = append(os.Environ(), "PYTHONPATH=../clients/python/src", "PYTHONDONTWRITEBYTECODE=1")
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "without a verdict: held")
			require.Contains(t, string(out), "committed: acme/support:answer")
			require.Contains(t, string(out), "recalled: what may I refund?")
			held := must(loop.Collect(d.db.Review().Batches(t.Context(), "acme/support", false)))(t)
			require.Len(t, held, 1)
		})
	}
}

// The types of the clients are generated from the pinned schemas, and name the file that they were made from.
func TestClientTypes(t *testing.T) {
	schemas := must(os.ReadFile("testdata/schema.json"))(t)
	for file, made := range map[string]string{
		"../clients/typescript/src/schema.ts":    "node clients/typescript/scripts/generate.mjs",
		"../clients/python/src/ctxpage/types.py": "python3 clients/python/scripts/make_types.py",
	} {
		types := must(os.ReadFile(file))(t)
		require.Contains(t, string(types), fmt.Sprintf("sha256 of the schema: %x\n", sha256.Sum256(schemas)), "the types are out of date: run %s", made)
	}
}
