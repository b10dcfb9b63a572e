package freshness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/store"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// An artefact that was made from others is fresh if all of them are, in every generation. The graph may be wide, deep, and
// have circles (two pages that name each other).
//
// 	survey   depth first without recursion; each version becomes one node, however many ways lead to it
// 	plan     a walk that asks nothing and lists the sources to ask, so that they are asked at once
// 	judge    Tarjan's walk: parents before children; the members of a circle get one verdict, that of the whole circle
// 	write    nodes that were fetched are committed, then everything that waited for them is judged again
//
// Rejected: one recursive walk that asks as it goes. It waits for one source after the other, and where each of n
// artefacts is made from all n of the layer below, it takes n to the power of the number of layers.

// What one check of several pages looks at, in all generations of what they were made from. A page whose lineage goes
// beyond is left out. The order of the pages decides which, so that the same check has the same answer.
const (
	maxAncestors = 1 << 15
	maxLines     = 1 << 18
)

// ancestry has the ancestors of the artefacts of one check: each once, however many ways lead to it. survey
// finds it, ask asks the sources, all at once, verdict judges, and after write a verdict also commits what was fetched.
// It is used by one goroutine, but for the sources.
type ancestry struct {
	s        *View
	policy   time.Duration
	round    *round
	nodes    map[VersionKey]*ancestor
	resolved map[locator]resolution
	same     map[pastRef]bool // parents that have a newer version of the same content
	count    int              // lines looked at
	writes   bool

	// Of the walk of a verdict (Tarjan's): the way to where it is, and those whose verdict waits for the circle they
	// are in.
	trail   []*ancestor
	planned []*ancestor // those whose sources are to be asked; a walk that plans asks none
	plans   bool
}

// ancestor is an artefact that is checked, or that one was made from.
type ancestor struct {
	head    *store.Head
	owner   *View
	lines   []line
	base    *ancestor // what its page: source copies
	tooMany bool      // its lineage was not followed: it has too many members
	asked   Finding   // what its source answered, once it did
	answers bool

	state      walkState
	index, low int // on the trail
	verdict    Finding
}

type walkState uint8

const (
	walkNew   walkState = iota
	walkOpen            // on the way to where the walk is
	walkWaits           // judged but for the circle it is in
	walkDone
)

// line leads from an artefact to one of its DerivedFrom.
type line struct {
	ref    store.Ref
	to     *ancestor
	broken Finding // why the parent is not to be used any more; the lines behind it are not looked at
}

// locator names an artefact as a scope sees it.
type locator struct{ viewer, scope, id string }

type pastRef struct {
	viewer string
	ref    store.Ref
}

type resolution struct {
	store.Located
	err error
}

func newAncestry(s *View, policy time.Duration, c *round) *ancestry {
	return &ancestry{s: s, policy: policy, round: c, nodes: map[VersionKey]*ancestor{}, resolved: map[locator]resolution{}, same: map[pastRef]bool{}}
}

// survey finds all that an artefact was made from. It asks no source.
func (g *ancestry) survey(ctx context.Context, h *store.Head) {
	n := g.nodes[KeyOf(h)]
	if n == nil {
		n = g.add(h)
	}
	for open := []*ancestor{n}; len(open) > 0; {
		n, open = open[len(open)-1], open[:len(open)-1]
		if n.state == walkNew {
			open = append(open, g.expand(ctx, n)...)
		}
	}
}

func (g *ancestry) add(h *store.Head) *ancestor {
	n := &ancestor{head: h, owner: g.s.owner(h)}
	g.nodes[KeyOf(h)] = n
	return n
}

// expand finds the parents of an artefact and returns those that were not known before. walkDone marks who has been here;
// begin takes it back.
func (g *ancestry) expand(ctx context.Context, n *ancestor) (found []*ancestor) {
	n.state = walkDone
	switch err := ctx.Err(); {
	case !n.derived():
		return nil
	case err != nil:
		n.lines = []line{{broken: Finding{Dirty: true, Reason: reasonOf(err), Err: err}}}
		return nil
	case len(g.nodes) > maxAncestors || g.count+len(n.head.DerivedFrom) > maxLines:
		n.tooMany = true
		return nil
	}
	g.count += len(n.head.DerivedFrom)
	n.lines = make([]line, 0, len(n.head.DerivedFrom))
	reach := func(l store.Located, id string) (*ancestor, error) {
		k := VersionKey{l.Scope, id, l.Version}
		if p := g.nodes[k]; p != nil {
			return p, nil
		}
		h, err := g.load(ctx, n.owner, l)
		if err != nil {
			return nil, err
		}
		p := g.add(h)
		found = append(found, p)
		return p, nil
	}
	for _, ref := range n.head.DerivedFrom {
		ln := line{ref: ref}
		var l store.Located
		if l, ln.broken = g.parent(ctx, n, ref); ln.broken.Reason == "" {
			var err error
			if ln.to, err = reach(l, ref.ID); err != nil {
				ln.broken = Finding{Dirty: true, Reason: reasonOf(err), Err: derivedErr(ref, err)}
			}
		}
		if n.lines = append(n.lines, ln); ln.broken.Reason != "" {
			return found
		}
	}
	g.copied(ctx, n, reach)
	return found
}

// derived reports whether an artefact was made from another one.
func (n *ancestor) derived() bool { return len(n.head.DerivedFrom) > 0 || n.copies() }

func (n *ancestor) copies() bool { return strings.HasPrefix(n.head.Artefact.Source, "page:") }

// copied finds what a page: source copies. When it finds nothing, the probe of the source says what is wrong.
func (g *ancestry) copied(ctx context.Context, n *ancestor, reach func(store.Located, string) (*ancestor, error)) {
	if key, ok := strings.CutPrefix(n.head.Artefact.Source, "page:"); ok {
		if l, err := (pageSource{n.owner}).locate(ctx, key); err == nil && l.Current {
			ref, _ := store.SourceRef(key)
			n.base, err = reach(l, ref.ID)
			if err != nil {
				n.lines = append(n.lines, line{broken: Finding{Dirty: true, Reason: reasonOf(err), Err: err}})
			}
		}
	}
}

func (g *ancestry) load(ctx context.Context, s *View, l store.Located) (*store.Head, error) {
	loaded, err := g.s.Store.Load(ctx, s.chain, l.Pages[:1], store.WantHead)
	if err == nil {
		err = loaded[0].Err
	}
	if err != nil {
		return nil, err
	}
	return loaded[0].Head, nil
}

// parent finds what an artefact was derived from, and why it is not to be used any more: a summary of a changed page is
// dirty, and nobody can fetch it.
func (g *ancestry) parent(ctx context.Context, n *ancestor, ref store.Ref) (store.Located, Finding) {
	k := locator{n.owner.name, ref.Scope, ref.ID}
	r, ok := g.resolved[k]
	if !ok {
		r.Located, r.err = g.s.Store.Resolve(ctx, n.owner.chain, store.Ref{Scope: ref.Scope, ID: ref.ID})
		g.resolved[k] = r
	}
	switch {
	case errors.Is(r.err, store.ErrNotFound), r.err == nil && r.Version != ref.Version && !g.unchanged(ctx, n, ref, r.Located):
		return r.Located, Finding{Dirty: true, Reason: triage.Derived, Err: fmt.Errorf("derived from %s, which changed", ref)}
	case r.err != nil:
		return r.Located, Finding{Dirty: true, Reason: reasonOf(r.err), Err: r.err}
	}
	if why := n.owner.ended(n.head, ref.ID, &r.Located); why != "" {
		return r.Located, Finding{Dirty: true, Reason: triage.Derived, Err: fmt.Errorf("derived from %s, which %s", ref, why)}
	}
	return r.Located, Finding{}
}

// unchanged reports whether a parent's newer version has the content of the one that was used.
func (g *ancestry) unchanged(ctx context.Context, n *ancestor, ref store.Ref, now store.Located) bool {
	k := pastRef{n.owner.name, ref}
	same, ok := g.same[k]
	if !ok {
		same = n.owner.samePages(ctx, ref, now)
		g.same[k] = same
	}
	return same
}

// ask asks the sources of all that the pages were made from, concurrently and each once, unless the lineage of a page
// already says that it is not to be used.
func (g *ancestry) ask(ctx context.Context, heads []*store.Head, open []int) {
	g.plans = true
	g.begin()
	for _, i := range open {
		g.verdict(ctx, heads[i])
	}
	g.plans = false
	g.begin()
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(len(g.planned), maxProbes) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(g.planned); i = int(next.Add(1)) - 1 {
				n := g.planned[i]
				n.asked, n.answers = n.owner.ask(ctx, n.head, g.policy, g.round), true
			}
		})
	}
	wg.Wait()
}

// begin makes a new walk possible over what is known.
func (g *ancestry) begin() {
	for _, n := range g.nodes {
		n.state, n.verdict = walkNew, Finding{}
	}
}

// write lets verdicts commit what was fetched. What waits for that is judged again.
func (g *ancestry) write() {
	g.writes = true
	for _, n := range g.nodes {
		if n.verdict.pending {
			n.state, n.verdict = walkNew, Finding{}
		}
	}
}

// verdict reports whether an artefact may be served.
func (g *ancestry) verdict(ctx context.Context, h *store.Head) Finding {
	if n := g.nodes[KeyOf(h)]; n.state == walkDone {
		return n.verdict
	} else {
		return g.judge(ctx, n)
	}
}

// judge checks what an artefact was made from before the artefact itself: a copy of a copy, or a summary of a summary,
// is as stale as its origin. All artefacts of a circle are as stale as the circle.
func (g *ancestry) judge(ctx context.Context, n *ancestor) Finding {
	n.state, n.index = walkOpen, len(g.trail)
	n.low = n.index
	g.trail = append(g.trail, n)
	n.verdict = g.lineage(ctx, n)
	if n.verdict.Reason == "" && !n.verdict.pending {
		made := n.verdict.Elsewhere
		n.verdict = g.own(ctx, n)
		n.verdict.Elsewhere = cmp.Or(n.verdict.Elsewhere, made)
	}
	switch {
	case n.verdict.Reason != "" || n.low == n.index:
		for _, m := range g.trail[n.index:] {
			m.state = walkDone
			if m == n {
				continue
			}
			switch {
			case n.verdict.Reason != "": // it was made from n
				m.verdict = Finding{Dirty: true, Reason: n.verdict.Reason, Err: derivedErr(store.Ref{Scope: n.head.Scope, ID: n.head.ID}, n.verdict.Err)}
			case n.verdict.pending:
				m.verdict.pending = true
			case n.verdict.Refetched && !m.verdict.Refetched: // to be judged by what n is now
				m.state, m.verdict = walkNew, Finding{}
			}
		}
		g.trail = g.trail[:n.index]
	default:
		n.state = walkWaits
	}
	return n.verdict
}

// visit judges what n was made from, unless that is done or under way.
func (g *ancestry) visit(ctx context.Context, n, to *ancestor) Finding {
	switch to.state {
	case walkNew:
		r := g.judge(ctx, to)
		if to.state == walkWaits {
			n.low = min(n.low, to.low)
		}
		return r
	case walkOpen:
		n.low = min(n.low, to.index)
		return Finding{}
	case walkWaits:
		n.low = min(n.low, to.low)
	}
	return to.verdict
}

func (g *ancestry) lineage(ctx context.Context, n *ancestor) (out Finding) {
	if n.tooMany {
		return Finding{Dirty: true, Reason: triage.Derived, Err: fmt.Errorf("the pages of this read were made from more than %d artefacts or by more than %d references; expected fewer", maxAncestors, maxLines)}
	}
	for i := range n.lines {
		ln := &n.lines[i]
		if ln.broken.Reason != "" {
			return ln.broken
		}
		switch r := g.visit(ctx, n, ln.to); {
		case r.Refetched:
			if _, broken := g.parent(ctx, n, ln.ref); broken.Reason != "" {
				return broken
			}
		case r.pending: // the other parents are asked meanwhile
			out.pending = true
		case r.Reason != "":
			return Finding{Dirty: true, Reason: r.Reason, Err: derivedErr(ln.ref, r.Err)}
		default:
			out.Elsewhere = cmp.Or(out.Elsewhere, r.Elsewhere)
		}
	}
	if n.base == nil || out.pending {
		return out
	}
	switch r := g.visit(ctx, n, n.base); {
	case r.Reason != "":
		return Finding{Dirty: true, Reason: reasonOf(r.Err), Err: r.Err}
	case r.pending:
		out.pending = true
	default:
		out.Elsewhere = cmp.Or(out.Elsewhere, r.Elsewhere)
	}
	return out
}

// own asks the source of an artefact, once all ancestors of the artefact are in order.
func (g *ancestry) own(ctx context.Context, n *ancestor) Finding {
	switch {
	case n.head.Artefact.Source == "":
		return Finding{}
	case g.plans && !n.copies(): // what copies is asked when that is up to date
		g.planned = append(g.planned, n)
		return Finding{}
	case g.plans:
		return Finding{}
	case !n.answers:
		n.asked, n.answers = n.owner.ask(ctx, n.head, g.policy, g.round), true
	}
	if g.writes && n.asked.pending {
		n.asked = n.owner.writeRefetched(ctx, n.head, g.round.fetched(KeyOf(n.head)))
		g.round.wrote = g.round.wrote || n.asked.Refetched
		g.resolved, g.same = map[locator]resolution{}, map[pastRef]bool{}
	}
	return n.asked
}

// derivedError is why something an artefact was made from is not to be used. Over many generations it names the first
// few and the last.
type derivedError struct {
	ref store.Ref
	err error
}

const namedGenerations = 4

func derivedErr(ref store.Ref, err error) error { return &derivedError{ref, err} }

func (e *derivedError) Unwrap() error { return e.err }

func (e *derivedError) Error() string {
	var b strings.Builder
	skipped := 0
	for n := 0; ; n++ {
		next, more := e.err.(*derivedError)
		switch {
		case n < namedGenerations || !more && skipped == 0:
			fmt.Fprintf(&b, "derived from %s: ", e.ref)
		case more:
			skipped++
		default:
			fmt.Fprintf(&b, "… %d more …: derived from %s: ", skipped, e.ref)
		}
		if !more {
			fmt.Fprint(&b, e.err)
			return b.String()
		}
		e = next
	}
}
