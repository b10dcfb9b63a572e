package engine

import (
	"bytes"
	"slices"

	"github.com/ctxpage/ctxpage/store"
)

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
	if c.job.Models == nil || c.job.Only() {
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
		if s.overlay.vecs[k] == nil { // otherwise it was made again since the run began
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
