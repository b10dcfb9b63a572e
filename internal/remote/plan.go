package remote

import (
	"context"
	"reflect"
	"sync"

	"github.com/ctxpage/ctxpage/store"
)

// Plan lists the reads that follow a hold: scans, then candidates. A reader puts it into the context of its first call, so
// that a store in another process answers everything at once; any other store ignores it. An answer is used once, only for
// the call that was planned, and only while the reader knows of no newer commit. So a plan changes how often a store is
// called, never what the caller gets.
type Plan struct {
	Scans      []store.ScanQuery
	Candidates store.CandidateQuery
	// Room is memory for the candidates of the answer. Afterwards it is the memory that they have, for the next plan.
	Room []store.Candidate

	mu    sync.Mutex
	lsn   uint64 // how far readers had come when it was answered
	pages []*store.ScanPage
	found *store.Candidates
}

type key struct{}

// WithPlan puts a plan into the context of the calls that it is about.
func WithPlan(ctx context.Context, p *Plan) context.Context { return context.WithValue(ctx, key{}, p) }

// PlanOf returns the plan of a context; nil: there is none.
func PlanOf(ctx context.Context) *Plan {
	p, _ := ctx.Value(key{}).(*Plan)
	return p
}

type meanwhileKey struct{}

// Meanwhile puts work into the context of an Append. A client does it when the request was sent, before it waits for the answer, in
// the goroutine of the caller. No other store does it, so a caller sees afterwards whether it was done. It must not call a store.
func Meanwhile(ctx context.Context, do func()) context.Context {
	return context.WithValue(ctx, meanwhileKey{}, do)
}

// meanwhileOf returns the work in a context; nil: there is none.
func meanwhileOf(ctx context.Context) func() {
	do, _ := ctx.Value(meanwhileKey{}).(func())
	return do
}

// Fill stores the answers, one for each scan; the plan owns them from now on.
func (p *Plan) Fill(lsn uint64, pages []store.ScanPage, found store.Candidates) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(pages) != len(p.Scans) {
		return
	}
	p.lsn, p.found, p.pages, p.Room = lsn, &found, make([]*store.ScanPage, len(pages)), found.Hits[:0]
	for i := range pages {
		p.pages[i] = &pages[i]
	}
}

// Scanned takes the answer to a scan, for a reader that has heard of commits up to now.
func (p *Plan) Scanned(now uint64, q store.ScanQuery) (page store.ScanPage, ok bool) {
	if p == nil {
		return page, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.pages {
		if p.lsn == now && p.pages[i] != nil && reflect.DeepEqual(q, p.Scans[i]) {
			page, p.pages[i] = *p.pages[i], nil
			return page, true
		}
	}
	return page, false
}

// Found takes the candidates, likewise.
func (p *Plan) Found(now uint64, q store.CandidateQuery) (found store.Candidates, ok bool) {
	if p == nil {
		return found, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lsn != now || p.found == nil || !reflect.DeepEqual(q, p.Candidates) {
		return found, false
	}
	found, p.found = *p.found, nil
	return found, true
}
