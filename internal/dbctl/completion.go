package dbctl

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// A shell asks dbctl itself what may come next, so the scripts are short and never out of date: `dbctl completion
// --words -- WORD…` prints the candidates for the last word, and nothing where a file may stand.

type completionCmd struct {
	Shell string   `arg:"" optional:"" help:"Shell: bash, zsh or fish."`
	Words bool     `hidden:"" help:"Print the completions of the last word given."`
	Given []string `arg:"" optional:"" hidden:"" passthrough:""`
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
