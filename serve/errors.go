package serve

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

type errorOut struct {
	Error errorBody `json:"error"`
}

type errorBody struct {
	Code    string `json:"code" jsonschema:"stable: programs compare it"`
	Message string `json:"message" jsonschema:"for people: what was expected"`
	Hint    string `json:"hint,omitempty" jsonschema:"what to do"`
	Batch   string `json:"batch,omitempty" jsonschema:"of held: the batch that waits for review"`
	Trace   string `json:"trace,omitempty"`
	Reason  string `json:"reason,omitempty" jsonschema:"of held: why"`
	Ref     string `json:"ref,omitempty" jsonschema:"of conflict: what has a newer version"`
}

// refused is a refusal by the server itself, before it did anything.
type refused struct{ code, message, hint string }

// Error returns the message; code and hint are fields of the answer.
func (e *refused) Error() string { return "ctxpage: " + e.message }

// refuse refuses a call, which may be repeated as soon as the cause is gone. The code must be in refusals.
func refuse(code, message, hint string) error { return &refused{code, message, hint} }

// coded maps errors of the library to codes; the first match counts. A code never changes its meaning.
//
// An error may match several rows, so their order matters: first what the caller must do first (a commit that ran out of time is
// repeated under its batch), then the state of the database, then the request; ErrInvalid and ErrNotFound, which much wraps, last.
var coded = []struct {
	err    error
	code   string
	status int
	hint   string
}{
	{context.DeadlineExceeded, "deadline", http.StatusGatewayTimeout, "call again with a longer " + headerTimeout + "; a commit is repeated under the same batch"},
	{context.Canceled, "cancelled", http.StatusServiceUnavailable, "call again"},
	{remote.ErrForeign, "foreign", http.StatusServiceUnavailable, "the database is served by another user"},
	{store.ErrOutcomeUnknown, "outcome_unknown", http.StatusServiceUnavailable, "repeat the call with the same batch: it is never applied twice"},
	{store.ErrLocked, "locked", http.StatusServiceUnavailable, "wait for the process that the message names"},
	{store.ErrClosed, "closing", http.StatusServiceUnavailable, "connect again"},
	{store.ErrNoSpace, "no_space", http.StatusInsufficientStorage, "free space on the disk"},
	{store.ErrNewerFormat, "newer_format", http.StatusInternalServerError, "serve the file with a newer release"},
	{store.ErrOldFormat, "old_format", http.StatusInternalServerError, "export the database with the program that made it, and import that"},
	{store.ErrCorrupt, "corrupt", http.StatusInternalServerError, "run dbctl check"},
	{store.ErrMisfit, "corrupt", http.StatusInternalServerError, "run dbctl check"},
	{store.ErrNotDatabase, "not_database", http.StatusInternalServerError, ""},
	{store.ErrNotExist, "no_database", http.StatusInternalServerError, ""},
	{store.ErrKey, "wrong_key", http.StatusInternalServerError, "serve the database with its key"},
	{store.ErrReadOnly, "read_only", http.StatusForbidden, "the database is open read-only here"},
	{store.ErrErased, "erased", http.StatusGone, ""},
	{store.ErrGone, "gone", http.StatusGone, ""},
	{store.ErrExpired, "expired", http.StatusGone, ""},
	{store.ErrFileRoot, "file_root", http.StatusForbidden, "allow the directory where the database is served"},
	{store.ErrVanished, "vanished", http.StatusConflict, "get with serve_stale returns what is stored"},
	{store.ErrDirty, "dirty", http.StatusConflict, "get with serve_stale returns what is stored"},
	{session.ErrHeadroom, "headroom", http.StatusUnprocessableEntity, ""},
	{store.ErrQuota, "quota", http.StatusInsufficientStorage, "delete what is not needed, or raise the quota; if the scope is closed, write where its error says"},
	{store.ErrBudget, "budget", http.StatusUnprocessableEntity, "give a larger budget"},
	{ctxpage.ErrReplay, "replay_differs", http.StatusConflict, ""},
	{store.ErrConflict, "conflict", http.StatusConflict, "read it again and retry"},
	{store.ErrHeld, "held", http.StatusConflict, "a person decides about the batch; do not repeat the write"},
	{store.ErrStaleContext, "stale_context", http.StatusConflict, "assemble again and write from the new context"},
	{store.ErrTxnDone, "txn_done", http.StatusConflict, "begin another transaction"},
	{store.ErrTxnExpired, "txn_expired", http.StatusGone, "the manifest has the outcome"},
	{store.ErrTxnFailed, "txn_failed", http.StatusConflict, "roll back and begin again"},
	{store.ErrSelfCertified, "self_certified", http.StatusForbidden, "another actor must give the verdict"},
	{store.ErrReviewed, "reviewed", http.StatusConflict, ""},
	{session.ErrUndo, "undo", http.StatusConflict, ""},
	{store.ErrGated, "gated", http.StatusForbidden, "say hello as host for what the host vouches for"},
	{store.ErrProvenance, "provenance", http.StatusForbidden, ""},
	{render.ErrSequence, "invalid", http.StatusBadRequest, "ask for the messages of a provider that accepts what the message names"},
	{ops.ErrReceipt, "invalid", http.StatusBadRequest, "a receipt as erase returned it"},
	{store.ErrInvalid, "invalid", http.StatusBadRequest, ""},
	{store.ErrNotFound, "not_found", http.StatusNotFound, ""},
	{manifest.ErrNoLeaf, "not_found", http.StatusNotFound, ""},
}

// refusals are the statuses of the codes with which the server itself refuses a request.
var refusals = map[string]int{
	"unauthorized": http.StatusUnauthorized, "host": http.StatusForbidden, "origin": http.StatusForbidden, "scope": http.StatusForbidden, "role": http.StatusForbidden, "key": http.StatusGone,
	"call": http.StatusNotFound, "method": http.StatusMethodNotAllowed, "body": http.StatusBadRequest, "too_large": http.StatusRequestEntityTooLarge,
	"full": http.StatusServiceUnavailable, "closing": http.StatusServiceUnavailable, "stop": http.StatusForbidden, "internal": http.StatusInternalServerError,
}

// errorOf returns the answer for an error, and its HTTP status. An error without a row is internal, with its text.
func errorOf(err error) (int, errorOut) {
	var no *refused
	if errors.As(err, &no) {
		return refusals[no.code], errorOut{errorBody{Code: no.code, Message: no.message, Hint: no.hint}}
	}
	status, out := http.StatusInternalServerError, errorBody{Code: "internal"}
	for _, c := range coded {
		if errors.Is(err, c.err) {
			status, out = c.status, errorBody{Code: c.code, Hint: c.hint}
			break
		}
	}
	var silent *remote.UnavailableError
	var skew *remote.SkewError
	switch {
	case errors.As(err, &silent):
		status, out.Code, out.Hint = http.StatusServiceUnavailable, "not_answering", "wait for the process that the message names, or end it"
	case errors.As(err, &skew):
		status, out.Code, out.Hint = http.StatusServiceUnavailable, "skew", "end the process that the message names"
	}
	out.Message = err.Error()
	out.fill(err)
	return status, errorOut{out}
}

func (b *errorBody) fill(err error) {
	var held *store.HeldError
	var conflict *store.ConflictError
	switch {
	case errors.As(err, &held):
		b.Batch, b.Trace, b.Reason = held.Batch, held.Trace, held.Reason
	case errors.As(err, &conflict):
		b.Ref = conflict.Name()
	}
}

type statusOut struct {
	Version  int       `json:"version" jsonschema:"of the calls"`
	Database string    `json:"database" jsonschema:"its id"`
	Path     string    `json:"path,omitempty"`
	Format   int       `json:"format" jsonschema:"of the file"`
	LSN      uint64    `json:"lsn,omitempty" jsonschema:"this and the other counts are for operators of all scopes"`
	Leaves   uint64    `json:"leaves,omitempty"`
	Pages    int       `json:"pages,omitempty"`
	Held     int       `json:"held,omitempty" jsonschema:"batches that wait for review"`
	PID      int       `json:"pid"`
	Program  string    `json:"program"`
	Since    time.Time `json:"since"`
	Now      time.Time `json:"now"`
	Role     string    `json:"role" jsonschema:"the highest that this caller can have"`
	Within   string    `json:"within,omitempty" jsonschema:"only this scope and those below it are served"`
	Keys     int       `json:"keys,omitempty"`
	Open     int       `json:"transactions,omitempty" jsonschema:"that are open"`
	Calls    int       `json:"calls,omitempty" jsonschema:"under way, this one included"`
}

func (s *Server) status(ctx context.Context, most Role) (statusOut, error) {
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	stats, err := s.db.Stats(ctx)
	if err != nil {
		return statusOut{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := statusOut{
		Version: Version, Database: stats.ID, Path: stats.Path, Format: filestore.FormatVersion, LSN: stats.LSN, Leaves: stats.Leaves, Pages: stats.Pages, Held: stats.Held,
		PID: s.is.PID, Program: s.is.Program, Since: s.is.Since, Now: s.opts.Now().UTC(), Role: most.String(), Within: s.opts.Within,
		Keys: len(s.keys), Open: len(s.txns), Calls: s.busy,
	}
	if most < Operator || s.opts.Within != "" { // of other scopes they learn nothing, not even how much there is
		out.Path, out.LSN, out.Leaves, out.Pages, out.Held, out.Keys, out.Open, out.Calls = "", 0, 0, 0, 0, 0, 0, 0
	}
	return out, nil
}

// askToStop ends a server that exists only to serve. It answers first: Stop runs in a goroutine of its own, and Close waits for this call.
func (s *Server) askToStop(most Role) error {
	switch {
	case most < Operator:
		return refuse("role", "only an operator may end the server", "connect where that role is granted")
	case s.opts.Stop == nil:
		return refuse("stop", "this process serves the database beside its own work", "end it there")
	}
	s.stop.Do(func() { go s.opts.Stop() })
	return nil
}
