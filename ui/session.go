package ui

import (
	"context"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// sessionsView lists conversations by scope.
type sessionsView struct {
	Scope  string // "": of all scopes
	Groups []sessionGroup
	Next   string // cursor of the scopes, or of the sessions of Scope
}

// sessionGroup has the first conversations of a scope.
type sessionGroup struct {
	Scope string
	Names []string
	More  bool
}

func (h *Handler) sessions(r *http.Request) (*content, error) {
	v := &sessionsView{Scope: r.FormValue("scope")}
	c := &content{Name: "sessions", Title: "Sessions", Nav: "sessions", View: v}
	add := func(scope, after string, limit int) (next string, err error) {
		g := sessionGroup{Scope: scope}
		for s, err := range h.scope(scope).Sessions(r.Context(), ctxpage.AtMost(limit, after, &next)) {
			if err != nil {
				return "", err
			}
			g.Names = append(g.Names, s)
		}
		if g.More = next != ""; len(g.Names) > 0 {
			v.Groups = append(v.Groups, g)
		}
		return next, nil
	}
	var err error
	if v.Scope != "" {
		v.Next, err = add(v.Scope, r.FormValue("after"), 2*rowsAtOnce)
		return c, err
	}
	for looked, after := 0, r.FormValue("after"); looked < 25*rowsAtOnce && len(v.Groups) < rowsAtOnce; looked += rowsAtOnce {
		list, err := h.scopes(r.Context(), "", rowsAtOnce, after, &v.Next)
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			if _, err := add(s.Name, "", 10); err != nil {
				return nil, err
			}
		}
		if after = v.Next; after == "" {
			break
		}
	}
	return c, nil
}

// sessionView is a conversation and its window.
type sessionView struct {
	Scope    string
	In       *session.Inspection
	Turns    []turnRow // a part of them
	From, To int       // of Turns, from 0
	Count    int
	Step     int
	Passes   []session.PassInfo
	Chart    *chart
	At       *turnRow // the turn that was asked for
}

// turnRow is a turn with the fill of the window when it came.
type turnRow struct {
	session.WindowTurn
	N     int // from 1
	Ref   string
	At    time.Time // zero: not known
	Fill  int
	Share string // of the usable part
}

func (h *Handler) session(r *http.Request) (*content, error) {
	ctx := r.Context()
	v := &sessionView{Scope: r.FormValue("scope"), Step: 100}
	id := r.FormValue("id")
	s := h.scope(v.Scope).Session(id)
	var err error
	if v.In, err = s.Inspect(ctx); err != nil {
		return nil, err
	}
	if v.Passes, err = s.Passes(ctx); err != nil {
		return nil, err
	}
	if len(v.In.Turns) == 0 && len(v.Passes) == 0 {
		return nil, fmt.Errorf("%w: the scope %s has no turns of a session %q", store.ErrNotFound, v.Scope, plain(id))
	}
	rows, marks, err := h.fill(r, v)
	if err != nil {
		return nil, err
	}
	v.Count, v.Chart = len(rows), chartOf(rows, marks, v.In)
	at := atoi(r.FormValue("turn"))
	if at > 0 && at <= len(rows) {
		v.At = &rows[at-1]
		v.From = max(0, min(at-v.Step/2, len(rows)-v.Step))
	} else {
		v.From = max(0, min(atoi(r.FormValue("from")), len(rows)-1))
		if r.FormValue("from") == "" && len(rows) > 0 { // the newest turns
			v.From = max(0, len(rows)-v.Step)
		}
	}
	v.To = min(v.From+v.Step, len(rows))
	v.Turns = rows[v.From:v.To]
	v.Passes = v.Passes[max(0, len(v.Passes)-rowsAtOnce):]
	return &content{Name: "session", Title: "Session " + plain(id), Nav: "sessions", View: v}, nil
}

// Prev is where the part of the turns before this one begins; -1: there is none.
func (v *sessionView) Prev() int {
	if v.From == 0 {
		return -1
	}
	return max(0, v.From-v.Step)
}

// fill works out how full the window was at each turn: what the turns so far take whole, less what passes freed. Verdicts of a pager are not
// kept with their tokens, so a pager's pass shows in the newest value alone. It also returns before which turn each pass ran.
func (h *Handler) fill(r *http.Request, v *sessionView) (rows []turnRow, marks []int, err error) {
	at, err := h.times(r, v)
	if err != nil {
		return nil, nil, err
	}
	fill, pass := 0, 0
	for i, t := range v.In.Turns {
		row := turnRow{WindowTurn: t, N: i + 1, Ref: ctxpage.Ref{Scope: v.Scope, ID: t.ID}.String(), At: at[t.ID]}
		for pass < len(v.Passes) && !row.At.IsZero() && !v.Passes[pass].At.After(row.At) {
			if p := v.Passes[pass]; !p.Undone {
				fill -= min(fill, p.Freed)
			}
			marks = append(marks, i)
			pass++
		}
		fill += t.Stored
		row.Fill = fill
		rows = append(rows, row)
	}
	if n := len(rows); n > 0 {
		rows[n-1].Fill = v.In.Tokens // known, not worked out
	}
	for range v.Passes[pass:] {
		marks = append(marks, len(rows))
	}
	if l := v.In.Limits; l != nil {
		for i := range rows {
			rows[i].Share = percent(rows[i].Fill, l.Usable)
		}
	}
	return rows, marks, nil
}

// times returns when the turns were put, as far as a bounded listing has them.
func (h *Handler) times(r *http.Request, v *sessionView) (map[string]time.Time, error) {
	out, turns := map[string]time.Time{}, map[string]bool{}
	for _, t := range v.In.Turns {
		turns[t.ID] = true
	}
	looked := 0
	prefix := commonPrefix(v.In.Turns)
	for a, err := range h.scope(v.Scope).Artefacts(r.Context(), prefix, ctxpage.Where(ctxpage.Filter{Kinds: []store.Kind{store.KindMessage}}), ctxpage.NewestFirst()) {
		if err != nil {
			return nil, err
		}
		if turns[a.ID] {
			out[a.ID] = a.PutAt
		}
		if looked++; looked >= 2*leavesAtOnce || len(out) == len(turns) {
			break
		}
	}
	return out, nil
}

// commonPrefix is the beginning that the ids of all turns share: those that the database makes begin with the name of the session.
func commonPrefix(turns []session.WindowTurn) string {
	if len(turns) == 0 {
		return ""
	}
	p := turns[0].ID
	for _, t := range turns {
		for !strings.HasPrefix(t.ID, p) {
			p = p[:len(p)-1]
		}
	}
	return strings.ToValidUTF8(p, "")
}

// chart is the fill of a window over its turns, as lines in a box of 1000 by 200.
type chart struct {
	Line   string // points of the fill
	Limits []chartLine
	Passes []float64
	Turns  int
	Most   int
	Text   string
}

// chartLine is a limit of a window.
type chartLine struct {
	Name   string
	Tokens int
	Y      float64
	Text   float64 // where its name stands
}

const chartPoints = 400

func chartOf(rows []turnRow, marks []int, in *session.Inspection) *chart {
	if len(rows) == 0 {
		return nil
	}
	c := &chart{Turns: len(rows)}
	for _, row := range rows {
		c.Most = max(c.Most, row.Fill)
	}
	top := c.Most
	if l := in.Limits; l != nil {
		top = max(top, l.Usable)
	}
	top = max(1, top+top/10)
	y := func(tokens int) float64 { return 200 - 200*float64(tokens)/float64(top) }
	x := func(turn int) float64 { return 1000 * float64(turn) / float64(max(1, len(rows))) }
	var points strings.Builder
	step := max(1, len(rows)/chartPoints)
	fmt.Fprintf(&points, "0,200")
	for i := 0; i < len(rows); i += step {
		most := 0
		for _, row := range rows[i:min(i+step, len(rows))] {
			most = max(most, row.Fill)
		}
		fmt.Fprintf(&points, " %.1f,%.1f %.1f,%.1f", x(i), y(most), x(min(i+step, len(rows))), y(most))
	}
	points.WriteString(" 1000,200")
	c.Line = points.String()
	if l := in.Limits; l != nil {
		for _, m := range []chartLine{{Name: "usable", Tokens: l.Usable}, {Name: "trigger", Tokens: l.Trigger}, {Name: "target", Tokens: l.Target}} {
			m.Y = y(m.Tokens)
			c.Limits = append(c.Limits, m)
		}
	}
	last := -1.0
	for _, m := range marks {
		if at := x(m); at > last+1 {
			c.Passes, last = append(c.Passes, at), at
		}
	}
	c.Text = fmt.Sprintf("Fill of the window over %d turns: at most %d tokens, now %d", len(rows), c.Most, in.Tokens)
	if in.Limits != nil {
		c.Text += fmt.Sprintf(" of %d usable", in.Limits.Usable)
	}
	c.Text += fmt.Sprintf("; %d passes", len(marks))
	return c
}

// strip is a quarter of an hour in the strip that shows how much happened in a day.
type strip struct {
	At      string // when it began
	Count   uint64
	X, Y, H string // in percent
}

const (
	quarters = 96
	quarter  = 15 * time.Minute
)

// density remembers between which leaves the quarters of the last day lie. Only what is over is remembered.
type density struct {
	mu     sync.Mutex
	bounds map[int64]uint64 // index of the first leaf of a quarter, by its beginning
}

// strip counts the leaves of the last day by quarters. It finds the bounds by their times, in which leaves are in order unless a clock was
// set back; the counts may then be wrong by what was written out of order.
func (h *Handler) strip(ctx context.Context, size uint64) ([]strip, error) {
	end := h.o.Now().UTC().Truncate(quarter).Add(quarter)
	var bounds [quarters + 1]uint64
	bounds[quarters] = size
	h.day.mu.Lock()
	defer h.day.mu.Unlock()
	known, high := map[int64]uint64{}, size
	for i := quarters - 1; i >= 0; i-- {
		at := end.Add(-time.Duration(quarters-i) * quarter).UnixMicro()
		first, ok := h.day.bounds[at]
		if !ok || first > high {
			var err error
			if first, err = h.firstSince(ctx, at, high); err != nil {
				return nil, err
			}
		}
		bounds[i], high = first, first
		known[at] = first
	}
	h.day.bounds = known
	most := uint64(1)
	for i := range quarters {
		most = max(most, bounds[i+1]-bounds[i])
	}
	out := make([]strip, quarters)
	for i := range out {
		n := bounds[i+1] - bounds[i]
		tall := 0.0
		if n > 0 {
			tall = 8 + 92*float64(n)/float64(most)
		}
		out[i] = strip{
			At: end.Add(-time.Duration(quarters-i) * quarter).Format("15:04"), Count: n,
			X: fmt.Sprintf("%.3f%%", 100*float64(i)/quarters), Y: fmt.Sprintf("%.1f%%", 100-tall), H: fmt.Sprintf("%.1f%%", tall),
		}
	}
	return out, nil
}

// firstSince finds the first leaf below high that was written at a time or later; high: there is none.
func (h *Handler) firstSince(ctx context.Context, at int64, high uint64) (first uint64, err error) {
	n := sort.Search(int(high), func(i int) bool {
		if err != nil {
			return true
		}
		leaf, lerr := h.o.DB.Manifests().Leaf(ctx, uint64(i))
		if lerr != nil {
			err = lerr
			return true
		}
		return leaf.Time >= at
	})
	return uint64(n), err
}
