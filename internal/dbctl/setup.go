package dbctl

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/store"
)

type setupCmd struct {
	Client   string `arg:"" help:"Client: ${enum}." enum:"claude-code,codex,gemini,cursor"`
	File     string `arg:"" optional:"" help:"Database. It is made if there is none. Not needed with --undo."`
	Scope    string `help:"Scope to serve, and of the conversations. Required, but for --undo."`
	Actor    string `help:"Name of the model, for manifests and reviews. Default: the client."`
	ReadOnly bool   `help:"Serve without the tools put and delete."`
	evaluatorFlag
	modelFlags
	rootFlags
	Name    string `help:"Name of the server in the client." default:"ctxpage"`
	keyFile string
	located []string // words of the database
	NoHooks bool     `help:"Do not capture conversations."`
	NoSkill bool     `help:"Do not install the skill."`
	Undo    bool     `help:"Remove what setup has installed."`
	DryRun  bool     `help:"Show the command and the changes of files; change nothing."`
}

// host is an agent host that setup knows.
type host struct {
	hooks  func() (string, error) // the file with its hooks
	events []string               // prompt, tool, answer
	flat   bool                   // an event has its commands, not groups of them
	skills func() (string, error)
}

var hosts = map[string]host{
	"claude-code": {
		hooks: inHome("CLAUDE_CONFIG_DIR", ".claude", "settings.json"), skills: inHome("CLAUDE_CONFIG_DIR", ".claude", "skills"),
		events: []string{"UserPromptSubmit", "PostToolUse", "Stop"},
	},
	"codex": {
		hooks: inHome("CODEX_HOME", ".codex", "hooks.json"), skills: inHome("", ".agents", "skills"),
		events: []string{"UserPromptSubmit", "PostToolUse", "Stop"},
	},
	"gemini": {
		hooks: inHome("", ".gemini", "settings.json"), skills: inHome("", ".gemini", "skills"),
		events: []string{"BeforeAgent", "AfterTool", "AfterAgent"},
	},
	"cursor": {
		hooks: inHome("", ".cursor", "hooks.json"), skills: inHome("", ".cursor", "skills"), flat: true,
		events: []string{"beforeSubmitPrompt", "postToolUse", "afterAgentResponse"},
	},
}

// setupStep is one change: a command of the client, or of a file.
type setupStep struct {
	What    string   `json:"what"` // server, hooks or skill
	Command []string `json:"command,omitempty"`
	File    string   `json:"file,omitempty"`
	Changed bool     `json:"changed"`
	Diff    string   `json:"diff,omitempty"` // of a dry run
	Backup  string   `json:"backup,omitempty"`

	before []string // a command that may fail: what it removes may not be there
	config *configFile
	text   []byte // nil: the file goes
}

type setupView struct {
	Client string      `json:"client"`
	Undo   bool        `json:"undo"`
	DryRun bool        `json:"dry_run"`
	Steps  []setupStep `json:"steps"`
}

func (c *setupCmd) Run(a *app) error {
	if err := c.check(a); err != nil {
		return err
	}
	v := setupView{Client: c.Client, Undo: c.Undo, DryRun: c.DryRun}
	for _, plan := range []func() (setupStep, error){c.database, c.server, c.hooks, c.skill} {
		s, err := plan() // all are known before the first is done
		if err != nil {
			return fmt.Errorf("nothing was changed: %w", err)
		}
		if s.What != "" {
			v.Steps = append(v.Steps, s)
		}
	}
	for i := range v.Steps {
		s := &v.Steps[i]
		if c.DryRun {
			if s.config != nil && s.Changed {
				s.Diff = diffOf(s.File, string(s.config.text), string(s.text))
			}
			continue
		}
		if err := s.do(a); err != nil {
			done := "nothing was changed"
			if i > 0 {
				done = "the steps before it were done; dbctl setup " + c.Client + " --undo removes them"
			}
			return fmt.Errorf("%s: %w; %s", s.What, err, done)
		}
	}
	return a.emit(v, v.print)
}

func (c *setupCmd) check(a *app) error {
	switch {
	case !serverName.MatchString(c.Name):
		return usage("--name %q: expected up to 64 letters, digits, _ and -", c.Name)
	case c.Undo:
		return nil
	case c.File == "":
		return usage("expected the database: dbctl setup %s FILE --scope SCOPE", c.Client)
	case c.ReadOnly && c.Evaluator != "":
		return usage("--evaluator is about writes: leave --read-only out")
	case c.Scope == "":
		return usage("expected --scope: the scope to serve, such as acme/dev")
	}
	if err := store.CheckScope(c.Scope); err != nil {
		return usage("--%s", strings.TrimPrefix(err.Error(), "ctxpage: "))
	}
	c.keyFile = a.KeyFile
	var err error
	c.located, err = a.located(c.File)
	return errors.Join(err, c.embedWith(a))
}

// database plans the file, without which the server would not start.
func (c *setupCmd) database() (s setupStep, err error) {
	if c.Undo {
		return s, nil
	}
	s.What, s.File = "database", c.File
	if _, err := os.Lstat(c.File); err == nil || fileless(c.File) {
		return s, nil
	}
	s.Changed = true
	return s, mayMake("setup", c.File, "name a path that does not")
}

// server plans the registration of the MCP server.
func (c *setupCmd) server() (setupStep, error) {
	if c.Undo {
		return c.available(registration(c.Client, c.Name, nil))
	}
	config := mcpConfigCmd{Client: c.Client, File: c.File, Name: c.Name, rootFlags: c.rootFlags, mcpFlags: mcpFlags{
		Scope: c.Scope, Actor: or(c.Actor, c.Client), Write: !c.ReadOnly, evaluatorFlag: c.evaluatorFlag, modelFlags: c.modelFlags}}
	e, err := config.entry(c.located, c.keyFile)
	if err != nil {
		return setupStep{}, err
	}
	return c.available(registration(c.Client, c.Name, &e))
}

// available refuses a command that is not there, before anything is done.
func (c *setupCmd) available(s setupStep, err error) (setupStep, error) {
	if err != nil || c.DryRun || len(s.Command) == 0 {
		return s, err
	}
	if _, err := exec.LookPath(s.Command[0]); err != nil && c.Undo {
		return s, failed("the command %s is not in PATH; remove the server %q from the client yourself, then use --undo with a PATH that has it", s.Command[0], c.Name)
	} else if err != nil {
		return s, failed("the command %s is not in PATH; install the client, or add its folder to PATH", s.Command[0])
	}
	return s, nil
}

// registration plans to register a server with a client, or to remove it (nil).
func registration(client, name string, e *serverEntry) (setupStep, error) {
	c, s := mcpClients[client], setupStep{What: "server"}
	if c.add == nil {
		path, err := c.path()
		if err != nil {
			return s, err
		}
		s, err = s.edit(path, inMember(name, func(json.RawMessage) (json.RawMessage, error) {
			if e == nil {
				return nil, nil
			}
			return plainJSON(e)
		}), c.container)
		return s.left(e == nil, err)
	}
	s.Changed = true
	if c.remove != nil {
		s.Command = c.remove(name)
	}
	if e != nil {
		s.before, s.Command = s.Command, c.add(name, *e)
	}
	return s, nil
}

// hookMark ends the commands of hooks that setup made, as a comment of the shell.
const hookMark = " # ctxpage setup"

// hooks plans the capture of conversations.
func (c *setupCmd) hooks() (s setupStep, err error) {
	if c.NoHooks && !c.Undo {
		return s, nil
	}
	s.What = "hooks"
	h := hosts[c.Client]
	path, err := h.hooks()
	if err != nil {
		return s, err
	}
	line := ""
	if !c.Undo {
		self, err := os.Executable()
		if err != nil {
			return s, err
		}
		words := append([]string{self, "hook"}, c.located...)
		words = append(words, "--scope="+c.Scope, "--actor="+or(c.Actor, c.Client))
		if c.keyFile != "" {
			key, err := filepath.Abs(c.keyFile)
			if err != nil {
				return s, err
			}
			words = append(words, "--key-file="+key)
		}
		line = command(words...) + hookMark
	}
	edit := func(old json.RawMessage) (json.RawMessage, error) {
		for i, event := range h.events {
			old, err = inMember(event, func(list json.RawMessage) (json.RawMessage, error) { return h.hook(list, line, i == 1) })(old)
			if err != nil {
				return nil, err
			}
		}
		return old, nil
	}
	if s, err = s.edit(path, edit, "hooks"); err != nil || !h.flat || c.Undo {
		return s.left(c.Undo, err)
	}
	return s.versioned()
}

// left plans to remove a file in which undo leaves nothing but what setup wrote. A link stays.
func (s setupStep) left(undo bool, err error) (setupStep, error) {
	if err != nil || !undo || !s.Changed {
		return s, err
	}
	o, err := parseObject(s.text)
	if err != nil || len(o) > 1 || len(o) == 1 && o[0].name != "version" {
		return s, err
	}
	if fi, err := os.Lstat(s.File); err == nil && fi.Mode().IsRegular() {
		s.text = nil
	}
	return s, nil
}

// hook is a list of hooks with our command in place of the one that was there; "": without it.
func (h host) hook(list json.RawMessage, command string, tool bool) (json.RawMessage, error) {
	var all, kept []json.RawMessage
	if list != nil && json.Unmarshal(list, &all) != nil {
		return nil, errors.New("expected a list")
	}
	for _, one := range all {
		if !bytes.Contains(one, []byte(strings.TrimSpace(hookMark))) {
			kept = append(kept, one)
		}
	}
	if command != "" {
		var entry any = map[string]any{"command": command}
		if !h.flat {
			group := map[string]any{"hooks": []any{map[string]any{"type": "command", "command": command}}}
			if tool {
				group["matcher"] = "*"
			}
			entry = group
		}
		b, err := plainJSON(entry)
		if err != nil {
			return nil, err
		}
		kept = append(kept, b)
	}
	if len(kept) == 0 {
		return nil, nil
	}
	return plainJSON(kept)
}

// versioned adds the version that Cursor wants its file to begin with.
func (s setupStep) versioned() (setupStep, error) {
	o, err := parseObject(s.text)
	if err != nil || slices.ContainsFunc(o, func(m member) bool { return m.name == "version" }) {
		return s, err
	}
	s.text, err = append(object{{"version", json.RawMessage("1")}}, o...).text()
	return s, err
}

// edit plans the change of a member of a file's object.
func (s setupStep) edit(path string, fn func(json.RawMessage) (json.RawMessage, error), member string) (setupStep, error) {
	f, err := readConfig(path)
	if err != nil {
		return s, err
	}
	s.File, s.config = path, f
	o, err := parseObject(f.text)
	if err != nil {
		return s, failed("%s: %v; edit it yourself, or mend it and try again", path, err)
	}
	changed, err := o.edited(member, fn)
	if err != nil {
		return s, failed("%s: %v", path, err)
	}
	before, err := o.text()
	if err != nil {
		return s, err
	}
	s.text, err = changed.text()
	s.Changed = !bytes.Equal(before, s.text) && (f.there || len(changed) > 0)
	return s, err
}

// skill plans the installation of the skill. One that was changed is not removed.
func (c *setupCmd) skill() (s setupStep, err error) {
	if c.NoSkill && !c.Undo {
		return s, nil
	}
	s.What = "skill"
	dir, err := hosts[c.Client].skills()
	if err != nil {
		return s, err
	}
	s.File = filepath.Join(dir, "ctxpage", "SKILL.md")
	if s.config, err = readConfig(s.File); err != nil {
		return s, err
	}
	is := string(s.config.text) == skillText
	if c.Undo {
		s.Changed = s.config.there && is
		return s, nil
	}
	s.text, s.Changed = []byte(skillText), !is
	return s, nil
}

// do carries out a step.
func (s *setupStep) do(a *app) (err error) {
	switch {
	case len(s.Command) > 0:
		if s.before != nil {
			_ = exec.CommandContext(a.ctx, s.before[0], s.before[1:]...).Run()
		}
		out, err := exec.CommandContext(a.ctx, s.Command[0], s.Command[1:]...).CombinedOutput()
		if err != nil {
			return failed("%s: %v: %s", strings.Join(s.Command[:2], " "), err, cut(string(out), 500))
		}
	case s.Changed && s.What == "database":
		db, err := a.database(s.File, a.options(), false)
		if err != nil {
			return err
		}
		return db.Close()
	case s.Changed && s.text == nil:
		err = os.Remove(s.config.path)
		_ = os.Remove(filepath.Dir(s.config.path)) // unless there are other files
	case s.Changed:
		s.Backup, err = s.config.replace(s.text, a.now())
	}
	return err
}

func (v *setupView) print(w io.Writer) {
	v.printSteps(w)
	switch {
	case v.DryRun:
		fmt.Fprintln(w, "dry run: nothing was changed")
	case v.Undo:
		fmt.Fprintf(w, "removed; restart %s\n", v.Client)
	default:
		fmt.Fprintf(w, "restart %s; to undo: dbctl setup %s --undo\n", v.Client, v.Client)
	}
}

func (v *setupView) printSteps(w io.Writer) {
	for _, s := range v.Steps {
		switch {
		case len(s.Command) > 0:
			fmt.Fprintf(w, "%s: %s\n", s.What, command(s.Command...))
		case !s.Changed:
			fmt.Fprintf(w, "%s: %s is unchanged\n", s.What, s.File)
		case v.DryRun:
			fmt.Fprintf(w, "%s: %s\n%s", s.What, s.File, s.Diff)
		default:
			fmt.Fprintf(w, "%s: %s\n", s.What, s.File)
			if s.Backup != "" {
				fmt.Fprintf(w, "  backup: %s\n", s.Backup)
			}
		}
	}
}

// skillText tells an agent how to use its memory, in the form of agentskills.io.
//
//go:embed skills/ctxpage/SKILL.md
var skillText string
