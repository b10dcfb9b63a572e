package dbctl

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/stretchr/testify/require"
)

func TestVersionIsThatOfTheBuild(t *testing.T) {
	for _, c := range []struct {
		info debug.BuildInfo
		want buildView
	}{
		{debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123abcd"}, {Key: "vcs.modified", Value: "true"}}},
			buildView{Version: "v1.2.3", Commit: "0123abcd", Modified: true}},
		{debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20270131120000-0123456789ab"}}, buildView{Version: "v0.0.0-20270131120000-0123456789ab", Commit: "0123456789ab"}},
		{debug.BuildInfo{}, buildView{Version: "(devel)"}},
	} {
		got := buildOf(&c.info, true)
		got.Go, got.Platform = "", ""
		require.Equal(t, c.want, got)
	}
	for _, args := range [][]string{{"--version"}, {"version"}} {
		require.Contains(t, ok(t, "", args...), "dbctl ")
	}
	require.NotEmpty(t, asJSON(t, "", "--version")["go"])
	file := newDB(t)
	require.Contains(t, ok(t, "", "get", file, "acme/support", "note", "--version", "1"), "Lee", "get has a flag of that name")
}

func TestHelpOfAVerb(t *testing.T) {
	for _, verb := range []string{"put", "session pass", "directive", "budget", "manifest", "session page", "help"} {
		words := strings.Fields(verb)
		require.Equal(t, ok(t, "", append(words, "--help")...), ok(t, "", append([]string{"help"}, words...)...), verb)
	}
	require.Equal(t, ok(t, "", "--help"), ok(t, "", "help"))
	r := dbctl("", "help", "session", "nosuch")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, `there is no verb "session nosuch"; dbctl help session lists them`)
}

func TestCompletion(t *testing.T) {
	words := func(w ...string) []string {
		return strings.Fields(ok(t, "", append([]string{"completion", "--words", "--"}, w...)...))
	}
	require.Equal(t, []string{"search", "serve", "session", "setup"}, words("se"))
	require.Equal(t, []string{"page", "pass", "passes", "pin"}, words("session", "p"))
	require.Equal(t, []string{"--overflow"}, words("assemble", "F", "acme", "question", "--ov"))
	require.Equal(t, []string{"fill", "ladder"}, words("assemble", "--overflow", ""))
	require.Empty(t, words("get", ""), "a file")
	require.Empty(t, words("put", "F", "acme", "x", "--root", ""), "a directory")
	require.Contains(t, words("put", "F", "acme", "x", "--root", "d", "--"), "--ttl")
	require.Equal(t, []string{"search", "serve", "session", "setup"}, words("help", "se"))
	require.Equal(t, []string{"bash", "fish", "zsh"}, words("completion", ""))
	require.Equal(t, exitUsage, dbctl("", "completion", "ksh").code)
	for shell := range shells {
		script := ok(t, "", "completion", shell)
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Log("not here: ", shell)
			continue
		}
		cmd := exec.Command(path, "-n") // it parses, and is not run
		cmd.Stdin = strings.NewReader(script)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

func TestDurations(t *testing.T) {
	const day = 24 * time.Hour
	for s, want := range map[string]time.Duration{
		"7d": 7 * day, "2w": 14 * day, "1w2d12h": 9*day + 12*time.Hour, "1.5d": 36 * time.Hour, "-7d": -7 * day, "90m": 90 * time.Minute, "0": 0, "0d": 0, "30d": 720 * time.Hour,
	} {
		got, err := parseDuration(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
	}
	for _, s := range []string{"", "7", "d", "2027-01-31", "7dd", "1d-2h", "7 d", "1e9d", "200000000d", "1d+2h", "7D"} {
		_, err := parseDuration(s)
		require.Error(t, err, s)
	}
	file := newDB(t)
	ok(t, "", "put", file, "acme", "x", "y", "--ttl", "7d")
	for _, args := range [][]string{
		{"get", file, "acme", "x", "--check", "1d"}, {"gc", file, "--keep-for", "7d"}, {"manifest", "ls", file, "--since", "7d"}, {"ls", file, "--wait", "0.0001d"},
	} {
		ok(t, "", args...)
	}
	r := dbctl("", "gc", file, "--keep-for", "soon")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "expected a duration like 90m, 12h, 7d or 2w")
}

func TestForeignFileIsNoDatabase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notes.txt")
	write(t, filepath.Dir(file), "notes.txt", "Refunds up to $400 need no approval.\n")
	for _, args := range [][]string{
		{"ls", file}, {"get", file, "acme", "x"}, {"put", file, "acme", "x", "y"}, {"stat", file}, {"check", file}, {"manifest", "ls", file}, {"manifest", "verify", file},
		{"salvage", file, file + ".new"}, {"search", file, "acme", "x"}, {"gc", file}, {"session", "ls", file, "acme"},
	} {
		r := dbctl("", args...)
		require.Equal(t, exitFailed, r.code, "%v: %s", args, r.err)
		require.Contains(t, r.err, "not a ctxpage database", args)
		require.NotContains(t, r.err, "damaged", args)
	}
	require.Contains(t, dbctl("", "ls", file, "--json").err, `"kind":"not a database"`)
	entries := must(os.ReadDir(filepath.Dir(file)))(t)
	require.Len(t, entries, 1, "nothing is left beside it")
}

// An interrupted dbctl says so by its exit code, whatever it was doing.
func TestInterrupted(t *testing.T) {
	dbtest.NeedsPosix(t, "signals to one process")
	file := newDB(t)
	exe := must(os.Executable())(t)
	for _, c := range []struct {
		sig  syscall.Signal
		want int
		args []string
	}{
		{syscall.SIGINT, exitOK, []string{"manifest", "tail", "-f", file}},
		{syscall.SIGTERM, exitOK, []string{"manifest", "tail", "-f", file}},
		{syscall.SIGTERM, exitOK, []string{"serve", file}},
		{syscall.SIGINT, exitOK, []string{"serve", file}},
		{syscall.SIGTERM, exitOK, []string{"watch", file, "acme/support", "chat", "--total", "1000"}},
		{syscall.SIGTERM, exitTerminated, []string{"put", file, "acme", "x"}},
		{syscall.SIGINT, exitInterrupted, []string{"put", file, "acme", "x"}}, // waits for its input
		{syscall.SIGINT, exitOK, []string{"watch", file, "acme/support", "chat", "--total", "1000"}},
		{syscall.SIGINT, exitInterrupted, []string{"directive", file, "acme"}},
		{syscall.SIGINT, exitInterrupted, []string{"budget", "compile"}},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		cmd := exec.CommandContext(ctx, exe, c.args...)
		cmd.Env = append(os.Environ(), childEnv+"=1")
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out := must(cmd.StdoutPipe())(t)
		require.NoError(t, cmd.Start())
		says := bufio.NewReader(out)
		if speaks := c.want == exitOK; speaks {
			_, err = says.ReadString('\n')
			go says.WriteTo(io.Discard)
		} else { // more than a pipe holds: it is written once the program reads, so it is at work
			go says.WriteTo(io.Discard)
			_, err = in.Write(bytes.Repeat([]byte("\n"), 1<<17))
		}
		require.NoError(t, err, c.args)
		require.NoError(t, cmd.Process.Signal(c.sig))
		_ = cmd.Wait()
		require.Equal(t, c.want, cmd.ProcessState.ExitCode(), fmt.Sprint(c.args))
		in.Close()
		cancel()
	}
	ok(t, "", "check", file)
}

// The table of the exit codes, the help and the program say the same.
func TestExitCodesAreListed(t *testing.T) {
	codes := []int{exitOK, exitFailed, exitUsage, exitDamaged, exitHeld, exitBusy, exitInterrupted, exitTerminated}
	docs := must(filepath.Glob("../../docs/*.md"))(t)
	var tables string
	for _, path := range append(docs, "../../README.md") {
		b := must(os.ReadFile(path))(t)
		tables += string(b)
	}
	_, help, _ := strings.Cut(ok(t, "", "--help"), "Exit codes:")
	help, _, found := strings.Cut(strings.Join(strings.Fields(help), " "), ".")
	require.True(t, found)
	for _, c := range codes {
		require.Contains(t, tables, fmt.Sprintf("\n| %d |", c))
		require.Regexp(t, fmt.Sprintf(`(^|[ ,])%d\b`, c), help)
	}
}
