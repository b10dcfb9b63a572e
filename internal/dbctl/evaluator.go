package dbctl

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/view"
)

// ruleSupported is the evaluator that ships with dbctl. A program of that name is ./supported.
const ruleSupported = "supported"

// evaluatorFlag names who judges writes.
type evaluatorFlag struct {
	Evaluator string `help:"Who judges writes. supported: a rule that passes what the context says word for word. Otherwise a program, which reads the draft and its context as JSON from standard input and prints {\"confidence\": 0 to 1, \"note\": TEXT}." placeholder:"supported|PROGRAM"`
}

// evaluator is the one that the flag names; nil: none.
func (f evaluatorFlag) evaluator() (ctxpage.Evaluator, error) {
	name, err := f.absolute()
	switch {
	case err != nil || name == "":
		return nil, err
	case name == ruleSupported:
		return ctxpage.Supported(), nil
	}
	return program(name), nil
}

// absolute is the flag's value from any directory.
func (f evaluatorFlag) absolute() (string, error) {
	if f.Evaluator == "" || f.Evaluator == ruleSupported {
		return f.Evaluator, nil
	}
	return filepath.Abs(f.Evaluator)
}

// program is an Evaluator that runs a program for each draft.
type program string

// maxJudgement bounds what is read of a program's answer.
const maxJudgement = 64 << 10

func (p program) Name() string { return filepath.Base(string(p)) }

// Evaluate runs the program on the draft and reads its judgement. It ends with ctx.
func (p program) Evaluate(ctx context.Context, d ctxpage.Draft) (confidence float64, note string, err error) {
	in, err := json.Marshal(draftView{d.Scope, d.Actor, d.Trace, d.Writes, nonNil(d.Deletes), nonNil(d.Context)})
	if err != nil {
		return 0, "", err
	}
	text, err := runProgram(ctx, string(p), in)
	if err != nil {
		return 0, "", fmt.Errorf("evaluator %w", err)
	}
	out := []byte(text)
	var said struct {
		Confidence *float64 `json:"confidence"`
		Note       string   `json:"note"`
	}
	if err := json.Unmarshal(out, &said); err != nil || said.Confidence == nil || view.CheckKnownFields(out, said) != nil {
		return 0, "", fmt.Errorf(`evaluator %s: expected {"confidence": 0 to 1, "note": "…"}, got %.80q`, p, out)
	}
	return *said.Confidence, said.Note, nil
}

// runProgram runs a program of the host and returns its output. It ends with ctx.
func runProgram(ctx context.Context, path string, in []byte) (string, error) {
	cmd := exec.CommandContext(ctx, path)
	cmd.Stdin, cmd.WaitDelay = bytes.NewReader(in), time.Second
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if len(out) > maxJudgement {
		return "", fmt.Errorf("%s: %d bytes, expected at most %d", path, len(out), maxJudgement)
	}
	return string(out), nil
}

// draftView is the input of an evaluator program.
type draftView struct {
	Scope   string             `json:"scope"`
	Actor   string             `json:"actor"`
	Trace   string             `json:"trace,omitempty"`
	Writes  []ctxpage.Artefact `json:"writes"`
	Deletes []string           `json:"deletes"`
	Context []ctxpage.Block    `json:"context"` // what the context of trace showed
}
