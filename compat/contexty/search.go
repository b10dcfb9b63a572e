package contexty

import (
	"context"
	"fmt"
)

// cuts are the states that truncation goes through. State k is the block after k removals; each takes one message or a
// pair. Only protected messages stay before the last one removed.
type cuts struct {
	*truncate
	all     []Message
	removal []int32 // messages in the order in which they go, as far as it is known; small, for they are most of what a cut costs
	ends    []int32 // ends[k] messages of removal are gone in state k
	counter TokenCounter

	sizes []int // sizes[k] is the text gone in state k: where counts are expected, never what they are
	size  int   // of the whole block
}

func (t *truncate) cuts(msgs []Message, counter TokenCounter) *cuts {
	return &cuts{truncate: t, all: msgs, removal: make([]int32, 0, len(msgs)), ends: append(make([]int32, 0, len(msgs)+1), 0), counter: counter}
}

// cut adds the state after the last one known, and returns the messages that it takes; none: there is no further state.
func (c *cuts) cut() []int32 {
	from := len(c.removal)
	i := 0
	if from > 0 {
		i = int(c.removal[from-1]) + 1
	}
	for i < len(c.all) && c.protects(&c.all[i]) {
		i++
	}
	if i == len(c.all) {
		return nil
	}
	c.removal = append(c.removal, int32(i))
	if c.pairAt(c.all, i) {
		c.removal = append(c.removal, int32(i+1))
	}
	c.ends = append(c.ends, int32(len(c.removal)))
	return c.removal[from:]
}

// measure finds all states, and the sizes.
func (c *cuts) measure() {
	gone := 0
	c.sizes = make([]int, 1, len(c.all)+1)
	for went := c.cut(); went != nil; went = c.cut() {
		for _, i := range went {
			gone += extent(&c.all[i])
		}
		c.sizes = append(c.sizes, gone)
	}
	for i := range c.all {
		c.size += extent(&c.all[i])
	}
}

// extent returns the rough length of a message.
func extent(m *Message) int {
	n := 16 + len(m.Name)
	for i := range m.Content {
		n += len(m.Content[i].Text)
	}
	for i := range m.ToolCalls {
		n += len(m.ToolCalls[i].Function.Name) + len(m.ToolCalls[i].Function.Arguments)
	}
	return n
}

// rest is the block in state k. It is borrowed from the block where nothing protected stays behind.
func (c *cuts) rest(k int) (out []Message, borrowed bool) {
	end := int(c.ends[k])
	if end == 0 {
		return c.all, true
	}
	if int(c.removal[end-1]) == end-1 { // a prefix is gone
		return c.all[end:len(c.all):len(c.all)], true
	}
	out = make([]Message, 0, len(c.all)-end)
	next := 0
	for i := range c.all {
		if next < end && int(c.removal[next]) == i {
			next++
			continue
		}
		out = append(out, c.all[i])
	}
	return out, false
}

// count asks the counter for state k.
func (c *cuts) count(ctx context.Context, k, whole int) (int, error) {
	left, _ := c.rest(k)
	n, err := c.counter.Count(ctx, left)
	if err != nil {
		return 0, fmt.Errorf("contexty: truncate: %w", err)
	}
	if n > whole {
		return 0, grew(whole, n)
	}
	return n, nil
}

func grew(whole, n int) error {
	return fmt.Errorf("contexty: truncate: %w: the count grew from %d to %d while messages went", ErrTokenCountFailed, whole, n)
}

// search returns the first state that fits, or the last one. Counts fall as messages go, so the state is bracketed:
// states up to lo do not fit, hi fits or no state comes after it. Counts at both ends place the limit; the next question
// goes there, a little beyond to the side that moved last, so that both ends close in. Every fourth question halves the bracket. A counter whose counts follow the texts is asked two or three times, any other one at
// most about four times the logarithm. A counter that is seen to count more of fewer messages is walked.
func (c *cuts) search(ctx context.Context, whole, limit int) (int, error) {
	c.measure()
	lo, hi := 0, len(c.ends)-1
	nLo, nHi := whole, 0
	if c.size > 0 {
		nHi = int(float64(whole) * float64(c.size-c.sizes[hi]) / float64(c.size)) // not asked for: a guess
	}
	known, movedHi := false, false
	for asked := 1; hi-lo > 1; asked++ {
		at := (lo + hi) / 2
		if asked%4 != 0 {
			at = c.expect(lo, hi, nLo, nHi, limit)
			if asked > 1 && movedHi {
				at -= 1 + (hi-at)/4
			} else if asked > 1 {
				at += 1 + (at-lo)/4
			}
			at = min(max(at, lo+1), hi-1)
		}
		n, err := c.count(ctx, at, whole)
		if err != nil {
			return 0, err
		}
		if n > nLo || known && n < nHi {
			return c.walk(ctx, whole, limit)
		}
		if movedHi = n <= limit; movedHi {
			hi, nHi, known = at, n, true
		} else {
			lo, nLo = at, n
		}
	}
	return hi, nil
}

// expect is the state in which the counts of lo and hi put the limit, if counts follow the texts between them.
func (c *cuts) expect(lo, hi, nLo, nHi, limit int) int {
	share := 1.0
	if nLo > nHi {
		share = min(float64(nLo-limit)/float64(nLo-nHi), 1)
	}
	want := c.sizes[lo] + int(share*float64(c.sizes[hi]-c.sizes[lo]))
	from, to := lo, hi
	for from < to { // the first state with so much text gone
		if m := (from + to) / 2; c.sizes[m] < want {
			from = m + 1
		} else {
			to = m
		}
	}
	return from
}

// subtract returns the first state that fits, or the last one, by the weights of the messages.
func (c *cuts) subtract(w weigher, whole, limit int) (int, error) {
	var sum weight
	for i := range c.all {
		sum = sum.plus(w.weigh(&c.all[i]))
	}
	for went := c.cut(); went != nil; went = c.cut() {
		for _, i := range went {
			sum = sum.minus(w.weigh(&c.all[i]))
		}
		n := w.tokens(sum)
		if n > whole {
			return 0, grew(whole, n)
		}
		if n <= limit {
			break
		}
	}
	return len(c.ends) - 1, nil
}

// walk asks for every state in turn. It defines the answer and is quadratic.
func (c *cuts) walk(ctx context.Context, whole, limit int) (int, error) {
	for k := 1; k < len(c.ends) || c.cut() != nil; k++ {
		n, err := c.count(ctx, k, whole)
		if err != nil || n <= limit {
			return k, err
		}
	}
	return len(c.ends) - 1, nil
}
