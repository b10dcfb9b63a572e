package embed

import (
	"crypto/sha256"
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// digest stands for a text: the cache holds no text.
type digest [sha256.Size]byte

func digestOf(text string) digest { return sha256.Sum256([]byte(text)) }

// cache keeps vectors up to a number of bytes; the least recently used go first. What is in it is never changed.
type cache struct {
	mu    sync.Mutex
	list  *simplelru.LRU[digest, []float32]
	limit int
	bytes int
}

// entryOverhead is the size of an entry beside its numbers: digest, list element, map slot.
const entryOverhead = 160

func newCache(limit int) *cache {
	c := &cache{limit: limit}
	var err error
	c.list, err = simplelru.NewLRU(math.MaxInt32, func(_ digest, v []float32) { c.bytes -= size(v) })
	if err != nil {
		panic(err) // only for a length below 1
	}
	return c
}

func size(v []float32) int { return 4*len(v) + entryOverhead }

func (c *cache) get(k digest) []float32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, _ := c.list.Get(k)
	return v
}

func (c *cache) put(k digest, v []float32) {
	if size(v) > c.limit {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list.Contains(k) {
		return
	}
	c.list.Add(k, v)
	c.bytes += size(v)
	for c.bytes > c.limit {
		c.list.RemoveOldest()
	}
}
