package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/session"
)

// callModel stands for a language model.
func callModel(context, question string) string {
	switch {
	case strings.HasPrefix(question, "Question"):
		return "The rules stay as they were. Nothing about this case is open."
	case strings.Contains(context, "store credit within nine days"):
		return "It takes nine days until a voucher is store credit."
	}
	return "The documents say no."
}

// check stands for who judges the answers of the model: a quotation is safe, its own words may not be.
func check(answer, context string) float64 {
	if strings.Contains(context, answer) {
		return 0.95
	}
	return 0.55
}

// userSays is a question, at times with a pasted log.
func userSays(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Question %d: how is case %d?", n/2+1, n%97)
	for i := 0; n%40 == 0 && i < 20+n%400; i++ {
		fmt.Fprintf(&b, "\n2026-11-20T12:%02d:%02d INFO job %d of case %d done", i/60%60, i%60, n*1000+i, n%97)
	}
	return b.String()
}

func addLine(file, line string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, line+"\n"...), 0o600)
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func tellWindow(ctx context.Context, out io.Writer, chat *ctxpage.Session) error {
	w, err := chat.Inspect(ctx)
	if err != nil {
		return err
	}
	count := map[session.Level]int{}
	for _, t := range w.Turns {
		count[t.Level]++
	}
	_, err = fmt.Fprintf(out, "chatted    %d turns, %d tokens; in the window %d tokens of at most %d: %d turns whole, %d shortened, %d stubs, %d out\n", len(w.Turns), w.Stored,
		w.Tokens, w.Limits.Usable, count[session.Raw], count[session.Trimmed]+count[session.Summary], count[session.Stub], count[session.Cold])
	return err
}

// tellPage says how the page of the refunds came into a context.
func tellPage(ctx context.Context, out io.Writer, what string, db *ctxpage.DB, a *ctxpage.Assembly) error {
	at := slices.IndexFunc(a.Blocks, func(b ctxpage.Block) bool { return b.Ref.ID == "refunds.md" })
	if at < 0 {
		return errors.New("the page of the refunds is not in the context")
	}
	why, err := db.Why(ctx, a.Trace, a.Blocks[at].Ref) // each step that led in or out, in words
	if err != nil {
		return err
	}
	for _, step := range why.Steps {
		if strings.HasPrefix(step, "page in: ") {
			fmt.Fprintf(out, "%s %s: %s\n", what, why.Ref, step)
		}
	}
	return nil
}
