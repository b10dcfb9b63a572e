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
func (m *Memory) Audit() store.Audit { return m.log.Reader(m.question) }

func (m *Memory) question(_ context.Context, leaf *manifest.Record) (string, error) {
	defer m.locked()()
	row, ok := m.asked[leaf.Index]
	if !ok {
		return "", manifest.ErrNoQuestion
	}
	salt, text := row[:store.DigestSaltSize], row[store.DigestSaltSize:]
	if d := store.SaltedDigest([]byte(salt), text); !bytes.Equal(leaf.Query, d[:]) {
		return "", fmt.Errorf("%w: leaf %d has the digest of another question", store.ErrCorrupt, leaf.Index)
	}
	return text, nil
}

// Head: see store.Store.
func (m *Memory) Head(ctx context.Context) (manifest.Head, error) {
	h, err := m.log.Head(m.log.Size(), m.cfg.Now().UnixMicro())
	return h, errors.Join(m.usable(ctx), err)
}
