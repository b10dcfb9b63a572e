package dbctl

import (
	"bufio"
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/ctxpage/ctxpage/internal/folder"
)

// A demo on a folder nobody has seen needs a question that the folder can answer. It is taken from the folder's own
// words: the heading over its longest section, or, where there are no headings, the words that tell its most
// wordy file from the others.

// question finds one; the same files give the same question.
func question(files []folder.Found) string {
	if h := longestSection(files); h != "" {
		return fmt.Sprintf("What does it say about %q?", h)
	}
	if words := tellingWords(files); len(words) > 0 {
		return "What is said about " + list(words) + "?"
	}
	return fmt.Sprintf("What is in %s?", files[0].Rel)
}

func list(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// sectionBytes is what a section is worth at most: above it longer is not better.
const sectionBytes = 3000

func longestSection(files []folder.Found) (best string) {
	most := 0
	for _, f := range files {
		switch strings.ToLower(filepath.Ext(f.Rel)) {
		case ".md", ".markdown", ".txt":
		default:
			continue
		}
		text, err := os.ReadFile(f.Path)
		if err != nil {
			continue
		}
		eachSection(string(text), func(heading string, size int) {
			if size = min(size, sectionBytes); size > most && asksWell(heading) {
				most, best = size, heading
			}
		})
	}
	return best
}

// eachSection calls fn for each second or third level heading with the size of what stands under it.
func eachSection(text string, fn func(heading string, size int)) {
	heading, size := "", 0
	fenced := false
	for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
		l := sc.Text()
		if strings.HasPrefix(l, "```") {
			fenced = !fenced
		}
		if !fenced && strings.HasPrefix(l, "#") {
			fn(heading, size)
			heading, size = "", 0
			if rest := strings.TrimLeft(l, "#"); strings.HasPrefix(rest, " ") && len(l)-len(rest) > 1 {
				heading = strings.Trim(strings.NewReplacer("`", "", "*", "", "\"", "").Replace(rest), " #:.")
			}
			continue
		}
		size += len(l)
	}
	fn(heading, size)
}

// asksWell keeps headings of two to eight words, most of them words.
func asksWell(heading string) bool {
	words := strings.Fields(heading)
	long := 0
	for _, w := range words {
		if len(letters(w)) >= 4 {
			long++
		}
	}
	return len(words) >= 2 && len(words) <= 8 && long >= 2 && len(heading) <= 80
}

func letters(w string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, w)
}

// tellingWords picks up to three words of the file with the most different ones: often here, seldom elsewhere.
func tellingWords(files []folder.Found) []string {
	docs := map[string]int{}
	var richest map[string]int
	for _, f := range files {
		text, err := os.ReadFile(f.Path)
		if err != nil {
			continue
		}
		counts := map[string]int{}
		for _, w := range strings.FieldsFunc(string(text), func(r rune) bool { return !unicode.IsLetter(r) }) {
			if n := len([]rune(w)); n >= 5 && n <= 20 {
				counts[strings.ToLower(w)]++
			}
		}
		for w := range counts {
			docs[w]++
		}
		if len(counts) > len(richest) {
			richest = counts
		}
	}
	weight := func(w string) float64 {
		return (1 + math.Log(float64(richest[w]))) * math.Log(1+float64(len(files))/float64(docs[w]))
	}
	words := slices.Sorted(maps.Keys(richest))
	slices.SortStableFunc(words, func(a, b string) int { return cmp.Compare(weight(b), weight(a)) })
	return words[:min(3, len(words))]
}
