package dbctl

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/compat/commands"
)

// In memory the verb is the loop itself, whatever its arguments look like.
func TestDirectiveInMemory(t *testing.T) {
	stdin := "use vim\nprohibit Vim\nuse x instead of y\nstate\n step x\nhistory\npreview no\nyes\n"
	for _, args := range [][]string{
		nil, {"--json"}, {"--with-preprocessor", "--json"}, {"--bogus"}, {"--json=true"}, {"-h"}, {"--"}, {"--wait", "1s"}, {"--memory"}, {""},
		{"--initial-state-json", `{"policies":{"vi,m":"use","--x":"prohibit"},"premise":"a, b","version":2}`},
		{"--initial-state-file", filepath.Join(t.TempDir(), "none")}, {"--initial-state-json"}, {"--json", "--help"}, {"--actor", "ann"},
	} {
		var out, errw bytes.Buffer
		code := commands.RunDirective(args, strings.NewReader(stdin), &out, &errw, commands.Options{Program: "dbctl directive --memory"})
		r := dbctl(stdin, append([]string{"directive", "--memory"}, args...)...)
		require.Equal(t, result{code, out.String(), errw.String()}, r, "%q", args)
	}
	require.Equal(t, dbctl(stdin, "directive", "--memory", "--json"), dbctl(stdin, "--json", "directive", "--memory"))
	require.Contains(t, ok(t, "", "directive", "--memory", "--help"), "--initial-checkpoint-json")
	require.True(t, strings.HasPrefix(ok(t, "", "directive", "--memory", "--version"), "dbctl "))
}

func TestDirectiveOverAScope(t *testing.T) {
	file := newDB(t)
	require.Equal(t, `updated
premise: (none)
policies:
- prohibit shell
confirm: Did you mean to use "emacs" instead?
`, ok(t, "prohibit shell\nuse emacs instead of ed\n", "directive", file, "acme", "--actor", "ann"))
	require.Equal(t, "updated\npremise: (none)\npolicies:\n- use emacs\n- prohibit shell\n", ok(t, "yes\n", "directive", file, "acme"), "the question was kept")
	require.Equal(t, `error: "shell" is prohibited by scope "acme".
Only a directive given in that scope can lift it.
updated
premise: brief
policies: (none)
premise: brief
policies: (none)
inherited:
- use emacs (acme)
- prohibit shell (acme)
`, ok(t, "use shell\nset premise brief\nstate\nexit\nset premise lost", "directive", file, "acme/support"))
	require.Equal(t, "1 ann update: \"prohibit shell\"\n2 ann clarify: \"use emacs instead of ed\"\n3 acme update: \"yes\"\n",
		ok(t, "history\n", "directive", file, "acme", "--read-only"))
	require.Equal(t, `{"command":"state","inherited":{"policies":[{"item":"emacs","polarity":"use","scope":"acme"},{"item":"shell","polarity":"prohibit","scope":"acme"}],"premises":[]},"mode":"state","output_version":1,"state":{"policies":{},"premise":"brief","version":2}}
{"command":"history","entries":[{"actor":"acme/support","changed":true,"input":"set premise brief","kind":"update","version":1}],"mode":"history","output_version":1}
`, ok(t, "state\nhistory\n", "directive", file, "acme/support", "--json"))

	state := `{"policies":{"docker":"use"},"premise":"x, y","version":2}`
	for _, note := range []string{"in place of version 1 ", ""} { // loading the same again is no version
		got := dbctl("history\n", "directive", file, "acme/support", "--initial-state-json", state)
		require.Equal(t, "1 acme/support update: \"set premise brief\"\n2 acme/support import\n", got.out)
		require.Contains(t, got.err, note, "a state that is given is not joined to what was decided")
		require.Equal(t, note == "", got.err == "")
	}
	require.Contains(t, ok(t, "history\n", "--json", "directive", file, "acme/support"), `{"action":"import","actor":"acme/support","changed":true,"input":"","kind":"update","version":2}`)
	require.Contains(t, ok(t, "", "assemble", file, "acme/support", "refund", "--budget", "1000"), "premise: x, y\npolicies:\n- use docker\n")
	require.Contains(t, ok(t, "", "check", file), "no damage")
}

func TestDirectiveFails(t *testing.T) {
	file := newDB(t)
	for _, c := range []struct {
		code int
		want string
		in   string
		args []string
	}{
		{exitUsage, "expected FILE SCOPE", "", []string{file}},
		{exitUsage, "expected FILE SCOPE", "", []string{"--json", file, "acme"}},
		{exitUsage, "is read from standard input", "", []string{file, "acme", "prohibit shell"}},
		{exitUsage, "--actor: expected a name", "", []string{file, "acme", "--actor"}},
		{exitUsage, "names joined by single slashes", "", []string{file, "a//b"}},
		{exitFailed, "dbctl init", "", []string{file + "x", "acme"}},
		{exitFailed, "unknown option '--bogus'", "", []string{file, "acme", "--bogus"}},
		{exitFailed, "requires a value", "use x\n", []string{file, "acme", "--read-only", "--read-only", "--initial-state-json"}},
		{exitFailed, "read-only", "hello\nuse x\n", []string{file, "acme", "--read-only"}},
		{exitUsage, "UTF-8", "use \xff\n", []string{file, "acme"}},
	} {
		r := dbctl(c.in, append([]string{"directive"}, c.args...)...)
		require.Equal(t, c.code, r.code, "%q %s", c.args, r.err)
		require.Contains(t, r.err, c.want, "%q", c.args)
	}
	require.Contains(t, ok(t, "", "directive"), "Usage: dbctl directive FILE SCOPE")
	require.Equal(t, ok(t, "", "directive"), ok(t, "", "directive", "--help"))
	require.Contains(t, ok(t, "", "--help"), "directive")
	r := dbctl("", "rm", file, "acme", "ctxpage:directives")
	require.NotEqual(t, exitOK, r.code)
	ok(t, "use x1\n", "directive", file, "acme")
	require.Equal(t, "nothing matches\n", ok(t, "", "rm", file, "acme", "--prefix", "ctxpage:"))
}

// A capitalised directive passes as before, and standard error says how it is written.
func TestDirectiveHint(t *testing.T) {
	file := newDB(t)
	for _, args := range [][]string{{file, "acme"}, {"--memory"}} {
		r := dbctl("Use zerolog\nhello\n", append([]string{"directive"}, args...)...)
		require.Equal(t, exitOK, r.code, r.err)
		require.Equal(t, "passthrough\npassthrough\n", r.out)
		require.Equal(t, "dbctl directive: that passed through; as a directive it is written: use zerolog\n", r.err)
	}
	require.Empty(t, dbctl("Use zerolog\n", "directive", file, "acme", "--json").err)
}

// Somebody who ends the tool while it waits for a line has the database closed.
func TestInterruptible(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	in, typed := io.Pipe()
	defer typed.Close()
	r := interruptible{ctx, in}
	go io.WriteString(typed, "abc")
	b := make([]byte, 2)
	n, err := r.Read(b)
	require.NoError(t, err)
	require.Equal(t, "ab", string(b[:n]))
	cancel()
	for err == nil { // what is there may still be read
		_, err = r.Read(b)
	}
	require.ErrorContains(t, err, "interrupted")
}
