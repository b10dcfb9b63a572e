package serve

import (
	"context"
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// Each call decodes its argument into the types of the library, calls the Scope of the caller and encodes the answer. An agent's Scope
// is gated and a host's is not, so the same call commits for one and is held for the other.

// An xIn is the argument of a call, an xOut its answer or a part of it. The tags document the fields in GET /v1/schema. A list in an
// answer is absent or an array, never null.

var pageCalls = []call{
	unary("put", Agent, "Write pages, all or none. A host vouches for them. An agent's write passes the gate or returns the error held.", put),
	unary("delete", Agent, "Mark pages of the scope as deleted; their versions stay. An agent's delete must pass the gate.", remove),
	unary("get", Agent, "Read one page in full. If its source changed, it is fetched again first.", get),
	unary("list", Agent, "The scope's own pages by id, without text unless full is set.", list),
	unary("versions", Agent, "The versions of a page, newest first, without text.", versions),
	unary("search", Agent, "Pages that match words, best first.", search),
	unary("refresh", Host, "Probe the sources of the scope and fetch what changed.", refresh),
}

// Limits of a listing.
const (
	defaultList = 100
	maxList     = 1000
)

func artefacts(writes []view.Write) ([]ctxpage.Artefact, error) {
	arts := make([]ctxpage.Artefact, len(writes))
	for i := range writes {
		var err error
		if arts[i], err = writes[i].Artefact(); err != nil {
			return nil, fmt.Errorf("writes[%d]: %w", i, err)
		}
	}
	return arts, nil
}

// putIn has Trace or Batch: an open transaction has the batch that begin was given.
type putIn struct {
	Writes []view.Write `json:"writes" jsonschema:"pages to write"`
	Trace  string       `json:"trace,omitempty" jsonschema:"trace of an open transaction (begin): the pages join it, and commit decides"`
	Batch  string       `json:"batch,omitempty" jsonschema:"a ULID that names this write; a repeated one is applied once"`
}

type writtenOut struct {
	Status string   `json:"status" jsonschema:"committed; open: it waits for commit"`
	Refs   []string `json:"refs" jsonschema:"what was written"`
	Batch  string   `json:"batch,omitempty"`
	Trace  string   `json:"trace,omitempty" jsonschema:"names the end of the transaction in the manifest"`
	LSN    uint64   `json:"lsn,omitempty"`
}

func put(ctx context.Context, r *request, in putIn) (writtenOut, error) {
	if len(in.Writes) == 0 {
		return writtenOut{}, store.Invalid("writes", "none", "at least one page")
	}
	arts, err := artefacts(in.Writes)
	if err != nil {
		return writtenOut{}, err
	}
	return r.write(ctx, in.Trace, in.Batch, func(tx *ctxpage.Txn) error { return putAll(ctx, tx, arts) })
}

func putAll(ctx context.Context, tx *ctxpage.Txn, arts []ctxpage.Artefact) error {
	for i := range arts {
		if err := tx.Put(ctx, arts[i]); err != nil {
			return fmt.Errorf("writes[%d]: %w", i, err)
		}
	}
	return nil
}

type deleteIn struct {
	IDs   []string `json:"ids"`
	Trace string   `json:"trace,omitempty" jsonschema:"trace of an open transaction: the deletes join it"`
	Batch string   `json:"batch,omitempty" jsonschema:"a ULID that names this call; a repeated one is applied once"`
}

func remove(ctx context.Context, r *request, in deleteIn) (writtenOut, error) {
	if len(in.IDs) == 0 {
		return writtenOut{}, store.Invalid("ids", "none", "at least one id")
	}
	return r.write(ctx, in.Trace, in.Batch, func(tx *ctxpage.Txn) error { return deleteAll(ctx, tx, in.IDs) })
}

func deleteAll(ctx context.Context, tx *ctxpage.Txn, ids []string) error {
	for _, id := range ids {
		if err := tx.Delete(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// write lets writes join an open transaction, or commits them: a host vouches for them, an agent leaves them to the gate. A host's
// write has read nothing, so Update retries it when another writer came first; an agent must see the conflict.
func (r *request) write(ctx context.Context, trace, batch string, do func(*ctxpage.Txn) error) (writtenOut, error) {
	if trace != "" {
		if batch != "" {
			return writtenOut{}, store.Invalid("batch", "one beside a trace", "the batch that begin was given")
		}
		t, err := r.open(trace)
		if err != nil {
			return writtenOut{}, err
		}
		defer t.used()
		return writtenOut{Status: "open", Refs: []string{}, Batch: t.tx.ID(), Trace: trace}, do(t.tx)
	}
	var opts []ctxpage.TxnOption
	if batch != "" {
		opts = append(opts, ctxpage.WithID(batch))
	}
	if r.role >= Host {
		var done *ctxpage.Txn
		err := r.s.Update(ctx, func(tx *ctxpage.Txn) error { done = tx; return do(tx) }, opts...)
		return committed(done, err)
	}
	tx, err := r.s.Begin(ctx, opts...)
	if err != nil {
		return writtenOut{}, err
	}
	defer tx.Rollback()
	if err := do(tx); err != nil {
		return writtenOut{}, err
	}
	return committed(tx, tx.Commit(ctx, ctxpage.Verdict{}))
}

func committed(tx *ctxpage.Txn, err error) (writtenOut, error) {
	if err != nil {
		return writtenOut{}, err
	}
	out := tx.Outcome()
	return writtenOut{Status: "committed", Refs: view.Refs(out.Refs), Batch: tx.ID(), Trace: tx.Trace(), LSN: out.LSN}, nil
}

func pagesOf(all []*ctxpage.Version) []view.Page {
	out := []view.Page{}
	for _, v := range all {
		out = append(out, view.Of(v))
	}
	return out
}

type getIn struct {
	ID         string `json:"id,omitempty" jsonschema:"id of the scope or of an ancestor"`
	Ref        string `json:"ref,omitempty" jsonschema:"a reference that another call returned, instead of id"`
	Trace      string `json:"trace,omitempty" jsonschema:"trace of an open transaction: its own writes are seen, and the page joins what it read"`
	ServeStale bool   `json:"serve_stale,omitempty" jsonschema:"return what is stored although its source changed and cannot be fetched"`
}

// get reads one page. A transaction takes no reference: it reads what is current.
func get(ctx context.Context, r *request, in getIn) (view.Page, error) {
	if (in.ID == "") == (in.Ref == "") {
		return view.Page{}, store.Invalid("id, ref", "both or none", "one of them")
	}
	var opts []ctxpage.ReadOption
	if in.ServeStale {
		opts = append(opts, ctxpage.ServeStale())
	}
	read := func() (*ctxpage.Version, error) { return r.s.Get(ctx, in.ID, opts...) }
	switch {
	case in.Trace != "" && in.Ref != "":
		return view.Page{}, store.Invalid("ref", "one beside a trace", "an id: a transaction reads what is current")
	case in.Trace != "":
		t, err := r.open(in.Trace)
		if err != nil {
			return view.Page{}, err
		}
		defer t.used()
		read = func() (*ctxpage.Version, error) { return t.tx.Get(ctx, in.ID, opts...) }
	case in.Ref != "":
		ref, err := store.ParseRef(in.Ref)
		if err != nil {
			return view.Page{}, err
		}
		read = func() (*ctxpage.Version, error) { return r.s.Recall(ctx, ref, opts...) }
	}
	v, err := read()
	if err != nil {
		return view.Page{}, err
	}
	return view.Of(v), nil
}

// listIn has an opaque cursor, which stays valid while pages are written.
type listIn struct {
	Prefix string       `json:"prefix,omitempty" jsonschema:"only ids that begin with it"`
	Cursor string       `json:"cursor,omitempty" jsonschema:"next of the list before"`
	Limit  int          `json:"limit,omitempty" jsonschema:"at most 1000; default 100"`
	Filter *view.Filter `json:"filter,omitempty"`
	Newest bool         `json:"newest,omitempty" jsonschema:"latest first, in place of by id"`
	Full   bool         `json:"full,omitempty" jsonschema:"each page in full, as get returns it"`
}

type listOut struct {
	Items []view.Page `json:"items"`
	Next  string      `json:"next,omitempty" jsonschema:"give it as cursor for what follows"`
}

func within(n, otherwise, most int) (int, error) {
	if n == 0 {
		return otherwise, nil
	}
	if n < 0 || n > most {
		return 0, store.Invalid("limit", fmt.Sprint(n), fmt.Sprintf("1 to %d", most))
	}
	return n, nil
}

func list(ctx context.Context, r *request, in listIn) (listOut, error) {
	limit, err := within(in.Limit, defaultList, maxList)
	if err != nil {
		return listOut{}, err
	}
	f, err := in.Filter.Filter()
	if err != nil {
		return listOut{}, err
	}
	var next string
	opts := []ctxpage.ReadOption{ctxpage.Where(f), ctxpage.AtMost(limit, in.Cursor, &next)}
	if in.Newest {
		opts = append(opts, ctxpage.NewestFirst())
	}
	all, err := loop.Collect(r.s.Artefacts(ctx, in.Prefix, opts...))
	if err == nil && in.Full {
		all, err = r.inFull(ctx, all)
	}
	return listOut{pagesOf(all), next}, err
}

// inFull reads each page, and leaves out those that were deleted since they were listed.
func (r *request) inFull(ctx context.Context, listed []*ctxpage.Version) ([]*ctxpage.Version, error) {
	all := listed[:0]
	for _, v := range listed {
		v, err := r.s.Get(ctx, v.ID)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

type versionsIn struct {
	ID     string `json:"id"`
	Cursor string `json:"cursor,omitempty"`
	Limit  int    `json:"limit,omitempty" jsonschema:"at most 1000; default 100"`
}

func versions(ctx context.Context, r *request, in versionsIn) (listOut, error) {
	limit, err := within(in.Limit, defaultList, maxList)
	if err != nil {
		return listOut{}, err
	}
	var next string
	all, err := loop.Collect(r.s.Versions(ctx, in.ID, ctxpage.AtMost(limit, in.Cursor, &next)))
	return listOut{pagesOf(all), next}, err
}

type searchIn struct {
	Query  string       `json:"query" jsonschema:"words to look for"`
	Limit  int          `json:"limit,omitempty" jsonschema:"at most 1000; default 10"`
	Filter *view.Filter `json:"filter,omitempty"`
	Floor  string       `json:"floor,omitempty" jsonschema:"lowest provenance served: scratch, tool, validated, chunk or human-verified; default tool. Scratch also serves drafts, and imports that nobody has vouched for"`
}

type searchOut struct {
	Trace   string         `json:"trace"`
	Hits    []hitOut       `json:"hits" jsonschema:"best first"`
	LeftOut map[string]int `json:"left_out" jsonschema:"pages that match and are not served, counted by reason"`
	// Below says how to see what is below the floor.
	Below string `json:"below,omitempty" jsonschema:"how many matches are below the provenance floor, and how to see them"`

	Degraded string `json:"degraded,omitempty" jsonschema:"why words alone decided, or meaning did not see all pages"`
}

// hitOut is one artefact with its best page. Scores of two answers cannot be compared.
type hitOut struct {
	Ref    string   `json:"ref"`
	Text   string   `json:"text"`
	Score  float64  `json:"score"`
	Tokens int      `json:"tokens"`
	Stale  bool     `json:"stale,omitempty"`
	More   []string `json:"more,omitempty" jsonschema:"further pages of the artefact that match"`
}

// search counts what matched and was left out, so that a caller can tell "nothing was found" from "nothing may be served".
func search(ctx context.Context, r *request, in searchIn) (searchOut, error) {
	limit, err := within(in.Limit, 10, maxList)
	if err != nil {
		return searchOut{}, err
	}
	f, err := in.Filter.Filter()
	if err != nil {
		return searchOut{}, err
	}
	var q ctxpage.Query
	if err := q.SetNames(in.Floor, "", "", "", ""); err != nil {
		return searchOut{}, err
	}
	found, err := r.s.Search(ctx, in.Query, limit, ctxpage.Where(f), ctxpage.WithFloor(q.Floor))
	if err != nil {
		return searchOut{}, err
	}
	out := searchOut{Trace: found.Trace, Hits: []hitOut{}, LeftOut: map[string]int{}, Degraded: found.Degraded}
	for _, h := range found.Hits {
		hit := hitOut{Ref: h.Ref.String(), Text: h.Text, Score: h.Score, Tokens: h.Tokens, Stale: h.Stale}
		for _, ref := range h.More {
			hit.More = append(hit.More, ref.String())
		}
		out.Hits = append(out.Hits, hit)
	}
	for _, c := range found.Counts {
		out.LeftOut[c.Reason] += c.Count
	}
	out.Below = found.Below()
	return out, nil
}

type refreshIn struct {
	DryRun    bool `json:"dry_run,omitempty" jsonschema:"probe and report, write nothing"`
	Delete    bool `json:"delete,omitempty" jsonschema:"delete pages of recorded directories whose file is gone"`
	FilesOnly bool `json:"files_only,omitempty" jsonschema:"skip sources other than files"`
}

// refreshOut lists ids, sorted.
type refreshOut struct {
	Sources   int          `json:"sources" jsonschema:"pages whose source was probed"`
	Unchanged int          `json:"unchanged"`
	Changed   []string     `json:"changed"`
	New       []string     `json:"new"`
	Vanished  []string     `json:"vanished"`
	NotTaken  []string     `json:"not_taken"`
	Deleted   []string     `json:"deleted"`
	Failed    []failureOut `json:"failed"`
	DryRun    bool         `json:"dry_run,omitempty"`
}

type failureOut struct {
	ID    string `json:"id,omitempty"`
	Dir   string `json:"dir,omitempty"`
	Error string `json:"error"`
}

func refresh(ctx context.Context, r *request, in refreshIn) (refreshOut, error) {
	rep, err := r.s.Refresh(ctx, ops.RefreshOptions{DryRun: in.DryRun, Delete: in.Delete, FilesOnly: in.FilesOnly})
	if err != nil {
		return refreshOut{}, err
	}
	out := refreshOut{
		Sources: rep.Sources, Unchanged: rep.Unchanged, Changed: full(rep.Changed), New: full(rep.New), Vanished: full(rep.Vanished), NotTaken: full(rep.NotTaken),
		Deleted: full(rep.Deleted), Failed: []failureOut{}, DryRun: rep.DryRun,
	}
	for _, f := range rep.Failed {
		out.Failed = append(out.Failed, failureOut{f.ID, f.Dir, f.Err})
	}
	return out, nil
}

// full is a list that is empty and not null.
func full(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
