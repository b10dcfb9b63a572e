package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// Vectors of pages, by page number and model. They are computed from contents that the store has,
// so they take a shorter path: into the overlay, and from there into bbolt with the next
// checkpoint, never through the log. A crash loses the newest vectors, and they are computed again.
//
// When a vector is put, its page is durable in the log (the caller has read the page), and the
// overlay that carries the vector is the page's own or a later one. So a vector in bbolt always
// finds its page there, and a number that the log lost is never found with the vector of another
// page.

// vecKey names a vector.
type vecKey struct{ num, model uint64 }

// modelHash stands for the name of a model in keys. Two names may have one hash: the row has the
// name as well.
func modelHash(model string) uint64 { return xxhash.Sum64String(model) }

// row returns the key of the row: page number, then the hash of the model. So the vectors of a page
// stand together and go with it (deletePrefix).
func (k vecKey) row() []byte {
	return binary.BigEndian.AppendUint64(codec.AppendOrdered(nil, k.num), k.model)
}

// vecKeyOf reads the key of a row.
func vecKeyOf(key []byte) (num, model uint64, ok bool) {
	num, rest := codec.Ordered(key)
	if len(rest) != 8 {
		return 0, 0, false
	}
	return num, binary.BigEndian.Uint64(rest), true
}

// vectorVersion is the first byte of a row. Then come the name of the model, with its length, and
// the components as little-endian float32.
const vectorVersion = 1

// encodeVector makes a row. It contains the name of the model, because two names may have one hash.
func encodeVector(model string, v []float32) []byte {
	e := codec.Encoder{B: make([]byte, 0, 4+len(model)+4*len(v))}
	e.U8(vectorVersion)
	e.Str(model)
	for _, f := range v {
		e.B = binary.LittleEndian.AppendUint32(e.B, math.Float32bits(f))
	}
	return e.B
}

// decodeVector returns the model and the vector in a row. It refuses components that are not
// finite: no cosine with them would be.
func decodeVector(row []byte) (model string, v []float32, err error) { return decodeVectorTo(nil, row) }

// decodeVectorTo uses the memory of into where it suffices.
func decodeVectorTo(into []float32, row []byte) (model string, v []float32, err error) {
	d := codec.Decoder{B: row}
	version := d.U8()
	model = d.Str()
	if d.Err != nil || version != vectorVersion || len(d.B) == 0 || len(d.B)%4 != 0 {
		return "", nil, fmt.Errorf("%w: vector", codec.ErrMalformed)
	}
	v = slices.Grow(into[:0], len(d.B)/4)[:len(d.B)/4]
	largest := uint32(0) // sizes are in the order of their bits, and values that are not finite come last
	for i := range v {
		bits := binary.LittleEndian.Uint32(d.B[4*i:])
		largest = max(largest, bits&^(1<<31))
		v[i] = math.Float32frombits(bits)
	}
	if largest >= math.Float32bits(float32(math.Inf(1))) {
		return "", nil, fmt.Errorf("%w: vector is not finite", codec.ErrMalformed)
	}
	return model, v, nil
}

// vectorOf returns the vector in a row; nil: none of this model. A damaged row counts as none: the
// vector is computed again and replaces it.
func vectorOf(model string, row []byte) []float32 {
	if row == nil {
		return nil
	}
	name, v, err := decodeVector(row)
	if err != nil || name != model {
		return nil
	}
	return v
}

// has reports whether a page version exists.
func (c *catalogue) has(num uint64) bool {
	return num > 0 && num <= uint64(c.pages.len()) && c.page(num).art != 0 && !c.page(num).gone()
}

// Vectors implements store.Store. Overlays first, then the rows, as with heads.
func (s *Engine) Vectors(ctx context.Context, scopes store.Scopes, model string, nums []uint64) ([][]float32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := make([][]float32, len(nums))
	rows := make([][]byte, len(nums)) // never changed once they are in an overlay
	hash := modelHash(model)
	var missing []int
	s.cat.mu.RLock()
	chain := s.cat.chain(scopes)
	for i, num := range nums {
		if _, err := s.cat.visible(num, chain); err != nil || !s.cat.has(num) {
			continue
		}
		if rows[i] = s.overlayVector(vecKey{num, hash}); rows[i] == nil {
			missing = append(missing, i)
		}
	}
	s.cat.mu.RUnlock()
	for i, row := range rows {
		out[i] = vectorOf(model, row)
	}
	if len(missing) == 0 {
		return out, nil
	}
	return out, s.rows.View(func(tx Reader) error {
		for _, i := range missing {
			key := vecKey{nums[i], hash}.row()
			if row, err := codec.Unseal('v', key, tx.Get(TableVec, key)); err == nil {
				out[i] = vectorOf(model, row)
			}
		}
		return nil
	})
}

// overlayVector returns the row of a vector in an overlay; nil: it is in neither. The caller holds
// cat.mu.
func (s *Engine) overlayVector(k vecKey) []byte {
	if row := s.overlay.vecs[k]; row != nil || s.frozen == nil {
		return row
	}
	return s.frozen.vecs[k]
}

// PutVectors implements store.Store. A read-only database keeps none. A page that is gone or
// unknown is skipped without an error: its vector would be of no use. A crash before the next
// checkpoint loses the vectors; they are computed again when they are needed.
func (s *Engine) PutVectors(ctx context.Context, model string, nums []uint64, vecs [][]float32) error {
	if err := cmp.Or(ctx.Err(), s.Failure()); err != nil || s.opts.ReadOnly {
		return err
	}
	if s.closed.Load() {
		return store.ErrClosed
	}
	if err := format.CheckVectors(nums, vecs); err != nil {
		return err
	}
	rows := make([][]byte, len(nums))
	for i := range nums {
		rows[i] = encodeVector(model, vecs[i])
	}
	hash := modelHash(model)
	s.cat.mu.Lock()
	defer s.cat.mu.Unlock()
	if s.overlay.Rows() == 0 {
		s.overlay.since = time.Now()
	}
	for i, num := range nums {
		if s.cat.has(num) {
			delete(s.overlay.noVecs, vecKey{num, hash})
			s.overlay.vecs[vecKey{num, hash}] = rows[i]
			s.overlay.Bytes += len(rows[i])
			s.near.put(model, s.cat.page(num).scope, num, vecs[i])
		}
	}
	return nil
}

// applyVectors writes the vectors of an overlay in key order.
func applyVectors(tx Writer, o *overlay) error {
	if len(o.vecs) == 0 {
		return nil
	}
	keys := make([][]byte, 0, len(o.vecs))
	rows := make(map[string][]byte, len(o.vecs))
	for k, row := range o.vecs {
		key := k.row()
		keys = append(keys, key)
		rows[string(key)] = row
	}
	slices.SortFunc(keys, bytes.Compare)
	for _, k := range keys {
		if err := putRow(tx, TableVec, 'v', k, rows[string(k)]); err != nil {
			return err
		}
	}
	return nil
}

// gc drops the vectors of models that are no longer used. Vectors are derived data and never in the
// log, so their removal is not logged either: batches of their keys go into the overlay, and the
// checkpoint deletes the rows. After a crash the next run deletes the rest. A vector that is put
// during the run is written after the deletion.

const (
	dropVectors      = 4096 // keys in the overlay at a time
	vectorsCheckedAt = 16   // parts after which a checkpoint takes them out of memory
)

// vectors drops the vectors of all models except those that the job names.
func (c *collector) vectors() error {
	if c.job.Models == nil || format.ScopedGC(c.job) {
		return nil
	}
	keep := map[uint64]bool{}
	for _, name := range c.job.Models {
		keep[modelHash(name)] = true
	}
	if !c.dry {
		c.s.forgetModels(c.job.Models, keep, &c.rep)
	}
	var part []vecKey
	for from := []byte(nil); ; {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		var err error
		if part, from, err = c.s.vectorsOfOthers(part[:0], from, keep); err != nil {
			return err
		}
		if c.rep.Vectors += len(part); !c.dry && len(part) > 0 {
			c.s.dropVectors(part)
			c.wrote = true
			if c.commits++; c.commits%vectorsCheckedAt == 0 {
				if err := c.s.opts.Checkpoint(c.ctx); err != nil {
					return err
				}
			}
		}
		c.progress("vectors", uint64(c.rep.Vectors), 0)
		if from == nil {
			return nil
		}
	}
}

// vectorsOfOthers lists the keys of a part of the rows, and where the next part begins; nil: there
// is none. A part ends after dropVectors keys, or after 16 times as many rows were looked at: a
// snapshot that stays open keeps pages of the file from being reused.
func (s *Engine) vectorsOfOthers(part []vecKey, from []byte, keep map[uint64]bool) (_ []vecKey, next []byte, err error) {
	err = s.rows.View(func(tx Reader) error {
		read := 0
		for k := range tx.From(TableVec, from) {
			if read++; read > 16*dropVectors || len(part) == dropVectors {
				next = slices.Clone(k)
				return nil
			}
			if num, model, ok := vecKeyOf(k); ok && !keep[model] {
				part = append(part, vecKey{num, model})
			}
		}
		return nil
	})
	return part, next, err
}

// dropVectors lets the next checkpoint delete rows.
func (s *Engine) dropVectors(keys []vecKey) {
	s.cat.mu.Lock()
	defer s.cat.mu.Unlock()
	for _, k := range keys {
		if s.overlayVector(k) == nil { // otherwise it was made again since the run began
			s.overlay.noVecs[k] = true
		}
	}
}

// forgetModels takes what models have out of memory, and vectors that no checkpoint has written. A
// model that is still being loaded stays: its loader writes into it.
func (s *Engine) forgetModels(names []string, keep map[uint64]bool, rep *store.GCReport) {
	s.cat.mu.Lock()
	defer s.cat.mu.Unlock()
	s.near.last = slices.DeleteFunc(s.near.last, func(m *nearModel) bool { return m.ready() && !slices.Contains(names, m.name) })
	for k, row := range s.overlay.vecs {
		if !keep[k.model] {
			delete(s.overlay.vecs, k)
			s.overlay.Bytes -= len(row)
			rep.Vectors++
		}
	}
}

// applyNoVectors deletes the rows of vectors that went.
func applyNoVectors(tx Writer, o *overlay) error {
	keys := make([][]byte, 0, len(o.noVecs))
	for k := range o.noVecs {
		keys = append(keys, k.row())
	}
	slices.SortFunc(keys, bytes.Compare)
	for _, k := range keys {
		if err := tx.Delete(TableVec, k); err != nil {
			return err
		}
	}
	return nil
}
