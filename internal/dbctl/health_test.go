package dbctl

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
)

// TestHealth: each finding has a count, an example and the command that mends it, and that command does.
func TestHealth(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "one", "Refunds are made within thirty days of the purchase.")
	ok(t, "", "put", file, "acme", "two", "Refunds are made within thirty days of the purchase.")
	ok(t, "", "put", file, "acme", "ann-1", "Ann lives in Oslo.", "--subject", "ann", "--meta", "key=city")
	ok(t, "", "put", file, "acme", "ann-2", "Ann lives in Bergen.", "--subject", "ann", "--meta", "key=city")
	ok(t, "", "put", file, "acme", "old", "a notice", "--expires", "2020-01-01")
	ok(t, "", "put", file, "other", "two", "not looked at")

	out := ok(t, "", "health", file, "acme")
	require.Contains(t, out, "acme: 5 artefacts")
	require.Contains(t, out, "1 exact duplicate")
	require.Contains(t, out, "mend: dbctl rm ")
	v := asJSON(t, "", "health", file, "acme", "--examples", "1")
	counts := map[string]any{}
	for _, f := range v["findings"].([]any) {
		finding := f.(map[string]any)
		counts[finding["what"].(string)] = finding["count"]
	}
	require.EqualValues(t, 1, counts["contradiction"])
	require.EqualValues(t, 1, counts["expired"])

	ok(t, "", "rm", file, "acme", "two")
	require.Contains(t, ok(t, "", "health", file, "acme"), "0 exact duplicate")
	for _, args := range [][]string{{"--examples", "0"}, {"--assemblies", "0"}} {
		require.Equal(t, exitUsage, dbctl("", append([]string{"health", file, "acme"}, args...)...).code)
	}
}

// TestHealthMends: the commands that a report prints work as they are when a shell gets them, and afterwards nothing is found.
func TestHealthMends(t *testing.T) {
	dbtest.NeedsPosix(t, "a shell that runs the command it is shown")
	file := filepath.Join(t.TempDir(), "the agent's.ctx")
	const text = "Refunds are made within thirty days of the purchase, to the card that was charged"
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "one", text)
	ok(t, "", "put", file, "acme", "two $HOME", text)
	ok(t, "", "put", file, "acme", "three; it's", "Policy:  "+text+"!")
	ok(t, "", "put", file, "acme", "ann-1", "Ann lives in Oslo.", "--subject", "ann", "--meta", "key=city")
	ok(t, "", "put", file, "acme", "ann-2", "Ann lives in Bergen.", "--subject", "ann", "--meta", "key=city")
	ok(t, "", "put", file, "acme", "notice@2", "a notice", "--expires", "2020-01-01")
	ok(t, "", "put", "--", file, "acme", "-x", "an old rule")
	ok(t, "", "put", file, "acme", "rule", "a new rule", "--supersedes=-x")
	ok(t, "", "put", file, "acme", "base", "a base")
	ok(t, "", "put", file, "acme", "child", "made of it", "--from", "base")
	ok(t, "", "rm", file, "acme", "base")
	time.Sleep(2 * time.Millisecond)
	ok(t, "", "assemble", file, "acme", "refund rule Oslo Bergen", "--budget", "120")

	found := regexp.MustCompile(`(?m)^([1-9]\d*) (.*)\n(?:    .*\n)*?    it .*; mend: (dbctl rm .*)$`)
	all := found.FindAllStringSubmatch(ok(t, "", "health", file, "acme"), -1)
	var kinds []string
	for _, f := range all {
		kinds = append(kinds, f[2])
	}
	require.Equal(t, []string{"exact duplicate", "near duplicate", "contradiction", "never served", "expired", "superseded", "orphan"}, kinds)
	for range all { // one kind after the other: what one command deletes another would not find
		f := found.FindStringSubmatch(ok(t, "", "health", file, "acme"))
		if f == nil {
			break
		}
		sh := exec.Command("sh", "-c", `dbctl() { "$SELF" "$@"; }; `+f[3])
		sh.Env = append(os.Environ(), childEnv+"=1", "SELF="+os.Args[0])
		said, err := sh.CombinedOutput()
		require.NoError(t, err, "%s: %s", f[3], said)
	}
	require.Nil(t, found.FindStringSubmatch(ok(t, "", "health", file, "acme")))
}
