package dbctl

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
)

// oddIDs look like references, or parts of them.
var oddIDs = []string{
	"a:b", "a#1", "a@2", "a#1@2", "http://x/y?z#f", "100%", "a%3Ab", "größe/日本 #1", "acme:x", "acme:z#1@1", "#1", "@2", ":", "a:", "x@1#1", "-", "ctx%",
}

// every verb that takes an id or a reference of what is there.
func namingVerbs(file, trace string) map[string]func(arg string) []string {
	const scope = "acme"
	return map[string]func(string) []string{
		"get":     func(s string) []string { return []string{"get", file, scope, "--", s} },
		"get old": func(s string) []string { return []string{"get", file, scope, "--version", "1", "--", s} },
		"get ro":  func(s string) []string { return []string{"get", file, scope, "--read-only", "--", s} },
		"history": func(s string) []string { return []string{"history", file, scope, "--", s} },
		"rm":      func(s string) []string { return []string{"rm", file, scope, "--dry-run", "--", s} },
		"why":     func(s string) []string { return []string{"why", file, trace, "--", s} },
		"from": func(s string) []string {
			return []string{"put", file, scope, "new", "text", "--dry-run", "--from=" + s}
		},
		"supersede": func(s string) []string {
			return []string{"put", file, scope, "new", "text", "--dry-run", "--supersedes=" + s}
		},
		"source":  func(s string) []string { return []string{"put", file, scope, "new", "--dry-run", "--source=page:" + s} },
		"recall":  func(s string) []string { return []string{"session", "recall", file, scope, "chat", "--", s} },
		"explain": func(s string) []string { return []string{"session", "explain", file, scope, "chat", "--", s} },
		"pin":     func(s string) []string { return []string{"session", "pin", file, scope, "chat", "--", s} },
	}
}

// TestOddIDs: every verb finds every id as it is, and by its reference, and says the same of one that is not there.
func TestOddIDs(t *testing.T) {
	file := newDB(t)
	for i, id := range oddIDs {
		ok(t, fmt.Sprintf("zebra number %d", i), "session", "append", file, "acme", "chat", "--id="+id)
	}
	trace := asJSON(t, "", "assemble", file, "acme", "zebra", "--session", "chat")["trace"].(string)
	for verb, line := range namingVerbs(file, trace) {
		for i, id := range oddIDs {
			ref := ctxpage.Ref{Scope: "acme", ID: id}
			for _, arg := range []string{id, ref.String()} {
				r := dbctl("", line(arg)...)
				require.Equal(t, exitOK, r.code, "%s %s: %s%s", verb, arg, r.out, r.err)
				switch {
				case strings.HasPrefix(verb, "get") || verb == "recall":
					require.Equal(t, fmt.Sprintf("zebra number %d", i), r.out, "%s %s", verb, arg)
				case verb == "why":
					require.Contains(t, r.out, "is in the context", "%s %s", verb, arg)
				case verb == "history":
					require.Contains(t, r.out, ref.String()+"@1")
				case verb == "rm":
					require.Equal(t, "would delete "+id+"\n", r.out)
				}
			}
		}
		for _, arg := range []string{"nosuch:b", "nosuch#1", "nosuch@2", "http://no/such", "acme:nosuch%20one", "99%"} {
			r := dbctl("", line(arg)...)
			if verb == "why" {
				require.Equal(t, exitOK, r.code, r.err)
				require.Contains(t, r.out, "is not in the context")
				continue
			}
			require.NotEqual(t, exitOK, r.code, "%s %s: %s", verb, arg, r.out)
			if verb != "supersede" && verb != "from" && verb != "source" { // the library names the field
				require.Contains(t, r.err, ctxpage.Ref{Scope: "acme", ID: arg}.String(), "%s %s", verb, arg)
			}
		}
	}
}

// TestTwoReadings: what names two things is taken for the id by verbs that read, and refused by verbs that write. Both
// say how to write each, and what they say is true.
func TestTwoReadings(t *testing.T) {
	file := newDB(t)
	ok(t, "zebra page", "session", "append", file, "acme", "chat", "--id=a")
	ok(t, "zebra other", "session", "append", file, "acme", "chat", "--id=x")
	for id, text := range map[string]string{"a#1": "zebra one", "acme:x": "zebra two", "a@1": "zebra three"} {
		r := dbctl(text, "session", "append", file, "acme", "chat", "--id="+id)
		require.Equal(t, exitOK, r.code, r.err)
		require.Contains(t, r.err, "it also names", "who makes it is told")
	}
	trace := asJSON(t, "", "assemble", file, "acme", "zebra", "--session", "chat")["trace"].(string)
	for arg, want := range map[string][3]string{
		"a#1":    {"acme:a%231", "acme:a#1", "zebra one"},
		"acme:x": {"acme:acme%3Ax", "acme:%78", "zebra two"},
		"a@1":    {"acme:a%401", "acme:a@1", "zebra three"},
	} {
		for verb, line := range namingVerbs(file, trace) {
			if verb == "get old" {
				continue
			}
			r := dbctl("", line(arg)...)
			require.Contains(t, r.err, want[0], "%s %s", verb, arg)
			require.Contains(t, r.err, want[1], "%s %s", verb, arg)
			switch verb {
			case "get", "get ro", "history", "why", "explain":
				require.Equal(t, exitOK, r.code, "%s %s %s", verb, arg, r.err)
			default:
				require.Equal(t, exitUsage, r.code, "%s %s", verb, arg)
				require.Empty(t, r.out, "%s %s", verb, arg)
			}
		}
		r := dbctl("", "get", file, "acme", arg, "--json")
		require.True(t, json.Valid([]byte(r.err)), r.err)
		r = dbctl("", "get", file, "acme", want[0])
		require.Equal(t, result{exitOK, want[2], ""}, r)
		r = dbctl("", "get", file, "acme", want[1])
		require.NotEqual(t, want[2], r.out)
		require.Contains(t, r.out, "zebra")
		require.Empty(t, r.err)
	}
}

// A page or a version is no whole artefact, and an artefact of another scope is none of this one.
func TestNamesOfTooLittle(t *testing.T) {
	file := newDB(t)
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"history F acme/support note#1", exitUsage, `names page 1 of id "note" of acme/support, and a whole artefact is expected here: write acme/support:note, or acme/support:note%231 for`},
		{"history F acme/support acme/support:note@1", exitUsage, "names version 1 of"},
		{"rm F acme/support note@1", exitUsage, "write acme/support:note,"},
		{"rm F acme/support note#7", exitUsage, "names page 7 of"},
		{"rm F acme/support acme:house", exitUsage, "names an artefact of scope acme, expected one of acme/support"},
		{"rm F acme/support house", exitFailed, "nothing was deleted"},
		{"put F acme/support x y --supersedes note#1", exitUsage, "put: --supersedes: "},
		{"put F acme/support x y --supersedes acme:house", exitUsage, "expected one of acme/support"},
		{"get F acme/support note#7", exitFailed, "has 1 pages"},
		{"get F acme/support note@7", exitFailed, "has versions up to 1"},
		{"get F acme/support note#1@1", exitOK, ""},
		{"get F acme acme/support:note", exitFailed, "not found"}, // a child is not seen
		{"history F acme/support acme:house", exitOK, ""},
		{"put F acme/support x y --from acme:house --from note@1 --supersedes acme/support:note --dry-run", exitOK, ""},
	} {
		args := strings.Fields(c.args)
		args[1] = file
		r := dbctl("", args...)
		require.Equal(t, c.code, r.code, "%s: %s%s", c.args, r.out, r.err)
		require.Contains(t, r.err, c.says, c.args)
	}
	require.Contains(t, strings.Join(strings.Fields(ok(t, "", "--help")), " "), namesHelp)
}
