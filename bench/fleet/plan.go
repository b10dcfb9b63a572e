package main

import (
	"math"
	"math/rand/v2"
	"sort"
)

// Fleet is what is asked of all tenants together. Tenants are numbered by size, the largest first.
type Fleet struct {
	Tenants  int     `json:"tenants"`
	Skew     float64 `json:"skew"`      // exponent of Zipf's law, for sizes and for who is active
	MinPages int     `json:"min_pages"` // of a tenant
	MaxPages int     `json:"max_pages"` // of the largest one
	Active   float64 `json:"active"`    // share of the tenants that are active at a time
	Stay     float64 `json:"stay"`      // seconds that a tenant is active
	Puts     float64 `json:"puts"`      // a second, of an active tenant
	Contexts float64 `json:"contexts"`  // likewise
	Keep     float64 `json:"keep"`      // databases that are kept open, for each active tenant
	Seed     uint64  `json:"seed"`
}

// pages returns the size of tenant number n, from 0.
func (f *Fleet) pages(n int) int {
	return max(f.MinPages, int(float64(f.MaxPages)/math.Pow(float64(n+1), f.Skew)))
}

// total returns the pages of all tenants.
func (f *Fleet) total() (sum int) {
	for n := range f.Tenants {
		sum += f.pages(n)
	}
	return sum
}

// active returns how many tenants are active at a time.
func (f *Fleet) active() int { return max(1, int(f.Active*float64(f.Tenants))) }

// arrivals returns how many tenants become active in a second.
func (f *Fleet) arrivals() float64 { return float64(f.active()) / f.Stay }

// chosen returns n tenants at equal distances, from a random beginning: their mean size is near that of all but the largest.
func (f *Fleet) chosen(n int) []int {
	at, list := rand.New(rand.NewPCG(f.Seed, 1)).Float64(), make([]int, n)
	for i := range list {
		list[i] = int((float64(i) + at) * float64(f.Tenants) / float64(n))
	}
	return list
}

// misses simulates tenants that become active, by Zipf's law, beside a list of the databases that were used last. It returns
// the share of those whose database must be opened, after the list is full.
func (f *Fleet) misses() float64 {
	upTo, sum := make([]float64, f.Tenants), 0.0
	for n := range upTo {
		sum += 1 / math.Pow(float64(n+1), f.Skew)
		upTo[n] = sum
	}
	rng, room := rand.New(rand.NewPCG(f.Seed, 2)), max(1, int(f.Keep*float64(f.active())))
	used := newRecent(room)
	draw := func() bool { return used.use(sort.SearchFloat64s(upTo, rng.Float64()*sum)) }
	for i := 0; len(used.at) < min(room, f.Tenants/2) && i < 50*room; i++ {
		draw()
	}
	opened, of := 0, max(1000, 5*f.active())
	for range of {
		if !draw() {
			opened++
		}
	}
	return float64(opened) / float64(of)
}

// recent is a list of what was used last. Times instead of links: the oldest is found by a queue of uses, of which the last counts.
type recent struct {
	room  int
	at    map[int]int // time of the last use
	queue []int       // who was used, by time
	from  int         // time of the first in the queue
}

func newRecent(room int) *recent { return &recent{room: room, at: map[int]int{}} }

// use notes a use and reports whether it was in the list.
func (r *recent) use(n int) bool {
	_, had := r.at[n]
	r.at[n] = r.from + len(r.queue)
	r.queue = append(r.queue, n)
	for len(r.at) > r.room {
		if oldest := r.queue[0]; r.at[oldest] == r.from {
			delete(r.at, oldest)
		}
		r.queue, r.from = r.queue[1:], r.from+1
	}
	return had
}

// Server is what one server has.
type Server struct {
	Cores  float64 `json:"cores"`
	Memory float64 `json:"memory"` // bytes
	Disk   float64 `json:"disk"`   // bytes
	Use    float64 `json:"use"`    // share of them that is planned with
	Price  float64 `json:"price"`  // a month; 0: not given
	Source string  `json:"source"` // of the price
}

// Cost is what one way of keeping tenants takes, as it was measured. Times are seconds of one processor.
type Cost struct {
	PutCPU     float64 `json:"put_cpu"`
	ContextCPU float64 `json:"context_cpu"`
	ArriveCPU  float64 `json:"arrive_cpu"` // more, for the first context of a tenant whose data is cold
	ProcessMem float64 `json:"process_mem"`
	PageMem    float64 `json:"page_mem"`  // for each page of the tenants that are open
	TenantMem  float64 `json:"open_mem"`  // for each tenant that is open
	PageDisk   float64 `json:"page_disk"` // bytes
	TenantDisk float64 `json:"tenant_disk"`
	OpenDisk   float64 `json:"open_disk"` // more, for each tenant that is open
	// PageOpenCPU and TenantOpenCPU are what a process takes to open, for each page and tenant that is open.
	PageOpenCPU   float64 `json:"page_open_cpu"`
	TenantOpenCPU float64 `json:"tenant_open_cpu"`
}

// Need is what the fleet takes.
type Need struct {
	Cores      float64 `json:"cores"`  // busy
	Memory     float64 `json:"memory"` // bytes, without ProcessMem of each server
	Disk       float64 `json:"disk"`
	Arrivals   float64 `json:"arrivals"` // cold tenants a second
	KneeCores  float64 `json:"knee_cores"`
	KneeMemory float64 `json:"knee_memory"`
	KneeDisk   float64 `json:"knee_disk"`
	Knee       float64 `json:"knee"`  // tenants of one process on one server, before Bound is reached
	Bound      string  `json:"bound"` // cores, memory or disk
	Servers    int     `json:"servers"`
	Restart    float64 `json:"restart"` // CPU of a server to open all that it had open
	Price      float64 `json:"price"`   // a tenant and month; 0: no price was given
}

// plan computes what a fleet needs. open is the share of tenants that a process has open, cold the share of arriving ones
// that are cold.
func plan(f *Fleet, pages int, c Cost, s Server, open, cold float64) (n Need) {
	all, active := float64(f.Tenants), float64(f.active())
	n.Arrivals = f.arrivals() * cold
	n.Cores = active*(f.Puts*c.PutCPU+f.Contexts*c.ContextCPU) + n.Arrivals*c.ArriveCPU
	n.Memory = open * (float64(pages)*c.PageMem + all*c.TenantMem)
	n.Disk = float64(pages)*c.PageDisk + all*c.TenantDisk + open*all*c.OpenDisk
	n.KneeCores = knee(s.Cores*s.Use, n.Cores, all)
	n.KneeMemory = knee(s.Memory*s.Use-c.ProcessMem, n.Memory, all)
	n.KneeDisk = knee(s.Disk*s.Use, n.Disk, all)
	n.Knee, n.Bound = n.KneeCores, "cores"
	if n.KneeMemory < n.Knee {
		n.Knee, n.Bound = n.KneeMemory, "memory"
	}
	if n.KneeDisk < n.Knee {
		n.Knee, n.Bound = n.KneeDisk, "disk"
	}
	if n.Knee < 1 {
		return n // no such server carries a tenant
	}
	n.Servers = int(math.Ceil(all / n.Knee))
	n.Restart = open * (float64(pages)*c.PageOpenCPU + all*c.TenantOpenCPU) / float64(n.Servers)
	n.Price = float64(n.Servers) * s.Price / all
	return n
}

// knee returns how many of all tenants, who need a part of it together, a capacity carries.
func knee(has, need, all float64) float64 {
	switch {
	case has <= 0:
		return 0
	case need <= 0:
		return math.MaxFloat64
	}
	return has / need * all
}
