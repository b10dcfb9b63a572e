package directive

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// check holds a tree to its invariants and returns its height.
func (t *node) check(tb testing.TB) int {
	if t == nil {
		return 0
	}
	left, right := t.left.check(tb), t.right.check(tb)
	if left-right > 1 || right-left > 1 || int(t.height) != 1+max(left, right) {
		tb.Fatalf("%q: %d, over %d and %d", t.Item, t.height, left, right)
	}
	return int(t.height)
}

func (s policySet) check(tb testing.TB, want map[string]Polarity) {
	s.root.check(tb)
	keys := slices.Sorted(maps.Keys(want))
	i := 0
	for p := range s.all() {
		if i == len(keys) || p.Item != keys[i] || p.Polarity != want[p.Item] {
			tb.Fatalf("%d: %v", i, p)
		}
		i++
	}
	if i != len(want) || s.n != len(want) {
		tb.Fatalf("%d and %d of %d", i, s.n, len(want))
	}
}

// TestPolicySetEqualsAMap adds and removes, in phases of growing and shrinking,
// and holds older sets to what they were.
func TestPolicySetEqualsAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	type version struct {
		set  policySet
		want map[string]Polarity
	}
	now, kept := version{want: map[string]Polarity{}}, []version{}
	for i := range 20_000 {
		key := fmt.Sprintf("key %d", rng.IntN(2000))
		had := now.want[key]
		if now.set.get(key) != had {
			t.Fatalf("%q: %v, want %v", key, now.set.get(key), had)
		}
		var told Polarity
		if grows := i/4000%2 == 0; rng.IntN(3) == 0 != grows {
			polarity := []Polarity{Use, Prohibit}[rng.IntN(2)]
			if now.set, told = now.set.add(key, polarity); had == "" {
				now.want[key] = polarity
			}
		} else {
			now.set, told = now.set.remove(key)
			delete(now.want, key)
		}
		if told != had {
			t.Fatalf("%q had %v, told %v", key, had, told)
		}
		if i%1000 == 0 {
			kept = append(kept, version{now.set, maps.Clone(now.want)})
		}
	}
	for _, v := range append(kept, now) {
		v.set.check(t, v.want)
	}
	var sorted []Policy
	for _, key := range slices.Sorted(maps.Keys(now.want)) {
		sorted = append(sorted, Policy{key, now.want[key]})
	}
	policySetOf(sorted).check(t, now.want)
}

func TestNewStateTakesTheLaterOfTwo(t *testing.T) {
	s, err := NewState("", Policy{"vim", Use}, Policy{"The Ed", Use}, Policy{"VIM", Prohibit}, Policy{"ed", Use}, Policy{"ed", Prohibit})
	if got := strings.Join(s.Items(Prohibit), " "); err != nil || got != "ed vim" || s.Len() != 2 {
		t.Fatalf("%q of %d: %v", got, s.Len(), err)
	}
	s, err = NewState("", Policy{"ed", Prohibit}, Policy{"Ed", Use})
	if err != nil || s.Policy("ed") != Use {
		t.Fatal(s.Policy("ed"), err)
	}
}
