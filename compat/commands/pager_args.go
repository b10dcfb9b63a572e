package commands

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/ctxpage/ctxpage/session"
)

const usage = `usage: dbctl session page --history H --contract C [--alpha A] [--beta B] [--retain-cut R] [--evict-cut E]
       dbctl session page --matrix
`

const help = usage + `
Scores every block of a history against its intent, files it as retained, paged
or evicted in a contract, and prints one record a block on standard error.

  --history H      JSON file with intent_ir and blocks
  --contract C     .limn file, extended with one write; created if absent
  --alpha A        weight of the similarity (0.7)
  --beta B         weight of the recency (0.3)
  --retain-cut R   retained from this score on (0.55)
  --evict-cut E    evicted below this score (0.2)
  --matrix         run four weight pairs over a built-in history and check them

Nothing is written when any block is refused. Example:
  dbctl session page --history h.json --contract c.limn --retain-cut 0.3
`

type options struct {
	history, contract                string
	alpha, beta, retainCut, evictCut float64
}

var errHelp = errors.New("help was asked for")

var optionNames = []string{"--help", "--history", "--contract", "--alpha", "--beta", "--retain-cut", "--evict-cut"}

// word is one argument, classified as Python's argparse does before it acts on
// any: an option with its name, an unknown option, or a plain value.
type word struct {
	text   string
	option string // full option name; empty if none
	dash   bool   // looks like an option: is no value for the last one
	value  string // text after "="
	inline bool   // there was a "="
	bundle string // what follows -h in one word
}

// parseArgs follows argparse: unambiguous prefixes, --x=v and --x v, the last
// repeat wins, values are checked as they are met.
func parseArgs(args []string) (options, error) {
	p := session.CompatParams()
	o := options{alpha: p.Alpha, beta: p.Beta, retainCut: p.RetainCut, evictCut: p.EvictCut}
	words, err := classify(args)
	if err != nil {
		return o, err
	}
	seen := map[string]bool{}
	var extra []string
	for i := 0; i < len(words); i++ {
		w := words[i]
		switch {
		case w.option == "":
			extra = append(extra, w.text)
		case w.option == "--help":
			return o, helpWord(w)
		default:
			if !w.inline {
				if i+1 == len(words) || words[i+1].dash {
					return o, fmt.Errorf("argument %s: expected one argument", w.option)
				}
				i++
				w.value = words[i].text
			}
			if err := o.set(w.option, w.value); err != nil {
				return o, err
			}
			seen[w.option] = true
		}
	}
	if !seen["--history"] || !seen["--contract"] {
		return o, errors.New("the following arguments are required: --history, --contract")
	}
	if len(extra) > 0 {
		return o, fmt.Errorf("unrecognized arguments: %s", strings.Join(extra, " "))
	}
	return o, nil
}

// helpWord is help, unless a value is stuck to it ("-hh" is help twice).
func helpWord(w word) error {
	if w.inline || strings.Trim(w.bundle, "h") != "" {
		return fmt.Errorf("argument -h/--help: ignored explicit argument %q", w.value+w.bundle)
	}
	return errHelp
}

func classify(args []string) ([]word, error) {
	words := make([]word, 0, len(args))
	plain := false // after "--"
	for _, a := range args {
		w := word{text: a}
		switch {
		case plain:
		case a == "--":
			plain, w.dash = true, true
		default:
			var err error
			if w, err = classifyOne(a); err != nil {
				return nil, err
			}
		}
		words = append(words, w)
	}
	return words, nil
}

var negative = regexp.MustCompile(`^-\p{Nd}+$|^-\p{Nd}*\.\p{Nd}+$`)

func classifyOne(a string) (word, error) {
	w := word{text: a}
	if len(a) < 2 || a[0] != '-' {
		return w, nil
	}
	name := a
	if strings.HasPrefix(a, "--") {
		name, w.value, w.inline = strings.Cut(a, "=")
		found := matching(name)
		if len(found) > 1 {
			return w, fmt.Errorf("ambiguous option: %s could match %s", a, strings.Join(found, ", "))
		}
		if len(found) == 1 {
			w.option, w.dash = found[0], true
			return w, nil
		}
	} else if a[1] == 'h' {
		return word{text: a, option: "--help", dash: true, bundle: a[2:]}, nil
	}
	// A negative number or a text with a space is a value, anything else an
	// option that nobody knows.
	w.dash = !negative.MatchString(a) && !strings.Contains(a, " ")
	return w, nil
}

func matching(name string) (found []string) {
	for _, o := range optionNames {
		if o == name {
			return []string{o}
		}
		if strings.HasPrefix(o, name) {
			found = append(found, o)
		}
	}
	return found
}

func (o *options) set(name, value string) error {
	switch name {
	case "--history":
		o.history = value
		return nil
	case "--contract":
		o.contract = value
		return nil
	}
	f, ok := parseFloat(value)
	if !ok {
		return fmt.Errorf("argument %s: invalid float value: %q", name, value)
	}
	*map[string]*float64{"--alpha": &o.alpha, "--beta": &o.beta, "--retain-cut": &o.retainCut, "--evict-cut": &o.evictCut}[name] = f
	return nil
}

var floatForm = regexp.MustCompile(`^(?i:[+-]?(?:inf|infinity|nan|(?:\d+(?:_\d+)*\.?(?:\d+(?:_\d+)*)?|\.\d+(?:_\d+)*)(?:e[+-]?\d+(?:_\d+)*)?))$`)

// parseFloat reads what Python's float() reads: decimal digits of any script,
// single underscores between digits, white space around; no hexadecimal form.
func parseFloat(s string) (float64, bool) {
	s = strings.Trim(asciiDigits(s), " \t\n\v\f\r")
	if !floatForm.MatchString(s) {
		return 0, false
	}
	s = strings.ReplaceAll(s, "_", "")
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		f, err = strconv.ParseFloat(strings.TrimLeft(s, "+-"), 64) // a signed nan
	}
	return f, err == nil || errors.Is(err, strconv.ErrRange)
}

// asciiDigits replaces digits and spaces of other scripts with ASCII.
func asciiDigits(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r < 0x80:
			return r
		case unicode.IsSpace(r):
			return ' '
		case unicode.Is(unicode.Nd, r):
			return '0' + digitValue(r)
		}
		return r
	}, s)
}

// digitValue is the value of a decimal digit. Digits of one script stand in a
// row from 0 to 9, so it is the distance to the start of the row; rows that
// touch (the mathematical digits) are a multiple of ten long.
func digitValue(r rune) rune {
	for _, t := range unicode.Nd.R16 {
		if rune(t.Lo) <= r && r <= rune(t.Hi) {
			return (r - rune(t.Lo)) % 10
		}
	}
	for _, t := range unicode.Nd.R32 {
		if rune(t.Lo) <= r && r <= rune(t.Hi) {
			return (r - rune(t.Lo)) % 10
		}
	}
	return 0
}
