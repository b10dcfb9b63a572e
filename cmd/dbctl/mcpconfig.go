package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

type mcpConfigCmd struct {
	Client string `arg:"" help:"Client: ${enum}." enum:"claude-desktop,claude-code,cursor,vscode,codex,gemini"`
	File   string `arg:"" optional:"" help:"Database that the client's server opens. Not needed with --uninstall."`
	mcpFlags
	Name      string `help:"Name of the server in the client." default:"ctxpage"`
	Config    string `help:"Configuration file of the client, such as the .mcp.json of a project. Default: the user's file." placeholder:"FILE" type:"path"`
	Install   bool   `help:"Merge the block into the configuration file. A backup is kept beside it." xor:"what"`
	Uninstall bool   `help:"Remove the block from the configuration file. A backup is kept beside it." xor:"what"`
	DryRun    bool   `help:"With --install or --uninstall: show the change and write nothing."`
	rootFlags
}

func (mcpConfigCmd) Help() string {
	return `Prints what a client needs in its configuration to start dbctl mcp with these flags. --install writes it there: only the entry of this server changes; order, other keys and spacing of the file stay. A file that is not plain JSON, because it has comments for example, is not touched, and the block is printed for you to paste.

Restart the client afterwards. To undo: --uninstall, or copy the backup over the file.

Example: dbctl mcp config claude-desktop agent.ctx --scope acme/support --actor claude --write --install`
}

// serverEntry is a server in a client's configuration: a program to start, or an address.
type serverEntry struct {
	Type    string   `json:"type,omitempty"`
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	URL     string   `json:"url,omitempty"`
	HTTPURL string   `json:"httpUrl,omitempty"`
}

// entryKeys are the keys of an entry that belong to us; others are the user's.
var entryKeys = []string{"type", "command", "args", "url", "httpUrl"}

// mcpClient is where and how a client keeps its servers.
type mcpClient struct {
	container string // the key that holds the servers, by name
	toml      bool
	typed     bool // an entry says whether it is stdio or http
	httpURL   bool // the address is httpUrl, because url means something else
	noHTTP    bool // the file takes only programs
	path      func() (string, error)
}

var mcpClients = map[string]mcpClient{
	"claude-desktop": {container: "mcpServers", noHTTP: true, path: inConfigDir("Claude", "claude_desktop_config.json")},
	"claude-code":    {container: "mcpServers", typed: true, path: inHome("CLAUDE_CONFIG_DIR", "", ".claude.json")},
	"cursor":         {container: "mcpServers", path: inHome("", ".cursor", "mcp.json")},
	"vscode":         {container: "servers", typed: true, path: inConfigDir("Code", "User", "mcp.json")},
	"codex":          {container: "mcp_servers", toml: true, path: inHome("CODEX_HOME", ".codex", "config.toml")},
	"gemini":         {container: "mcpServers", httpURL: true, path: inHome("", ".gemini", "settings.json")},
}

// inConfigDir is a path in the folder where the system keeps applications' settings.
func inConfigDir(elem ...string) func() (string, error) {
	return func() (string, error) {
		dir, err := os.UserConfigDir()
		return filepath.Join(append([]string{dir}, elem...)...), err
	}
}

// inHome is a path in the home directory, or in the one that a variable of the client names.
func inHome(env, dir, file string) func() (string, error) {
	return func() (string, error) {
		if named := os.Getenv(env); env != "" && named != "" {
			return filepath.Join(named, file), nil
		}
		home, err := os.UserHomeDir()
		return filepath.Join(home, dir, file), err
	}
}

var serverName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// check refuses what the server itself would refuse, so that the client never starts it in vain.
func (c *mcpConfigCmd) check() error {
	switch {
	case !serverName.MatchString(c.Name):
		return usage("--name %q: expected up to 64 letters, digits, _ and -", c.Name)
	case c.DryRun && !c.Install && !c.Uninstall:
		return usage("--dry-run is about a change: give --install or --uninstall, too")
	case c.Uninstall:
		return nil
	case c.HTTP != "" && mcpClients[c.Client].noHTTP:
		return usage("--http: %s takes only programs from its configuration file; leave --http out", c.Client)
	case c.HTTP != "":
		return nil
	case c.File == "":
		return usage("expected the database: dbctl mcp config %s FILE --scope SCOPE", c.Client)
	}
	return c.mcpFlags.check()
}

// entry is this server for the client. Paths are absolute: a client starts programs from any directory, and a desktop
// client without the shell's PATH.
func (c *mcpConfigCmd) entry() (e serverEntry, err error) {
	client := mcpClients[c.Client]
	if c.HTTP != "" {
		url := "http://" + c.HTTP + "/mcp"
		if client.httpURL {
			return serverEntry{HTTPURL: url}, nil
		}
		if e.URL = url; client.typed {
			e.Type = "http"
		}
		return e, nil
	}
	if e.Command, err = os.Executable(); err != nil {
		return e, err
	}
	file, err := filepath.Abs(c.File)
	if err != nil {
		return e, err
	}
	if client.typed {
		e.Type = "stdio"
	}
	args, err := c.mcpFlags.args()
	if err != nil {
		return e, err
	}
	e.Args = append([]string{"mcp", "serve", file}, args...)
	for _, dir := range c.Root {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return e, err
		}
		e.Args = append(e.Args, "--root="+abs)
	}
	return e, nil
}

// args are the flags as the client's program gets them. --flag=value keeps a value that begins with a dash one.
func (f *mcpFlags) args() (out []string, err error) {
	model := f.Model
	if model != "" && !f.endpoint() {
		if model, err = filepath.Abs(model); err != nil {
			return nil, err
		}
	}
	for _, v := range []struct{ flag, value string }{{"--scope", f.Scope}, {"--actor", f.Actor}, {"--confirm", f.Confirm}, {"--evaluator", f.Evaluator}, {"--model", model}} {
		if v.value != "" {
			out = append(out, v.flag+"="+v.value)
		}
	}
	if f.Write {
		out = append(out, "--write")
	}
	return out, nil
}

// configView is what mcp config says.
type configView struct {
	Client    string `json:"client"`
	Config    string `json:"config"`
	Block     string `json:"block,omitempty"`
	Installed bool   `json:"installed"`
	Removed   bool   `json:"removed"`
	DryRun    bool   `json:"dry_run"`
	Changed   bool   `json:"changed"`
	Diff      string `json:"diff,omitempty"`
	Backup    string `json:"backup,omitempty"`
	Undo      string `json:"undo,omitempty"`
}

func (c *mcpConfigCmd) Run(a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	client := mcpClients[c.Client]
	path := c.Config
	if path == "" {
		var err error
		if path, err = client.path(); err != nil {
			return failed("where %s keeps its configuration: %v; name the file with --config", c.Client, err)
		}
	}
	v := configView{Client: c.Client, Config: path, DryRun: c.DryRun}
	edit := client.remove(c.Name)
	if !c.Uninstall {
		if c.HTTP == "" {
			if err := c.embedWith(a); err != nil { // what the server would refuse
				return err
			}
		}
		e, err := c.entry()
		if err != nil {
			return err
		}
		block, err := client.set(nil, c.Name, e)
		if err != nil {
			return err
		}
		v.Block = string(block)
		edit = func(src []byte) ([]byte, error) { return client.set(src, c.Name, e) }
	}
	if !c.Install && !c.Uninstall {
		return a.emit(v, func(w io.Writer) { fmt.Fprintf(w, "%s", v.Block) })
	}
	if err := c.apply(a, path, edit, &v); err != nil {
		return err
	}
	return a.emit(v, v.print)
}

func (m mcpClient) set(src []byte, name string, e serverEntry) ([]byte, error) {
	if m.toml {
		return setTOML(src, m.container, name, e)
	}
	return setJSON(src, m.container, name, e)
}

func (m mcpClient) remove(name string) func(src []byte) ([]byte, error) {
	return func(src []byte) ([]byte, error) {
		if m.toml {
			return removeTOML(src, m.container, name)
		}
		return removeJSON(src, m.container, name)
	}
}

// apply changes the file, or shows how it would.
func (c *mcpConfigCmd) apply(a *app, path string, edit func([]byte) ([]byte, error), v *configView) error {
	f, err := readConfig(path)
	if err != nil {
		return err
	}
	changed, err := edit(f.text)
	if err != nil {
		how := "paste this into it yourself:\n" + v.Block
		if c.Uninstall {
			how = fmt.Sprintf("remove the server %q from it yourself", c.Name)
		}
		return failed("%s: %v; nothing was changed; %s", path, err, strings.TrimSpace(how))
	}
	v.Changed = string(changed) != string(f.text)
	if c.DryRun || !v.Changed {
		v.Diff = diffOf(path, string(f.text), string(changed))
		return nil
	}
	if v.Backup, err = f.replace(changed, a.now()); err != nil {
		return err
	}
	v.Installed, v.Removed = c.Install, c.Uninstall
	if c.Install {
		v.Undo = fmt.Sprintf("dbctl mcp config %s --name %s --config %s --uninstall", c.Client, c.Name, shellQuoted(path))
	} else if v.Backup != "" {
		v.Undo = fmt.Sprintf("cp %s %s", shellQuoted(v.Backup), shellQuoted(path))
	}
	return nil
}

func (v *configView) print(w io.Writer) {
	switch {
	case !v.Changed:
		fmt.Fprintf(w, "unchanged: %s\n", v.Config)
		return
	case v.DryRun:
		fmt.Fprint(w, v.Diff)
		fmt.Fprintln(w, "dry run: nothing was written")
		return
	case v.Removed:
		fmt.Fprintf(w, "removed from %s\n", v.Config)
	default:
		fmt.Fprintf(w, "installed in %s\n", v.Config)
	}
	if v.Backup != "" {
		fmt.Fprintf(w, "backup: %s\n", v.Backup)
	}
	if v.Undo != "" {
		fmt.Fprintf(w, "undo: %s\n", v.Undo)
	}
	fmt.Fprintf(w, "restart %s\n", v.Client)
}

// shellQuoted is a word that a shell takes as it is.
func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
