package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// rowPrefix begins the keys of stored policies; the scope follows.
const rowPrefix = "retention/"

// Retention stores the policies of one database and carries them out. Admin.Retention returns it. It is meant for the operator and
// is safe for concurrent use.
type Retention struct {
	Store store.Store
	Now   func() time.Time
	NewID func() (ulid.ULID, error)
	// Swept, if not nil, is called after each Run and RemoveSession that was no dry run.
	Swept func(ctx context.Context)
}

// Set replaces the policy of a scope; "" is the whole database. An empty policy removes it. Set itself deletes nothing.
func (k *Retention) Set(ctx context.Context, scope string, p Policy, by string) error {
	return k.Change(ctx, scope, by, func(*Policy) (Policy, error) { return p, nil })
}

// Change applies a function to the policy of a scope. The function is called again if the policy was changed concurrently.
func (k *Retention) Change(ctx context.Context, scope, by string, change func(was *Policy) (Policy, error)) error {
	if err := store.CheckID("by", by); err != nil {
		return err
	}
	if scope != "" {
		if err := store.CheckScope(scope); err != nil {
			return err
		}
	}
	return operator{k.Store, k.Now, k.NewID}.changeRow(ctx, rowPrefix, scope, "retention", by, func(row store.StateRow) (any, error) {
		var was Stored
		if row.Value != nil {
			var err error
			if was, err = decode(row); err != nil {
				return nil, err
			}
		}
		p, err := change(&was.Policy)
		if err == nil {
			err = p.Check()
		}
		if err != nil || p.empty() {
			return nil, err
		}
		return Stored{Scope: scope, By: by, At: k.Now().UTC(), Policy: p}, nil
	})
}

func decode(row store.StateRow) (Stored, error) {
	var s Stored
	err := json.Unmarshal(row.Value, &s)
	if err == nil && s.Scope != strings.TrimPrefix(row.Key, rowPrefix) {
		err = fmt.Errorf("it is of scope %q", s.Scope)
	}
	if err != nil {
		err = &store.CorruptError{File: "state row " + row.Key, Err: err}
	}
	return s, err
}

// All returns the stored policies, sorted by scope.
func (k *Retention) All(ctx context.Context) (list []Stored, err error) {
	err = format.Walk(ctx, k.Store, rowPrefix, func(r store.StateRow) error {
		s, err := decode(r)
		list = append(list, s)
		return err
	})
	return list, err
}

// Effective returns what applies in a scope, and which policy sets it.
func (k *Retention) Effective(ctx context.Context, scope string) (Effective, error) {
	all, err := k.All(ctx)
	return effective(byScope(all), scope), err
}

func byScope(all []Stored) map[string]Stored {
	out := map[string]Stored{}
	for _, s := range all {
		out[s.Scope] = s
	}
	return out
}

// scopes returns the scopes of the database that are below another, by name.
func (k *Retention) scopes(ctx context.Context, under string) ([]string, error) {
	all := map[string]bool{}
	for page, err := range format.Pages(ctx, k.Store, store.ScanQuery{What: store.ScanScopes, Limit: scanRows}) {
		if err != nil {
			return nil, err
		}
		for _, s := range page.Names {
			if below(s.Name, under) {
				all[s.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// scanRows bounds the rows that are listed at a time.
const scanRows = 500

// Policy says how long a scope and the scopes below it keep things. Zero fields are inherited.
type Policy struct {
	// Kinds maps the name of a kind, such as "fact", to the age of its artefacts.
	Kinds      map[string]Age `json:"kinds,omitempty"`
	Sessions   Age            `json:"sessions,omitzero"`
	Held       Age            `json:"held,omitzero"`
	Decided    Age            `json:"decided,omitzero"`
	Directives Age            `json:"directives,omitzero"`
	Versions   Age            `json:"versions,omitzero"`
	// Prune is the time for which the bodies of audit leaves of the scope stay; their hashes stay forever. The text of a
	// question is removed with the body of its leaf.
	Prune Age `json:"prune,omitzero"`
	// KeepVersions is the number of newest versions of an artefact that gc keeps regardless of age. It has no effect without
	// Versions.
	KeepVersions int `json:"keep_versions,omitempty"`
}

// Presets are policies by name. "year" bounds what grows with every read: bodies of audit leaves and the texts of their
// questions go after 365 days, and so do decided batches. Contents, conversations and hashes stay.
func Presets() map[string]Policy {
	return map[string]Policy{"year": {Prune: 365 * Day, Decided: 365 * Day}}
}

// Stored is the policy that was set for one scope.
type Stored struct {
	Scope string    `json:"scope"` // "": the whole database
	By    string    `json:"by"`
	At    time.Time `json:"at"`
	Policy
}

func (p *Policy) empty() bool {
	return len(p.Kinds) == 0 && p.Sessions == 0 && p.Held == 0 && p.Decided == 0 && p.Directives == 0 && p.Versions == 0 && p.Prune == 0 && p.KeepVersions == 0
}

// Check returns the rule that a policy breaks, as an *store.InvalidError.
func (p *Policy) Check() error {
	for _, name := range slices.Sorted(maps.Keys(p.Kinds)) {
		k, err := store.ParseKind(name)
		if err != nil {
			return err
		}
		if k == store.KindAuto || k == store.KindSystem {
			return store.Invalid("kind", name, "a kind that ages: fact, chunk, message, tool, scratch or summary")
		}
	}
	if p.KeepVersions < 0 {
		return store.Invalid("keep_versions", fmt.Sprint(p.KeepVersions), "zero or more")
	}
	if p.KeepVersions > 0 && p.Versions <= 0 {
		return store.Invalid("keep_versions", fmt.Sprint(p.KeepVersions), "an age of versions beside it: it says which of the old ones stay")
	}
	return nil
}

// Rule is an age and the scope whose policy sets it.
type Rule struct {
	Age  Age    `json:"age"`
	From string `json:"from"` // "": the policy of the whole database
}

// Effective is the policy that applies in one scope, with the origin of each value.
type Effective struct {
	Scope        string          `json:"scope"`
	Kinds        map[string]Rule `json:"kinds"`
	Sessions     Rule            `json:"sessions"`
	Held         Rule            `json:"held"`
	Decided      Rule            `json:"decided"`
	Directives   Rule            `json:"directives"`
	Versions     Rule            `json:"versions"`
	Prune        Rule            `json:"prune"`
	KeepVersions int             `json:"keep_versions"`
}

// effective looks a scope up in the policies, by scope.
func effective(policies map[string]Stored, scope string) Effective {
	e := Effective{Scope: scope, Kinds: map[string]Rule{}}
	chain := []string{""}
	if scope != "" {
		chain = append(store.ScopeChain(scope), "")
	}
	for _, at := range chain {
		p, ok := policies[at]
		if !ok {
			continue
		}
		for kind, age := range p.Kinds {
			if _, said := e.Kinds[kind]; !said {
				e.Kinds[kind] = Rule{age, at}
			}
		}
		if p.Versions.set() && !e.Versions.Age.set() {
			e.KeepVersions = p.KeepVersions
		}
		for _, f := range []struct {
			rule *Rule
			age  Age
		}{{&e.Sessions, p.Sessions}, {&e.Held, p.Held}, {&e.Decided, p.Decided}, {&e.Directives, p.Directives}, {&e.Versions, p.Versions}, {&e.Prune, p.Prune}} {
			if f.age.set() && !f.rule.Age.set() {
				*f.rule = Rule{f.age, at}
			}
		}
	}
	return e
}

// before is the time up to which what a rule is about goes; false: nothing does.
func (r Rule) before(now time.Time) (time.Time, bool) {
	return now.Add(-time.Duration(r.Age)), r.Age > 0
}

// told returns the note of a leaf on a rule.
func (r Rule) told(what string) string {
	from := r.From
	if from == "" {
		from = "the whole database"
	}
	return fmt.Sprintf("retention of %s: %s older than %s", from, what, r.Age)
}

// below reports whether a scope is another, or below it; "" is above all.
func below(scope, of string) bool {
	return of == "" || store.Below(scope, of)
}
