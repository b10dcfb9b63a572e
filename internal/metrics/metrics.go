// Package metrics counts what a database tells its observer, and writes that with the state of the database in the text format of
// Prometheus, version 0.0.4. Nothing in it names a page or a session; scopes are digests, counted only if asked.
package metrics

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/ops"
)

// seconds and shares are the upper bounds of the buckets of histograms.
var (
	seconds = []float64{.00001, .00005, .0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5, 10, 60}
	shares  = []float64{.1, .25, .5, .75, .9, 1}
)

// Metrics is an ops.Observer that counts. It may be used concurrently.
type Metrics struct {
	scopes int // that have a series of their own

	mu      sync.Mutex
	ops     map[string]*operation
	errors  map[[2]string]uint64 // by operation and error
	context map[[2]string]uint64 // assemblies, by tier and match
	filled  histogram            // share of the budget that a context has
	left    map[string]uint64    // pages that contexts left out, by reason
	dropped uint64
	byScope map[string]uint64
}

// operation sums up the events of one kind.
type operation struct {
	took                 histogram
	pages, bytes, tokens uint64
}

// histogram counts values below bounds.
type histogram struct {
	counts []uint64 // the last is of values above all bounds
	sum    float64
}

func (h *histogram) add(bounds []float64, v float64) {
	if h.counts == nil {
		h.counts = make([]uint64, len(bounds)+1)
	}
	i, _ := slices.BinarySearch(bounds, v)
	h.counts[i]++
	h.sum += v
}

// New makes metrics. Up to so many scopes are counted each under its digest, in the order in which they come, and all others together; 0: scopes
// are not counted.
func New(scopes int) *Metrics {
	return &Metrics{scopes: scopes, ops: map[string]*operation{}, errors: map[[2]string]uint64{}, context: map[[2]string]uint64{}, left: map[string]uint64{}, byScope: map[string]uint64{}}
}

// other is the label of scopes beyond the limit, and of reasons that are not known.
const other = "other"

// Observe counts an event.
func (m *Metrics) Observe(_ context.Context, e ops.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.ops[e.Kind]
	if o == nil {
		o = &operation{}
		m.ops[e.Kind] = o
	}
	o.took.add(seconds, e.Took.Seconds())
	m.dropped += uint64(e.Dropped)
	if e.Error != "" {
		m.errors[[2]string{e.Kind, e.Error}]++
		return
	}
	o.pages, o.bytes, o.tokens = o.pages+uint64(e.Pages), o.bytes+uint64(e.Bytes), o.tokens+uint64(e.Tokens)
	if e.Kind == "assemble" {
		m.context[[2]string{strconv.Itoa(e.Tier), cmp.Or(e.Match, "unknown")}]++
		for reason, n := range e.Left {
			if !triage.Known(reason) { // a store may have others
				reason = other
			}
			m.left[reason] += uint64(n)
		}
		if e.Budget > 0 {
			m.filled.add(shares, float64(e.Tokens)/float64(e.Budget))
		}
	}
	if m.scopes > 0 && e.Scope != "" {
		scope := e.Scope
		if _, known := m.byScope[scope]; !known && len(m.byScope) >= m.scopes {
			scope = other
		}
		m.byScope[scope]++
	}
}

// State has what a scrape shows of the database itself.
type State struct {
	ctxpage.Stats
	Audit   int64          // bytes of the audit on the disk; negative: not known
	Version string         // of the program
	Calls   map[string]int // under way, by door
}

// Write writes all metrics.
func (m *Metrics) Write(w io.Writer, s *State) error {
	b := bufio.NewWriter(w)
	t := text{b}
	t.of("ctxpage_build_info", "gauge", "Version of the program.")
	t.line("ctxpage_build_info", 1, "version", s.Version)
	m.events(t)
	t.state(s)
	return b.Flush()
}

// text writes lines of the format.
type text struct{ w *bufio.Writer }

func (t text) of(name, kind, help string) {
	fmt.Fprintf(t.w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

var escape = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)

// line writes a value with labels, each a name and a value.
func (t text) line(name string, v float64, labels ...string) {
	_, _ = t.w.WriteString(name)
	for i := 0; i < len(labels); i += 2 {
		sep := ","
		if i == 0 {
			sep = "{"
		}
		fmt.Fprintf(t.w, `%s%s="%s"`, sep, labels[i], escape.Replace(labels[i+1]))
	}
	if len(labels) > 0 {
		_ = t.w.WriteByte('}')
	}
	fmt.Fprintf(t.w, " %s\n", strconv.FormatFloat(v, 'g', -1, 64))
}

func (t text) histogram(name string, h *histogram, bounds []float64, labels ...string) {
	sum := uint64(0)
	for i := range h.counts {
		le := "+Inf"
		if i < len(bounds) {
			le = strconv.FormatFloat(bounds[i], 'g', -1, 64)
		}
		sum += h.counts[i]
		t.line(name+"_bucket", float64(sum), append(slices.Clip(labels), "le", le)...)
	}
	t.line(name+"_sum", h.sum, labels...)
	t.line(name+"_count", float64(sum), labels...)
}

// one writes a metric without labels.
func (t text) one(name, kind, help string, v float64) {
	t.of(name, kind, help)
	t.line(name, v)
}

// counts writes a counter with two labels.
func (t text) counts(name, help string, first, second string, of map[[2]string]uint64) {
	t.of(name, "counter", help)
	for _, k := range slices.SortedFunc(maps.Keys(of), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		t.line(name, float64(of[k]), first, k[0], second, k[1])
	}
}

// events writes what was observed in this process.
func (m *Metrics) events(t text) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kinds := slices.Sorted(maps.Keys(m.ops))
	t.of("ctxpage_operation_duration_seconds", "histogram", "Duration of what this process did with the database, by operation.")
	for _, k := range kinds {
		t.histogram("ctxpage_operation_duration_seconds", &m.ops[k].took, seconds, "operation", k)
	}
	t.counts("ctxpage_operation_errors_total", "Operations that returned an error.", "operation", "error", m.errors)
	for _, c := range []struct {
		name, help string
		of         func(*operation) uint64
	}{
		{"ctxpage_operation_pages_total", "Pages shown, written or read.", func(o *operation) uint64 { return o.pages }},
		{"ctxpage_operation_bytes_total", "Bytes of texts that were written or read; of checkpoints, of rows.", func(o *operation) uint64 { return o.bytes }},
		{"ctxpage_operation_tokens_total", "Tokens of what reads served.", func(o *operation) uint64 { return o.tokens }},
	} {
		t.of(c.name, "counter", c.help)
		for _, k := range kinds {
			if n := c.of(m.ops[k]); n > 0 {
				t.line(c.name, float64(n), "operation", k)
			}
		}
	}
	t.counts("ctxpage_contexts_total", "Contexts, by the tier of their degradation (1: none) and by how well they match the question.", "tier", "match", m.context)
	t.of("ctxpage_context_budget_ratio", "histogram", "Tokens of a context as a share of its budget.")
	t.histogram("ctxpage_context_budget_ratio", m.filledOrNone(), shares)
	t.of("ctxpage_context_left_pages_total", "counter", "Pages that contexts left out, by reason.")
	for _, k := range slices.Sorted(maps.Keys(m.left)) {
		t.line("ctxpage_context_left_pages_total", float64(m.left[k]), "reason", k)
	}
	t.one("ctxpage_observer_dropped_events_total", "counter", "Events that were not counted, because there were too many at once.", float64(m.dropped))
	if m.scopes > 0 {
		t.of("ctxpage_scope_operations_total", "counter", "Operations by the digest of their scope.")
		for _, k := range slices.Sorted(maps.Keys(m.byScope)) {
			t.line("ctxpage_scope_operations_total", float64(m.byScope[k]), "scope", k)
		}
	}
}

// filledOrNone is the histogram of filled budgets, which has buckets from the start.
func (m *Metrics) filledOrNone() *histogram {
	if m.filled.counts == nil {
		m.filled.counts = make([]uint64, len(shares)+1)
	}
	return &m.filled
}

// state writes what the database is like now.
func (t text) state(s *State) {
	t.of("ctxpage_calls_under_way", "gauge", "Calls that are answered now, by door.")
	for _, k := range slices.Sorted(maps.Keys(s.Calls)) {
		t.line("ctxpage_calls_under_way", float64(s.Calls[k]), "door", k)
	}
	t.one("ctxpage_commits_total", "counter", "Commits of all processes since the database was made: its LSN.", float64(s.LSN))
	t.one("ctxpage_checkpoints_total", "counter", "Checkpoints since the files were opened by the process that owns them.", float64(s.Checkpoints))
	t.one("ctxpage_scopes", "gauge", "Scopes that hold something.", float64(s.Scopes))
	t.one("ctxpage_artefacts", "gauge", "Artefacts that are current.", float64(s.Artefacts))
	t.one("ctxpage_pages", "gauge", "Pages that are current.", float64(s.Pages))
	t.one("ctxpage_page_versions", "gauge", "Versions of pages, old ones included.", float64(s.PageVersions))
	t.one("ctxpage_held_batches", "gauge", "Batches that wait for review.", float64(s.Held))
	t.one("ctxpage_audit_leaves_total", "counter", "Leaves of the audit: one for each read, commit and event.", float64(s.Leaves))
	t.one("ctxpage_audit_unarchived_leaves", "gauge", "Leaves that are in the log only, until a checkpoint.", float64(s.Leaves-s.Archived))
	t.one("ctxpage_unapplied_commits", "gauge", "Commits that are in the log only, until a checkpoint.", float64(s.LSN-min(s.LSN, s.Applied)))
	t.one("ctxpage_unflushed_rows", "gauge", "Rows in memory that a checkpoint writes.", float64(s.Overlay))
	t.of("ctxpage_disk_bytes", "gauge", "Bytes on the disk, by part.")
	t.line("ctxpage_disk_bytes", float64(s.FileBytes), "part", "file")
	t.line("ctxpage_disk_bytes", float64(s.LogBytes), "part", "log")
	t.line("ctxpage_disk_bytes", float64(s.ColumnBytes), "part", "columns")
	if s.Audit >= 0 {
		t.line("ctxpage_disk_bytes", float64(s.Audit), "part", "audit")
	}
	t.one("ctxpage_working_set_bytes", "gauge", "Texts of pages that this process keeps in memory.", float64(s.Table.Bytes))
	t.one("ctxpage_working_set_hits_total", "counter", "Reads of pages that were in memory.", float64(s.Table.Hits))
	t.one("ctxpage_working_set_faults_total", "counter", "Reads of pages that had to be loaded from the store.", float64(s.Table.Faults))
	if e := s.Embedding; e != nil {
		t.one("ctxpage_pages_without_vector", "gauge", "Pages whose vector is still to be made.", float64(e.Left))
	}
}
