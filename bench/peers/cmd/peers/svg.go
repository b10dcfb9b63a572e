package main

import (
	"math"
	"strings"
	"text/template"
)

// picture draws the ratios of all jobs, one bar for each system beside ctxpage, on a logarithmic scale. A bar ends at the
// median of the rounds; the tick is the worst round, the circle the median of the CPU times.
func picture(rep *report) string {
	const left, width, row, top = 330, 520, 17, 62
	p := drawing{Left: left, Right: left + width, Width: left + width + 90}
	at := func(x float64) float64 { // .01 to 100
		return left + width*(math.Log10(min(max(x, .01), 100))+2)/4
	}
	p.One = at(1)
	for _, x := range []string{".01", ".1", "1", "10", "100"} {
		p.Grid = append(p.Grid, mark{At: at(map[string]float64{".01": .01, ".1": .1, "1": 1, "10": 10, "100": 100}[x]), Text: x})
	}
	y := top
	for _, r := range rep.Jobs {
		p.Titles = append(p.Titles, title{Y: y + 11, Text: r.Label})
		y += row
		for _, m := range r.Systems[1:] {
			x := r.against(m)
			b := bar{Y: y, Name: m.System, Label: "× " + short(x.median), Worst: at(x.worst), CPU: at(r.cpu(m).median), Better: x.median >= 1}
			b.X, b.W = min(p.One, at(x.median)), math.Abs(at(x.median)-p.One)
			b.LabelX = max(p.One, at(x.median), b.CPU+4, b.Worst) + 6
			p.Bars = append(p.Bars, b)
			y += row
		}
		y += 9
	}
	p.Bottom, p.Height = y, y+26
	var out strings.Builder
	if err := svg.Execute(&out, p); err != nil {
		panic(err) // the template and its data are both of this file
	}
	return out.String()
}

type drawing struct {
	Left, Right, Width, Bottom, Height int
	One                                float64
	Grid                               []mark
	Titles                             []title
	Bars                               []bar
}

type mark struct {
	At   float64
	Text string
}

type title struct {
	Y    int
	Text string
}

type bar struct {
	Y           int
	Name, Label string
	X, W        float64
	Worst, CPU  float64
	LabelX      float64
	Better      bool
}

// xmlEscape is for labels only: they have no quotes.
var xmlEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

var svg = template.Must(template.New("").Funcs(template.FuncMap{"x": xmlEscape.Replace, "add": func(a, b int) int { return a + b }}).Parse(
	`<svg xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}" viewBox="0 0 {{.Width}} {{.Height}}" font-family="sans-serif" font-size="12" fill="#222">
<rect width="100%" height="100%" fill="#fff"/>
<text x="12" y="22" font-size="15" font-weight="bold">ctxpage beside other systems</text>
<text x="12" y="40" fill="#666">To the right of 1, ctxpage is faster. Bar: median of the rounds. Tick: worst round. Circle: the same of the CPU time. Logarithmic.</text>
{{$d := .}}{{range .Grid}}<line x1="{{printf "%.1f" .At}}" y1="50" x2="{{printf "%.1f" .At}}" y2="{{$d.Bottom}}" stroke="#ddd"/>
<text x="{{printf "%.1f" .At}}" y="{{add $d.Bottom 16}}" text-anchor="middle" fill="#666">{{.Text}}</text>
{{end}}{{range .Titles}}<text x="12" y="{{.Y}}" font-weight="bold">{{x .Text}}</text>
{{end}}{{range .Bars}}<text x="{{add $d.Left -12}}" y="{{add .Y 11}}" text-anchor="end">{{x .Name}}</text>
<rect x="{{printf "%.1f" .X}}" y="{{add .Y 2}}" width="{{printf "%.1f" .W}}" height="11" fill="{{if .Better}}#2b7a78{{else}}#c8553d{{end}}"/>
<line x1="{{printf "%.1f" .Worst}}" y1="{{.Y}}" x2="{{printf "%.1f" .Worst}}" y2="{{add .Y 15}}" stroke="#222" stroke-width="1.5"/>
<circle cx="{{printf "%.1f" .CPU}}" cy="{{add .Y 7}}" r="3.5" fill="#fff" stroke="#222"/>
<text x="{{printf "%.1f" .LabelX}}" y="{{add .Y 11}}" fill="#444">{{.Label}}</text>
{{end}}<line x1="{{printf "%.1f" .One}}" y1="50" x2="{{printf "%.1f" .One}}" y2="{{.Bottom}}" stroke="#222"/>
</svg>
`))
