package session

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// A contract is a .limn file that records what a session decided, in a language that an interpreter runs. A Ledger reads
// and writes it.

var (
	safeID = expression(`^block-[A-Za-z0-9._:-]{1,120}$`)
	madeID = expression(`^block-x[0-9a-f]{16}$`)
)

// ContractName is the name of a block in a contract: its id if that is harmless, otherwise a name made from its hash,
// so that no id can smuggle a statement in. An id that looks like a made name is hashed too, so that no block can pose
// as another.
func ContractName(id string) string {
	if safeID().MatchString(id) && !madeID().MatchString(id) {
		return id
	}
	return fmt.Sprintf("block-x%016x", xxhash.Sum64String(id))
}

// contractNames returns the name of each verdict's block and refuses two blocks
// with one name.
func contractNames(vs []Verdict) ([]string, error) {
	names := make([]string, len(vs))
	owner := make(map[string]string, len(vs))
	for i, v := range vs {
		n := ContractName(v.ID)
		if other, taken := owner[n]; taken {
			return nil, fmt.Errorf("%w: %q and %q are both %q", ErrNameClash, other, v.ID, n)
		}
		names[i], owner[n] = n, v.ID
	}
	return names, nil
}

// joinLines ends every line, and the torn one that stands before them.
func joinLines(torn bool, lines []string) []byte {
	out := strings.Join(lines, "\n") + "\n"
	if torn {
		out = "\n" + out
	}
	return []byte(out)
}

// quote puts a text between double quotes. The language has no escape, so a
// quote becomes an apostrophe; line ends, controls and characters that reorder
// text become spaces. Each character is replaced by one character: what is
// contained in a text is still contained in it afterwards, which cite needs.
func quote(text string) (string, error) {
	safe := strings.Map(quotable, text) // what is no UTF-8 comes as U+FFFD, one for each byte
	if strings.TrimSpace(safe) == "" {
		return "", ErrText
	}
	return `"` + safe + `"`, nil
}

func quotable(r rune) rune {
	if r == '"' {
		return '\''
	}
	return unbroken(r)
}

// unbroken puts a space for whatever ends a line, controls a terminal or
// reorders text.
func unbroken(r rune) rune {
	if ' ' <= r && r < 0x7f {
		return r
	}
	if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
		return ' '
	}
	return r
}

var contractName = expression(`^[a-z][a-z0-9]*(-[a-z0-9]+)+$`)

// reservedNames are those the contract itself or the interpreter's session pack
// gives a meaning. Reserved words proper have no hyphen, and every name has one.
var reservedNames = []string{
	"retained-blocks", "paged-blocks", "evicted-blocks", "last-pager-pass", "source-state", "claim-basis",
	"tracked-decisions", "open-questions", "session-corrections", "handoff-state",
	"verification-status", "verification-divergences", "measure-status", "measure-matched", "measure-delta",
}

const longestName = 80

// madeName are the endings that slug itself or a statement's facts give a name.
var madeName = expression(`-x[0-9a-f]{16}$|-facts$`)

// listName is the name of a list of the caller's: its own where that is a
// contract name that neither the contract nor a source or claim may have.
func listName(own string) string {
	taken := slices.Contains(reservedNames, own) || strings.HasPrefix(own, "source-") || strings.HasPrefix(own, "claim-")
	if taken || !contractName().MatchString(own) || len(own) > longestName {
		return slug("list", own)
	}
	return own
}

// slug makes a contract name with a prefix from any text. A text that is such a
// name stays; one that loses something on the way, or looks as if it had, gets a
// hash at its end, so that no text can pose as another.
func slug(prefix, text string) string {
	free := func(name string) bool { return !slices.Contains(reservedNames, name) && !madeName().MatchString(name) }
	if strings.HasPrefix(text, prefix+"-") && len(text) <= longestName && contractName().MatchString(text) && free(text) {
		return text
	}
	var b strings.Builder
	b.WriteString(prefix)
	gap := true
	for _, r := range strings.ToLower(text) {
		if r < utf8.RuneSelf && asciiWord(byte(r)) && r != '_' {
			if gap {
				b.WriteByte('-')
			}
			b.WriteRune(r)
			gap = false
		} else {
			gap = true
		}
		if b.Len() >= longestName-20 {
			break
		}
	}
	name := b.String()
	if name == prefix+"-"+text && free(name) {
		return name
	}
	return fmt.Sprintf("%s-x%016x", name, xxhash.Sum64String(text))
}
