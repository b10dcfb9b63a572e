package freshness

import (
	"bytes"
	"os"
	"strings"
)

// rule is one line of an ignore file. It follows git's own rules (gitignore(5)); TestIgnoreLikeGit compares the two.
type rule struct {
	glob    string
	base    string // directory of the ignore file below the root of the walk, "" or ending in a slash
	negated bool   // it re-includes
	dirs    bool   // it matches directories only
	names   bool   // it has no slash, so it matches the last element of a path at any depth
}

// readRules reads one ignore file. A file that is missing or unreadable ignores nothing.
func readRules(path, base string) []rule {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var out []rule
	for line := range strings.Lines(string(bytes.TrimPrefix(b, []byte("\ufeff")))) {
		if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, "#") {
			if r, ok := parseRule(trimSpaces(strings.TrimSuffix(line, "\r")), base); ok {
				out = append(out, r)
			}
		}
	}
	return out
}

// trimSpaces removes the spaces at the end of a line, except one that a backslash escapes.
func trimSpaces(line string) string {
	end := 0 // behind the last byte to keep
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case ' ':
			continue
		case '\\':
			i = min(i+1, len(line)-1)
		}
		end = i + 1
	}
	return line[:end]
}

func parseRule(glob, base string) (r rule, ok bool) {
	r = rule{base: base}
	glob, r.negated = strings.CutPrefix(glob, "!")
	glob, r.dirs = strings.CutSuffix(glob, "/")
	r.names = !strings.Contains(glob, "/")
	r.glob = strings.TrimPrefix(glob, "/")
	return r, glob != ""
}

// ignored reports whether the last rule that matches a path ignores it. The caller asks for each directory on the way first: nothing below an
// ignored directory is read, so nothing there can be re-included.
func ignored(rules []rule, path string, dir bool) bool {
	for i := len(rules) - 1; i >= 0; i-- {
		if rules[i].matches(path, dir) {
			return !rules[i].negated
		}
	}
	return false
}

func (r rule) matches(path string, dir bool) bool {
	below, ok := strings.CutPrefix(path, r.base)
	if !ok || r.dirs && !dir {
		return false
	}
	if r.names {
		below = below[strings.LastIndexByte(below, '/')+1:]
	}
	return glob(r.glob, "", below) == matched
}

// verdict is the result of a match. The last two end a search that more text cannot help, so that a pattern with many stars takes no
// exponential time.
type verdict int

const (
	matched verdict = iota
	differs
	noStar   // no continuation of a single star matches; a ** further left may
	noneLeft // the text ended first
)

// glob matches a text with a pattern whose beginning, before, is matched already. ** between slashes matches any number of directories;
// everything else stays within one element of a path. Like git it matches bytes.
func glob(p, before, text string) verdict {
	for ; p != ""; p, text = p[1:], text[1:] {
		if text == "" && p[0] != '*' {
			return noneLeft
		}
		switch p[0] {
		case '?':
			if text[0] == '/' {
				return differs
			}
		case '[':
			n, in := class(p, text[0])
			if n == 0 {
				return noneLeft
			}
			if !in || text[0] == '/' {
				return differs
			}
			p = p[n-1:]
		case '*':
			return star(p, before, text)
		case '\\':
			if p = p[1:]; p == "" {
				return noneLeft
			}
			fallthrough
		default:
			if p[0] != text[0] {
				return differs
			}
		}
		before = p[:1]
	}
	if text != "" {
		return differs
	}
	return matched
}

// star matches a pattern that begins with one star or more.
func star(p, before, text string) verdict {
	rest := strings.TrimLeft(p, "*")
	deep := len(p)-len(rest) > 1 && (before == "" || before == "/") && (rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`))
	if deep && strings.HasPrefix(rest, "/") && glob(rest[1:], "/", text) == matched {
		return matched // no directory
	}
	switch {
	case rest == "" && !deep && strings.Contains(text, "/"):
		return noStar
	case rest == "":
		return matched
	case !deep && rest[0] == '/': // the next slash ends the element
		if i := strings.IndexByte(text, '/'); i >= 0 {
			return glob(rest[1:], "/", text[i+1:])
		}
		return noneLeft
	}
	for ; text != ""; text = text[1:] {
		switch v := glob(rest, "*", text); {
		case v == matched, v == noneLeft, v == noStar && !deep:
			return v
		case v == differs && !deep && text[0] == '/':
			return noStar
		}
	}
	if glob(rest, "*", "") == matched {
		return matched
	}
	return noneLeft
}

// class matches one byte with the class of characters that begins a pattern. n is the length of the class; 0: the class has no end.
func class(p string, c byte) (n int, in bool) {
	i := 1
	negated := i < len(p) && (p[i] == '!' || p[i] == '^')
	if negated {
		i++
	}
	// low is the byte that a range may begin with; 0: none
	for low, first := byte(0), true; ; first = false {
		switch {
		case i >= len(p):
			return 0, false
		case p[i] == ']' && !first:
			return i + 1, in != negated
		case p[i] == '-' && low != 0 && i+1 < len(p) && p[i+1] != ']':
			if i++; p[i] == '\\' {
				if i++; i >= len(p) {
					return 0, false
				}
			}
			in, low = in || low <= c && c <= p[i], 0
		case strings.HasPrefix(p[i:], "[:") && strings.Contains(p[i+2:], "]"):
			name := p[i+2 : i+2+strings.IndexByte(p[i+2:], ']')]
			if !strings.HasSuffix(name, ":") { // no name of a set: the bracket is a member
				in, low = in || c == '[', '['
				break
			}
			member, known := sets[strings.TrimSuffix(name, ":")]
			if !known {
				return 0, false
			}
			in, low, i = in || member(c), 0, i+2+len(name)
		case p[i] == '\\':
			if i++; i >= len(p) {
				return 0, false
			}
			fallthrough
		default:
			in, low = in || c == p[i], p[i]
		}
		i++
	}
}

func between(pairs string) func(byte) bool {
	return func(c byte) bool {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] <= c && c <= pairs[i+1] {
				return true
			}
		}
		return false
	}
}

// sets are the named sets of POSIX, in ASCII: [[:digit:]].
var sets = map[string]func(byte) bool{
	"alnum": between("09AZaz"), "alpha": between("AZaz"), "blank": between("  \t\t"), "cntrl": between("\x00\x1f\x7f\x7f"), "digit": between("09"), "graph": between("!~"),
	"lower": between("az"), "print": between(" ~"), "punct": between("!/:@[`{~"), "space": between("  \t\r"), "upper": between("AZ"), "xdigit": between("09AFaf"),
}
