package pgstore

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// programsBuilt builds dbctl and dbctl-pg.
func programsBuilt(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, of := range []struct{ in, pkg string }{{"..", "./cmd/dbctl"}, {".", "./cmd/dbctl-pg"}} {
		cmd := exec.Command("go", "build", "-o", dir, of.pkg)
		cmd.Dir = of.in
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return dir
}

// Every verb of dbctl takes a postgres:// URL where it takes a file, through dbctl-pg; those that cannot work on a server say so.
func TestVerbsOnAServer(t *testing.T) {
	t.Parallel()
	dsn, name := onServer(t), ownName(t)
	bin := programsBuilt(t)
	run := func(args ...string) (code int, out, errs string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "dbctl-pg"), args...)
		var o, e bytes.Buffer
		cmd.Stdout, cmd.Stderr = &o, &e
		cmd.Env = append(os.Environ(), "CTXPAGE_DATABASE="+name)
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode(), o.String(), e.String()
	}
	at := func(line string) (args []string) { // @ stands for the server
		for arg := range strings.FieldsSeq(line) {
			args = append(args, strings.ReplaceAll(strings.ReplaceAll(arg, "@", dsn), "_", " "))
		}
		return args
	}
	ok := func(line string) string {
		t.Helper()
		code, out, errs := run(at(line)...)
		require.Zero(t, code, "%s: %s%s", line, out, errs)
		return out
	}
	code, _, errs := run(at("put @ acme a words")...)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "no database")
	ok("init @")
	code, _, errs = run(at("init @")...)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "already")
	ok("put @ acme a Refunds_are_paid_within_30_days.")
	ok("put @ acme b Refunds_above_400_need_an_approval.")
	require.Contains(t, ok("get @ acme a"), "30 days")
	require.Contains(t, ok("--json search @ acme refunds"), "acme:a", "flags may come first")
	require.Contains(t, ok("history @ acme a"), "1")
	var asm struct{ Trace string }
	require.NoError(t, json.Unmarshal([]byte(ok("assemble @ acme refunds --budget 500 --json")), &asm))
	for _, line := range []string{"check @", "verify @", "head @", "manifest verify @", "image @", "ls @", "finish-erase @"} {
		ok(line)
	}
	// A reader that ends before the output does is no error.
	var said bytes.Buffer
	piped := exec.CommandContext(t.Context(), "sh", "-c", `"$0" get "$1" acme long | head -c 1`, filepath.Join(bin, "dbctl-pg"), dsn)
	piped.Env, piped.Stderr = append(os.Environ(), "CTXPAGE_DATABASE="+name), &said
	ok("put @ acme long " + strings.Repeat("Refunds.", 10_000))
	require.NoError(t, piped.Run())
	require.Empty(t, said.String())
	// dbctl starts dbctl-pg, which starts dbctl: the one that was called.
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "dbctl"), "get", "--database", name, dsn, "acme", "a").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "30 days")
	// The others as dbctl-pg runs them, but with one follower for all.
	socket := filepath.Join(bin, "s")
	srv := exec.CommandContext(t.Context(), filepath.Join(bin, "dbctl-pg"), "serve", dsn, "--socket", socket, "--database", name)
	served, err := srv.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, srv.Start())
	line, err := bufio.NewReader(served).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "serving")
	for _, line := range []string{
		"why @ " + asm.Trace + " a", "replay @ " + asm.Trace, "diff @ " + asm.Trace + " " + asm.Trace, "stat @", "health @ acme", "check @ --online", "manifest ls @", "manifest show @ 0",
		"manifest head @", "manifest tail @", "review ls @", "refresh @ acme", "gc @ --dry-run", "session append @ acme s hello", "session ls @ acme",
		"export @", "directive @ acme", "retention show @", "quota show @", "rm @ acme b",
	} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "dbctl"), strings.Fields(strings.ReplaceAll(line, "@", "unix:"+socket))...).CombinedOutput()
		require.NoError(t, err, "%s: %s", line, out)
	}
	require.NoError(t, srv.Process.Signal(os.Interrupt))
	_ = srv.Wait()
	for _, line := range []string{"backup @ " + filepath.Join(bin, "copy.ctx"), "compact @", "salvage @ " + filepath.Join(bin, "copy.ctx"), "restore @ " + filepath.Join(bin, "copy.ctx")} {
		code, out, errs := run(at(line)...)
		require.Equal(t, 2, code, line)
		require.Empty(t, out, line)
		require.Contains(t, errs, "the server's own", line)
	}
}
