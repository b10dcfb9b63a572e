// Chat is a long conversation under the default settings of a window: turns of all sizes come in, the window stays within
// its limit, every question gets a context, and what left the window is read again. Run it with
//
//	go run -C examples ./chat -turns 100000 -window 32000
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/session"
)

func main() {
	turns, window := flag.Int("turns", 2000, "turns to append"), flag.Int("window", 128_000, "tokens of the window")
	flag.Parse()
	dir, err := os.MkdirTemp("", "ctxpage-chat")
	if err != nil {
		log.Fatal(err)
	}
	err = chat(context.Background(), os.Stdout, filepath.Join(dir, "agent.ctx"), *turns, *window)
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		log.Fatal(err)
	}
}

func chat(ctx context.Context, out io.Writer, path string, turns, window int) (err error) {
	db, err := ctxpage.Open(path, ctxpage.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	s := db.Scope("acme/support/agent-7")

	chat := s.Session("chat-1")
	if err := chat.SetWindow(ctx, session.Config{Total: window}); err != nil {
		return err
	}
	for n := 0; n < turns; n += 2 {
		question := say(n)
		if _, err := chat.Append(ctx, ctxpage.Turn{Role: "user", Text: question}); err != nil {
			return err
		}
		a, err := s.Assemble(ctx, ctxpage.Query{Text: question, Budget: 8000, Session: "chat-1"})
		if err != nil {
			return err
		}
		answer := callModel(a.Text(), question)
		if _, err := chat.Append(ctx, ctxpage.Turn{Role: "assistant", Text: answer, Trace: a.Trace}); err != nil {
			return err
		}
	}
	first, err := chat.Recall(ctx, "block-chat-1-1") // what left the window, in full
	if err != nil {
		return err
	}

	w, err := chat.Inspect(ctx)
	if err != nil {
		return err
	}
	levels := map[session.Level]int{}
	for _, t := range w.Turns {
		levels[t.Level]++
	}
	_, err = fmt.Fprintf(out, "%d turns, %d whole, %d shortened, %d stubs, %d out of the window; within its limit: %t\nfirst words: %.30s\n", len(w.Turns),
		levels[session.Raw], levels[session.Trimmed]+levels[session.Summary], levels[session.Stub], levels[session.Cold], w.Tokens <= w.Limits.Usable, first.Text)
	return err
}

// say returns the text of a user turn: mostly a few words, at times a pasted log.
func say(n int) string {
	text := fmt.Sprintf("Question %d: what is the refund limit of tariff %d?", n, n%97)
	if n%40 != 0 {
		return text
	}
	var b strings.Builder
	for i := range 20 + n%400 {
		fmt.Fprintf(&b, "2026-11-20T12:%02d:%02d INFO job %d of tariff %d done\n", i/60%60, i%60, n*1000+i, i%97)
	}
	return text + "\n" + b.String()
}

// callModel stands for a language model.
func callModel(context, question string) string {
	subject, _, _ := strings.Cut(question, "\n")
	return fmt.Sprintf("I read %d characters. On %q: the limit is 400 dollars, as I said before. %s", len(context), subject, strings.Repeat("The rules stay as they were. ", len(subject)%11))
}
