package remote

import (
	"context"
	"errors"
	"reflect"
	"sync"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// The methods of the server, each a call of store.Store or Audit. Three marks say what a retry and
// a lost connection do to a call:
//
//	once    the session keeps the answer under the number of the call, and a retry gets it
//	whole   the call runs to its end even if its connection is lost, because the store cannot be asked for its outcome
//	long    the call may run for hours, and ends when the server closes; the client makes it again at the next server
//
// A read has no mark: a retry reads again. Holds are not of the store but of the session, so that
// they end with it.

// request is one call at the server.
type request struct {
	ctx      context.Context
	store    store.Store
	session  *session
	progress func(what string, done, total uint64)
	made     bool               // set by the method: what the call asked for has happened, though it failed later
	room     *[]store.Candidate // set by the method: the answer is in it, until it was encoded
}

// rooms are memory for candidates.
var rooms = sync.Pool{New: func() any { return new([]store.Candidate) }}

// maxRoom is how many candidates are kept in memory for.
const maxRoom = 1024

// leave returns the room to the pool when the answer was encoded.
func (r *request) leave() {
	if r.room != nil && cap(*r.room) <= maxRoom {
		clear(*r.room)
		*r.room = (*r.room)[:0]
		rooms.Put(r.room)
	}
}

// method runs a call: from the bytes of the request to the frames of the answer.
type method struct {
	run func(r *request, body []byte) ([]byte, error)
	// once: a call that is sent again gets the answer of the first.
	once bool
	// whole: the call is not ended by a connection that is, because the store cannot be asked how
	// it ended.
	whole bool
	// long: the call may take its time, and ends when the server is closing. The client makes it
	// again elsewhere.
	long bool
}

// handler makes a method: it decodes the request, calls do, and encodes the answer with the LSN that
// readers have reached. The LSN is read after the work, so the Mark of a client is never behind an
// answer that it has.
func handler[Q, A any](do func(r *request, q Q) (A, error)) method {
	return method{run: func(r *request, body []byte) ([]byte, error) {
		var q Q
		if err := unpack(body, &q); err != nil {
			return nil, &malformed{err}
		}
		a, err := do(r, q)
		defer r.leave()
		if err != nil {
			return nil, withValue(err, a)
		}
		return packFrame(frameEnd, &answer[A]{LSN: r.store.Mark().LSN, Value: a})
	}}
}

// partial is an error beside which a call returns a value: what a job had done when it was ended, or
// the rows that could be read.
type partial struct {
	error
	value []byte
}

func (p *partial) Unwrap() error { return p.error }

// withValue adds a value to an error, unless there is none.
func withValue(err error, value any) error {
	v := reflect.ValueOf(value)
	if !v.IsValid() || v.IsZero() {
		return err
	}
	b, failed := pack(value)
	if failed != nil {
		return err
	}
	return &partial{err, b}
}

// malformed is a request that cannot be read: nothing was done.
type malformed struct{ error }

func (m method) isOnce() method  { m.once = true; return m }
func (m method) isLong() method  { m.long = true; return m }
func (m method) isWhole() method { m.whole = true; return m }

// methods are the calls, by the names of PROTOCOL.md.
var methods = map[string]method{
	"Info":    handler(func(r *request, _ none) (store.Info, error) { return r.store.Info(r.ctx) }),
	"Resolve": handler(func(r *request, q resolveAsk) (store.Located, error) { return r.store.Resolve(r.ctx, q.Scopes, q.Ref) }),
	"Load": handler(func(r *request, q loadAsk) ([]store.Loaded, error) {
		return r.store.Load(r.ctx, q.Scopes, q.Pages, q.Want)
	}),
	"Candidates": handler(func(r *request, q store.CandidateQuery) (store.Candidates, error) {
		return r.store.Candidates(r.ctx, q)
	}),
	"Scan":   handler(func(r *request, q store.ScanQuery) (store.ScanPage, error) { return r.store.Scan(r.ctx, q) }),
	"Commit": handler(func(r *request, q store.Batch) (store.Outcome, error) { return r.store.Commit(r.ctx, q) }).isOnce(),
	"Held":   handler(func(r *request, q ulid.ULID) (store.HeldBatch, error) { return r.store.Held(r.ctx, q) }),
	"Vectors": handler(func(r *request, q vectorsAsk) ([][]float32, error) {
		return r.store.Vectors(r.ctx, q.Scopes, q.Model, q.Nums)
	}),
	"PutVectors": handler(func(r *request, q vectorsAsk) (none, error) {
		return none{}, r.store.PutVectors(r.ctx, q.Model, q.Nums, q.Vecs)
	}),
	"State":    handler(func(r *request, q string) (store.StateRow, error) { return r.store.State(r.ctx, q) }),
	"Outcome":  handler(serveOutcome),
	"Refresh":  handler(func(r *request, q uint64) (store.Mark, error) { return r.store.Refresh(r.ctx, q) }),
	"Hold":     handler(serveHold),
	"Prepare":  handler(servePrepare),
	"Renew":    handler(func(r *request, q renewAsk) (none, error) { r.session.release(r.store, q.Release); return none{}, nil }),
	"Changes":  handler(func(r *request, q changesAsk) (store.Changes, error) { return r.store.Changes(r.ctx, q.After, q.Wait) }).isLong(),
	"Append":   handler(serveAppend).isOnce().isWhole(),
	"Head":     handler(func(r *request, _ none) (manifest.Head, error) { return r.store.Head(r.ctx) }),
	"Maintain": handler(serveMaintain).isOnce().isLong(),
	"Stat":     handler(func(r *request, _ none) (store.StoreStats, error) { return r.store.Stat(r.ctx) }),

	"Audit.Size": handler(func(r *request, _ none) (uint64, error) { return r.store.Audit().Size(r.ctx) }),
	"Audit.Wait": handler(func(r *request, q auditWaitAsk) (uint64, error) {
		return r.store.Audit().Wait(r.ctx, q.Size, q.Wait)
	}).isLong(),
	"Audit.Body":    handler(func(r *request, q uint64) ([]byte, error) { return r.store.Audit().Body(r.ctx, q) }),
	"Audit.Leaf":    handler(func(r *request, q uint64) (*manifest.Record, error) { return r.store.Audit().Leaf(r.ctx, q) }),
	"Audit.Records": handler(serveRecords),
	"Audit.ByTrace": handler(func(r *request, q string) ([]*manifest.Record, error) { return r.store.Audit().ByTrace(r.ctx, q) }),
	"Audit.Named":   handler(func(r *request, q string) (bool, error) { return r.store.Audit().Named(r.ctx, q) }),
	"Audit.Written": handler(func(r *request, q writtenAsk) (w written, err error) {
		w.Leaf, w.Write, err = r.store.Audit().Written(r.ctx, q.Num, q.Version)
		return w, err
	}),
	"Audit.Question": handler(func(r *request, q *manifest.Record) (string, error) { return r.store.Audit().Question(r.ctx, q) }),
	"Audit.Names":    handler(func(r *request, _ none) (map[uint64]string, error) { return r.store.Audit().Names(r.ctx) }),
	"Audit.Root":     handler(func(r *request, q uint64) (manifest.Hash, error) { return r.store.Audit().Root(r.ctx, q) }),
	"Audit.Head":     handler(func(r *request, q sizesAsk) (manifest.Head, error) { return r.store.Audit().Head(r.ctx, q.Size, q.Now) }),
	"Audit.ProveInclusion": handler(func(r *request, q sizesAsk) (manifest.Inclusion, error) {
		return r.store.Audit().ProveInclusion(r.ctx, q.I, q.Size)
	}),
	"Audit.ProveConsistency": handler(func(r *request, q sizesAsk) (manifest.Consistency, error) {
		return r.store.Audit().ProveConsistency(r.ctx, q.I, q.Size)
	}),
	"Audit.Verify": handler(func(r *request, q verifyAsk) (manifest.Verification, error) {
		return r.store.Audit().Verify(r.ctx, q.Against, func(done, total uint64) { r.progress("", done, total) })
	}).isLong(),
}

// serveOutcome first makes sure that none of the calls that the client gave up is still to be made.
func serveOutcome(r *request, q outcomeAsk) (store.Outcome, error) {
	if err := r.session.giveUp(r.ctx, q.GiveUp); err != nil {
		return store.Outcome{}, err
	}
	return r.store.Outcome(r.ctx, q.ID)
}

// serveMaintain runs a job. An erase that has made a commit was made: the next owner of the files finishes it.
func serveMaintain(r *request, q store.Job) (store.JobReport, error) {
	rep, err := r.store.Maintain(r.ctx, q, r.progress)
	r.made = rep.Erase.LSN != 0
	return rep, err
}

// serveHold takes a hold for the session.
func serveHold(r *request, q holdAsk) (none, error) {
	return none{}, r.session.hold(r.ctx, r.store, q)
}

// servePrepare takes a hold first and reads then, so that gc keeps the pages that the answers name.
func servePrepare(r *request, q prepareAsk) (out prepared, err error) {
	if err := r.session.hold(r.ctx, r.store, q.Hold); err != nil {
		return out, err
	}
	for _, scan := range q.Scans {
		page, err := r.store.Scan(r.ctx, scan)
		if err != nil {
			return prepared{}, nil // the client has its hold, and asks again for the rest
		}
		out.Scans = append(out.Scans, page)
	}
	r.room = rooms.Get().(*[]store.Candidate)
	if out.Candidates, err = r.store.Candidates(format.WithRoom(r.ctx, r.room), q.Candidates); err != nil {
		return prepared{}, nil
	}
	out.Whole = true
	return out, nil
}

// serveAppend appends leaves and returns what the store filled in. The list is empty if something else was expected.
func serveAppend(r *request, q appendAsk) ([]appended, error) {
	if q.Expect != nil && !q.Expect.holds(r.ctx, r.store) {
		return nil, nil
	}
	if err := r.store.Append(r.ctx, q.Leaves, q.Durability); err != nil {
		return nil, err
	}
	out := make([]appended, len(q.Leaves))
	for i, l := range q.Leaves {
		out[i] = appended{l.Index, l.Query, l.QuestionKept}
	}
	return out, nil
}

// The limits of one part of a listing of leaves.
const (
	recordsBytes = 4 << 20
	recordsStep  = 16
)

// serveRecords returns leaves until they are many bytes. The client asks for the rest.
func serveRecords(r *request, q recordsAsk) (out records, err error) {
	size := 0
	for to := q.To; len(out.Records) < q.Limit; {
		from := q.From
		if !q.Reverse {
			from += uint64(len(out.Records))
		}
		step := min(recordsStep, q.Limit-len(out.Records))
		part, err := r.store.Audit().Records(r.ctx, from, to, q.Reverse, step)
		if err != nil {
			return out, err
		}
		out.Records = append(out.Records, part...)
		for _, leaf := range part {
			b, err := archive.Encode(leaf)
			if err != nil && !errors.Is(err, store.ErrNewerFormat) {
				return out, err
			}
			size += len(b)
		}
		if len(part) < step {
			return out, nil
		}
		if q.Reverse {
			to = part[len(part)-1].Index
		}
		if size > recordsBytes {
			out.More = len(out.Records) < q.Limit
			return out, nil
		}
	}
	return out, nil
}
