package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/manifest"
)

// outcome has the facts that the second process must find.
type outcome struct {
	Path, Scope, Trace, Context, Head string
	Turns                             int
	Answer                            ctxpage.Ref
}

// read is the second process: it opens the same file and finds everything.
func read(ctx context.Context, out io.Writer, task string) (err error) {
	var kept outcome
	if err := json.Unmarshal([]byte(task), &kept); err != nil {
		return err
	}
	db, err := ctxpage.Open(kept.Path, ctxpage.Options{RecordedRoots: true, MustExist: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	s := db.Scope(kept.Scope)

	w, err := s.Session("chat-1").Inspect(ctx)
	if err != nil {
		return err
	}
	first, err := s.Session("chat-1").Recall(ctx, w.Turns[0].ID) // in full, whatever the window shows of it
	if err != nil {
		return err
	}
	file, err := s.Get(ctx, "refunds.md")
	if err != nil {
		return err
	}
	answer, err := s.Recall(ctx, kept.Answer)
	if err != nil {
		return err
	}
	past, err := db.Replay(ctx, kept.Trace)
	if err != nil {
		return err
	}
	head, err := manifest.ParseHead(kept.Head)
	if err != nil {
		return err
	}
	log, err := db.Manifests().Verify(ctx, &head, nil) // an error when the log was edited
	if err != nil {
		return err
	}
	switch {
	case len(w.Turns) != kept.Turns || first.Text != userSays(0):
		return fmt.Errorf("the chat is not whole: %d turns of %d", len(w.Turns), kept.Turns)
	case !strings.Contains(file.Text, "store credit within nine days"):
		return errors.New("the edit of refunds.md is not there")
	case digest(past.Text) != kept.Context:
		return errors.New("the replayed context differs")
	}
	_, err = fmt.Fprintf(out, "2nd process: %d turns; %s is %q, %s; the same context again; the log of %d entries verifies\n", len(w.Turns), answer.Ref, answer.Text, answer.Provenance, log.Size)
	return err
}
