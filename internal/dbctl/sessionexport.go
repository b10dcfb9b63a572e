package dbctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/foreign"
)

type sessionExportCmd struct {
	talkArgs
	Format string `help:"openai and anthropic print one message a line, which session append --jsonl takes again; md is for people to read, and names the context that each answer was written from." enum:"openai,anthropic,md" default:"openai"`
	From   int64  `help:"Begin at this turn."`
}

func (c *sessionExportCmd) Run(a *app) error {
	if a.JSON && c.Format == "md" {
		return usage("--json with --format md: expected one of them")
	}
	return c.withKnown(a, true, func(s *ctxpage.Session) error {
		if a.JSON {
			return c.document(a, s)
		}
		_, left, err := foreign.Transcript(a.out, foreign.Format(c.Format), s.Turns(a.ctx, c.From))
		if left > 0 {
			fmt.Fprintf(a.err, "left out: %d calls, results or parts that %s does not accept\n", left, c.Format)
		}
		return err
	})
}

// transcriptView is the JSON of a transcript: the messages as one document.
type transcriptView struct {
	Session  string            `json:"session"`
	Format   string            `json:"format"`
	Messages []json.RawMessage `json:"messages"`
	LeftOut  int               `json:"left_out,omitempty"` // calls without a result, results without a call, and parts that the provider does not accept
}

// document prints the messages as one JSON document.
func (c *sessionExportCmd) document(a *app, s *ctxpage.Session) error {
	v := transcriptView{Session: c.Session, Format: c.Format, Messages: []json.RawMessage{}}
	w := lineFunc(func(line []byte) { v.Messages = append(v.Messages, bytes.Clone(line)) })
	var err error
	if _, v.LeftOut, err = foreign.Transcript(w, foreign.Format(c.Format), s.Turns(a.ctx, c.From)); err != nil {
		return err
	}
	return a.emit(v, func(w io.Writer) { fmt.Fprintln(w, len(v.Messages)) })
}

// lineFunc is called with each message that is written.
type lineFunc func(line []byte)

// Write takes one message.
func (f lineFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}
