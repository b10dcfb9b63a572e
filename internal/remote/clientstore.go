package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// Info: see store.Store.
func (c *Client) Info(ctx context.Context) (store.Info, error) {
	return ask[store.Info](ctx, c, "Info", none{}, callOptions{})
}

// Resolve: see store.Store.
func (c *Client) Resolve(ctx context.Context, scopes store.Scopes, ref store.Ref) (store.Located, error) {
	if g := guessOf(ctx); g != nil && !g.asked {
		return c.resolveGuessed(ctx, g, scopes, ref)
	}
	return ask[store.Located](ctx, c, "Resolve", resolveAsk{scopes, ref}, callOptions{})
}

// Load: see store.Store.
func (c *Client) Load(ctx context.Context, scopes store.Scopes, pages []store.PageKey, want store.Want) ([]store.Loaded, error) {
	return ask[[]store.Loaded](ctx, c, "Load", loadAsk{scopes, pages, want}, callOptions{})
}

// Candidates: see store.Store.
func (c *Client) Candidates(ctx context.Context, q store.CandidateQuery) (store.Candidates, error) {
	if found, ok := PlanOf(ctx).Found(c.Mark().LSN, q); ok {
		return found, nil
	}
	return ask[store.Candidates](ctx, c, "Candidates", q, callOptions{})
}

// Scan: see store.Store.
func (c *Client) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	if page, ok := PlanOf(ctx).Scanned(c.Mark().LSN, q); ok {
		return page, nil
	}
	return ask[store.ScanPage](ctx, c, "Scan", q, callOptions{})
}

// Commit: see store.Store. If the connection fails, the batch is sent again under its id. It
// returns ErrOutcomeUnknown if it was sent and no server answers.
func (c *Client) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	if err := store.CheckClock(b.Now); err != nil { // a time goes without its zone
		return store.Outcome{}, err
	}
	if err := format.CheckUnknown(&b); err != nil { // in a message they stand among the known fields
		return store.Outcome{}, err
	}
	return ask[store.Outcome](ctx, c, "Commit", &b, callOptions{writes: true, waited: true, giveUp: true})
}

// Held: see store.Store.
func (c *Client) Held(ctx context.Context, id ulid.ULID) (store.HeldBatch, error) {
	return ask[store.HeldBatch](ctx, c, "Held", id, callOptions{})
}

// Vectors: see store.Store.
func (c *Client) Vectors(ctx context.Context, scopes store.Scopes, model string, nums []uint64) ([][]float32, error) {
	return ask[[][]float32](ctx, c, "Vectors", vectorsAsk{Scopes: scopes, Model: model, Nums: nums}, callOptions{})
}

// PutVectors: see store.Store.
func (c *Client) PutVectors(ctx context.Context, model string, nums []uint64, vecs [][]float32) error {
	_, err := ask[none](ctx, c, "PutVectors", vectorsAsk{Model: model, Nums: nums, Vecs: vecs}, callOptions{})
	return err
}

// State: see store.Store.
func (c *Client) State(ctx context.Context, key string) (store.StateRow, error) {
	return ask[store.StateRow](ctx, c, "State", key, callOptions{})
}

// Outcome: see store.Store. The server first makes sure that no Commit which returned here without
// an answer can still arrive; only then is ErrNotFound final.
func (c *Client) Outcome(ctx context.Context, id ulid.ULID) (store.Outcome, error) {
	c.mu.Lock()
	q := outcomeAsk{ID: id, GiveUp: slices.Clone(c.givenUp)}
	c.mu.Unlock()
	out, err := ask[store.Outcome](ctx, c, "Outcome", q, callOptions{})
	if err == nil || errors.Is(err, store.ErrNotFound) {
		c.mu.Lock()
		c.givenUp = slices.DeleteFunc(c.givenUp, func(n uint64) bool { return slices.Contains(q.GiveUp, n) })
		c.mu.Unlock()
	}
	return out, err
}

// Mark: see store.Store. It is taken from the last answer; reads may see newer commits.
func (c *Client) Mark() store.Mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mark
}

// Refresh: see store.Store.
func (c *Client) Refresh(ctx context.Context, atLeast uint64) (store.Mark, error) {
	at := c.opts.Now()
	m, err := ask[store.Mark](ctx, c, "Refresh", atLeast, callOptions{})
	if m.Heard.IsZero() && err == nil {
		m.Heard = at
	}
	return m, err
}

// Hold: see store.Store. The hold ends if the server does not hear from this client for longer than
// the lease.
func (c *Client) Hold(ctx context.Context, at store.Moment) (store.Ticket, error) {
	t := store.Ticket(c.ticket.Add(1))
	c.mu.Lock()
	c.holds[t] = at // before the call: a session that begins at the same moment must take it too
	c.mu.Unlock()
	if err := c.takeHold(ctx, holdAsk{t, at}); err != nil {
		c.mu.Lock()
		delete(c.holds, t)
		c.freed = append(c.freed, t) // the server may have it
		c.mu.Unlock()
		return 0, err
	}
	return t, nil
}

// takeHold asks for a hold. In the same call it asks for the data that the caller will need next,
// which the context announces (package plan).
func (c *Client) takeHold(ctx context.Context, q holdAsk) error {
	p := PlanOf(ctx)
	if p == nil {
		_, err := ask[none](ctx, c, "Hold", q, callOptions{})
		return err
	}
	at := c.opts.Now()
	b, err := c.call(ctx, "Prepare", prepareAsk{Hold: q, Scans: p.Scans, Candidates: p.Candidates}, callOptions{})
	var a answer[prepared]
	if err == nil {
		err = unpackInto(b, &a, p.Room)
	}
	if err != nil {
		return err
	}
	c.advanceMark(a.LSN, at)
	if a.Value.Whole {
		p.Fill(a.LSN, a.Value.Scans, a.Value.Candidates)
	}
	return nil
}

// Release: see store.Store. Another goroutine tells the server soon afterwards, and always before a
// job of this client that drops versions.
func (c *Client) Release(t store.Ticket) {
	c.mu.Lock()
	_, ok := c.holds[t]
	if delete(c.holds, t); ok {
		c.freed = append(c.freed, t)
	}
	c.mu.Unlock()
	if !ok {
		return
	}
	select {
	case c.releases <- struct{}{}:
	default: // it is known that there are some
	}
}

// Changes: see store.Store.
func (c *Client) Changes(ctx context.Context, after uint64, wait time.Duration) (store.Changes, error) {
	return ask[store.Changes](ctx, c, "Changes", changesAsk{after, wait}, callOptions{})
}

// Append: see store.Store. If the server was replaced during the call, the client looks in the
// audit whether the leaves were written. It returns ErrOutcomeUnknown if no server answers.
func (c *Client) Append(ctx context.Context, leaves []*manifest.Record, d store.Durability) error {
	err := format.CheckLeaves(leaves)
	if err != nil {
		return err
	}
	err = c.append(ctx, leaves, d)
	var taken *TakenError
	for sent := errors.Is(err, errElsewhere); sent; sent = errors.Is(err, errElsewhere) {
		if leaves, err = Missing(ctx, c, leaves); err == nil && len(leaves) > 0 {
			err = c.append(ctx, leaves, d)
		}
		if errors.As(err, &taken) {
			taken.Sent = true // before, to the one that was replaced
		}
	}
	return err
}

// append sends leaves and fills in what the store put into them.
func (c *Client) append(ctx context.Context, leaves []*manifest.Record, d store.Durability) error {
	q := appendAsk{Leaves: leaves, Durability: d}
	if g := guessOf(ctx); g != nil && g.used {
		g.sent, q.Expect = true, &g.is
	}
	got, err := ask[[]appended](ctx, c, "Append", q, callOptions{bound: true, writes: true, waited: true, meanwhile: meanwhileOf(ctx)})
	if err != nil {
		return err
	}
	if q.Expect != nil && len(got) == 0 {
		return errGuess
	}
	for i := range min(len(got), len(leaves)) {
		leaves[i].Index, leaves[i].Query, leaves[i].QuestionKept = got[i].Index, got[i].Query, got[i].QuestionKept
	}
	return nil
}

// Missing returns those of the given leaves that the audit of a store lacks, for a caller that does
// not know whether they were appended. In the others it sets the fields that the store fills in.
func Missing(ctx context.Context, st store.Store, leaves []*manifest.Record) (missing []*manifest.Record, err error) {
	used := map[uint64]bool{}
	for _, leaf := range leaves {
		same, err := kept(ctx, st, leaf, used)
		switch {
		case err != nil:
			return nil, err
		case same == nil:
			missing = append(missing, leaf)
		default:
			used[same.Index] = true
			leaf.Index, leaf.Query, leaf.QuestionKept = same.Index, same.Query, same.QuestionKept
		}
	}
	return missing, nil
}

// kept finds a leaf in the audit, ignoring the fields that the store fills in.
func kept(ctx context.Context, st store.Store, leaf *manifest.Record, used map[uint64]bool) (*manifest.Record, error) {
	want, err := comparableLeaf(leaf)
	if err != nil {
		return nil, err
	}
	there, err := st.Audit().ByTrace(ctx, leaf.Trace)
	if errors.Is(err, manifest.ErrNoLeaf) {
		return nil, nil
	}
	for _, r := range there {
		if b, bad := comparableLeaf(r); bad == nil && bytes.Equal(b, want) && !used[r.Index] {
			return r, nil
		}
	}
	return nil, err
}

// comparableLeaf encodes a leaf without what the store fills in, for comparison.
func comparableLeaf(leaf *manifest.Record) ([]byte, error) {
	own := *leaf
	own.Index, own.Query, own.QuestionKept, own.Question = 0, manifest.Digest{}, false, ""
	b, err := archive.Encode(&own)
	if err != nil {
		return nil, fmt.Errorf("ctxpage: leaf: %w", err)
	}
	return b, nil
}

// Head: see store.Store.
func (c *Client) Head(ctx context.Context) (manifest.Head, error) {
	return ask[manifest.Head](ctx, c, "Head", none{}, callOptions{})
}

// Maintain: see store.Store. Paths of backups are on the server's file system.
func (c *Client) Maintain(ctx context.Context, job store.Job, p store.Progress) (store.JobReport, error) {
	h := callOptions{writes: format.JobWrites(&job), bound: format.JobWrites(&job)}
	if p != nil {
		h.progress = func(is progress) { p(is.What, is.Done, is.Total) }
	}
	c.sendReleases(ctx, false)
	return ask[store.JobReport](ctx, c, "Maintain", job, h)
}

// Stat: see store.Store.
func (c *Client) Stat(ctx context.Context) (store.StoreStats, error) {
	return ask[store.StoreStats](ctx, c, "Stat", none{}, callOptions{})
}
