// Command agent is the first hour with ctxpage as one program: import a folder, chat 2,000 turns in a window, edit a file
// and ask for the edit, hold an answer and approve it, replay a past context, and read all of it in a second process.
//
//	go run -C examples ./agent [-turns N] [-window TOKENS]
//
// It works on a copy of docs in a temporary directory. Two small functions stand in for a model and for its checker.
package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

//go:embed docs
var folder embed.FS

func main() {
	turns, window := flag.Int("turns", 2000, "turns of the chat"), flag.Int("window", 128_000, "tokens of the model's window")
	flag.Parse()
	log.SetFlags(0)
	var err error
	if flag.Arg(0) == "read" { // this is the second process
		err = read(context.Background(), os.Stdout, flag.Arg(1))
	} else {
		err = play(context.Background(), os.Stdout, *turns, *window)
	}
	if err != nil {
		log.Fatal("agent: ", err)
	}
}

func play(ctx context.Context, out io.Writer, turns, window int) error {
	dir, err := os.MkdirTemp("", "ctxpage-agent")
	if err != nil {
		return err
	}
	return errors.Join(run(ctx, out, dir, turns, window), os.RemoveAll(dir))
}

// run does the work in this process, closes the database, and reads it in a second one.
func run(ctx context.Context, out io.Writer, dir string, turns, window int) error {
	if err := os.CopyFS(dir, folder); err != nil {
		return err
	}
	kept, err := work(ctx, out, filepath.Join(dir, "agent.ctx"), filepath.Join(dir, "docs"), turns, window)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	task, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	second := exec.CommandContext(ctx, program, "read", string(task))
	second.Stdout, second.Stderr = out, os.Stderr
	return second.Run()
}

// work is the first process. It tells what the second one must find.
func work(ctx context.Context, out io.Writer, path, docs string, turns, window int) (kept outcome, err error) {
	db, err := ctxpage.Open(path, ctxpage.Options{RecordedRoots: true})
	if err != nil {
		return kept, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	user := "dana"
	name := ctxpage.ScopeOf("acme", "support", user) // a user called bob/eve is not inside bob
	host := db.Scope(name)                           // your program: it sees acme/support and acme, too, and writes acme/support/dana
	agent := db.Scope(name, ctxpage.Gated())         // what acts for the model: it reads the same, and writes through the gate only

	files, err := db.AddFolder(ctx, name, docs) // recorded: dbctl and the next process may read it, too; call it again at any time
	if err != nil {
		return kept, err
	}
	fmt.Fprintf(out, "imported   %d files, %d failed\n", len(files.New), len(files.Failed))

	chat := host.Session("chat-1")
	if err := chat.SetWindow(ctx, session.Config{Total: window}); err != nil {
		return kept, err
	}
	for n := 0; n < turns; n += 2 {
		if _, _, err := ask(ctx, agent, chat, userSays(n)); err != nil {
			return kept, err
		}
	}
	if err := tellWindow(ctx, out, chat); err != nil {
		return kept, err
	}

	before, _, err := ask(ctx, agent, chat, "Do we refund vouchers?")
	if err != nil {
		return kept, err
	}
	if err := tellPage(ctx, out, "asked     ", db, before); err != nil {
		return kept, err
	}
	if err := addLine(filepath.Join(docs, "refunds.md"), "Since Monday they turn into store credit within nine days."); err != nil {
		return kept, err
	}
	after, answer, err := ask(ctx, agent, chat, "How long does store credit take?") // words that only the edit has
	if err != nil {
		return kept, err
	}
	if err := tellPage(ctx, out, "edited    ", db, after); err != nil {
		return kept, err
	}

	ref, err := remember(ctx, out, db, agent, after, answer)
	if err != nil {
		return kept, err
	}

	past, err := db.Replay(ctx, before.Trace) // the same bytes, although the file has changed since
	if err != nil {
		return kept, err
	}
	head, err := db.Head(ctx) // keep it elsewhere: it proves the log later
	if err != nil {
		return kept, err
	}
	fmt.Fprintf(out, "replayed   the context before the edit, the same bytes: %t\n", past.Text == before.Text())
	turns += turns%2 + 4 // each question has an answer, those of the edit, too
	return outcome{Path: path, Scope: name, Turns: turns, Answer: ref, Trace: before.Trace, Context: digest(before.Text()), Head: head.String()}, nil
}

// ask is one exchange: the user's turn, a context for it, the model's turn.
func ask(ctx context.Context, agent *ctxpage.Scope, chat *ctxpage.Session, question string) (*ctxpage.Assembly, string, error) {
	if _, err := chat.Append(ctx, ctxpage.Turn{Role: "user", Text: question}); err != nil {
		return nil, "", err
	}
	a, err := agent.Assemble(ctx, ctxpage.Query{Text: question, Budget: 8000, Session: chat.ID()}) // documents and turns; what changed is fetched anew
	if err != nil {
		return nil, "", err
	}
	answer := callModel(a.Text(), question) // or render.OpenAI(a.Messages()), Anthropic, Gemini
	_, err = chat.Append(ctx, ctxpage.Turn{Role: "assistant", Text: answer, Trace: a.Trace})
	return a, answer, err
}

// remember puts an answer through the gate. It is held, and seen by nobody until the operator approves it.
func remember(ctx context.Context, out io.Writer, db *ctxpage.DB, agent *ctxpage.Scope, a *ctxpage.Assembly, answer string) (ctxpage.Ref, error) {
	tx, err := agent.Resume(ctx, a.Trace) // what the model saw is the read set
	if err != nil {
		return ctxpage.Ref{}, err
	}
	defer tx.Rollback() // harmless after Commit
	if err := tx.Put(ctx, ctxpage.Artefact{ID: "voucher-rule", Text: answer, DerivedFrom: []ctxpage.Ref{{ID: "refunds.md"}}}); err != nil {
		return ctxpage.Ref{}, err
	}
	err = tx.Commit(ctx, ctxpage.Verdict{Confidence: check(answer, a.Text()), By: "checker"})
	var held *store.HeldError
	switch {
	case err == nil:
		return tx.Outcome().Refs[0], nil
	case !errors.As(err, &held): // otherwise: below the gate, stale, or judged by its own writer
		return ctxpage.Ref{}, err
	}
	if _, err := agent.Get(ctx, "voucher-rule"); !errors.Is(err, store.ErrNotFound) {
		return ctxpage.Ref{}, fmt.Errorf("the held answer can be read: %w", err)
	}
	fmt.Fprintf(out, "held       %q: %s\n", answer, held.Reason)

	done, err := db.Review().Approve(ctx, held.Batch, ctxpage.Approval{By: "kim", Note: "says what refunds.md says"})
	if err != nil {
		return ctxpage.Ref{}, err
	}
	fmt.Fprintf(out, "approved   by kim: %s\n", done.Refs[0])
	return done.Refs[0], nil
}
