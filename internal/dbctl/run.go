// Package dbctl is the tool dbctl: it shows and changes the contents of a database, assembles contexts, decides held batches, and proves
// what was served. cmd/dbctl is the plain program; a build with more stores is another small main that calls Run.
package dbctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"os/signal"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
	"github.com/ctxpage/ctxpage/token/bpe"
)

// Exit codes; the help of dbctl lists them, and scripts rely on them.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitDamaged = 3
	exitHeld    = 4
	exitBusy    = 5

	exitInterrupted = 130 // 128 and the signal, as shells have it
	exitTerminated  = 143
)

// globals are the flags of every verb.
type globals struct {
	JSON     bool          `help:"Print JSON with stable fields instead of tables. Errors are one JSON line on standard error."`
	Wide     bool          `help:"Do not shorten the cells of tables to the width of the terminal, and show all columns."`
	Columns  []string      `help:"Only these columns of a table, by the names in its first line, such as TIME,TRACE." placeholder:"NAME"`
	Progress bool          `help:"Show progress on standard error even if it is not a terminal."`
	Wait     time.Duration `help:"How long to wait for another process to close the file, and to answer while it is busy (at least 10 s)." default:"1s"`
	KeyFile  string        `help:"File with the key of an encrypted database: 32 bytes in hex or base64." placeholder:"FILE" env:"CTXPAGE_KEY_FILE"`
	Keyring  string        `help:"Keyring of a backup that is read in place; it has no FILE.keys." placeholder:"FILE" env:"CTXPAGE_KEYRING"`
	Counter  string        `help:"What counts tokens: o200k_base (exact for current models of OpenAI), cl100k_base, est/2, a model such as claude or gemini, or one of these with a factor (o200k_base*125%)." default:"o200k_base" placeholder:"NAME" env:"CTXPAGE_COUNTER"`
	NoRoots  bool          `help:"Do not read from directories recorded in the database. Use it for databases you received: they could name any directory of this machine."`
}

// cli is the command line. A verb is one line here and one file beside this one.
type cli struct {
	globals

	Init     initCmd     `cmd:"" help:"Create an empty database."`
	Put      putCmd      `cmd:"" help:"Write an artefact. Trusted path: the commit gate does not apply."`
	Get      getCmd      `cmd:"" help:"Print an artefact, one of its pages, or an older version."`
	Ls       lsCmd       `cmd:"" help:"List scopes, or the artefacts of one."`
	Rm       rmCmd       `cmd:"" help:"Delete artefacts. Older versions stay readable by reference until gc."`
	History  historyCmd  `cmd:"" help:"List the versions of an artefact."`
	Search   searchCmd   `cmd:"" help:"Find pages by their words."`
	Import   importCmd   `cmd:"" help:"Import a directory, chats and memories of other systems, or an export; run again to import changes."`
	Promote  promoteCmd  `cmd:"" help:"Raise the provenance of artefacts, so that contexts show them."`
	Export   exportCmd   `cmd:"" help:"Write a database, or what it holds about a scope or a person, as lines of JSON or as a document."`
	Refresh  refreshCmd  `cmd:"" help:"Check all sources, fetch what changed, and find new files in imported directories."`
	Embed    embedCmd    `cmd:"" help:"Make the vectors that find pages by their meaning."`
	Assemble assembleCmd `cmd:"" help:"Assemble a context for a question within a token budget."`
	Commit   commitCmd   `cmd:"" help:"Commit an answer based on an assembled context, through the gate."`
	Rollback rollbackCmd `cmd:"" help:"Record that the answer to an assembled context was discarded."`
	Review   reviewCmd   `cmd:"" help:"List, show, approve and reject held batches."`
	Manifest manifestCmd `cmd:"" help:"Read, prove and verify the audit, even while an agent is writing."`
	Why      whyCmd      `cmd:"" help:"Explain why a page is or is not in a past context."`
	Replay   replayCmd   `cmd:"" help:"Print a past context again, byte for byte."`
	Diff     diffCmd     `cmd:"" help:"Compare two past contexts."`
	Stat     statCmd     `cmd:"" help:"Show sizes and counters."`
	Health   healthCmd   `cmd:"" help:"Report useless content of a scope: duplicates, contradictions, never served, expired, superseded, orphans."`
	Check    checkCmd    `cmd:"" help:"Check the whole database and report damage."`
	GC       gcCmd       `cmd:"" name:"gc" help:"Drop old versions that nothing refers to."`
	Compact  compactCmd  `cmd:"" help:"Give the free space of the file back to the disk."`
	Erase    eraseCmd    `cmd:"" help:"Erase content from every file of a database, with a receipt."`
	Backup   backupCmd   `cmd:"" help:"Copy a database."`
	Restore  restoreCmd  `cmd:"" help:"Verify a backup and restore it."`
	Salvage  salvageCmd  `cmd:"" help:"Copy the readable part of a damaged database to a new one."`
	Budget   budgetCmd   `cmd:"" passthrough:"" help:"Fit messages or items into a token budget. Needs no database."`
	Demo     demoCmd     `cmd:"" help:"Show what ctxpage does, on a copy of one of your folders."`

	Session sessionCmd `cmd:"" help:"Manage conversations: turns, passes, and what left the window."`
	Watch   watchCmd   `cmd:"" help:"Keep headroom in a session's window, or show what that would do."`
	MCP     mcpCmd     `cmd:"" name:"mcp" help:"Serve a scope to an MCP client."`
	Serve   serveCmd   `cmd:"" help:"Serve a database to programs in any language: JSON over a unix socket or a loopback address."`
	UI      uiCmd      `cmd:"" name:"ui" help:"Show a database in the browser: contexts, pages, sessions, held batches."`
	Stop    stopCmd    `cmd:"" help:"End a dbctl serve that has a database open."`
	Setup   setupCmd   `cmd:"" help:"Put a memory to use in an agent host: MCP server, hooks and skill."`
	Hook    hookCmd    `cmd:"" help:"Append what an agent host's hook reports to a conversation."`
	Handoff handoffCmd `cmd:"" help:"Package a session for another agent."`

	Directive directiveCmd `cmd:"" passthrough:"" help:"Record what the user decides for a scope: premise and policies."`

	Retention retentionCmd `cmd:"" help:"Set, show and carry out how long scopes keep things."`
	Key       keyCmd       `cmd:"" help:"Make and change keys of encrypted databases."`
	Quota     quotaCmd     `cmd:"" help:"Set and show how much scopes may hold."`

	kong.Plugins // of the server

	Help       helpCmd       `cmd:"" help:"Describe a verb, like VERB --help."`
	Version    versionCmd    `cmd:"" help:"Print the module's version and commit, like --version."`
	Completion completionCmd `cmd:"" help:"Print a completion script for bash, zsh or fish."`
}

const description = `dbctl inspects and changes ctxpage databases. A database is a file with its log (FILE-wal) and its audit (FILE-manifest) beside it.

Exit codes: 0 ok, 1 failed, 2 usage error, 3 damage found, 4 held for review, 5 busy (another process has the database open), 130 interrupted by Ctrl-C, 143 ended by SIGTERM. A signal is the normal end of serve, mcp, ui, watch, tail -f and import --follow: they exit with 0.

One process owns the files of a database. While an agent has it open, the verbs ask that agent over a socket and see what it sees; check, restore and salvage need the files for themselves and are refused with the agent's pid, program and start time (check --online is done by the agent). The manifest verbs read the files without a lock. They show what was written when they started; the last 100 ms may not be on disk yet, and counts may grow between two calls.

In place of FILE every verb takes the socket of a process that serves a database (unix:PATH), and in a build for PostgreSQL (` + serverBuild + `) a postgres:// URL. Verbs that need files are refused there; check of a socket needs --online.

` + namesHelp + `

get, search and assemble open the file for writing, because each read of content writes a manifest. With --read-only they write no manifest and refetch nothing.`

// app is the state of one call of the tool.
type app struct {
	globals
	tool       Tool
	verb       string // under way
	ctx        context.Context
	in         io.Reader
	out, err   io.Writer
	now        func() time.Time
	key        []byte             // of --key-file; nil: none
	counter    token.Counter      // of --counter
	roots      []string           // directories this call may read, beside those recorded
	embedder   ctxpage.Embedder   // nil: words alone
	summarizer ctxpage.Summarizer // nil: extracts
	noWatch    bool               // nothing is done in the background
}

// exitError ends dbctl with a code; what there was to say has been said when quiet.
type exitError struct {
	code  int
	msg   string
	quiet bool
	told  *errorJSON // what a child process said of it; nil: none did
}

func (e *exitError) Error() string { return e.msg }

func usage(format string, args ...any) error {
	return &exitError{code: exitUsage, msg: fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) error {
	return &exitError{code: exitFailed, msg: fmt.Sprintf(format, args...)}
}

// ended reports a code whose reason was printed already.
func ended(code int) error { return &exitError{code: code, quiet: true} }

// untilStopped is the end of a verb that works until a signal ends it: that is no failure, so it exits with 0.
func (a *app) untilStopped(err error) error {
	if a.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// passedOn returns the exit code of a passthrough command, which does not know that it was interrupted.
func (a *app) passedOn(code int) error {
	switch {
	case code == exitOK:
		return nil
	case a.ctx.Err() != nil:
		return ended(exitInterrupted)
	}
	return ended(code)
}

// parsed stops kong where it would end the process.
type parsed int

// Tool is dbctl as one program has it. The zero value is the plain tool.
type Tool struct {
	Now     func() time.Time // nil: time.Now
	NoWatch bool             // do nothing in the background
	Server  *Server          // databases that are no files; nil: none
	// Observer is told what the process does with a database, beside its metrics; nil: nobody. With ObserveScopes it gets the names of scopes.
	Observer      ops.Observer
	ObserveScopes bool
}

// Run parses args, runs the verb and returns the exit code. Ctrl-C cancels the verb, which leaves every database as it was after its last
// transaction.
func (t Tool) Run(args []string, in io.Reader, out, errw io.Writer) (code int) {
	a := &app{now: t.Now, noWatch: t.NoWatch, tool: t}
	if a.now == nil {
		a.now = time.Now
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second Ctrl-C ends the process
	a.ctx, a.in = ctx, in
	a.out, a.err = guarded(out, &a.globals), guarded(errw, &a.globals)
	defer func() {
		switch p := recover().(type) {
		case nil:
		case parsed:
			code = int(p)
		default:
			panic(p)
		}
	}()
	if len(args) == 0 {
		args = []string{"--help"}
	}
	args, err := t.helpArgs(versionArgs(args))
	if err != nil {
		return a.report(err)
	}
	c := t.grammar()
	k := kong.Must(c, only(args), durations, kong.Name("dbctl"), kong.Description(description), kong.Writers(a.out, a.err),
		kong.Exit(func(code int) { panic(parsed(code)) }), kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}))
	describe(k.Model.Node, "")
	// The parser would write U+FFFD for such bytes: another id, another file.
	if i := slices.IndexFunc(args, func(s string) bool { return !utf8.ValidString(s) }); i >= 0 {
		a.JSON = slices.Contains(args, "--json")
		return a.report(usage("argument %d: got %q, expected UTF-8", i+1, args[i]))
	}
	kctx, err := k.Parse(args)
	a.globals = c.globals
	if err != nil {
		a.JSON = slices.Contains(args, "--json") // a line that does not parse may not have got that far
		more := fmt.Sprintf("dbctl %s--help says more", verbOf(err))
		// The parser calls the end of the line EOL.
		msg := strings.Replace(err.Error(), `but got "EOL" (<EOL>)`, "but got nothing", 1)
		if verbOf(err) == "" { // nothing before it was a verb
			msg = strings.Replace(msg, "unexpected argument ", "there is no command ", 1)
		}
		code := a.report(usage("%s; %s", msg, more))
		if spares(args) {
			code = exitOK
		}
		return code
	}
	a.verb, _, _ = strings.Cut(kctx.Command(), " ")
	if err := a.refused(kctx); err != nil {
		return a.report(err)
	}
	if a.counter, err = bpe.Named(a.Counter); err != nil {
		return a.report(usage("--counter: %v", err))
	}
	if a.KeyFile != "" {
		if a.key, err = readKey(a.KeyFile); err != nil {
			return a.report(err)
		}
	}
	return a.report(kctx.Run(a))
}

// ends tells SIGTERM from Ctrl-C.
func (a *app) ends(code int) int {
	if code != exitInterrupted || a.ctx == nil {
		return code
	}
	if cause := context.Cause(a.ctx); cause != nil && strings.Contains(cause.Error(), syscall.SIGTERM.String()) {
		return exitTerminated
	}
	return code
}

// verbsOf lists the verbs of the tool, or the subcommands of a verb, by name.
func verbsOf(of reflect.Type) iter.Seq2[string, reflect.StructField] {
	return func(yield func(name string, f reflect.StructField) bool) {
		for f := range of.Fields() {
			if _, is := f.Tag.Lookup("cmd"); is && !yield(cmp.Or(f.Tag.Get("name"), strings.ToLower(f.Name)), f) {
				return
			}
		}
	}
}

// Verbs lists the verbs of the tool.
func Verbs() (names []string) {
	for name := range verbsOf(reflect.TypeFor[cli]()) {
		names = append(names, name)
	}
	return names
}

// grammar is the command line of the tool.
func (t Tool) grammar() *cli {
	c := new(cli)
	if t.Server != nil && t.Server.Grammar != nil {
		c.Plugins = kong.Plugins{t.Server.Grammar}
	}
	return c
}

// only leaves out of the grammar all verbs and subcommands but those that the line begins with: to read all their tags takes longer
// than most verbs run. Help and messages about a word that is no command need all, so nothing is left out for it.
func only(args []string) kong.Option {
	var left []string
	of := reflect.TypeFor[cli]()
	for _, word := range args {
		var next reflect.Type
		var others []string
		for name, f := range verbsOf(of) {
			if name == word {
				next = f.Type
			} else {
				others = append(others, f.Name)
			}
		}
		if next == nil {
			break
		}
		left = append(left, `^`+of.Name()+`\.(?:`+strings.Join(others, "|")+`)$`)
		of = next
	}
	return kong.IgnoreFields(left...)
}

// verbOf names the verb that a command line which does not parse was about.
func verbOf(err error) string {
	var pe *kong.ParseError
	if !errors.As(err, &pe) || pe.Context == nil {
		return ""
	}
	verb := ""
	for _, p := range pe.Context.Path {
		if p.Command != nil {
			verb += p.Command.Name + " "
		}
	}
	return verb
}

// report prints an error and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return exitOK
	}
	code := a.ends(codeOf(err))
	var e *exitError
	if errors.As(err, &e) && e.quiet {
		return code
	}
	if a.JSON {
		a.reportJSON(err, code)
	} else {
		fmt.Fprintln(a.err, "dbctl:", printable(a.err, hint(err)))
	}
	return code
}

func codeOf(err error) int {
	var e *exitError
	switch {
	case errors.As(err, &e):
		return e.code
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, store.ErrLocked):
		return exitBusy
	case errors.Is(err, store.ErrHeld):
		return exitHeld
	case errors.Is(err, ops.ErrReceipt): // the receipt is wrong, whatever of it, and no database is damaged
		return exitFailed
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, manifest.ErrHead), errors.Is(err, manifest.ErrProof):
		return exitDamaged
	case errors.Is(err, store.ErrInvalid):
		return exitUsage
	}
	return exitFailed
}

// errorKinds name errors for scripts; the first that matches counts.
var errorKinds = []struct {
	err  error
	kind string
}{
	{store.ErrLocked, "locked"}, {store.ErrKey, "key"}, {store.ErrNoSpace, "no space"}, {store.ErrNewerFormat, "newer format"}, {store.ErrOldFormat, "old format"},
	{store.ErrCorrupt, "damaged"}, {store.ErrNotDatabase, "not a database"}, {store.ErrNotExist, "no database"}, {store.ErrErased, "erased"}, {store.ErrGone, "gone"}, {store.ErrExpired, "expired"},
	{store.ErrDirty, "dirty"}, {session.ErrHeadroom, "headroom"}, {store.ErrBudget, "budget"}, {store.ErrConflict, "conflict"}, {store.ErrStaleContext, "stale context"},
	{store.ErrHeld, "held"}, {store.ErrQuota, "over quota"}, {store.ErrSelfCertified, "self-certified"}, {store.ErrReviewed, "reviewed"}, {ctxpage.ErrReplay, "replay differs"},
	{store.ErrOutcomeUnknown, "outcome unknown"}, {store.ErrProvenance, "provenance"}, {store.ErrInvalid, "invalid"},
	{store.ErrNotFound, "not found"}, {manifest.ErrNoLeaf, "not found"}, {manifest.ErrHead, "head differs"}, {context.Canceled, "interrupted"},
}

// errorJSON is the line on standard error.
type errorJSON struct {
	Error struct {
		Kind    string    `json:"kind"`
		Message string    `json:"message"`
		Exit    int       `json:"exit"`
		PID     int       `json:"pid,omitempty"`
		Program string    `json:"program,omitempty"`
		Since   time.Time `json:"since,omitzero"`
		Reading bool      `json:"reading,omitempty"` // it reads: a writer waits for it
	} `json:"error"`
}

func (a *app) reportJSON(err error, code int) {
	j := a.told(err, code)
	b, _ := json.Marshal(&j)
	fmt.Fprintln(a.err, string(b))
}

// told describes an error for a program.
func (a *app) told(err error, code int) (j errorJSON) {
	var e *exitError
	if errors.As(err, &e) && e.told != nil {
		j = *e.told
		j.Error.Exit = code
		return j
	}
	j.Error.Kind, j.Error.Message, j.Error.Exit = kindOf(err, code), hint(err), code
	if s := a.tool.Server; s != nil && s.Kind != nil {
		j.Error.Kind = cmp.Or(s.Kind(err), j.Error.Kind)
	}
	var locked *store.LockedError
	var silent *remote.UnavailableError
	switch {
	case errors.As(err, &silent) && silent.PID != 0:
		j.Error.PID, j.Error.Program, j.Error.Since = silent.PID, silent.Program, silent.Since
	case errors.As(err, &locked):
		j.Error.PID, j.Error.Program, j.Error.Since, j.Error.Reading = locked.PID, locked.Program, locked.Since, locked.Reading
	}
	return j
}

func kindOf(err error, code int) string {
	for _, k := range errorKinds {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	switch {
	case system.NoSpace(err): // of a file beside the database, such as an export
		return "no space"
	case code == exitUsage:
		return "usage"
	case code == exitDamaged:
		return "damaged"
	}
	return "failed"
}

// said replaces words of the library with words of the command line: it names options where dbctl has flags, and itself
// in every error that another one wraps.
var said = strings.NewReplacer(": ctxpage: ", ": ", "\nctxpage: ", "\n",
	"name one in Options.FileRoots or record one with Admin.AddFileRoot", "--root DIR allows one",
	"file, page or one of Options.Sources", "file or page",
	"see what Salvage finds", "see what dbctl salvage finds",
	"the file of a database, or a name that is not taken", "the file of a database; make one with: dbctl init FILE, where no FILE is yet",
	"open it for writing, without MustExist, to make one", "make one with: dbctl init FILE")

// readOnly matches the steps of an open that write: a folder that may not be written has no room for a socket, for example.
var readOnly = regexp.MustCompile(`^(lock|socket|wal: open): `)

// hint adds what to do where the library, which knows no command line, cannot say it.
func hint(err error) string {
	msg := said.Replace(strings.TrimPrefix(err.Error(), "ctxpage: "))
	switch {
	case errors.Is(err, store.ErrDirty):
		return msg + "; get --serve-stale prints what is stored"
	case readOnly.MatchString(msg) && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)):
		return msg + "; --read-only of get, search and assemble needs no right to write"
	case errors.Is(err, store.ErrNotExist) && !strings.Contains(msg, "dbctl init"):
		return msg + "; make one with: dbctl init FILE"
	case errors.Is(err, store.ErrLocked):
		return msg + "; the manifest verbs read beside it, --wait waits for it"
	case errors.Is(err, context.Canceled):
		return "interrupted: " + strings.TrimPrefix(msg, "interrupted while ") + "; the database is as after its last transaction"
	}
	return msg
}
