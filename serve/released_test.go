package serve_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/serve"
	"github.com/stretchr/testify/require"
)

// schemaOf is the contract of one revision: what testdata/schema.json has.
type schemaOf struct {
	Version int
	Codes   []string
	Headers map[string]string
	Calls   []struct {
		Path, Role string
		In, Out    shapeOf
	}
}

// shapeOf is the part of a JSON schema that the protocol uses.
type shapeOf struct {
	Type       any // a name, or several
	Properties map[string]shapeOf
	Required   []string
	Items      *shapeOf
}

// UnmarshalJSON reads a schema, or true, which takes any value.
func (s *shapeOf) UnmarshalJSON(b []byte) error {
	type plain shapeOf
	if string(b) == "true" {
		return nil
	}
	return json.Unmarshal(b, (*plain)(s))
}

// A program that was written for a release works with every later server of the same protocol version: each call, header and code is still
// there, each field has its type, no call asks for more, and no answer lacks what it promised (make freeze).
func TestReleasedProtocols(t *testing.T) {
	files := must(filepath.Glob("testdata/released/v*.json"))(t)
	require.NotEmpty(t, files)
	now := readSchema(t, "testdata/schema.json")
	for _, file := range files {
		require.Empty(t, broken(readSchema(t, file), now), file)
	}

	changed := readSchema(t, "testdata/schema.json") // the control
	i := slices.IndexFunc(changed.Calls, func(c struct {
		Path, Role string
		In, Out    shapeOf
	}) bool {
		return len(c.In.Properties) > 1 && len(c.Out.Properties) > 1
	})
	call := changed.Calls[i]
	field := slices.Sorted(maps.Keys(call.Out.Properties))[0]
	delete(call.Out.Properties, field)
	call.In.Properties["new"] = shapeOf{Type: "string"}
	changed.Calls[i].In.Required = append(slices.Clone(call.In.Required), "new")
	changed.Codes = changed.Codes[1:]
	require.Equal(t, []string{call.Path + " in: new is required now", call.Path + " out: " + field + " is gone", "code " + now.Codes[0] + " is gone"}, broken(now, changed))
}

func readSchema(t *testing.T, file string) (s schemaOf) {
	t.Helper()
	b := must(os.ReadFile(file))(t)
	require.NoError(t, json.Unmarshal(b, &s))
	require.NotEmpty(t, s.Calls)
	return s
}

// broken lists what a program for old misses in now. Another version of the protocol promises nothing to it.
func broken(old, now schemaOf) (out []string) {
	if now.Version != old.Version {
		return nil
	}
	for _, code := range old.Codes {
		if !slices.Contains(now.Codes, code) {
			out = append(out, "code "+code+" is gone")
		}
	}
	for header := range old.Headers {
		if _, is := now.Headers[header]; !is {
			out = append(out, "header "+header+" is gone")
		}
	}
	for _, was := range old.Calls {
		found := false
		for _, is := range now.Calls {
			if is.Path == was.Path {
				found = true
				out = append(append(out, brokenShape(was.Path+" in", was.In, is.In, true)...), brokenShape(was.Path+" out", was.Out, is.Out, false)...)
			}
		}
		if !found {
			out = append(out, was.Path+" is gone")
		}
	}
	slices.Sort(out)
	return out
}

// brokenShape compares one value: of a call, where in is set, or of an answer.
func brokenShape(at string, was, is shapeOf, in bool) (out []string) {
	if fmt.Sprint(was.Type) != fmt.Sprint(is.Type) {
		return []string{fmt.Sprintf("%s: was %v, is %v", at, was.Type, is.Type)}
	}
	promised, asked := was.Required, is.Required
	if in {
		promised, asked = asked, promised
	}
	for _, name := range promised {
		if !slices.Contains(asked, name) {
			if _, known := is.Properties[name]; in || known {
				out = append(out, fmt.Sprintf("%s: %s is %s", at, name, map[bool]string{true: "required now", false: "optional now"}[in]))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was.Properties)) {
		next, known := is.Properties[name]
		if !known {
			out = append(out, at+": "+name+" is gone")
			continue
		}
		out = append(out, brokenShape(at+"."+name, was.Properties[name], next, in)...)
	}
	if was.Items != nil && is.Items != nil {
		out = append(out, brokenShape(at+"[]", *was.Items, *is.Items, in)...)
	}
	return out
}

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
