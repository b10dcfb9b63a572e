package dbctl

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/freshness"
)

type demoCmd struct {
	Dir      string `arg:"" optional:"" help:"Folder to use. The demo works on a copy. Default: the current folder."`
	Question string `help:"Question to ask. Default: one made from a heading or a name of the folder's files."`
	Into     string `help:"Empty or new folder for the copy and the database. Default: a temporary folder, which is removed at the end." placeholder:"DIR"`
}

// demoView has the commands with their results.
type demoView struct {
	Dir      string     `json:"dir"`
	File     string     `json:"file"`
	Copy     string     `json:"copy"`
	Kept     bool       `json:"kept"` // the copy and the database are still there
	Question string     `json:"question"`
	Edited   string     `json:"edited"`
	Noticed  bool       `json:"noticed"` // the second context has the line that was added
	Steps    []demoStep `json:"steps"`
}

type demoStep struct {
	Command string         `json:"command"`
	Exit    int            `json:"exit"`
	Result  map[string]any `json:"result"`
}

type demo struct {
	a   *app
	out demoView
}

func (c *demoCmd) Run(a *app) (err error) {
	d := &demo{a: a, out: demoView{Question: c.Question, Kept: c.Into != ""}}
	base, err := filepath.Abs(c.Into)
	if c.Into == "" && err == nil {
		if base, err = os.MkdirTemp("", "ctxpage-demo-"); err == nil {
			defer func() { err = errors.Join(err, os.RemoveAll(base)) }()
		}
	} else if entries, rerr := os.ReadDir(base); rerr == nil && len(entries) > 0 {
		return failed("demo: --into %s is not empty; name an empty or a new folder", base)
	}
	if err = cmp.Or(err, d.copy(c.Dir, base)); err == nil {
		err = d.steps("demo/files")
	}
	if err != nil {
		return err
	}
	return a.emit(d.out, func(w io.Writer) {
		if !d.out.Kept {
			fmt.Fprintln(w, "\nThe copy and its database are removed. dbctl demo --into DIR keeps them, so that you can run these commands.")
		}
	})
}

// copy takes the text files of a folder to a place where one may be edited. They keep their times, which say how recent a page is.
func (d *demo) copy(dir, base string) (err error) {
	if d.out.Dir, err = filepath.Abs(cmp.Or(dir, ".")); err != nil {
		return err
	}
	d.out.File, d.out.Copy = filepath.Join(base, "demo.ctx"), filepath.Join(base, "files")
	w := &freshness.Walker{Dir: d.out.Dir, MaxSize: 1 << 20, MaxFiles: 2000, MaxBytes: 32 << 20, Usable: usableID}
	if err := w.Walk(d.a.ctx); err != nil {
		return err
	}
	first, heading := "", regexp.MustCompile(`(?m)^##+ +(\S+(?: +\S+){1,9})$`)
	for _, f := range w.Files {
		text, _, skip := freshness.ReadText(f.Path)
		if skip != "" || strings.TrimSpace(text) == "" {
			continue
		}
		to := filepath.Join(d.out.Copy, filepath.FromSlash(f.Rel))
		st, err := os.Stat(f.Path)
		if err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, []byte(text), 0o600)); err == nil {
			err = os.Chtimes(to, time.Time{}, st.ModTime())
		}
		if err != nil {
			return failed("demo: copy: %v", err)
		}
		first = cmp.Or(first, f.Rel)
		if found := heading.FindStringSubmatch(text); found != nil && d.out.Question == "" && strings.HasSuffix(f.Rel, ".md") {
			d.out.Question = fmt.Sprintf("What does it say about %q?", strings.NewReplacer("`", "", "*", "", `"`, "").Replace(found[1]))
		}
	}
	if first == "" {
		return failed("demo: %s has no text files; name a folder with some: dbctl demo DIR", d.out.Dir)
	}
	d.out.Question = cmp.Or(d.out.Question, "What is in "+first+"?")
	return nil
}

func (d *demo) run(exit int, in, show, verb string, args ...string) (result map[string]any, err error) {
	args = append(append(strings.Fields(verb), d.out.File), args...)
	var out, errs bytes.Buffer
	if code := d.a.tool.Run(append(slices.Clone(args), "--json", "--counter="+d.a.Counter), strings.NewReader(in), &out, &errs); code != exit {
		return nil, failed("demo: dbctl %s: got exit code %d, expected %d: %s", verb, code, exit, errs.String())
	}
	err = json.Unmarshal(out.Bytes(), &result)
	d.out.Steps = append(d.out.Steps, demoStep{command(append([]string{"dbctl"}, args...)...), exit, result})
	d.say("\n$ %s", d.out.Steps[len(d.out.Steps)-1].Command)
	for field := range strings.FieldsSeq(show) {
		if n, is := result[field].(float64); is {
			d.say("  %.f %s", n, field) // %v writes a million as 1e+06
		} else {
			d.say("  %-7s %s", field, cut(strings.Trim(fmt.Sprint(result[field]), "[]"), 160))
		}
	}
	return result, err
}

func (d *demo) say(format string, args ...any) {
	if !d.a.JSON {
		fmt.Fprintln(d.a.out, printable(d.a.out, fmt.Sprintf(format, args...)))
	}
}

func (d *demo) steps(scope string) (err error) {
	var last map[string]any
	run := func(exit int, in, show, verb string, args ...string) map[string]any {
		if err == nil {
			last, err = d.run(exit, in, show, verb, args...)
		}
		return last
	}
	run(exitOK, "", "id", "init")
	run(exitOK, "", "written bytes", "import", scope, d.out.Copy)
	first := run(exitOK, "", "trace tokens digest", "assemble", scope, d.out.Question)
	d.sayContext(first)
	blocks, _ := first["blocks"].([]any)
	if err != nil || len(blocks) == 0 {
		return cmp.Or(err, failed("demo: no page of the folder fits; try another --question"))
	}
	score := func(block any) float64 { return block.(map[string]any)["score"].(float64) }
	best := slices.MaxFunc(blocks, func(x, y any) int { return cmp.Compare(score(x), score(y)) }).(map[string]any)["ref"].(string)
	page := run(exitOK, "", "ref tokens", "get", scope, best)
	if err != nil {
		return err
	}
	line, eerr := d.edit(page["id"].(string), page["text"].(string))
	if eerr != nil {
		return failed("demo: edit: %v", eerr)
	}
	second := run(exitOK, "", "trace tokens digest", "assemble", scope, d.out.Question)
	text, _ := second["text"].(string)
	d.out.Noticed = strings.Contains(text, line)
	d.say("  the new line is in the context: %v", d.out.Noticed)
	draft := d.out.Question + "\nIt is in " + best + ".\n"
	judged := []string{scope, fmt.Sprint("--trace=", second["trace"]), "--id=answer", "--by=demo-judge"}
	held := run(exitHeld, draft, "status reason", "commit", append(judged, "--confidence=0.6")...)
	run(exitOK, draft, "status refs", "commit", append(judged, "--confidence=0.88")...)
	run(exitOK, "", "status", "review reject", fmt.Sprint(held["batch"]), "--by=demo-judge", "--note=a later verdict let the answer pass")
	trace := fmt.Sprint(first["trace"])
	run(exitOK, "", "in steps", "why", trace, best)
	run(exitOK, "", "in steps", "why", trace, "answer") // it was not there yet
	run(exitOK, "", "bytes same", "replay", trace)
	head := run(exitOK, "", "head", "manifest head")
	run(exitOK, "", "ok size", "manifest verify", fmt.Sprint("--head=", head["head"]))
	return err
}

// sayContext shows the beginning of a context and its end, where the best pages stand, as a model reads them.
func (d *demo) sayContext(result map[string]any) {
	text, _ := result["text"].(string)
	mark, _, _ := strings.Cut(text, " ")
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.TrimSpace(line) == "" })
	from := len(lines) - 1
	for from > 1 && (len(lines)-from < 10 || !strings.HasPrefix(lines[from], mark+" ")) {
		from--
	}
	d.say("\n  | %s", lines[0])
	if from > 1 {
		d.say("  | …")
	}
	for n, line := range lines[from:] {
		if at := from + n; n < 14 || at == len(lines)-1 {
			d.say("  | %s", cut(line, 110))
		} else if n == 14 {
			d.say("  | …")
		}
	}
}

// edit adds a line to a file, within one of its pages, and returns the line.
func (d *demo) edit(id, page string) (line string, err error) {
	d.out.Edited = filepath.Join(d.out.Copy, filepath.FromSlash(id))
	line = "Edited " + d.a.now().UTC().Format(time.RFC3339Nano) + ", after the page was loaded."
	half := page[:len(page)/2]
	at := max(0, strings.IndexByte(half, '\n'), strings.LastIndexByte(half, ' '))
	file, err := os.ReadFile(d.out.Edited)
	before, after, _ := strings.Cut(string(file), page)
	d.say("\nNow %s gets one line more.", d.out.Edited)
	err = errors.Join(err, os.WriteFile(d.out.Edited, []byte(before+page[:at]+"\n"+line+"\n"+page[at:]+after), 0o600), os.Chtimes(d.out.Edited, time.Time{}, d.a.now()))
	return line, err
}
