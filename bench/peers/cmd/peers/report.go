package main

import (
	"fmt"
	"slices"
	"strings"
)

// ratio compares the first system of a job with another one, round by round.
type ratio struct {
	median, worst float64
}

// value is what a job is judged by: operations a second, or for jobs of single operations their median.
func (r *result) value(m round) float64 {
	if r.byTime {
		return 1e6 / m.P50
	}
	return m.PerSec
}

func (r *result) against(m *measure) ratio {
	return r.compare(m, func(ours, theirs round) float64 { return r.value(ours) / r.value(theirs) })
}

// cpu is the CPU time of another system's operation over that of ours.
func (r *result) cpu(m *measure) ratio {
	return r.compare(m, func(ours, theirs round) float64 { return theirs.CPU / ours.CPU })
}

func (r *result) compare(m *measure, of func(ours, theirs round) float64) ratio {
	var all []float64
	for i, ours := range r.Systems[0].Rounds {
		all = append(all, of(ours, m.Rounds[i]))
	}
	return ratio{median(all), slices.Min(all)}
}

func (m *measure) median(of func(round) float64) float64 {
	var all []float64
	for _, r := range m.Rounds {
		all = append(all, of(r))
	}
	return median(all)
}

func (m *measure) worst(of func(round) float64) float64 {
	var all []float64
	for _, r := range m.Rounds {
		all = append(all, of(r))
	}
	return slices.Max(all)
}

// tables is the report in Markdown.
func (rep *report) tables() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d processors, %s, load %s at the start, %d rounds, %.0f s\n", rep.Go, rep.CPUs, rep.SQLite, rep.Load, rep.Rounds, rep.Took)
	for _, r := range rep.Jobs {
		fmt.Fprintf(&b, "\n### %s\n\n| system | a second | p50 µs | p99.9 µs, median (worst) | CPU µs | written B | ours is × as fast, median (worst) | ours takes 1/× of its CPU, median (worst) |\n|---|---|---|---|---|---|---|---|\n", r.Label)
		for i, m := range r.Systems {
			against := "|"
			if i > 0 {
				x := r.against(m)
				used := r.cpu(m)
				against = fmt.Sprintf("%s (%s) | %s (%s)", short(x.median), short(x.worst), short(used.median), short(used.worst))
			}
			p999 := func(r round) float64 { return r.P999 }
			fmt.Fprintf(&b, "| %s | %s | %s | %s (%s) | %s | %s | %s |\n", m.System,
				short(m.median(func(r round) float64 { return r.PerSec })), short(m.median(func(r round) float64 { return r.P50 })),
				short(m.median(p999)), short(m.worst(p999)), short(m.median(func(r round) float64 { return r.CPU })),
				short(m.median(func(r round) float64 { return r.Written })), against)
		}
	}
	rep.factTables(&b)
	return b.String()
}

// factTables has a table for each group of facts, a row for each of its labels and a column for each system.
func (rep *report) factTables(b *strings.Builder) {
	for _, job := range []string{"sustained", "disk", "memory", "chat"} {
		var systems, labels []string
		cells := map[string]string{}
		for _, f := range rep.Facts {
			if f.Job != job {
				continue
			}
			label := f.Label + ", " + f.Unit
			if !slices.Contains(systems, f.System) {
				systems = append(systems, f.System)
			}
			if !slices.Contains(labels, label) {
				labels = append(labels, label)
			}
			cells[label+"\x00"+f.System] = short(f.Value)
		}
		if len(labels) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n### %s\n\n| | %s |\n|---|%s\n", job, strings.Join(systems, " | "), strings.Repeat("---|", len(systems)))
		for _, label := range labels {
			fmt.Fprintf(b, "| %s |", label)
			for _, s := range systems {
				fmt.Fprintf(b, " %s |", cells[label+"\x00"+s])
			}
			b.WriteString("\n")
		}
	}
}

// short is a number with three digits, and with separators when it is long.
func short(v float64) string {
	switch {
	case v >= 999_999.5:
		return fmt.Sprintf("%d,%03d,%03d", int(v+.5)/1e6, int(v+.5)/1000%1000, int(v+.5)%1000)
	case v >= 9999.5:
		return fmt.Sprintf("%d,%03d", int(v+.5)/1000, int(v+.5)%1000)
	case v >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	case v == 0:
		return "0"
	}
	return fmt.Sprintf("%.2f", v)
}
