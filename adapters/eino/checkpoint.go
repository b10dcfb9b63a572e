// Package eino keeps Eino's checkpoints and documents in scopes.
//
//	checkpoints := eino.NewCheckPoints(db.Scope("acme/checkpoints"))        // compose.WithCheckPointStore(checkpoints)
//	documents := eino.NewDocuments(db.Scope("acme/support"), "handbook/")   // an indexer.Indexer and a retriever.Retriever
//
// A checkpoint is a page of kind tool: data of the framework, not facts. Give checkpoints a scope of their own. A document is a
// fact: every search and context of the scope finds it.
package eino

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"

	"github.com/cloudwego/eino/compose"
	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

// CheckPoints keeps the checkpoints of graphs and agents. It is safe for concurrent use, also by several processes on one
// database. Every checkpoint that was set stays as a version of its page until gc.
type CheckPoints struct{ scope *ctxpage.Scope }

var _ compose.CheckPointStore = (*CheckPoints)(nil)

// NewCheckPoints makes a store in a scope of the host. A gated scope refuses every Set with store.ErrGated.
func NewCheckPoints(scope *ctxpage.Scope) *CheckPoints { return &CheckPoints{scope} }

const item = "item" // the type of the part with the data of the framework

// segment makes a name a part of an id: escaped, so that it has no slash, or hashed if it is long.
func segment(name string) string {
	text := url.PathEscape(name)
	if len(text) > 100 {
		return fmt.Sprintf("~%x", sha256.Sum256([]byte(name)))
	}
	return text
}

func itemOf(v *ctxpage.Version) (string, bool) {
	for _, p := range v.Parts {
		if p.Type == item {
			return p.Text, true
		}
	}
	return "", false
}

// Get returns a checkpoint, and whether there is one. Checkpoints of the scopes above are not seen.
func (c *CheckPoints) Get(ctx context.Context, checkPointID string) ([]byte, bool, error) {
	v, err := c.scope.Get(ctx, "checkpoint/"+segment(checkPointID))
	if errors.Is(err, store.ErrNotFound) || err == nil && v.Ref.Scope != c.scope.Name() {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("eino: checkpoint %q: %w", checkPointID, err)
	}
	text, ok := itemOf(v)
	data, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil {
		return nil, false, fmt.Errorf("eino: %s is no checkpoint: another program wrote it; give checkpoints a scope of their own", v.Ref)
	}
	return data, true, nil
}

// Set writes a checkpoint, of at most 12 MiB.
func (c *CheckPoints) Set(ctx context.Context, checkPointID string, checkPoint []byte) error {
	_, err := c.scope.Put(ctx, ctxpage.Artefact{ID: "checkpoint/" + segment(checkPointID), Kind: store.KindTool,
		Parts: []store.Part{{Type: item, Text: base64.StdEncoding.EncodeToString(checkPoint)}}})
	if err != nil {
		return fmt.Errorf("eino: checkpoint %q: %w", checkPointID, err)
	}
	return nil
}
