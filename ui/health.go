package ui

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
)

// healthView is the state of the database.
type healthView struct {
	Stats     ctxpage.Stats
	Rows      []fact
	Facts     [][2]string
	Sizes     []sizeLine
	Since     time.Time
	Quotas    []ops.Usage
	Retention []ops.Stored
	Head      string // that was pasted in
	Verified  *manifest.Verification
	Now       string // the head of now
	Problem   string
	Scope     string
	Report    *ops.HealthReport
}

// fact is a line about the database.
type fact struct{ Name, Value string }

// sample has the sizes on the disk at a moment.
type sample struct {
	at                time.Time
	file, log, column int64
	leaves            uint64
}

// samples are taken at most once in a while, as long as the process lives.
type samples struct {
	mu   sync.Mutex
	list []sample
}

const (
	samplesKept = 240
	sampleEvery = 15 * time.Second
)

// take adds a sample if the last one is old enough. Of many it keeps every second one.
func (s *samples) take(now time.Time, st ctxpage.Stats) []sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.list); n == 0 || now.Sub(s.list[n-1].at) >= sampleEvery {
		s.list = append(s.list, sample{now, st.FileBytes, st.LogBytes, st.ColumnBytes, st.Leaves})
	}
	if len(s.list) > samplesKept {
		half := s.list[:0]
		for i := 0; i < len(s.list); i += 2 {
			half = append(half, s.list[i])
		}
		s.list = half
	}
	return append([]sample(nil), s.list...)
}

// sizeLine is how a size changed since the process began.
type sizeLine struct {
	Name   string
	Now    string
	Change string
	Points string // in a box of 200 by 30; "": one sample is no line
}

func sizeLines(list []sample) (out []sizeLine) {
	for _, what := range []struct {
		name string
		get  func(s sample) int64
		show func(v any) string
	}{
		{"file", func(s sample) int64 { return s.file }, size}, {"log", func(s sample) int64 { return s.log }, size},
		{"columns", func(s sample) int64 { return s.column }, size}, {"audit leaves", func(s sample) int64 { return int64(s.leaves) }, number},
	} {
		first, last, low, high := what.get(list[0]), what.get(list[len(list)-1]), what.get(list[0]), what.get(list[0])
		for _, s := range list {
			low, high = min(low, what.get(s)), max(high, what.get(s))
		}
		line := sizeLine{Name: what.name, Now: what.show(last), Change: what.show(last - first)}
		if last >= first {
			line.Change = "+" + line.Change
		}
		if len(list) > 1 {
			var b strings.Builder
			for i, s := range list {
				y := 28 - 26*float64(what.get(s)-low)/float64(max(1, high-low))
				fmt.Fprintf(&b, "%.1f,%.1f ", 200*float64(i)/float64(len(list)-1), y)
			}
			line.Points = b.String()
		}
		out = append(out, line)
	}
	return out
}

func (h *Handler) health(r *http.Request) (*content, error) {
	ctx := r.Context()
	v := &healthView{Head: strings.TrimSpace(r.FormValue("head")), Scope: r.FormValue("scope")}
	var err error
	if v.Stats, err = h.o.DB.Stats(ctx); err != nil {
		return nil, err
	}
	list := h.sizes.take(h.o.Now(), v.Stats)
	v.Sizes, v.Since = sizeLines(list), list[0].at
	v.Rows = facts(&v.Stats)
	if h.o.Facts != nil {
		v.Facts = h.o.Facts(ctx)
	}
	if v.Quotas, err = h.o.DB.Admin().Quotas().All(ctx); err != nil {
		return nil, err
	}
	v.Quotas = v.Quotas[:min(len(v.Quotas), rowsAtOnce)]
	if v.Retention, err = h.o.DB.Admin().Retention().All(ctx); err != nil {
		return nil, err
	}
	v.Retention = v.Retention[:min(len(v.Retention), rowsAtOnce)]
	switch {
	case v.Head == "now":
		head, err := h.o.DB.Head(ctx)
		if err != nil {
			return nil, err
		}
		v.Now, v.Head = head.String(), ""
	case v.Head != "":
		head, err := manifest.ParseHead(v.Head)
		if err != nil {
			v.Problem = problem(err)
			break
		}
		done, err := h.o.DB.Manifests().Verify(ctx, &head, nil)
		if err != nil {
			return nil, err
		}
		v.Verified = &done
	}
	if v.Scope != "" {
		if v.Report, err = h.scope(v.Scope).Health(ctx, ops.HealthOptions{}); err != nil {
			return nil, err
		}
	}
	return &content{Name: "health", Title: "Health", Nav: "health", View: v}, nil
}

// facts are the lines of the statistics.
func facts(s *ctxpage.Stats) []fact {
	t := s.Table
	rows := []fact{
		{"database", s.ID}, {"created", when(s.Created)}, {"newest commit", number(s.LSN)}, {"commits in the log alone", number(s.LSN - min(s.LSN, s.Applied))},
		{"scopes", number(s.Scopes)}, {"artefacts", number(s.Artefacts)}, {"pages", number(s.Pages) + ", " + number(s.PageVersions) + " versions"},
		{"held for review", number(s.Held)}, {"audit leaves", number(s.Leaves) + ", " + number(s.Archived) + " in the archive"},
		{"checkpoints", number(s.Checkpoints)},
		{"hit rate of this process", percent(int(t.Hits), int(t.Hits+t.Faults)) + " of " + number(t.Hits+t.Faults) + " reads"},
		{"working set of this process", number(t.Frames) + " pages, " + size(t.Bytes) + " of " + size(t.Limit)},
		{"evicted, fetched again", number(t.Evictions) + ", " + number(t.Refetches)},
	}
	if e := s.Embedding; e != nil {
		rows = append(rows, fact{"vectors by " + e.Model, strings.TrimSuffix(fmt.Sprintf("%d made by this process, %d left; %s", e.Made, e.Left, e.Failure), "; ")})
	}
	return rows
}
