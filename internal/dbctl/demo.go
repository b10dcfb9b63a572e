package dbctl

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/folder"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

type demoCmd struct {
	Dir      string `arg:"" optional:"" help:"Folder to use. The demo works on a copy. Default: the current folder."`
	Question string `help:"Question to ask. Default: one made from the folder's headings or words."`
	Into     string `help:"Empty or new folder for the copy and the database. Default: a temporary folder, which is removed at the end." placeholder:"DIR"`
}

func (demoCmd) Help() string {
	return `Imports a copy of the folder, assembles a context for a question, edits a file so that a page becomes dirty, writes an answer that is first held and then committed, and explains, replays and verifies what happened. Everything printed is computed from your files. No model is called: the answer is built from the best pages.

Example: dbctl demo ~/notes`
}

// What the demo takes of a folder, and the budget of its context.
const (
	demoFiles  = 2000
	demoBytes  = 32 << 20
	demoSize   = 1 << 20
	demoBudget = 4000
	demoScope  = "demo/files"
	demoWriter = "demo-agent"
	demoJudge  = "demo-evaluator"
	demoAnswer = "answer"
)

// demoView is the facts; nothing in it is made up.
type demoView struct {
	Dir       string         `json:"dir"`
	File      string         `json:"file"`
	Copy      string         `json:"copy"`
	Kept      bool           `json:"kept"` // the copy and the database are still there
	Files     int            `json:"files"`
	Artefacts int            `json:"artefacts"`
	Pages     int            `json:"pages"`
	Skipped   map[string]int `json:"skipped"`
	Question  string         `json:"question"`
	Budget    int            `json:"budget"`
	First     demoAssembly   `json:"first"`
	Edited    string         `json:"edited"`
	Second    demoAssembly   `json:"second"`
	Held      demoEnd        `json:"held"`
	Committed demoEnd        `json:"committed"`
	WhyIn     whyView        `json:"why_in"`
	WhyOut    whyView        `json:"why_out"`
	Replay    demoReplay     `json:"replay"`
	Verify    demoVerify     `json:"verify"`
}

type demoAssembly struct {
	Trace     string          `json:"trace"`
	Tier      int             `json:"tier"`
	Tokens    int             `json:"tokens"`
	Pages     int             `json:"pages"`
	Left      int             `json:"left"`
	Digest    manifest.Digest `json:"digest"`
	Refetched []string        `json:"refetched"`
}

type demoEnd struct {
	Batch      string  `json:"batch"`
	Status     string  `json:"status"`
	Confidence float64 `json:"confidence"`
	By         string  `json:"by"`
	Reason     string  `json:"reason,omitempty"`
	Ref        string  `json:"ref,omitempty"`
	Visible    bool    `json:"visible"`
}

type demoReplay struct {
	Trace string `json:"trace"`
	Bytes int    `json:"bytes"`
	Same  bool   `json:"same"`
}

type demoVerify struct {
	OK     bool   `json:"ok"`
	Leaves uint64 `json:"leaves"`
	Head   string `json:"head"`
}

// demo carries one run through its steps.
type demo struct {
	a      *app
	db     *ctxpage.DB
	scope  *ctxpage.Scope
	files  []folder.Found // of the copy
	first  *ctxpage.Assembly
	second *ctxpage.Assembly
	line   string // the edit
	out    demoView
}

func (c *demoCmd) Run(a *app) (err error) {
	d := &demo{a: a, out: demoView{Budget: demoBudget, Question: c.Question, Skipped: map[string]int{}}}
	base, err := d.copy(c)
	if d.out.Kept = c.Into != ""; !d.out.Kept && base != "" {
		defer func() { err = errors.Join(err, os.RemoveAll(base)) }()
	}
	if err != nil {
		return err
	}
	d.out.File = filepath.Join(base, "demo.ctx")
	d.db, err = ctxpage.Open(d.out.File, ctxpage.Options{Counter: d.a.counter, FileRoots: []string{d.out.Copy}, Clock: a.now})
	if err != nil {
		return err
	}
	d.scope = d.db.Scope(demoScope, ctxpage.WithActor(demoWriter))
	for _, step := range []func() error{d.load, d.assemble, d.edit, d.hold, d.commit, d.why, d.replay, d.verify} {
		if err = step(); err != nil {
			break
		}
	}
	if err = errors.Join(err, d.db.Close()); err != nil {
		return fmt.Errorf("demo in %s: %w", base, err)
	}
	return a.emit(d.out, d.closing)
}

func (d *demo) say(format string, args ...any) {
	if !d.a.JSON {
		fmt.Fprintln(d.a.out, printable(d.a.out, fmt.Sprintf(format, args...)))
	}
}

// copy takes the text files of the folder to a place where they may be edited.
func (d *demo) copy(c *demoCmd) (base string, err error) {
	if d.out.Dir, err = filepath.Abs(cmp.Or(c.Dir, ".")); err != nil {
		return "", failed("demo: %v", err)
	}
	w := &folder.Walker{Dir: d.out.Dir, MaxSize: demoSize, MaxFiles: demoFiles, MaxBytes: demoBytes, Usable: usableID}
	if err := w.Walk(d.a.ctx); err != nil {
		return "", err
	}
	texts := map[string][]byte{}
	for _, f := range w.Files {
		text, _, skip := folder.ReadText(f.Path)
		if skip == "" && strings.TrimSpace(text) == "" {
			skip = folder.Empty
		}
		if skip != "" {
			w.Skip(f.Rel, skip)
			continue
		}
		texts[f.Rel] = []byte(text)
		d.files = append(d.files, f)
	}
	d.out.Skipped = w.Counts()
	if len(d.files) == 0 {
		return "", failed("demo: %s has no text files%s; name a folder with some: dbctl demo DIR", d.out.Dir, skips(d.out.Skipped))
	}
	if base, err = demoBase(c.Into); err != nil {
		return "", err
	}
	d.out.Copy, d.out.Files = filepath.Join(base, "files"), len(d.files)
	for i, f := range d.files {
		to := filepath.Join(d.out.Copy, filepath.FromSlash(f.Rel))
		if err := copyText(f.Path, to, texts[f.Rel]); err != nil {
			return base, err
		}
		d.files[i].Path = to
	}
	d.say("copied     %s of %s to %s%s", plural(len(d.files), "text file", "text files"), d.out.Dir, d.out.Copy, skips(d.out.Skipped))
	return base, nil
}

func demoBase(into string) (string, error) {
	if into == "" {
		base, err := os.MkdirTemp("", "ctxpage-demo-")
		if err != nil {
			return "", failed("demo: %v", err)
		}
		return base, nil
	}
	base, err := filepath.Abs(into)
	if err != nil {
		return "", failed("demo: %v", err)
	}
	if entries, err := os.ReadDir(base); err == nil && len(entries) > 0 {
		return "", failed("demo: --into %s is not empty; name an empty or a new folder", base)
	}
	if err := os.MkdirAll(base, 0o700); err != nil {
		return "", failed("demo: --into: %v", err)
	}
	return base, nil
}

// copyText keeps the time of the file, which says how recent a page is.
func copyText(from, to string, text []byte) error {
	st, err := os.Stat(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o700)
	}
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err == nil {
		err = os.Chtimes(to, time.Time{}, st.ModTime())
	}
	if err != nil {
		return failed("demo: copy: %v", err)
	}
	return nil
}

func skips(skipped map[string]int) string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		parts = append(parts, fmt.Sprintf("%d %s", skipped[reason], reason))
	}
	if parts == nil {
		return ""
	}
	return " (skipped: " + strings.Join(parts, ", ") + ")"
}

func (d *demo) load() error {
	if err := d.db.Admin().AddFileRoot(d.a.ctx, d.out.Copy); err != nil {
		return err
	}
	im := &importer{
		scope: d.db.Scope(demoScope), progress: d.a.progress(),
		walker: &folder.Walker{Dir: d.out.Copy, Files: d.files},
	}
	if err := im.run(d.a.ctx); err != nil {
		return err
	}
	st, err := d.db.Stats(d.a.ctx)
	if err != nil {
		return err
	}
	d.out.Artefacts, d.out.Pages = st.Artefacts, st.Pages
	d.say("imported   %s of kind chunk into scope %s: %s, each with the hash of its file",
		plural(st.Artefacts, "artefact", "artefacts"), demoScope, plural(st.Pages, "page", "pages"))
	return nil
}

func (d *demo) assemble() (err error) {
	if d.out.Question == "" {
		d.out.Question = question(d.files)
	}
	d.say("\nquestion   %s", d.out.Question)
	d.first, err = d.scope.Assemble(d.a.ctx, ctxpage.Query{Text: d.out.Question, Budget: demoBudget})
	if err != nil {
		return err
	}
	if len(d.first.Blocks) == 0 {
		return failed("no page of the folder fits into %d tokens; try another --question", demoBudget)
	}
	d.out.First = factsOf(d.first)
	d.tell("assembled", d.first)
	for _, b := range d.best(d.first, 3) {
		d.say("           %.3f  %s (%d tokens, %s)", b.Score, b.Ref, b.Tokens, b.Form)
	}
	return nil
}

func factsOf(got *ctxpage.Assembly) demoAssembly {
	out := demoAssembly{
		Trace: got.Trace, Tier: int(got.Tier), Tokens: got.Tokens, Pages: len(got.Blocks), Left: len(got.Left), Digest: got.Manifest.Rendered,
		Refetched: []string{},
	}
	for i, p := range got.Manifest.Pages {
		if p.Refetched {
			out.Refetched = append(out.Refetched, got.Blocks[i].Ref.String())
		}
	}
	return out
}

func (d *demo) tell(what string, got *ctxpage.Assembly) {
	d.say("%-10s %s in %d of %d tokens, tier %d (%s), %d named as left out", what, plural(len(got.Blocks), "page", "pages"), got.Tokens, demoBudget,
		got.Tier, got.Tier.Lost(), len(got.Left))
	d.say("           trace %s, digest %.16s", got.Trace, got.Manifest.Rendered)
}

// best are the pages of a context by score.
func (d *demo) best(got *ctxpage.Assembly, n int) []ctxpage.Block {
	blocks := slices.Clone(got.Blocks)
	slices.SortStableFunc(blocks, func(x, y ctxpage.Block) int { return cmp.Compare(y.Score, x.Score) })
	return blocks[:min(n, len(blocks))]
}

// edit changes the file of the best page, and asks again.
func (d *demo) edit() (err error) {
	was := d.best(d.first, 1)[0].Ref
	d.out.Edited = filepath.Join(d.out.Copy, filepath.FromSlash(was.ID))
	d.line = "Edited " + d.a.now().UTC().Format(time.RFC3339Nano) + ", after the page was loaded."
	v, err := d.scope.Get(d.a.ctx, was.ID, ctxpage.WithCheck(ctxpage.CheckNever))
	if err != nil {
		return err
	}
	if err := insertLine(d.out.Edited, v, was.Page, d.line); err != nil {
		return err
	}
	if d.second, err = d.scope.Assemble(d.a.ctx, ctxpage.Query{Text: d.out.Question, Budget: demoBudget}); err != nil {
		return err
	}
	d.out.Second = factsOf(d.second)
	d.say("\nedited     %s: one line more", d.out.Edited)
	d.tell("assembled", d.second)
	if len(d.out.Second.Refetched) == 0 {
		return failed("the edit of %s was not noticed", d.out.Edited)
	}
	d.say("           dirty, fetched anew before use: %s", strings.Join(d.out.Second.Refetched, ", "))
	d.say("           the new line is in the context: %v", strings.Contains(d.second.Text(), d.line))
	return nil
}

// insertLine writes the file of an artefact again, with a line more in one of its pages. The pages joined are the text.
func insertLine(path string, v *ctxpage.Version, page int, line string) error {
	at := 0
	for _, p := range v.Pages[:page-1] {
		at += len(p.Text)
	}
	at += within(v.Pages[page-1].Text)
	if err := os.WriteFile(path, []byte(v.Text[:at]+"\n"+line+"\n"+v.Text[at:]), 0o600); err != nil {
		return failed("edit: %v", err)
	}
	return nil
}

// within is a place in the first half of a page, so that what is put there stays in it: behind its first line, or
// between two words.
func within(page string) int {
	if at := strings.IndexByte(page, '\n'); at >= 0 && at <= len(page)/2 {
		return at
	}
	if at := strings.LastIndexByte(page[:len(page)/2], ' '); at >= 0 {
		return at
	}
	return len(page)
}

// answer is what stands in for a model: the beginnings of the best pages, with their references.
func (d *demo) answer() ctxpage.Artefact {
	var b strings.Builder
	b.WriteString(d.out.Question)
	var from []ctxpage.Ref
	for _, x := range d.best(d.second, 2) {
		fmt.Fprintf(&b, "\n%s: %s", x.Ref, cut(x.Text, 240))
		from = append(from, x.Ref)
	}
	return ctxpage.Artefact{ID: demoAnswer, Kind: ctxpage.KindFact, Text: b.String(), DerivedFrom: from}
}

// draft writes the answer speculatively and commits it under a verdict.
func (d *demo) draft(confidence float64) (demoEnd, error) {
	tx, err := d.scope.Resume(d.a.ctx, d.second.Trace)
	if err != nil {
		return demoEnd{}, err
	}
	if err := tx.Put(d.a.ctx, d.answer()); err != nil {
		return demoEnd{}, err
	}
	err = tx.Commit(d.a.ctx, ctxpage.Verdict{Confidence: confidence, By: demoJudge})
	if err != nil && !errors.Is(err, ctxpage.ErrHeld) {
		return demoEnd{}, err
	}
	o := tx.Outcome()
	end := demoEnd{Batch: tx.ID(), Status: o.Status.String(), Confidence: confidence, By: demoJudge, Reason: o.Reason}
	_, err = d.scope.Get(d.a.ctx, demoAnswer)
	if err != nil && !errors.Is(err, ctxpage.ErrNotFound) {
		return end, err
	}
	if end.Visible = err == nil; len(o.Refs) > 0 {
		end.Ref = o.Refs[0].String()
	}
	return end, nil
}

func (d *demo) hold() (err error) {
	if d.out.Held, err = d.draft(0.6); err != nil {
		return err
	}
	h := d.out.Held
	if h.Status != store.StatusHeld.String() || h.Visible {
		return failed("the answer was %s below the gate, visible %v", h.Status, h.Visible)
	}
	d.say("\nanswered   by %s, judged by %s: confidence %.2f, gate %.2f", demoWriter, demoJudge, h.Confidence, ctxpage.DefaultGate)
	d.say("           %s for review as %s: %s; visible: %v", h.Status, h.Batch, h.Reason, h.Visible)
	return nil
}

// commit passes the gate, and takes the held draft off the list.
func (d *demo) commit() (err error) {
	if d.out.Committed, err = d.draft(0.88); err != nil {
		return err
	}
	e := d.out.Committed
	if e.Status != store.StatusApplied.String() || !e.Visible {
		return failed("the answer was %s above the gate, visible %v", e.Status, e.Visible)
	}
	d.say("           judged again: confidence %.2f: %s as %s; visible: %v", e.Confidence, e.Status, e.Ref, e.Visible)
	_, err = d.db.Review().Reject(d.a.ctx, d.out.Held.Batch, demoJudge, "a later verdict let the answer pass")
	return err
}

func (d *demo) why() error {
	in, err := d.db.Why(d.a.ctx, d.first.Trace, d.best(d.first, 1)[0].Ref)
	if err != nil {
		return err
	}
	out, err := d.db.Why(d.a.ctx, d.first.Trace, d.leftOut())
	if err != nil {
		return err
	}
	d.out.WhyIn, d.out.WhyOut = whyOf(in), whyOf(out)
	for _, w := range []whyView{d.out.WhyIn, d.out.WhyOut} {
		d.say("\nwhy        %s: in the first context: %v", w.Ref, w.In)
		for _, s := range w.Steps {
			d.say("           %s", cut(s, 160))
		}
	}
	return nil
}

// leftOut is the best page that found no place; where all did, the answer, which was not there yet.
func (d *demo) leftOut() ctxpage.Ref {
	if len(d.first.Left) == 0 {
		return ctxpage.Ref{Scope: demoScope, ID: demoAnswer}
	}
	return slices.MaxFunc(d.first.Left, func(x, y ctxpage.LeftOut) int { return cmp.Compare(x.Score, y.Score) }).Ref
}

func (d *demo) replay() error {
	r, err := d.db.Replay(d.a.ctx, d.first.Trace)
	if err != nil {
		return err
	}
	d.out.Replay = demoReplay{d.first.Trace, len(r.Text), r.Same && r.Text == d.first.Text()}
	if !d.out.Replay.Same {
		return failed("the replay of %s differs", d.first.Trace)
	}
	d.say("\nreplayed   the first context, from before the edit: %d bytes, the same", len(r.Text))
	return nil
}

func (d *demo) verify() error {
	head, err := d.db.Head(d.a.ctx)
	if err != nil {
		return err
	}
	got, err := d.db.Manifests().Verify(d.a.ctx, &head, nil)
	if err != nil {
		return err
	}
	d.out.Verify = demoVerify{got.Found == 0, got.Size, head.String()}
	d.say("verified   %s of the audit against the head", plural(int(got.Size), "leaf", "leaves"))
	d.say("           %s", head)
	return nil
}

func (d *demo) closing(w io.Writer) {
	if !d.out.Kept {
		fmt.Fprintln(w, "\nThe copy and its database are removed. dbctl demo --into DIR keeps them, so that you can look around in them.")
		return
	}
	fmt.Fprintf(w, "\nthe file   %s\n", d.out.File)
	fmt.Fprintf(w, "look       dbctl manifest ls %s\n", d.out.File)
	fmt.Fprintf(w, "           dbctl manifest show %s %s\n", d.out.File, d.out.Second.Trace)
	fmt.Fprintf(w, "           dbctl diff %s %s %s\n", d.out.File, d.out.First.Trace, d.out.Second.Trace)
}
