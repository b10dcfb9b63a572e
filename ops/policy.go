package ops

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

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
