package main

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Sizes by hand: 1000/1, 1000/2, 1000/3, and from there on at least 300.
func TestSizes(t *testing.T) {
	f := Fleet{Tenants: 5, Skew: 1, MinPages: 300, MaxPages: 1000, Active: .4, Stay: 10, Seed: 7}
	sizes := []int{}
	for n := range f.Tenants {
		sizes = append(sizes, f.pages(n))
	}
	require.Equal(t, []int{1000, 500, 333, 300, 300}, sizes)
	require.Equal(t, 2433, f.total())
	require.Equal(t, 2, f.active())
	require.InDelta(t, .2, f.arrivals(), 1e-12)
	f.Skew = 2
	require.Equal(t, 300, f.pages(1), "1000/4 is less than the least")

	f.Tenants = 1000
	list := f.chosen(10)
	require.Equal(t, list, f.chosen(10), "the same seed, the same tenants")
	for i, n := range list {
		require.Equal(t, i, n/100, "one of each hundred")
	}
}

// The list of what was used last, by hand.
func TestRecent(t *testing.T) {
	r, had := newRecent(2), []bool{}
	for _, n := range []int{1, 2, 1, 3, 2, 1, 1} { // 3 takes the place of 2, 2 that of 1, 1 that of 3
		had = append(had, r.use(n))
	}
	require.Equal(t, []bool{false, false, true, false, false, false, true}, had)
	require.Len(t, r.at, 2)
}

// If every tenant has a place, none is opened twice; if one has, nearly all are. Without skew the share is that of the places.
func TestMisses(t *testing.T) {
	f := Fleet{Tenants: 1000, Skew: 0, Active: .1, Stay: 1, Keep: 5, Seed: 3}
	require.InDelta(t, .5, f.misses(), .05, "500 places for 1,000 tenants that are equal")
	require.Equal(t, f.misses(), f.misses())
	few := f
	few.Keep = .01
	require.Greater(t, few.misses(), .99)
	f.Skew = 1
	require.Less(t, f.misses(), .2, "the large ones are there again and again")
}

// What a fleet needs, computed by hand: 1,000 tenants of which 100 are active, 20,000 pages.
func TestPlan(t *testing.T) {
	f := Fleet{Tenants: 1000, Active: .1, Stay: 50, Puts: 2, Contexts: 3}
	s := Server{Cores: 4, Memory: 1000, Disk: 10_000, Use: .5, Price: 30}
	c := Cost{PutCPU: .001, ContextCPU: .002, ArriveCPU: .1, ProcessMem: 100, PageMem: .01, TenantMem: .2, PageDisk: .5, TenantDisk: 1, OpenDisk: 4, PageOpenCPU: .001, TenantOpenCPU: .02}

	// cores: 100 × (2 × .001 + 3 × .002) + 100/50 × .25 × .1 = .8 + .05; memory: half of 20,000 × .01 + 1,000 × .2;
	// disk: 20,000 × .5 + 1,000 × 1 + 500 × 4
	n := plan(&f, 20_000, c, s, .5, .25)
	require.InDelta(t, .85, n.Cores, 1e-9)
	require.InDelta(t, 200, n.Memory, 1e-9)
	require.InDelta(t, 13_000, n.Disk, 1e-9)
	require.InDelta(t, .5, n.Arrivals, 1e-9)
	// a server has 2 cores, 500 − 100 bytes of memory and 5,000 of disk
	require.InDelta(t, 2/.85*1000, n.KneeCores, 1e-6)
	require.InDelta(t, 2000, n.KneeMemory, 1e-6)
	require.InDelta(t, 5000.0/13, n.KneeDisk, 1e-6)
	require.Equal(t, "disk", n.Bound)
	require.Equal(t, 3, n.Servers, "384 tenants each")
	require.InDelta(t, .09, n.Price, 1e-12)
	require.InDelta(t, 20.0/3, n.Restart, 1e-9, "each of three servers opens a third of half of 20,000 × .001 + 1,000 × .02")

	s.Disk = 1e6
	n = plan(&f, 20_000, c, s, .5, .25)
	require.Equal(t, "memory", n.Bound)
	require.Equal(t, 1, n.Servers)
	s.Memory = 1e6
	require.Equal(t, "cores", plan(&f, 20_000, c, s, .5, .25).Bound)

	s.Memory, s.Price = 200, 0 // the process alone takes all that is planned with
	n = plan(&f, 20_000, c, s, .5, .25)
	require.Zero(t, n.Servers)
	require.Zero(t, n.Price)
	require.Equal(t, math.MaxFloat64, knee(1, 0, 5))
}

// A small fleet, measured and printed: everything that is asked for is there, and its numbers follow from each other.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	args := []string{"-tenants", "2000", "-max-pages", "200", "-scopes", "12", "-files", "4", "-ops", "24", "-dir", t.TempDir()}
	require.NoError(t, run(append(args, "-json", "-price", "70", "-price-source", "an offer"), &out))
	var r Report
	require.NoError(t, json.Unmarshal(out.Bytes(), &r))
	require.Equal(t, r.Fleet.total(), r.Pages)
	require.Len(t, r.Ways, 2)
	for _, w := range r.Ways {
		require.Positive(t, w.Measured.Tenants, w.Name)
		require.Positive(t, w.Cost.PutCPU, w.Name)
		require.Positive(t, w.Cost.ContextCPU, w.Name)
		require.Positive(t, w.Measured.DiskPage, w.Name)
		require.Equal(t, plan(&r.Fleet, r.Pages, w.Cost, r.Server, w.Open, w.Cold), w.Need, w.Name)
		require.Positive(t, w.Need.Servers, w.Name)
		require.Positive(t, w.Need.Price, w.Name)
	}
	out.Reset()
	require.NoError(t, run(args, &out))
	for _, word := range []string{"scopes in one database", "a database each", "servers", "knee", "no price was given: -price"} {
		require.Contains(t, out.String(), word)
	}
	require.ErrorContains(t, run([]string{"-price", "70"}, &out), "-price-source")
	require.ErrorContains(t, run([]string{"-active", "2"}, &out), "-active")
	require.NotContains(t, out.String(), "NaN")
	require.NotContains(t, out.String(), "Inf")
}
