package dbctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
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

// command is a command line as the shells of this system take it.
func command(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = shellQuoted(runtime.GOOS, w)
	}
	return strings.Join(quoted, " ")
}

// plain are the characters that mean nothing to a shell; the last three only to those of other systems than Windows.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=+" + "@%,"

// shellQuoted is a word that a shell takes as it is. On Windows that is cmd.exe, PowerShell or the bash of Git, which all take a word in
// double quotes, unless it has a character that one of them replaces there: then only PowerShell takes it.
func shellQuoted(system, word string) string {
	switch {
	case word != "" && strings.Trim(word, plain) == "" && (system != "windows" || !strings.ContainsAny(word, "@%,")):
		return word
	case system != "windows":
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	case strings.ContainsAny(word, "\"“”„$`%\r\n"):
		for _, quote := range []string{"'", "‘", "’", "‚", "‛"} { // PowerShell ends a text with each of them
			word = strings.ReplaceAll(word, quote, quote+quote)
		}
		return "'" + word + "'"
	}
	path := strings.TrimRight(word, `\`) // before a quote a program takes half of them
	return `"` + word + strings.Repeat(`\`, len(word)-len(path)) + `"`
}

// maxConfig bounds a client's configuration file. Claude Code keeps its history in it.
const maxConfig = 64 << 20

// configFile is a client's configuration file as it was read.
type configFile struct {
	path  string // links followed: many keep such files elsewhere and link them
	text  []byte
	mode  fs.FileMode
	there bool
}

func readConfig(path string) (*configFile, error) {
	f := &configFile{path: path, mode: 0o600}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err == nil {
			return nil, failed("%s is a link to a file that is not there; nothing was changed", path)
		}
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	f.path, f.there = real, true
	fi, err := os.Stat(real)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, failed("%s: expected a file", path)
	}
	if fi.Size() > maxConfig {
		return nil, failed("%s has %d bytes, expected at most %d", path, fi.Size(), maxConfig)
	}
	f.mode = fi.Mode().Perm()
	f.text, err = os.ReadFile(real)
	return f, err
}

// replace keeps a backup beside the file and puts the text in its place, at once: a reader sees the old file or the new
// one. A client that has changed the file since it was read is not overwritten.
func (f *configFile) replace(text []byte, now time.Time) (backup string, err error) {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return "", err
	}
	if f.there {
		if backup, err = f.backUp(now); err != nil {
			return "", err
		}
	}
	tmp, err := os.CreateTemp(filepath.Dir(f.path), "."+filepath.Base(f.path)+".*")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name()) // gone by then if all went well
	if err := errors.Join(fill(tmp, text, f.mode), tmp.Close()); err != nil {
		return "", err
	}
	is, err := os.ReadFile(f.path)
	if f.there != (err == nil) || !bytes.Equal(is, f.text) {
		return "", failed("%s changed while it was edited; nothing was written, run this again", f.path)
	}
	return backup, os.Rename(tmp.Name(), f.path)
}

// backUp copies the file beside itself, under a name that nothing has yet.
func (f *configFile) backUp(now time.Time) (string, error) {
	base := f.path + ".ctxpage-" + now.UTC().Format("20060102T150405Z")
	for n := 0; ; n++ {
		path := base + ".bak"
		if n > 0 {
			path = fmt.Sprintf("%s-%d.bak", base, n)
		}
		out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		return path, errors.Join(fill(out, f.text, f.mode), out.Close())
	}
}

// fill writes a file's text to the disk.
func fill(w *os.File, text []byte, mode fs.FileMode) error {
	if _, err := io.Copy(w, bytes.NewReader(text)); err != nil {
		return err
	}
	return errors.Join(w.Chmod(mode), w.Sync())
}

// diffOf shows the lines that differ between two texts, with three lines around them.
func diffOf(path, old, changed string) string {
	const around = 3
	all := diffLines(slices.Collect(strings.Lines(old)), slices.Collect(strings.Lines(changed)))
	differs := func(l string) bool { return l[0] != ' ' }
	out := []string{"--- " + path, "+++ " + path}
	for i, l := range all {
		if slices.ContainsFunc(all[max(0, i-around):min(len(all), i+around+1)], differs) {
			out = append(out, strings.TrimSuffix(l, "\n"))
		}
	}
	return strings.Join(out, "\n") + "\n"
}

// object is a JSON object whose members keep their order and, but for spaces, their text.
type object []member

type member struct {
	name  string
	value json.RawMessage
}

// parseObject reads an object; no text at all is an empty one.
func parseObject(text []byte) (o object, err error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	if !json.Valid(text) {
		return nil, errors.New("expected plain JSON, without comments")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("expected a JSON object")
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: fmt.Sprint(t)}
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(o, func(x member) bool { return x.name == m.name }) {
			return nil, fmt.Errorf("%q occurs twice", m.name)
		}
		o = append(o, m)
	}
	return o, nil
}

// MarshalJSON writes the members in their order.
func (o object) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), m.value...)
	}
	return append(b, '}'), nil
}

// plainJSON is a value without the escapes that HTML needs.
func plainJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// text is the object with an indent of two.
func (o object) text() ([]byte, error) {
	b, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = json.Indent(&out, b, "", "  ")
	out.WriteByte('\n')
	return out.Bytes(), err
}

// edited is the object with a member changed by fn, which gets nil if there is none, and returns nil for none.
func (o object) edited(name string, fn func(json.RawMessage) (json.RawMessage, error)) (object, error) {
	at := slices.IndexFunc(o, func(m member) bool { return m.name == name })
	var old json.RawMessage
	if at >= 0 {
		old = o[at].value
	}
	value, err := fn(old)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case value == nil && at >= 0:
		return slices.Delete(slices.Clone(o), at, at+1), nil
	case value == nil:
		return o, nil
	case at < 0:
		return append(slices.Clone(o), member{name, value}), nil
	}
	o = slices.Clone(o)
	o[at].value = value
	return o, nil
}

// inMember edits the member of an object that is a member itself. An object that becomes empty goes, too.
func inMember(name string, fn func(json.RawMessage) (json.RawMessage, error)) func(json.RawMessage) (json.RawMessage, error) {
	return func(old json.RawMessage) (json.RawMessage, error) {
		o, err := parseObject(old)
		if err != nil {
			return nil, err
		}
		was := len(o)
		if o, err = o.edited(name, fn); err != nil || len(o) == 0 && was > 0 {
			return nil, err
		}
		if len(o) == 0 {
			return old, nil
		}
		return o.MarshalJSON()
	}
}
