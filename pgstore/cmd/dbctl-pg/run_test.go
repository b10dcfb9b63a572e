package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// These need no server; package pgstore tests what the verbs call on one.

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, exitOK, "Usage: dbctl-pg"},
		{[]string{"migrate"}, exitUsage, "<dsn>"},
		{[]string{"serve", "postgres://127.0.0.1:1/x"}, exitUsage, "--socket"},
		{[]string{"nonsense"}, exitUsage, "no verb of dbctl-pg"},
		{[]string{"verify", "postgres://127.0.0.1:1/x", "--head", "not a head"}, exitUsage, "dbctl-pg head"},
		{[]string{"ls", "postgres://127.0.0.1:1/x?connect_timeout=1"}, exitFailed, "connect"},
	} {
		var out bytes.Buffer
		code := run(c.args, &out, &out)
		require.Equal(t, c.code, code, "%v: %s", c.args, out.String())
		require.Contains(t, out.String(), c.says)
	}
}

func TestErrorIsJSON(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	require.Equal(t, exitFailed, run([]string{"ls", "postgres://127.0.0.1:1/x?connect_timeout=1", "--json"}, &out, &errs))
	var e struct {
		Error struct {
			Kind string `json:"kind"`
			Exit int    `json:"exit"`
		} `json:"error"`
	}
	require.NoError(t, json.Unmarshal(errs.Bytes(), &e), errs.String())
	require.Equal(t, exitFailed, e.Error.Exit)
	require.Empty(t, out.String())
}

// --database is this program's wherever it stands, and dbctl does not see it.
func TestTakeName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, rest, name string }{
		{"search URL acme x", "search URL acme x", "main"},
		{"--database a search URL", "search URL", "a"},
		{"search --database=a URL", "search URL", "a"},
		{"search URL --database a", "search URL", "a"},
		{"search URL -- --database a", "search URL -- --database a", "main"},
		{"search URL --database", "search URL --database", "main"},
	} {
		rest, name := takeName(strings.Fields(c.args), "main")
		require.Equal(t, c.rest, strings.Join(rest, " "))
		require.Equal(t, c.name, name, c.args)
		require.Equal(t, "search", verbOf(strings.Fields(c.args)))
	}
}
