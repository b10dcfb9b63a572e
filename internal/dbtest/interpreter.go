package dbtest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// Remembered is the reader of contracts: handoff.Ledger.
type Remembered interface {
	List(name string) []string
	Value(name string) (string, bool)
}

// Interpreted executes a contract in the real interpreter, where CTXPAGE_INTERPRETER names a Python that has it, and
// compares lists and texts with what our reader has.
func Interpreted(t testing.TB, contract []byte, ours Remembered) {
	t.Helper()
	python := os.Getenv("CTXPAGE_INTERPRETER")
	if python == "" {
		return
	}
	raw, err := json.Marshal(string(contract))
	if err != nil {
		t.Fatal(err)
	}
	script := "internal/handoff/testdata/interpreter.py"
	for up := 0; up < 5; up++ { // a test runs in the folder of its package
		if _, err := os.Stat(script); err == nil {
			break
		}
		script = filepath.Join("..", script)
	}
	cmd := exec.Command(python, script)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(append(raw, '\n')), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var e struct {
		Errors []any
		Names  map[string][2]any
	}
	if err := json.Unmarshal(out, &e); err != nil {
		t.Fatal(err)
	}
	if len(e.Errors) > 0 || len(e.Names) == 0 {
		t.Fatalf("the interpreter refuses a contract: %v\n%s", e.Errors, contract)
	}
	for name, v := range e.Names {
		switch items, list := v[1].([]any); {
		case list:
			theirs := []string(nil)
			for _, item := range items {
				theirs = append(theirs, item.([]any)[1].(string))
			}
			if !slices.Equal(theirs, ours.List(name)) {
				t.Errorf("%s: %q, the interpreter has %q", name, ours.List(name), theirs)
			}
		case v[0] == "string":
			if text, ok := ours.Value(name); !ok || text != v[1] {
				t.Errorf("%s: %q, the interpreter has %q", name, text, v[1])
			}
		}
	}
}
