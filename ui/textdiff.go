package ui

import (
	"html/template"
	"strings"
)

// diffLine is a line of two texts. Op is + for a line of the second text only, - for one of the first only, and a space for both; … stands
// for lines that are left out.
type diffLine struct {
	Op   string
	HTML template.HTML
}

// Word says the same for people who do not see the mark.
func (l diffLine) Word() string {
	return map[string]string{"+": "added", "-": "removed", " ": "same", "…": "left out"}[l.Op]
}

// Limits of a comparison: lines that are compared one by one, and bytes of the page that it takes.
const (
	diffLines = 1500
	diffBytes = 60 << 10
	diffNear  = 3 // lines shown before and after a change
)

// diffTexts compares two texts line by line: the fewest lines that differ, by the longest common subsequence of what is between the common
// beginning and end. Where that is too long, all of it counts as changed.
func diffTexts(a, b string) []diffLine {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	start := 0
	for start < len(x) && start < len(y) && x[start] == y[start] {
		start++
	}
	end := 0
	for end < len(x)-start && end < len(y)-start && x[len(x)-1-end] == y[len(y)-1-end] {
		end++
	}
	mx, my := x[start:len(x)-end], y[start:len(y)-end]
	var ops []diffOp
	for _, s := range x[:start] {
		ops = append(ops, diffOp{" ", s})
	}
	ops = append(ops, middle(mx, my)...)
	for _, s := range x[len(x)-end:] {
		ops = append(ops, diffOp{" ", s})
	}
	return nearChanges(ops)
}

type diffOp struct{ op, line string }

func middle(x, y []string) (out []diffOp) {
	if len(x) > diffLines || len(y) > diffLines {
		for _, s := range x {
			out = append(out, diffOp{"-", s})
		}
		for _, s := range y {
			out = append(out, diffOp{"+", s})
		}
		return out
	}
	// common[i*w+j] is the length of the longest common subsequence of x[i:] and y[j:].
	w := len(y) + 1
	common := make([]uint16, (len(x)+1)*w)
	for i := len(x) - 1; i >= 0; i-- {
		for j := len(y) - 1; j >= 0; j-- {
			if x[i] == y[j] {
				common[i*w+j] = common[(i+1)*w+j+1] + 1
			} else {
				common[i*w+j] = max(common[(i+1)*w+j], common[i*w+j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(x) || j < len(y); {
		switch {
		case i < len(x) && j < len(y) && x[i] == y[j]:
			out = append(out, diffOp{" ", x[i]})
			i, j = i+1, j+1
		case j == len(y) || i < len(x) && common[(i+1)*w+j] >= common[i*w+j+1]:
			out = append(out, diffOp{"-", x[i]})
			i++
		default:
			out = append(out, diffOp{"+", y[j]})
			j++
		}
	}
	return out
}

// nearChanges leaves out the lines that are far from a change, and ends where the page is full.
func nearChanges(ops []diffOp) (out []diffLine) {
	near := make([]bool, len(ops))
	for i, o := range ops {
		if o.op != " " {
			for j := max(0, i-diffNear); j <= min(len(ops)-1, i+diffNear); j++ {
				near[j] = true
			}
		}
	}
	left := diffBytes
	gap := diffLine{Op: "…"}
	for i, o := range ops {
		if !near[i] {
			if len(out) == 0 || out[len(out)-1].Op != gap.Op {
				out = append(out, gap)
			}
			continue
		}
		if left <= 0 {
			return append(out, gap)
		}
		p := partOf(o.line, 0, min(left, 4<<10))
		left -= len(p.HTML) + 40
		if p.More() {
			p.HTML += "…"
		}
		out = append(out, diffLine{o.op, p.HTML})
	}
	return out
}
