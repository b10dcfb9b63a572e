package dbctl

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// helpCmd stands in the grammar for the listing; run turns `help VERB` into `VERB --help` before anything is parsed.
type helpCmd struct {
	Verb []string `arg:"" optional:"" help:"Verb, optionally followed by its subcommand."`
}

// helpArgs turns `help VERB …` into `VERB … --help`, if there is such a verb.
func (t Tool) helpArgs(args []string) ([]string, error) {
	if len(args) == 0 || args[0] != "help" || slices.Contains(args, "--help") {
		return args, nil
	}
	var words, flags []string
	for _, w := range args[1:] {
		if strings.HasPrefix(w, "-") {
			flags = append(flags, w)
		} else {
			words = append(words, w)
		}
	}
	node := t.Model().Node
	for i, w := range words {
		next := child(node, w)
		if next == nil {
			return nil, usage("help: there is no verb %q; dbctl %s lists them", strings.Join(words[:i+1], " "), strings.Join(append([]string{"help"}, words[:i]...), " "))
		}
		node = next
	}
	return append(append(words, "--help"), flags...), nil
}

func child(n *kong.Node, name string) *kong.Node {
	i := slices.IndexFunc(n.Children, func(c *kong.Node) bool { return c.Name == name && c.Type == kong.CommandNode })
	if i < 0 {
		return nil
	}
	return n.Children[i]
}

// Model returns the verbs with their flags and help: for completions, and for the manual of a release.
func (t Tool) Model() *kong.Application {
	m := kong.Must(t.grammar(), durations, kong.Name("dbctl")).Model
	describe(m.Node, "")
	return m
}

// versionCmd says what was built. `dbctl --version` is the same: the flag stands for itself only, get has one of that name.
type versionCmd struct{}

// versionArgs turns --version in the place of a verb into the verb.
func versionArgs(args []string) []string {
	for i, w := range args {
		if w == "--version" {
			return append(append(slices.Clone(args[:i]), "version"), args[i+1:]...)
		}
		if w != "--json" {
			break
		}
	}
	return args
}

// buildView is the answer to --version.
type buildView struct {
	Version  string `json:"version"` // of the module
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from more than the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (versionCmd) Run(a *app) error {
	v := buildOf(debug.ReadBuildInfo())
	return a.emit(v, v.print)
}

func (v buildView) print(w io.Writer) {
	commit := or(v.Commit, "unknown")
	if v.Time != "" {
		commit += " of " + v.Time
	}
	if v.Modified {
		commit += ", modified"
	}
	fmt.Fprintf(w, "dbctl %s (commit %s; %s, %s)\n", v.Version, commit, v.Go, v.Platform)
}

// stamp is VERSION,COMMIT,TIME of a release, set by the linker (tools/release). A release is built without a checkout, so Go notes none of
// them. It is empty in every other build.
var stamp string

// buildOf reads the stamp of a release, or what the go command noted: of the main module, where dbctl was built in its own, else of the
// dependency.
func buildOf(info *debug.BuildInfo, ok bool) buildView {
	v := buildView{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if parts := strings.Split(stamp, ","); len(parts) == 3 {
		v.Version, v.Commit, v.Time = parts[0], parts[1], parts[2]
		return v
	}
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	if v.Commit == "" { // of a module fetched by a version like v0.0.0-20270131120000-0123456789ab
		version, _, _ := strings.Cut(v.Version, "+")
		if parts := strings.Split(version, "-"); len(parts) > 2 && len(parts[len(parts)-1]) == 12 {
			v.Commit = parts[len(parts)-1]
		}
	}
	return v
}

func version() string { return buildOf(debug.ReadBuildInfo()).Version }

// A shell asks dbctl itself what may come next, so the scripts are short and never out of date: `dbctl completion
// --words -- WORD…` prints the candidates for the last word, and nothing where a file may stand.

type completionCmd struct {
	Shell string   `arg:"" optional:"" help:"Shell: bash, zsh or fish."`
	Words bool     `hidden:"" help:"Print the completions of the last word given."`
	Given []string `arg:"" optional:"" hidden:"" passthrough:"" help:"With --words, which the scripts use: the words so far."`
}

var shells = map[string]string{
	"bash": `_dbctl() {
	local IFS=$'\n'
	COMPREPLY=($(compgen -W "$(dbctl completion --words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _dbctl dbctl
`,
	"zsh": `#compdef dbctl
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
_dbctl() {
	local -a found
	found=("${(@f)$(dbctl completion --words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	found=("${(@)found:#}")
	if (( $#found )); then
		compadd -a found
	else
		_files
	fi
}
compdef _dbctl dbctl
`,
	"fish": `function __dbctl_words
	set -l given (commandline -opc) (commandline -ct)
	dbctl completion --words -- $given[2..-1] 2>/dev/null
end
complete -c dbctl -a '(__dbctl_words)'
`,
}

func (c *completionCmd) Run(a *app) error {
	if c.Words {
		given := c.Given
		if c.Shell != "" {
			given = append([]string{c.Shell}, given...)
		}
		if len(given) > 0 && given[0] == "--" {
			given = given[1:]
		}
		for _, w := range candidates(a.tool.Model().Node, given) {
			fmt.Fprintln(a.out, w)
		}
		return nil
	}
	script, known := shells[c.Shell]
	if !known {
		return usage("completion: got %q, expected bash, zsh or fish", c.Shell)
	}
	_, err := io.WriteString(a.out, script)
	return err
}

// candidates lists the words that may complete the last one. It is empty for a file, or for a text that nobody can guess.
func candidates(root *kong.Node, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	at, last := root, words[len(words)-1]
	if words[0] == "help" {
		words = words[1:]
	}
	var value *kong.Flag // that the next word is the value of
	for _, w := range words[:max(0, len(words)-1)] {
		switch {
		case value != nil:
			value = nil
		case strings.HasPrefix(w, "-"):
			if f := flagOf(at, w); f != nil && !f.IsBool() && !strings.Contains(w, "=") {
				value = f
			}
		default:
			if next := child(at, w); next != nil {
				at = next
			}
		}
	}
	var all []string
	switch {
	case value != nil && value.Enum != "":
		all = value.EnumSlice()
	case value != nil:
		return nil
	case strings.HasPrefix(last, "-"):
		for n := at; n != nil; n = n.Parent {
			for _, f := range n.Flags {
				if !f.Hidden {
					all = append(all, "--"+f.Name)
				}
			}
		}
	case at.Name == "completion":
		all = []string{"bash", "fish", "zsh"}
	default:
		for _, c := range at.Children {
			if !c.Hidden && c.Type == kong.CommandNode {
				all = append(all, c.Name)
			}
		}
	}
	all = slices.DeleteFunc(all, func(s string) bool { return !strings.HasPrefix(s, last) })
	slices.Sort(all)
	return slices.Compact(all)
}

// flagOf finds a flag of a verb, or of what the verb stands under.
func flagOf(n *kong.Node, word string) *kong.Flag {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	for ; n != nil; n = n.Parent {
		for _, f := range n.Flags {
			if f.Name == name || len(name) == 1 && string(f.Short) == name {
				return f
			}
		}
	}
	return nil
}
