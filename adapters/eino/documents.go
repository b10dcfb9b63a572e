package eino

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/cloudwego/eino/components/embedding"
	"github.com/cloudwego/eino/components/indexer"
	"github.com/cloudwego/eino/components/retriever"
	"github.com/cloudwego/eino/schema"
	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

// Documents are the documents of a scope: an indexer, and a retriever. It is safe for concurrent use.
type Documents struct {
	scope  *ctxpage.Scope
	prefix string
}

var (
	_ indexer.Indexer     = (*Documents)(nil)
	_ retriever.Retriever = (*Documents)(nil)
)

// NewDocuments makes an indexer and retriever of the documents whose ids begin with a prefix in a scope; "": all. A retriever
// with a prefix finds pages under it in the scopes above, too, as every read of a scope does. The prefix is not part of the ids
// of documents.
func NewDocuments(scope *ctxpage.Scope, prefix string) *Documents { return &Documents{scope, prefix} }

// GetType names the component in callbacks.
func (d *Documents) GetType() string { return "Ctxpage" }

// Keys of a document's metadata that the retriever sets beside its score.
const (
	MetaRef   = "ctxpage_ref"   // the reference of the version that was found, a string
	MetaStale = "ctxpage_stale" // true: its source changed and could not be fetched again
)

// Store writes documents in one transaction, at most 10,000. A document with the id of another one is its next version; one
// without an id gets one. Sub-indexes are tags. Strings, numbers and booleans among the metadata can be filtered by (Where);
// scores and vectors are not kept: the database makes its own. Over a gated scope the documents are drafts that wait for review,
// and the error matches store.ErrHeld.
func (d *Documents) Store(ctx context.Context, docs []*schema.Document, opts ...indexer.Option) ([]string, error) {
	o := indexer.GetCommonOptions(nil, opts...)
	if err := ownEmbedder(o.Embedding); err != nil {
		return nil, err
	}
	var ids []string
	write := func(tx *ctxpage.Txn) error {
		ids = make([]string, len(docs))
		for i, doc := range docs {
			if doc == nil {
				return fmt.Errorf("eino: document %d of %d is nil", i+1, len(docs))
			}
			if ids[i] = doc.ID; doc.ID == "" {
				ids[i] = tx.ID() + "-" + strconv.Itoa(i+1)
			}
			a, err := artefact(d.prefix+ids[i], doc, o.SubIndexes)
			if err != nil {
				return err
			}
			if err := tx.Put(ctx, a); err != nil {
				return fmt.Errorf("eino: document %q: %w", ids[i], err)
			}
		}
		return nil
	}
	err := d.scope.Update(ctx, write)
	if errors.Is(err, store.ErrGated) {
		err = d.draft(ctx, write)
	}
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// draft leaves the verdict to the evaluator of the scope; without one the documents are held.
func (d *Documents) draft(ctx context.Context, write func(tx *ctxpage.Txn) error) error {
	tx, err := d.scope.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // harmless after Commit
	if err := write(tx); err != nil {
		return err
	}
	return tx.Commit(ctx, ctxpage.Verdict{})
}

func ownEmbedder(e embedding.Embedder) error {
	if e == nil {
		return nil
	}
	return errors.New("eino: option WithEmbedding: the database embeds documents and questions itself; set ctxpage.Options.Embedder when you open it")
}

// artefact makes the page of a document: its text, and its metadata as JSON in a part beside it.
func artefact(id string, doc *schema.Document, subIndexes []string) (ctxpage.Artefact, error) {
	a := ctxpage.Artefact{ID: id, Kind: store.KindFact, Meta: map[string]string{}}
	rest := maps.Clone(doc.MetaData)
	tags := slices.Concat(doc.SubIndexes(), subIndexes)
	slices.Sort(tags)
	a.Tags = slices.Compact(tags)
	maps.DeleteFunc(rest, func(k string, _ any) bool { return own(k) })
	for k, v := range rest {
		switch v := v.(type) {
		case string:
			a.Meta[k] = v
		case bool, int, int32, int64, uint, uint32, uint64, float32, float64:
			a.Meta[k] = fmt.Sprint(v)
		}
	}
	if len(rest) == 0 {
		a.Text = doc.Content
		return a, nil
	}
	body, err := json.Marshal(rest)
	if err != nil {
		return a, fmt.Errorf("eino: the metadata of document %q is no JSON: %w", id, err)
	}
	a.Parts = []store.Part{{Type: "text", Text: doc.Content}, {Type: item, Text: string(body)}}
	return a, nil
}

// ownKeys are the keys of Eino's that are not stored. Their names are not exported; setting them shows them.
var ownKeys = (&schema.Document{}).WithScore(0).WithDenseVector(nil).WithSparseVector(nil).WithSubIndexes(nil).MetaData

// own reports whether a key of metadata is set by Eino or by the retriever, and not stored.
func own(key string) bool {
	_, ok := ownKeys[key]
	return ok || key == MetaRef || key == MetaStale
}

// options are those that only this retriever has.
type options struct{ filter ctxpage.Filter }

// Where restricts what a retriever finds, for instance by metadata of the documents.
func Where(f ctxpage.Filter) retriever.Option {
	return retriever.WrapImplSpecificOptFn(func(o *options) { o.filter = f })
}

// Retrieve returns the documents that answer a question best, each with its score and with MetaRef. The content of a long document is the
// page that matches best. WithTopK bounds them (10 by default), WithScoreThreshold leaves out lower scores, WithSubIndex asks for a tag, and Where
// filters. The other options are refused, because they would change nothing.
func (d *Documents) Retrieve(ctx context.Context, query string, opts ...retriever.Option) ([]*schema.Document, error) {
	o, special := retriever.GetCommonOptions(nil, opts...), retriever.GetImplSpecificOptions(&options{}, opts...)
	if err := errors.Join(ownEmbedder(o.Embedding), unsupported(o)); err != nil {
		return nil, err
	}
	f := special.filter
	if f.IDPrefix == "" {
		f.IDPrefix = d.prefix
	} else {
		f.IDPrefix = d.prefix + f.IDPrefix
	}
	if o.SubIndex != nil {
		f.TagsAll = append(slices.Clone(f.TagsAll), *o.SubIndex)
	}
	limit := 0
	if o.TopK != nil {
		if limit = *o.TopK; limit <= 0 {
			return nil, fmt.Errorf("eino: option WithTopK: got %d, expected at least 1", limit)
		}
	}
	found, err := d.scope.Search(ctx, query, limit, ctxpage.Where(f))
	if err != nil {
		return nil, fmt.Errorf("eino: %w", err)
	}
	docs := []*schema.Document{}
	for i := range found.Hits {
		if o.ScoreThreshold != nil && found.Hits[i].Score < *o.ScoreThreshold {
			continue
		}
		doc, err := d.document(ctx, &found.Hits[i])
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
	return docs, nil
}

func unsupported(o *retriever.Options) error {
	switch {
	case o.Index != nil:
		return fmt.Errorf("eino: option WithIndex(%q): an index is a scope or a prefix here; make another Documents for it", *o.Index)
	case o.DSLInfo != nil:
		return errors.New("eino: option WithDSLInfo is not supported; use Where with a filter")
	}
	return nil
}

// document makes the document of a hit, with the metadata that it was stored with.
func (d *Documents) document(ctx context.Context, h *ctxpage.Hit) (*schema.Document, error) {
	doc := &schema.Document{ID: h.Ref.ID[len(d.prefix):], Content: h.Text, MetaData: map[string]any{}}
	v, err := d.scope.Recall(ctx, h.Ref)
	if err != nil {
		return nil, fmt.Errorf("eino: document %q: %w", doc.ID, err)
	}
	if text, ok := itemOf(v); ok {
		if err := json.Unmarshal([]byte(text), &doc.MetaData); err != nil {
			return nil, fmt.Errorf("eino: %s has metadata that is no JSON object: %w", v.Ref, err)
		}
	} else { // another program wrote it
		for k, value := range v.Meta {
			doc.MetaData[k] = value
		}
	}
	if len(v.Tags) > 0 {
		doc.WithSubIndexes(v.Tags)
	}
	doc.MetaData[MetaRef] = h.Ref.String()
	if h.Stale {
		doc.MetaData[MetaStale] = true
	}
	return doc.WithScore(h.Score), nil
}
