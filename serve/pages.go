package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/triage"
)

// Calls that read and write pages. Each decodes its argument into the types of the library, calls
// the Scope of the caller and encodes the answer; no rule is decided here. An agent's Scope is
// gated and a host's is not, so the same call commits for one and is held for the other.

// Names: an xIn is the argument of a call, an xOut its answer, a line of it, or a part of one.
// Their tags are the documentation of the fields: GET /v1/schema shows them, and a field without a
// sentence says what its name says. A list in an answer is absent or an array, never null.

var pageCalls = []call{
	unary("put", Agent, "Write pages, all or none. A host vouches for them. An agent's write passes the gate or returns the error held.", put),
	unary("delete", Agent, "Mark pages of the scope as deleted; their versions stay. An agent's delete must pass the gate.", remove),
	unary("get", Agent, "Read one page in full. If its source changed, it is fetched again first.", get),
	unary("list", Agent, "The scope's own pages by id, without text.", list),
	unary("versions", Agent, "The versions of a page, newest first, without text.", versions),
	unary("search", Agent, "Pages that match words, best first.", search),
	unary("refresh", Host, "Probe the sources of the scope and fetch what changed.", refresh),
}

// Limits of a listing.
const (
	defaultList = 100
	maxList     = 1000
)

// toolCall and part are those of the library, with the names that they have in JSON.
type toolCall struct {
	ID        string `json:"id"`
	Type      string `json:"type,omitempty"`
	Name      string `json:"name"`
	Arguments string `json:"arguments,omitempty"`
}

type part struct {
	Type   string `json:"type" jsonschema:"text, or a type of yours that is carried as it is"`
	Text   string `json:"text,omitempty"`
	URL    string `json:"url,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// writeIn is a page to be written.
type writeIn struct {
	ID          string            `json:"id" jsonschema:"key in the scope; an id that exists gets a new version, with the fields of this write alone"`
	Text        string            `json:"text,omitempty" jsonschema:"the content; empty with source or parts"`
	Parts       []part            `json:"parts,omitempty"`
	Kind        string            `json:"kind,omitempty" jsonschema:"system, fact (default), chunk, message, tool, scratch or summary"`
	Provenance  string            `json:"provenance,omitempty" jsonschema:"scratch, tool, validated or chunk; default: that of the kind"`
	Role        string            `json:"role,omitempty"`
	Name        string            `json:"name,omitempty"`
	Source      string            `json:"source,omitempty" jsonschema:"where the text comes from: file:PATH or page:REF"`
	ExpiresAt   time.Time         `json:"expires_at,omitzero"`
	TTL         int               `json:"ttl_s,omitempty" jsonschema:"seconds until it expires, instead of expires_at"`
	CurrentAsOf time.Time         `json:"current_as_of,omitzero" jsonschema:"when the content was true; default: now"`
	Group       string            `json:"group,omitempty"`
	Seq         int64             `json:"seq,omitempty"`
	Subject     string            `json:"subject,omitempty" jsonschema:"whom it is about"`
	DerivedFrom []string          `json:"derived_from,omitempty" jsonschema:"references of what it was made from"`
	Supersedes  []string          `json:"supersedes,omitempty" jsonschema:"ids of the scope that it replaces"`
	Pinned      bool              `json:"pinned,omitempty"`
	Tags        []string          `json:"tags,omitempty"`
	Meta        map[string]string `json:"meta,omitempty"`
}

// artefact is the page as the library takes it. Kind and provenance are names here. Only what JSON
// cannot say in the library's types is checked here, such as a TTL that a duration cannot hold.
// Limits of ids, texts and tags are the store's, which checks them for every caller.
func (w *writeIn) artefact() (a ctxpage.Artefact, err error) {
	a = ctxpage.Artefact{
		ID: w.ID, Text: w.Text, Parts: partsOf(w.Parts), Role: w.Role, Name: w.Name, Source: w.Source, ExpiresAt: w.ExpiresAt, TTL: time.Duration(w.TTL) * time.Second,
		CurrentAsOf: w.CurrentAsOf, Group: w.Group, Seq: w.Seq, Subject: w.Subject, Supersedes: w.Supersedes, Pinned: w.Pinned, Tags: w.Tags, Meta: w.Meta,
	}
	if w.TTL < 0 || w.TTL > maxSeconds {
		return a, store.Invalid("ttl_s", fmt.Sprint(w.TTL), fmt.Sprintf("1 to %d seconds", maxSeconds))
	}
	if w.Kind != "" {
		if a.Kind, err = ctxpage.ParseKind(w.Kind); err != nil {
			return a, err
		}
	}
	if w.Provenance != "" {
		if a.Provenance, err = triage.ParseProvenance(w.Provenance); err != nil {
			return a, store.Invalid("provenance", fmt.Sprintf("%.40q", w.Provenance), "scratch, tool, validated or chunk")
		}
	}
	for _, text := range w.DerivedFrom {
		ref, err := ctxpage.ParseRef(text)
		if err != nil {
			return a, err
		}
		a.DerivedFrom = append(a.DerivedFrom, ref)
	}
	return a, nil
}

// maxSeconds is a hundred years, far below what a duration holds.
const maxSeconds = 100 * 366 * 24 * 3600

// partsOf copies parts.
func partsOf(in []part) (out []ctxpage.Part) {
	for _, p := range in {
		out = append(out, ctxpage.Part(p))
	}
	return out
}

// artefacts converts pages. The error names the one that is wrong by its place.
func artefacts(writes []writeIn) ([]ctxpage.Artefact, error) {
	arts := make([]ctxpage.Artefact, len(writes))
	for i := range writes {
		var err error
		if arts[i], err = writes[i].artefact(); err != nil {
			return nil, fmt.Errorf("writes[%d]: %w", i, err)
		}
	}
	return arts, nil
}

// putIn writes pages, all or none. Trace and Batch exclude each other: an open transaction has the
// batch that begin was given.
type putIn struct {
	Writes []writeIn `json:"writes" jsonschema:"pages to write"`
	Trace  string    `json:"trace,omitempty" jsonschema:"trace of an open transaction (begin): the pages join it, and commit decides"`
	Batch  string    `json:"batch,omitempty" jsonschema:"a ULID that names this write; a repeated one is applied once"`
}

// writtenOut says how a write ended.
type writtenOut struct {
	Status string   `json:"status" jsonschema:"committed; open: it waits for commit"`
	Refs   []string `json:"refs" jsonschema:"what was written"`
	Batch  string   `json:"batch,omitempty"`
	Trace  string   `json:"trace,omitempty" jsonschema:"names the end of the transaction in the manifest"`
	LSN    uint64   `json:"lsn,omitempty"`
}

// put writes pages: into an open transaction if Trace names one, otherwise in a transaction of its
// own.
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

// putAll puts artefacts into a transaction. Its error names the one that was refused by its place
// in the call.
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

// remove deletes artefacts by id, in the same two ways as put.
func remove(ctx context.Context, r *request, in deleteIn) (writtenOut, error) {
	if len(in.IDs) == 0 {
		return writtenOut{}, store.Invalid("ids", "none", "at least one id")
	}
	return r.write(ctx, in.Trace, in.Batch, func(tx *ctxpage.Txn) error { return deleteAll(ctx, tx, in.IDs) })
}

// deleteAll deletes ids within a transaction, and stops at the first that fails: the caller rolls
// back.
func deleteAll(ctx context.Context, tx *ctxpage.Txn, ids []string) error {
	for _, id := range ids {
		if err := tx.Delete(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// write lets writes join an open transaction, or makes one of them: a host vouches for it, an agent
// leaves it to the gate.
//
// Update retries the write of a host when another writer came first: it has read nothing, so the
// later one wins by intent. An agent's write is not retried: it is a conflict that the agent must
// see.
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

// committed is the answer to a commit that succeeded.
func committed(tx *ctxpage.Txn, err error) (writtenOut, error) {
	if err != nil {
		return writtenOut{}, err
	}
	out := tx.Outcome()
	return writtenOut{Status: "committed", Refs: refsOf(out.Refs), Batch: tx.ID(), Trace: tx.Trace(), LSN: out.LSN}, nil
}

// refsOf are references as text; never null.
func refsOf(refs []ctxpage.Ref) []string {
	out := []string{}
	for _, r := range refs {
		out = append(out, r.String())
	}
	return out
}

// pageOut is a page, or a version of one. Listings have no text.
type pageOut struct {
	Ref          string            `json:"ref"`
	Scope        string            `json:"scope"`
	ID           string            `json:"id"`
	Version      uint32            `json:"version"`
	LSN          uint64            `json:"lsn"`
	Kind         string            `json:"kind"`
	Provenance   string            `json:"provenance" jsonschema:"an order of trust: scratch, tool, validated, chunk, human-verified"`
	Text         string            `json:"text,omitempty"`
	Parts        []part            `json:"parts,omitempty"`
	Role         string            `json:"role,omitempty"`
	Name         string            `json:"name,omitempty"`
	ToolCalls    []toolCall        `json:"tool_calls,omitempty"`
	ToolCallID   string            `json:"tool_call_id,omitempty"`
	Source       string            `json:"source,omitempty"`
	Tokens       int               `json:"tokens"`
	PutAt        time.Time         `json:"put_at,omitzero" jsonschema:"absent in a held batch"`
	CurrentAsOf  time.Time         `json:"current_as_of,omitzero"`
	ExpiresAt    time.Time         `json:"expires_at,omitzero"`
	Actor        string            `json:"actor,omitempty"`
	Trace        string            `json:"trace,omitempty" jsonschema:"of the read that it was written from, for why and replay"`
	Group        string            `json:"group,omitempty"`
	Seq          int64             `json:"seq,omitempty"`
	Subject      string            `json:"subject,omitempty"`
	DerivedFrom  []string          `json:"derived_from,omitempty"`
	Supersedes   []string          `json:"supersedes,omitempty"`
	SupersededBy string            `json:"superseded_by,omitempty"`
	Pinned       bool              `json:"pinned,omitempty"`
	Tags         []string          `json:"tags,omitempty"`
	Meta         map[string]string `json:"meta,omitempty"`
	Deleted      bool              `json:"deleted,omitempty"`
	Gone         bool              `json:"gone,omitempty"`
	Stale        bool              `json:"stale,omitempty"`
	Elsewhere    string            `json:"elsewhere,omitempty" jsonschema:"the host that has the file of its source: it could not be checked here"`
}

// pageOf is a version as JSON shows it. A page of parts has their texts in Text as well, so that a
// caller who reads only Text misses no words.
func pageOf(v *ctxpage.Version) pageOut {
	out := pageOut{
		Ref: v.Ref.String(), Scope: v.Ref.Scope, ID: v.ID, Version: v.Version, LSN: v.LSN, Kind: v.Kind.String(), Provenance: v.Provenance.String(), Text: v.Text,
		Role: v.Role, Name: v.Name, ToolCallID: v.ToolCallID, Source: v.Source, Tokens: v.Tokens, PutAt: utc(v.PutAt), CurrentAsOf: utc(v.CurrentAsOf),
		ExpiresAt: utc(v.ExpiresAt), Actor: v.Actor, Trace: v.Trace, Group: v.Group, Seq: v.Seq, Subject: v.Subject, Supersedes: v.Supersedes, SupersededBy: v.SupersededBy,
		Pinned: v.Pinned, Tags: v.Tags, Meta: v.Meta, Deleted: v.Deleted, Gone: v.Gone, Stale: v.Stale, Elsewhere: v.Elsewhere,
	}
	for _, p := range v.Parts {
		out.Parts = append(out.Parts, part(p))
		if v.Text == "" {
			out.Text += p.Text
		}
	}
	for _, c := range v.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, toolCall(c))
	}
	if len(v.DerivedFrom) > 0 {
		out.DerivedFrom = refsOf(v.DerivedFrom)
	}
	return out
}

// utc is a time in UTC; a zero time stays zero, so that it is left out.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}

// pagesOf is a list of pages as JSON: empty and not null if there are none.
func pagesOf(all []*ctxpage.Version) []pageOut {
	out := []pageOut{}
	for _, v := range all {
		out = append(out, pageOf(v))
	}
	return out
}

// getIn names one page: exactly one of ID and Ref.
type getIn struct {
	ID         string `json:"id,omitempty" jsonschema:"id of the scope or of an ancestor"`
	Ref        string `json:"ref,omitempty" jsonschema:"a reference that another call returned, instead of id"`
	Trace      string `json:"trace,omitempty" jsonschema:"trace of an open transaction: its own writes are seen, and the page joins what it read"`
	ServeStale bool   `json:"serve_stale,omitempty" jsonschema:"return what is stored although its source changed and cannot be fetched"`
}

// get reads one page: by id, by reference, or by id within an open transaction. A transaction takes
// no reference, because it reads what is current and a reference may name an old version.
func get(ctx context.Context, r *request, in getIn) (pageOut, error) {
	if (in.ID == "") == (in.Ref == "") {
		return pageOut{}, store.Invalid("id, ref", "both or none", "one of them")
	}
	var opts []ctxpage.ReadOption
	if in.ServeStale {
		opts = append(opts, ctxpage.ServeStale())
	}
	read := func() (*ctxpage.Version, error) { return r.s.Get(ctx, in.ID, opts...) }
	switch {
	case in.Trace != "" && in.Ref != "":
		return pageOut{}, store.Invalid("ref", "one beside a trace", "an id: a transaction reads what is current")
	case in.Trace != "":
		t, err := r.open(in.Trace)
		if err != nil {
			return pageOut{}, err
		}
		defer t.used()
		read = func() (*ctxpage.Version, error) { return t.tx.Get(ctx, in.ID, opts...) }
	case in.Ref != "":
		ref, err := ctxpage.ParseRef(in.Ref)
		if err != nil {
			return pageOut{}, err
		}
		read = func() (*ctxpage.Version, error) { return r.s.Recall(ctx, ref, opts...) }
	}
	v, err := read()
	if err != nil {
		return pageOut{}, err
	}
	return pageOf(v), nil
}

// filterIn is a ctxpage.Filter.
type filterIn struct {
	IDPrefix     string         `json:"id_prefix,omitempty" jsonschema:"how ids begin"`
	TagsAny      []string       `json:"tags_any,omitempty" jsonschema:"at least one of these tags"`
	TagsAll      []string       `json:"tags_all,omitempty" jsonschema:"all of these tags"`
	Subject      string         `json:"subject,omitempty" jsonschema:"whom it is about, exactly"`
	Meta         map[string]any `json:"meta,omitempty" jsonschema:"metadata by key: a value, or an object of operators $eq $ne $gt $gte $lt $lte $exists"`
	Kinds        []string       `json:"kinds,omitempty"`
	Since        time.Time      `json:"since,omitzero" jsonschema:"current at or after this time"`
	Until        time.Time      `json:"until,omitzero" jsonschema:"current before this time"`
	WrittenSince time.Time      `json:"written_since,omitzero" jsonschema:"written at or after this time"`
	WrittenUntil time.Time      `json:"written_until,omitzero" jsonschema:"written before this time"`
}

// filter is the filter as the library takes it; nil lets everything through.
func (in *filterIn) filter() (f ctxpage.Filter, err error) {
	if in == nil {
		return f, nil
	}
	f = ctxpage.Filter{
		IDPrefix: in.IDPrefix, TagsAny: in.TagsAny, TagsAll: in.TagsAll, Subject: in.Subject,
		Since: in.Since, Until: in.Until, WrittenSince: in.WrittenSince, WrittenUntil: in.WrittenUntil,
	}
	if len(in.Meta) > 0 {
		text, err := json.Marshal(in.Meta)
		if err == nil {
			err = f.Meta.UnmarshalJSON(text)
		}
		if err != nil {
			return f, err
		}
	}
	if f.Kinds, err = kindsOf(in.Kinds); err != nil {
		return f, err
	}
	return f, f.Check()
}

// kindsOf reads names of kinds; nil stands for all.
func kindsOf(names []string) (out []ctxpage.Kind, err error) {
	for _, name := range names {
		k, err := ctxpage.ParseKind(name)
		if err != nil {
			return nil, err
		}
		out = append(out, k)
	}
	return out, nil
}

// listIn pages through a listing. A cursor is opaque and stays valid while pages are written: it
// names a place in the order, not a number of entries to pass over.
type listIn struct {
	Prefix string    `json:"prefix,omitempty" jsonschema:"only ids that begin with it"`
	Cursor string    `json:"cursor,omitempty" jsonschema:"next of the list before"`
	Limit  int       `json:"limit,omitempty" jsonschema:"at most 1000; default 100"`
	Filter *filterIn `json:"filter,omitempty"`
	Newest bool      `json:"newest,omitempty" jsonschema:"latest first, in place of by id"`
}

type listOut struct {
	Items []pageOut `json:"items"`
	Next  string    `json:"next,omitempty" jsonschema:"give it as cursor for what follows"`
}

// within is a limit that was given, or its default.
func within(n, otherwise, most int) (int, error) {
	if n == 0 {
		return otherwise, nil
	}
	if n < 0 || n > most {
		return 0, store.Invalid("limit", fmt.Sprint(n), fmt.Sprintf("1 to %d", most))
	}
	return n, nil
}

// list pages through the scope's own artefacts, by id or latest first, without their texts.
func list(ctx context.Context, r *request, in listIn) (listOut, error) {
	limit, err := within(in.Limit, defaultList, maxList)
	if err != nil {
		return listOut{}, err
	}
	f, err := in.Filter.filter()
	if err != nil {
		return listOut{}, err
	}
	opts := []ctxpage.ReadOption{ctxpage.Where(f)}
	if in.Newest {
		opts = append(opts, ctxpage.NewestFirst())
	}
	all, next, err := r.s.List(ctx, in.Prefix, in.Cursor, limit, opts...)
	return listOut{pagesOf(all), next}, err
}

// versionsIn names an artefact of the scope or of an ancestor, the nearest first.
type versionsIn struct {
	ID     string `json:"id"`
	Cursor string `json:"cursor,omitempty"`
	Limit  int    `json:"limit,omitempty" jsonschema:"at most 1000; default 100"`
}

// versions pages through the versions of one artefact, newest first, without their texts.
func versions(ctx context.Context, r *request, in versionsIn) (listOut, error) {
	limit, err := within(in.Limit, defaultList, maxList)
	if err != nil {
		return listOut{}, err
	}
	all, next, err := r.s.History(ctx, in.ID, in.Cursor, limit)
	return listOut{pagesOf(all), next}, err
}

type searchIn struct {
	Query  string    `json:"query" jsonschema:"words to look for"`
	Limit  int       `json:"limit,omitempty" jsonschema:"at most 1000; default 10"`
	Filter *filterIn `json:"filter,omitempty"`
	Floor  string    `json:"floor,omitempty" jsonschema:"lowest provenance served: scratch, tool, validated, chunk or human-verified; default tool. Scratch also serves drafts, and imports that nobody has vouched for"`
}

type searchOut struct {
	Trace   string         `json:"trace"`
	Hits    []hitOut       `json:"hits" jsonschema:"best first"`
	LeftOut map[string]int `json:"left_out" jsonschema:"pages that match and are not served, counted by reason"`
	// Below says how to see what is below the floor.
	Below string `json:"below,omitempty" jsonschema:"how many matches are below the provenance floor, and how to see them"`

	Degraded string `json:"degraded,omitempty" jsonschema:"why words alone decided, or meaning did not see all pages"`
}

// hitOut is one artefact, with its best page. Score orders the hits of one answer; scores of two
// answers cannot be compared.
type hitOut struct {
	Ref    string   `json:"ref"`
	Text   string   `json:"text"`
	Score  float64  `json:"score"`
	Tokens int      `json:"tokens"`
	Stale  bool     `json:"stale,omitempty"`
	More   []string `json:"more,omitempty" jsonschema:"further pages of the artefact that match"`
}

// search finds pages by words and meaning. What matched and was left out is counted by reason, so
// that a caller can tell "nothing was found" from "nothing may be served".
func search(ctx context.Context, r *request, in searchIn) (searchOut, error) {
	limit, err := within(in.Limit, 10, maxList)
	if err != nil {
		return searchOut{}, err
	}
	f, err := in.Filter.filter()
	if err != nil {
		return searchOut{}, err
	}
	var floor ctxpage.Provenance
	if in.Floor != "" {
		if floor, err = triage.ParseProvenance(in.Floor); err != nil {
			return searchOut{}, err
		}
	}
	found, err := r.s.Search(ctx, in.Query, limit, ctxpage.Where(f), ctxpage.WithFloor(floor))
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

// refreshOut is a ctxpage.RefreshReport. Its lists are of ids, sorted.
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

// failureOut is a source, by the id of its artefact, or a recorded directory that could not be
// read.
type failureOut struct {
	ID    string `json:"id,omitempty"`
	Dir   string `json:"dir,omitempty"`
	Error string `json:"error"`
}

// refresh probes the sources of the scope and writes what changed. A source that fails is reported
// beside the others and stops nothing.
func refresh(ctx context.Context, r *request, in refreshIn) (refreshOut, error) {
	rep, err := r.s.Refresh(ctx, ctxpage.RefreshOptions{DryRun: in.DryRun, Delete: in.Delete, FilesOnly: in.FilesOnly})
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
