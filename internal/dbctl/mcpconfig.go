package dbctl

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

type mcpConfigCmd struct {
	Client string `arg:"" help:"Client: ${enum}." enum:"claude-desktop,claude-code,cursor,vscode,codex,gemini"`
	File   string `arg:"" optional:"" help:"Database that the client's server opens. Not needed with --http."`
	mcpFlags
	Name    string `help:"Name of the server in the client." default:"ctxpage"`
	Install bool   `help:"Register the server with the client instead: by the client's own command where it has one, else in its JSON file, of which a backup is kept."`
	rootFlags
}

// serverEntry is a server in a client's configuration: a program to start, or an address.
type serverEntry struct {
	Type    string   `json:"type,omitempty"`
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	URL     string   `json:"url,omitempty"`
	HTTPURL string   `json:"httpUrl,omitempty"`
}

// mcpClient describes where and how a client keeps its servers.
type mcpClient struct {
	container string // the key that holds the servers, by name
	toml      bool
	typed     bool // an entry names its type, stdio or http
	httpURL   bool // the address is httpUrl, because url means something else
	noHTTP    bool // the file takes only programs
	path      func() (string, error)
	add       func(name string, e serverEntry) []string // the client's own command; nil: it has none
	remove    func(name string) []string                // likewise; nil: it has none
}

var mcpClients = map[string]mcpClient{
	"claude-desktop": {container: "mcpServers", noHTTP: true, path: inConfigDir("Claude", "claude_desktop_config.json")},
	"claude-code": {container: "mcpServers", typed: true, path: inHome("CLAUDE_CONFIG_DIR", "", ".claude.json"),
		add: func(name string, e serverEntry) []string {
			if e.URL != "" {
				return []string{"claude", "mcp", "add", "--scope", "user", "--transport", "http", name, e.URL}
			}
			return append([]string{"claude", "mcp", "add", "--scope", "user", name, "--", e.Command}, e.Args...)
		},
		remove: func(name string) []string { return []string{"claude", "mcp", "remove", "--scope", "user", name} }},
	"cursor": {container: "mcpServers", path: inHome("", ".cursor", "mcp.json")},
	"vscode": {container: "servers", typed: true, path: inConfigDir("Code", "User", "mcp.json"),
		add: func(name string, e serverEntry) []string {
			b, _ := plainJSON(namedEntry{name, e}) // texts always have a form
			return []string{"code", "--add-mcp", string(b)}
		}},
	"codex": {container: "mcp_servers", toml: true, path: inHome("CODEX_HOME", ".codex", "config.toml"),
		add: func(name string, e serverEntry) []string {
			if e.URL != "" {
				return []string{"codex", "mcp", "add", name, "--url", e.URL}
			}
			return append([]string{"codex", "mcp", "add", name, "--", e.Command}, e.Args...)
		},
		remove: func(name string) []string { return []string{"codex", "mcp", "remove", name} }},
	"gemini": {container: "mcpServers", httpURL: true, path: inHome("", ".gemini", "settings.json"),
		add: func(name string, e serverEntry) []string { // its own flags end at "--"
			if e.HTTPURL != "" {
				return []string{"gemini", "mcp", "add", "--scope", "user", "--transport", "http", name, e.HTTPURL}
			}
			return append([]string{"gemini", "mcp", "add", "--scope", "user", name, e.Command, "--"}, e.Args...)
		},
		remove: func(name string) []string { return []string{"gemini", "mcp", "remove", "--scope", "user", name} }},
}

// namedEntry is a server as code --add-mcp takes it.
type namedEntry struct {
	Name string `json:"name"`
	serverEntry
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
func (c *mcpConfigCmd) entry(located []string, keyFile string) (e serverEntry, err error) {
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
	if client.typed {
		e.Type = "stdio"
	}
	args, err := c.mcpFlags.args()
	if err != nil {
		return e, err
	}
	e.Args = append(append([]string{"mcp", "serve"}, located...), args...)
	for _, dir := range c.Root {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return e, err
		}
		e.Args = append(e.Args, "--root="+abs)
	}
	if keyFile != "" {
		abs, err := filepath.Abs(keyFile)
		if err != nil {
			return e, err
		}
		e.Args = append(e.Args, "--key-file="+abs)
	}
	return e, nil
}

// args are the flags as the client's program gets them. --flag=value keeps a value that begins with a dash one.
func (f *mcpFlags) args() (out []string, err error) {
	model := f.Model
	switch {
	case model == modelSmall: // the default
		model = ""
	case model == "": // CTXPAGE_MODEL is set and empty
		model = modelNone
	case model != modelNone && !f.endpoint():
		if model, err = filepath.Abs(model); err != nil {
			return nil, err
		}
	}
	judge, err := f.absolute()
	if err != nil {
		return nil, err
	}
	if f.Write && f.Confirm == "" && judge == "" {
		judge = ruleSupported
	}
	for _, v := range []struct{ flag, value string }{{"--scope", f.Scope}, {"--actor", f.Actor}, {"--confirm", f.Confirm}, {"--evaluator", judge}, {"--model", model}, {"--summarizer", f.Summarizer}, {"--summarizer-cmd", f.SummarizerCmd}} {
		if v.value != "" {
			out = append(out, v.flag+"="+v.value)
		}
	}
	if f.Write {
		out = append(out, "--write")
	}
	return out, nil
}

type configView struct {
	Client string `json:"client"`
	Config string `json:"config"` // the user's file, into which the block belongs
	Block  string `json:"block"`
}

func (c *mcpConfigCmd) Run(a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	client := mcpClients[c.Client]
	path, err := client.path()
	if err != nil {
		return failed("where %s keeps its configuration: %v", c.Client, err)
	}
	if c.HTTP == "" {
		if err := c.embedWith(a); err != nil { // what the server would refuse
			return err
		}
	}
	located, err := a.located(c.File)
	if err != nil {
		return err
	}
	e, err := c.entry(located, a.KeyFile)
	if err != nil {
		return err
	}
	if c.Install {
		s, err := registration(c.Client, c.Name, &e)
		if err == nil {
			err = s.do(a)
		}
		if err != nil {
			return err
		}
		v := setupView{Client: c.Client, Steps: []setupStep{s}}
		return a.emit(v, func(w io.Writer) {
			v.printSteps(w)
			fmt.Fprintf(w, "restart %s\n", c.Client)
		})
	}
	v := configView{Client: c.Client, Config: path, Block: client.block(c.Name, e)}
	return a.emit(v, func(w io.Writer) { fmt.Fprint(w, v.Block) })
}

// block is a server as the client's file has it.
func (m mcpClient) block(name string, e serverEntry) string {
	if !m.toml {
		b, _ := json.MarshalIndent(map[string]any{m.container: map[string]any{name: e}}, "", "  ") // texts always have a form
		return string(b) + "\n"
	}
	if e.URL != "" {
		return fmt.Sprintf("[%s.%s]\nurl = %s\n", m.container, name, tomlText(e.URL))
	}
	args := make([]string, len(e.Args))
	for i, arg := range e.Args {
		args[i] = tomlText(arg)
	}
	return fmt.Sprintf("[%s.%s]\ncommand = %s\nargs = [%s]\n", m.container, name, tomlText(e.Command), strings.Join(args, ", "))
}

// tomlText is a text as TOML has it. JSON escapes all that TOML does, but for the control character 127.
func tomlText(s string) string {
	b, _ := json.Marshal(s)
	return strings.ReplaceAll(string(b), "\u007f", `\u007f`)
}

// shellQuoted is a word that a shell takes as it is.
func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
