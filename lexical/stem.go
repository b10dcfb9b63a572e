package lexical

import (
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/kljensen/snowball/english"
)

const (
	stemShards   = 16
	stemsInShard = 4096 // words; a full shard starts again, 65,536 words in all
)

// stemCache remembers the stem of lower-case English words: stemming is five
// sixths of the time of an analysis without it. Stop words are kept as "".
type stemCache [stemShards]struct {
	sync.RWMutex
	stems map[string]string
}

// stem returns the stem of a word of a–z, "" for a stop word.
func (c *stemCache) stem(word []byte) string {
	shard := &c[xxhash.Sum64(word)%stemShards]
	shard.RLock()
	s, ok := shard.stems[string(word)]
	shard.RUnlock()
	if ok {
		return s
	}
	w := string(word)
	s = stem(w)
	if s == w {
		s = w // one string for both
	}
	shard.Lock()
	defer shard.Unlock()
	if shard.stems == nil || len(shard.stems) >= stemsInShard {
		shard.stems = make(map[string]string, 256)
	}
	shard.stems[w] = s
	return s
}

func stem(word string) string {
	if isStopWord(word) {
		return ""
	}
	return english.Stem(word, true)
}
