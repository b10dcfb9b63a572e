package format

import (
	"maps"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// Version is a version of an artefact as gc judges it.
type Version struct {
	Head  *store.Head
	Ended int64  // when it stopped being current, in microseconds
	By    uint64 // LSN of the commit that ended it; 0: it expired
	Why   string // why it may go, such as GoneSuperseded; "": it is current
	Kept  string // what keeps it, such as KeptYoung; "": it goes
	Pages int    // how many go with it: those that no newer version has
	Bytes int64  // of their texts
}

// Ref names the version.
func (v *Version) Ref() store.Ref {
	return store.Ref{Scope: v.Head.Scope, ID: v.Head.ID, Version: v.Head.Version}
}

// Judge says of the versions of one artefact, oldest first and whole, what goes and what keeps the
// rest. Versions without content are left out. named says what names a version or reads it, "" for
// nothing; it is asked last, of versions that would go otherwise.
func Judge(heads []*store.Head, job *store.GCJob, now time.Time, named func(*Version) string) []*Version {
	vs := versions(heads, job, codec.Micros(now))
	for i, v := range vs {
		if v.Kept = whyKept(v, len(vs)-1-i, job, codec.Micros(now)); v.Kept == "" {
			v.Kept = named(v)
		}
	}
	keepShared(vs)
	return vs
}

// versions returns the versions that still have content, oldest first. A version ended with the
// commit of the next one, or when it expired if that was earlier and expired versions may go.
//
// The pages and bytes of a version are those that go if all older versions go too: pages that no
// newer version has. So the sums in the report count each page once.
func versions(heads []*store.Head, job *store.GCJob, now int64) (vs []*Version) {
	for i, h := range heads {
		if h.Gone || len(h.Rows) == 0 {
			continue
		}
		v, expires := &Version{Head: h}, codec.Micros(h.ExpiresAt)
		switch current := i == len(heads)-1; {
		case current && expires != 0 && expires <= now:
			v.Ended, v.Why = expires, GoneExpired
		case !current:
			next := heads[i+1]
			v.Ended, v.By, v.Why = codec.Micros(next.PutAt), next.LSN, GoneSuperseded
			if next.Deleted {
				v.Why = GoneDeleted
			}
			if job.Expired && expires != 0 && expires < v.Ended {
				v.Ended = expires
			}
		}
		vs = append(vs, v)
	}
	for i, v := range vs {
		for j, r := range v.Head.Rows { // a page keeps its place
			if i == len(vs)-1 || j >= len(vs[i+1].Head.Rows) || vs[i+1].Head.Rows[j].Num != r.Num {
				v.Pages++
				v.Bytes += int64(r.Bytes)
			}
		}
	}
	return vs
}

// whyKept says what the job keeps; newer is the number of newer versions of the artefact.
func whyKept(v *Version, newer int, job *store.GCJob, now int64) string {
	keep, _ := KeepIn(job, v.Head.Scope)
	switch {
	case v.Why == "" || newer < keep.Versions:
		return KeptNewest
	case v.Why == GoneExpired && !job.Expired:
		return KeptExpired
	case v.Ended > now-keep.For.Microseconds():
		return KeptYoung
	}
	return ""
}

// keepShared keeps versions that share pages with versions that stay. A page is known by the newest
// version that has it, so that one stays if any of them does. And a version whose pages all stay
// would free nothing, so it stays too.
//
// Its time grows as the number of page rows does: one walk down the ages is enough, because a
// version that is made to stay is never older than the one that made it stay.
func keepShared(vs []*Version) {
	newest := map[uint64]*Version{} // by page
	for _, v := range vs {
		for _, r := range v.Head.Rows {
			newest[r.Num] = v
		}
	}
	for _, v := range vs { // oldest first: what one makes stay is not older
		for i := 0; i < len(v.Head.Rows) && v.Kept != ""; i++ {
			if n := newest[v.Head.Rows[i].Num]; n.Kept == "" {
				n.Kept = KeptShared
			}
		}
	}
	for _, v := range vs {
		if v.Kept == "" && !slices.ContainsFunc(v.Head.Rows, func(r store.PageRow) bool { return newest[r.Num].Kept == "" }) {
			v.Kept = KeptShared
		}
	}
}

// Tallies are the lines of a report while it is made, by reason.
type Tallies map[string]*tally

type tally struct {
	store.GCTally
	ended []int64 // of Nearest: when each ended, rising
}

// nearest is how many versions a line names.
const nearest = 5

// Add counts a version in the line of a reason.
func (t Tallies) Add(reason string, v *Version) {
	if t[reason] == nil {
		t[reason] = &tally{GCTally: store.GCTally{Reason: reason}}
	}
	Count(&t[reason].GCTally, v)
}

// AddKept counts a version that has ended and is kept, and names those that ended first.
func (t Tallies) AddKept(v *Version) {
	if v.Why == "" {
		return // it has not ended
	}
	t.Add(v.Kept, v)
	l := t[v.Kept]
	if at, _ := slices.BinarySearch(l.ended, v.Ended+1); at < nearest {
		l.ended, l.Nearest = slices.Insert(l.ended, at, v.Ended), slices.Insert(l.Nearest, at, v.Ref())
		n := min(len(l.ended), nearest)
		l.ended, l.Nearest = l.ended[:n], l.Nearest[:n]
	}
}

// Lines returns the lines in the order of their reasons.
func (t Tallies) Lines() (lines []store.GCTally) {
	for _, reason := range slices.Sorted(maps.Keys(t)) {
		lines = append(lines, t[reason].GCTally)
	}
	return lines
}

// Count adds a version, with what it frees, to a tally.
func Count(t *store.GCTally, v *Version) {
	t.Versions++
	t.Pages += v.Pages
	t.Bytes += v.Bytes
}
