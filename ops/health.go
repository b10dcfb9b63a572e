package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Defaults and limits of HealthOptions.
const (
	defaultAssemblies = 1000
	maxAssemblies     = 1_000_000
	defaultExamples   = 5
	maxExamples       = 100
)

// keyField is the metadata key that names the property whose value an artefact holds. Two current artefacts with the
// same subject, the same value of this key, and different texts contradict each other.
const keyField = "key"

// HealthOptions of Health.
type HealthOptions struct {
	// Assemblies bounds the contexts that are looked at, the newest of the scope and the scopes below it; 0:
	// 1,000. An artefact that is older than all contexts and in none counts as never served.
	Assemblies int
	// Examples bounds the artefacts that each finding names; 0: 5.
	Examples int
	// Now decides what has expired. It has no default: the caller must set it.
	Now time.Time
	// Progress is told how far it has come; nil: it is not called.
	Progress store.Progress
}

// The findings, in the order of a report.
const (
	duplicate     = "exact duplicate"
	nearDuplicate = "near duplicate"
	contradiction = "contradiction"
	neverServed   = "never served"
	expired       = "expired"
	superseded    = "superseded"
	orphan        = "orphan"
)

// HealthReport is the state of one scope, without its ancestors. Pages that the database keeps for itself are not counted.
type HealthReport struct {
	Scope      string    `json:"scope"`
	LSN        uint64    `json:"lsn"` // of the last part that was read; what others write meanwhile may or may not be counted
	Artefacts  int       `json:"artefacts"`
	Pages      int       `json:"pages"`
	Assemblies int       `json:"assemblies"` // contexts that were looked at
	Findings   []Finding `json:"findings"`   // all seven, those without a count too
}

// Finding is one way in which artefacts are of no use.
type Finding struct {
	What     string    `json:"what"`
	Count    int       `json:"count"`   // artefacts
	Meaning  string    `json:"meaning"` // in a sentence
	Mend     string    `json:"mend"`    // the command, with FILE and ID to fill in
	Examples []Example `json:"examples"`
}

// Example is an artefact that a finding counts.
type Example struct {
	ID   string `json:"id"`
	With string `json:"with,omitempty"` // the artefact it repeats, contradicts or depends on
}

// row describes an artefact between the listing and the comparison.
type row struct {
	key, exact uint64 // of its sketch, of its bytes
	num        uint64 // of its first page
	version    uint32
}

// fact describes an artefact that has a key.
type fact struct{ key, text, num uint64 }

// look is a report on its way.
type look struct {
	st     store.Store
	scopes store.Scopes
	o      HealthOptions
	out    *HealthReport
	by     map[string]*Finding
	served map[uint64]bool // page numbers of the scope in the contexts looked at
	since  time.Time       // of the oldest of them
	rows   []row
	facts  []fact
	unread []*store.Head // artefacts whose texts are still to be read
}

// Health reports on a scope. After an error, including the end of ctx, there is no report. If o is out of
// range, it is an InvalidError.
func Health(ctx context.Context, st store.Store, scope string, o HealthOptions) (*HealthReport, error) {
	o.Assemblies, o.Examples = cmp.Or(o.Assemblies, defaultAssemblies), cmp.Or(o.Examples, defaultExamples)
	switch {
	case o.Assemblies < 0 || o.Assemblies > maxAssemblies:
		return nil, store.Invalid("assemblies", fmt.Sprint(o.Assemblies), fmt.Sprint("1 to ", maxAssemblies))
	case o.Examples < 0 || o.Examples > maxExamples:
		return nil, store.Invalid("examples", fmt.Sprint(o.Examples), fmt.Sprint("1 to ", maxExamples))
	}
	if err := store.CheckScope(scope); err != nil {
		return nil, err
	}
	l := &look{st: st, scopes: store.Scopes{scope}, o: o, out: &HealthReport{Scope: scope}, by: map[string]*Finding{}, served: map[uint64]bool{}}
	l.findings(scope)
	for _, step := range []func(context.Context) error{l.contexts, l.artefacts, l.duplicates, l.contradictions} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return l.out, nil
}

func (l *look) findings(scope string) {
	rm := "dbctl rm FILE " + scope + " ID"
	l.out.Findings = []Finding{
		{What: duplicate, Meaning: "says byte for byte what an earlier artefact says", Mend: rm},
		{What: nearDuplicate, Meaning: "says what an earlier artefact says, but for spaces, capitals, punctuation or a header", Mend: rm},
		{What: contradiction, Meaning: "has the subject and the metadata " + keyField + " of a later artefact, which says something else", Mend: rm},
		{What: neverServed, Meaning: "was in none of the contexts that were looked at, though it is older than all of them", Mend: rm},
		{What: expired, Meaning: "has expired and is served no more", Mend: rm},
		{What: superseded, Meaning: "is superseded by another artefact", Mend: rm},
		{What: orphan, Meaning: "was made from an artefact that is deleted", Mend: rm},
	}
	for i := range l.out.Findings {
		l.out.Findings[i].Examples = []Example{}
		l.by[l.out.Findings[i].What] = &l.out.Findings[i]
	}
}

func (l *look) found(what, id, with string) {
	f := l.by[what]
	if f.Count++; len(f.Examples) < l.o.Examples {
		f.Examples = append(f.Examples, Example{id, with})
	}
}

func (l *look) progress(what string, done, total int) {
	if l.o.Progress != nil {
		l.o.Progress(what, uint64(done), uint64(total))
	}
}

// errEnough ends the walk of the audit.
var errEnough = errors.New("enough")

// contexts notes what the newest contexts had.
func (l *look) contexts(ctx context.Context) error {
	a := l.st.Audit()
	size, err := a.Size(ctx)
	if err != nil {
		return err
	}
	err = store.EachRecord(ctx, a, 0, size, true, func(r *manifest.Record) error {
		if r.Type != manifest.TypeAssemble || !slices.Contains(store.ScopeChain(r.Scope), l.out.Scope) {
			return nil
		}
		for i := range r.Pages {
			l.served[r.Pages[i].Num] = true
		}
		l.since = time.UnixMicro(r.Time)
		if l.out.Assemblies++; l.out.Assemblies%100 == 0 {
			l.progress("contexts", l.out.Assemblies, l.o.Assemblies)
		}
		if l.out.Assemblies == l.o.Assemblies {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// atOnce bounds the artefacts that are read at a time.
const atOnce = 256

func (l *look) artefacts(ctx context.Context) error {
	for page, err := range format.Pages(ctx, l.st, store.ScanQuery{What: store.ScanArtefacts, Scopes: l.scopes, Limit: atOnce}) {
		if err != nil {
			return err
		}
		l.out.LSN = page.LSN
		for _, h := range page.Heads {
			if strings.HasPrefix(h.ID, store.ReservedPrefix) { // the database keeps it, and nobody can delete it
				continue
			}
			if err := l.artefact(ctx, h); err != nil {
				return err
			}
		}
		if err := l.texts(ctx); err != nil {
			return err
		}
		l.progress("artefacts", l.out.Artefacts, 0)
	}
	return nil
}

// artefact judges one by its head, and keeps what is compared later of one that is served.
func (l *look) artefact(ctx context.Context, h *store.Head) error {
	l.out.Artefacts++
	l.out.Pages += len(h.Rows)
	switch {
	case h.Superseded != "":
		l.found(superseded, h.ID, h.Superseded)
		return ctx.Err()
	case !h.ExpiresAt.IsZero() && !h.ExpiresAt.After(l.o.Now):
		l.found(expired, h.ID, "")
		return ctx.Err()
	}
	from, err := l.lost(ctx, h)
	if err != nil {
		return err
	}
	if from != "" {
		l.found(orphan, h.ID, from)
	}
	// A turn is neither a duplicate nor never served: people repeat themselves, and most turns are served in their own
	// conversation only; without it the conversation would have a hole.
	if h.Kind == store.KindMessage && h.Group != "" {
		return ctx.Err()
	}
	if l.out.Assemblies > 0 && h.PutAt.Before(l.since) && h.Kind != store.KindSystem && !slices.ContainsFunc(h.Rows, func(r store.PageRow) bool { return l.served[r.Num] }) {
		l.found(neverServed, h.ID, "")
	}
	l.unread = append(l.unread, h)
	return ctx.Err()
}

// lost names an artefact that this one was made from and that is deleted.
func (l *look) lost(ctx context.Context, h *store.Head) (string, error) {
	for _, r := range h.DerivedFrom {
		at, err := l.st.Resolve(ctx, store.ScopeChain(h.Scope), store.Ref{Scope: r.Scope, ID: r.ID})
		switch {
		case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrGone), err == nil && !at.Current:
			return store.Ref{Scope: r.Scope, ID: r.ID}.String(), nil
		case err != nil:
			return "", err
		}
	}
	return "", nil
}

// textBytes bounds what is read in one call.
const textBytes = 1 << 20

// texts takes the sketches of the artefacts that were listed and are not read yet, many in one call: beside another process
// each call is a message.
func (l *look) texts(ctx context.Context) error {
	for len(l.unread) > 0 {
		n, bytes := 0, 0
		var keys []store.PageKey
		for n < len(l.unread) && (n == 0 || bytes < textBytes) {
			keys = append(keys, keysOf(l.unread[n])...)
			for _, r := range l.unread[n].Rows {
				bytes += int(r.Bytes)
			}
			n++
		}
		loaded, err := l.st.Load(ctx, l.scopes, keys, store.WantText)
		if err != nil {
			return err
		}
		for _, h := range l.unread[:n] {
			l.sketch(h, loaded[:len(h.Rows)])
			loaded = loaded[len(h.Rows):]
		}
		l.unread = l.unread[n:]
	}
	return ctx.Err()
}

// sketch takes the sketch of an artefact. One that cannot be read as a whole is left to dbctl check.
func (l *look) sketch(h *store.Head, loaded []store.Loaded) {
	if len(h.Rows) == 0 {
		return
	}
	own := row{num: h.Rows[0].Num, version: h.Version}
	for i := range loaded {
		if loaded[i].Err != nil {
			return
		}
		s := prose.SketchOf(loaded[i].Text)
		exact, key := store.ContentHash(loaded[i].Text), s.Key()
		if key == 0 && len(loaded) > 1 {
			key = exact // a short page, such as the last one, must be the same in both
		}
		own.key, own.exact = own.key*31+key, own.exact*31+exact
	}
	l.rows = append(l.rows, own)
	if key, ok := h.Meta[keyField]; ok {
		l.facts = append(l.facts, fact{store.ContentHash(h.Subject + "\x00" + key), own.exact, own.num})
	}
}

// keysOf names the pages of an artefact.
func keysOf(h *store.Head) []store.PageKey {
	keys := make([]store.PageKey, len(h.Rows))
	for i, r := range h.Rows {
		keys[i] = store.PageKey{Num: r.Num, Version: h.Version}
	}
	return keys
}
