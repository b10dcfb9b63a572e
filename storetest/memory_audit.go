package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Append: see store.Store.
func (m *Memory) Append(ctx context.Context, leaves []*manifest.Record, _ store.Durability) error {
	defer m.locked()()
	err := m.usable(ctx)
	for i := 0; err == nil && i < len(leaves); i++ {
		err = m.append(leaves[i])
	}
	return err
}

// append adds a leaf to the audit. The text of its question stays beside it, and the salted digest in it.
func (m *Memory) append(leaf *manifest.Record) error {
	index := m.log.Size()
	if leaf.Question != "" && !leaf.QuestionKept {
		salt := make([]byte, store.DigestSaltSize)
		if _, err := m.cfg.Rand.Read(salt); err != nil {
			return err
		}
		d := store.SaltedDigest(salt, leaf.Question)
		leaf.Query, leaf.QuestionKept = d[:], true
		m.asked[index] = string(salt) + leaf.Question
	}
	body, err := manifest.Encode(leaf)
	if err == nil {
		err = m.log.Add(index, body)
	}
	leaf.Index = index
	return err
}

// Audit: see store.Store.
func (m *Memory) Audit() store.Audit { return audit{m.log.Reader(m.question), m.info.ID} }

func (m *Memory) question(_ context.Context, leaf *manifest.Record) (string, error) {
	defer m.locked()()
	row := m.asked[leaf.Index]
	if row == "" {
		return "", manifest.ErrNoQuestion
	}
	text := row[store.DigestSaltSize:]
	if d := store.SaltedDigest([]byte(row[:store.DigestSaltSize]), text); !bytes.Equal(leaf.Query, d[:]) {
		return "", fmt.Errorf("%w: leaf %d has the digest of another question", store.ErrCorrupt, leaf.Index)
	}
	return text, nil
}

// audit is the log under the id of the database, which the log itself reads from files only.
type audit struct {
	*manifest.Reader
	id string
}

func (a audit) DB() string { return a.id }

func (a audit) Head(ctx context.Context, size uint64, now int64) (manifest.Head, error) {
	h, err := a.Reader.Head(ctx, size, now)
	h.DB = a.id
	return h, err
}

// Head: see store.Store.
func (m *Memory) Head(ctx context.Context) (manifest.Head, error) {
	h, err := m.Audit().Head(ctx, m.log.Size(), m.cfg.Now().UnixMicro())
	return h, errors.Join(m.usable(ctx), err)
}

// Vectors: see store.Store.
func (m *Memory) Vectors(ctx context.Context, scopes store.Scopes, model string, nums []uint64) ([][]float32, error) {
	defer m.locked()()
	out := make([][]float32, len(nums))
	for i, num := range nums {
		if m.visible(scopes, num) != nil {
			out[i] = own(m.vectors[vector{model, num}])
		}
	}
	return out, m.usable(ctx)
}

// PutVectors: see store.Store.
func (m *Memory) PutVectors(ctx context.Context, model string, nums []uint64, vecs [][]float32) error {
	defer m.locked()()
	for i, num := range nums {
		if p := m.visible(nil, num); p != nil && p.gone == 0 {
			m.vectors[vector{model, num}] = own(vecs[i])
		}
	}
	return m.usable(ctx)
}
