package nearest

import (
	"cmp"
	"slices"
)

// A search of few vectors computes the cosine of each. Of many it goes coarse to fine:
//
//	signs     of all: how many differ from the question's, which has two bits a dimension (count)
//	codes     of the fiftieth that differs least, but of many: both have two bits a dimension (refine)
//	cosines   of the depth nearest by code (closest)
//
// Each step counts in small integers, so a histogram finds where the nearest end without sorting, and takes all that are as
// near as the last.
//
// Excluded pages take no place among these. What a bit can tell (Live, Only) is asked while signs are counted; Shown, which
// costs more, of those that are near, and the range is widened until enough are shown.
const (
	// exactly is how many vectors are few: their cosines take about as long as the coarse steps do at least.
	exactly = 4096
	// refined is how many codes are compared at least. Of 100,000 vectors the nearest 5,000 by signs have .99 of the nearest 50.
	refined = 5000
	// share is the part of many vectors whose codes are compared.
	share = 50
	// part is how many slots are counted before their counts are looked at, while the processor still has them at hand.
	part = 4096
	// furthest is above every count; a slot that is free or excluded has it.
	furthest = 1 << 15
)

// depth is how many cosines are computed for k results (bench/README.md has the recall).
func depth(k, total int) int { return 10*k + 500 + total/400 }

// Hit is a vector that was found, and its cosine with the question's.
type Hit struct {
	Num    uint64
	Cosine float64
}

// Visible says which numbers may be found. The zero Visible lets all be found.
type Visible struct {
	// Live and Only have a bit for each number, from 0; a number must have it in both. Nil: all have it.
	Live, Only []uint64
	// Shown is asked of those that have both bits; nil: all are shown.
	Shown func(num uint64) bool
}

func (v *Visible) may(num uint64) bool { return has(v.Live, num) && has(v.Only, num) }

func has(bits []uint64, num uint64) bool {
	return bits == nil || num/64 < uint64(len(bits)) && bits[num/64]&(1<<(num%64)) != 0
}

// Finder has the memory of searches. It is not safe for concurrent use; its zero value is ready.
type Finder struct {
	counts []uint16 // by slot, set after set
	seen   []int    // histogram of counts
	coarse []place  // of what is refined
	far    []int    // histogram of their codes
	hits   []Hit
	read   uint64 // see touch
}

// place is a slot, and how far its code is from the question's.
type place struct {
	set  int32
	at   uint32
	code uint16
}

// Search gives the k visible vectors of some sets with the greatest cosines, greatest first; of equal ones the greater
// number, which is the later page, comes first. The sets of another length than the question are passed over. The result
// is valid until the next search.
func (f *Finder) Search(sets []*Set, q *Question, k int, v Visible) []Hit {
	f.hits = f.hits[:0]
	total := 0
	for _, s := range sets {
		if s.dims == len(q.large) {
			total += len(s.nums)
		}
	}
	switch {
	case k <= 0 || total == 0 || q.scale == 0:
		return nil
	case total <= exactly:
		f.all(sets, q, &v)
	default:
		f.count(sets, q, total, &v)
		f.closest(sets, q, total, depth(k, total), &v)
	}
	slices.SortFunc(f.hits, func(a, b Hit) int { return cmp.Or(cmp.Compare(b.Cosine, a.Cosine), cmp.Compare(b.Num, a.Num)) })
	return f.hits[:min(k, len(f.hits))]
}

func (f *Finder) all(sets []*Set, q *Question, v *Visible) {
	for _, s := range sets {
		if s.dims != len(q.large) {
			continue
		}
		for at, num := range s.nums {
			if num != 0 && v.may(num) {
				f.take(s, q, at, v)
			}
		}
	}
}

func (f *Finder) take(s *Set, q *Question, at int, v *Visible) {
	num := s.nums[at]
	if s.scale[at] == 0 {
		return
	}
	if v.Shown != nil && !v.Shown(num) {
		return
	}
	f.hits = append(f.hits, Hit{num, s.cosine(q, at)})
}

// count fills in the counts of all slots and their histogram.
func (f *Finder) count(sets []*Set, q *Question, total int, v *Visible) {
	f.counts = slices.Grow(f.counts[:0], total)[:total]
	f.seen = slices.Grow(f.seen[:0], furthest+1)[:furthest+1]
	clear(f.seen)
	rest := f.counts
	for _, s := range sets {
		if s.dims != len(q.large) {
			continue
		}
		plain := v.Live == nil && v.Only == nil && len(s.free) == 0
		for from := 0; from < len(s.nums); from += part {
			to := min(from+part, len(s.nums))
			counts := rest[from:to]
			s.differing(q, from, counts)
			if !plain {
				v.hide(s.nums[from:to], counts)
			}
			for _, n := range counts {
				f.seen[n]++
			}
		}
		rest = rest[len(s.nums):]
	}
	f.seen[furthest] = 0
}

// hide makes slots that are free or excluded the furthest.
func (v *Visible) hide(nums []uint64, counts []uint16) {
	for at, num := range nums {
		if num == 0 || !v.may(num) {
			counts[at] = furthest
		}
	}
}

// closest computes the cosines of those whose codes are nearest, of those that differ in the fewest signs, until enough are
// shown or none is left.
func (f *Finder) closest(sets []*Set, q *Question, total, enough int, v *Visible) {
	for from := 0; from < furthest && len(f.hits) < enough; {
		left, to := max(total/share, refined, 2*enough), from
		for ; to < furthest && left > 0; to++ {
			left -= f.seen[to]
		}
		f.refine(sets, q, from, to)
		f.nearest(sets, q, enough, v)
		from = to
	}
}

// refine lists the slots whose signs differ from the question's in so many, with how far their codes are, and the histogram.
func (f *Finder) refine(sets []*Set, q *Question, from, to int) {
	f.list(sets, q, from, to)
	f.far = slices.Grow(f.far[:0], furthest+1)[:furthest+1]
	clear(f.far)
	shift := 0
	for 18*len(q.large)>>shift >= furthest {
		shift++
	}
	for some := range slices.Chunk(f.coarse, together) {
		for _, p := range some {
			f.read += sets[p.set].touch(int(p.at))
		}
		for i := range some {
			p := &some[i]
			p.code = uint16(sets[p.set].coarse(q, int(p.at)) >> shift)
			f.far[p.code]++
		}
	}
}

// list lists the slots whose signs differ in at least from and less than to.
func (f *Finder) list(sets []*Set, q *Question, from, to int) {
	f.coarse = f.coarse[:0]
	rest, least, span := f.counts, uint16(from), uint16(to-from)
	for i, s := range sets {
		if s.dims != len(q.large) {
			continue
		}
		for at, n := range rest[:len(s.nums)] {
			if n-least < span {
				f.coarse = append(f.coarse, place{int32(i), uint32(at), 0})
			}
		}
		rest = rest[len(s.nums):]
	}
}

// together is how many slots are read at once. They lie far apart: one by one each waits for memory, of these all wait at
// once.
const together = 32

// touch reads the codes of a slot, so that they are at hand soon. The result says nothing: it keeps the reads from being
// left out.
func (s *Set) touch(at int) uint64 {
	first, last := at*s.words, at*s.words+s.words-1
	return s.signs[first] + s.signs[last] + s.great[first] + s.great[last]
}

// touchSmall reads the numbers of a slot, as touch its codes.
func (s *Set) touchSmall(at int) (read uint64) {
	const line = 64 // bytes that come from memory together
	numbers := s.small[at*s.dims:][:s.dims]
	for i := 0; i < len(numbers); i += line {
		read += uint64(numbers[i])
	}
	return read
}

// nearest computes the cosines of the nearest by code that are shown, until there are enough.
func (f *Finder) nearest(sets []*Set, q *Question, enough int, v *Visible) {
	for from := 0; from < furthest && len(f.hits) < enough; {
		left, to := enough-len(f.hits), from
		for ; to < furthest && left > 0; to++ {
			left -= f.far[to]
		}
		f.takeCoded(sets, q, from, to, v)
		from = to
	}
}

// takeCoded takes the slots whose codes are at least from and less than to away.
func (f *Finder) takeCoded(sets []*Set, q *Question, from, to int, v *Visible) {
	for rest := f.coarse; len(rest) > 0; {
		var some [together]place
		n := 0
		for n < together && len(rest) > 0 {
			if p := rest[0]; int(p.code) < to && int(p.code) >= from {
				some[n] = p
				n++
				f.read += sets[p.set].touchSmall(int(p.at))
			}
			rest = rest[1:]
		}
		for _, p := range some[:n] {
			f.take(sets[p.set], q, int(p.at), v)
		}
	}
}
