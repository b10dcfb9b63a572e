package foreign

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// Keys of the metadata that an import adds to the metadata of the file.
const (
	MetaSource = "import.source" // the format
	MetaID     = "import.id"     // its key in the file
	MetaDigest = "import.sha256" // of what the file says of it
	MetaFields = "import.fields" // JSON: fields that have no place in an artefact
)

const maxFields = 32 << 10

// item makes an artefact of what an element says. key is its key in the file; fields are those that have no place in it.
func item(f Format, key string, a store.Artefact, fields map[string]json.RawMessage) store.Artefact {
	a.ID = string(f) + ":" + key
	if len(a.ID) > store.MaxID || store.CheckID("id", a.ID) != nil {
		sum := sha256.Sum256([]byte(key))
		a.ID = string(f) + ":sha256-" + hex.EncodeToString(sum[:])
	}
	a.Provenance = store.Scratch
	meta := map[string]string{}
	size := 0
	for _, k := range slices.Sorted(maps.Keys(a.Meta)) {
		if size += len(k) + len(a.Meta[k]); size < store.MaxMeta/2-maxFields/2 {
			meta[k] = a.Meta[k]
		}
	}
	if rest := rawFields(fields); rest != "" {
		meta[MetaFields] = rest
	}
	meta[MetaSource], meta[MetaID] = string(f), cut(key, 1024)
	a.Meta = meta
	a.Tags = tags(a.Tags)
	a.Meta[MetaDigest] = digest(&a)
	return a
}

func digest(a *store.Artefact) string {
	b, err := json.Marshal(a) // maps are sorted
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func rawFields(fields map[string]json.RawMessage) string {
	keep := map[string]json.RawMessage{}
	size := 0
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		v := fields[k]
		if string(v) == "null" {
			continue
		}
		if size += len(k) + len(v) + 8; size > maxFields {
			continue
		}
		keep[k] = v
	}
	if len(keep) == 0 {
		return ""
	}
	b, err := json.Marshal(keep)
	if err != nil {
		return ""
	}
	return string(b)
}

func fieldsBut(e element, known ...string) map[string]json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(e.raw, &all) != nil {
		return nil
	}
	for _, k := range known {
		delete(all, k)
	}
	return all
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

func label(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.TrimSpace(s))
	return cut(s, store.MaxID)
}

func tags(in []string) (out []string) {
	for _, t := range in {
		if t = label(t); t != "" && !slices.Contains(out, t) && len(out) < store.MaxTags {
			out = append(out, t)
		}
	}
	return out
}

// timeIn reads a time as files have them: RFC 3339, or seconds, or milliseconds, since 1970. Nothing is the zero time.
func timeIn(e element, field string, b json.RawMessage) (time.Time, error) {
	s := strings.Trim(string(b), `"`)
	if s == "null" || s == "" {
		return time.Time{}, nil
	}
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		if math.Abs(n) > 1e11 {
			n /= 1000
		}
		if !(math.Abs(n) < 2e11) {
			return time.Time{}, e.wrong(field, store.Invalid("time", cut(s, 40), "seconds since 1970 before the year 8307"))
		}
		return time.UnixMicro(int64(n * 1e6)).UTC(), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999", "2006-01-02 15:04:05.999999", time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC().Truncate(time.Microsecond), nil
		}
	}
	return time.Time{}, e.wrong(field, store.Invalid("time", strconv.Quote(cut(s, 40)), "a time as in RFC 3339, or seconds since 1970"))
}

// when reads the time of which something is. One that cannot be read is counted and is the zero time, because it refuses nothing else.
func (e element) when(raw json.RawMessage) time.Time {
	at, err := timeIn(e, "", raw)
	if err != nil && e.undated != nil {
		*e.undated++
	}
	return at
}

func text(b json.RawMessage) string {
	var s string
	_ = json.Unmarshal(b, &s)
	return s
}

// flat returns the fields of a JSON object as metadata: strings as they are, others as JSON.
func flat(fields map[string]json.RawMessage) map[string]string {
	out := map[string]string{}
	for k, v := range fields {
		var s string
		switch {
		case json.Unmarshal(v, &s) == nil && string(v) != "null":
			out[k] = s
		case string(v) != "null":
			out[k] = string(v)
		}
	}
	return out
}

// repeats finds, in a first reading of a file, the ids that come more than once in it. Of those only the last item counts: if each
// were written, every import of the file would write them again.
//
// An id marks a bit of a fixed table. Only of ids whose bit was marked before, which are those that repeat and a few others, is the
// place of the last item kept, so the memory does not grow with a file without repeats.
type repeats struct {
	marked []uint64
	last   map[uint64]int // by digest of the id: the index of the last item that has it
}

const repeatBits = 1 << 26 // 8 MiB

func idDigest(id string) uint64 {
	sum := sha256.Sum256([]byte(id))
	return binary.LittleEndian.Uint64(sum[:])
}

// note takes the id of the item with an index, in the order of the file.
func (r *repeats) note(id string, index int) {
	d := idDigest(id)
	word, bit := &r.marked[d%repeatBits/64], uint64(1)<<(d%64)
	if *word&bit != 0 {
		r.last[d] = index
	}
	*word |= bit
}

// repeated reports whether the id of an item occurs again later in the file. A nil *repeats knows of
// none.
func (r *repeats) repeated(id string, index int) bool {
	return r != nil && r.last[idDigest(id)] > index
}
