package pgstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/store"
)

var (
	// ErrSchema is matched by the *SchemaError of a server that has no schema of this store, or an older or newer one.
	ErrSchema = errors.New("pgstore: the schema is not the one this program needs")
	// ErrBehind is matched by the *BehindError of a read on a host that has not heard from the server for Options.MaxLag.
	ErrBehind = errors.New("pgstore: too long without contact to the server")
	// ErrUnavailable means that the server did not answer within Options.Patience. Nothing happened; the call may be repeated.
	ErrUnavailable = errors.New("pgstore: the server does not answer")
	// ErrForked is matched by the *ForkedError of a server whose log is not the one this host followed: commits were lost, for
	// instance by a failover to a standby that was behind. The handle takes no more calls.
	ErrForked = engine.ErrForked
	// ErrTooOld means that the server no longer has the records that follow what this host has. Open the database again: it
	// begins with the newest image.
	ErrTooOld = engine.ErrTooOld
)

// SchemaError says which version of the schema there is. Have 0: none.
type SchemaError struct {
	Have, Want int64
}

func (e *SchemaError) Error() string {
	switch {
	case e.Have == 0:
		return fmt.Sprintf("pgstore: the server has no ctxpage schema in the search path; make it with: dbctl postgres migrate URL (version %d)", e.Want)
	case e.Have > e.Want:
		return fmt.Sprintf("pgstore: the schema has version %d, this program knows version %d; use a newer release", e.Have, e.Want)
	}
	return fmt.Sprintf("pgstore: the schema has version %d, this program needs version %d; upgrade it with: dbctl postgres migrate URL", e.Have, e.Want)
}

// Is makes errors.Is(err, ErrSchema) true.
func (e *SchemaError) Is(target error) bool { return target == ErrSchema }

// ForkedError says what this host has and the server has not. The host got the records of the log up to Have from the server, or
// wrote them itself, so their commits were acknowledged; Newest is the newest record that the server has now. If Newest is Have or
// more, other hosts went on without the lost records.
type ForkedError struct {
	Have, Newest uint64
	LSN          uint64 // of the newest commit up to Have
	Cache        string // Options.CacheDir, if the cache in it remembers lost records; else ""
	Err          error  // how it was noticed; it matches ErrForked
}

func (e *ForkedError) Error() string {
	now := fmt.Sprintf("the server's newest record is %d", e.Newest)
	if e.Newest >= e.Have {
		now = fmt.Sprintf("the server has another record %d and goes on to %d", e.Have, e.Newest)
	}
	then := "open the database again to follow what the server has"
	if e.Cache != "" {
		then = fmt.Sprintf("to follow what the server has, remove %s and %s and open the database again", filepath.Join(e.Cache, rowsFile), filepath.Join(e.Cache, archiveDir))
	}
	return fmt.Sprintf("acknowledged commits are missing on the server: this host has record %d of the log (LSN %d), %s (%v). "+
		"A failover to a standby that was behind, or a restored backup, does that. If the old server still exists, stop here and recover it; else %s, "+
		"and see what is missing with: dbctl manifest verify --head", e.Have, e.LSN, now, e.Err, then)
}

// Unwrap returns how it was noticed.
func (e *ForkedError) Unwrap() error { return e.Err }

// BehindError says when the host last heard from the server.
type BehindError struct {
	Heard  time.Time
	MaxLag time.Duration
	Err    error // why it hears nothing; nil: not known
}

func (e *BehindError) Error() string {
	why := ""
	if e.Err != nil {
		why = ": " + e.Err.Error()
	}
	return fmt.Sprintf("pgstore: last heard from the server at %s, more than %s ago (Options.MaxLag)%s; reads resume when it answers",
		e.Heard.UTC().Format(time.RFC3339), e.MaxLag, why)
}

// Is makes errors.Is(err, ErrBehind) true.
func (e *BehindError) Is(target error) bool { return target == ErrBehind }

// Unwrap returns the cause.
func (e *BehindError) Unwrap() error { return e.Err }

// chainError is damage: a record that is not the one its chain was made of.
func chainError(seq uint64, name string) error {
	return &store.CorruptError{File: name, Err: fmt.Errorf("record %d of the log does not have the hash of its chain", seq),
		Hint: "somebody changed the row; restore the server's backup"}
}

// followError is of a record that could not be installed here. Asking the server again does not help.
type followError struct{ error }

func (e followError) Unwrap() error { return e.error }

// readOnly is the code of a server that takes no writes: a standby, or a primary that became one.
const readOnly = "25006"

// passing reports whether another try may succeed: the network, a restart, a lock that was not given, a transaction that the
// server ended. What the server says for good (no table, no right) and what is wrong with a record does not pass.
func passing(err error) bool {
	var follow followError
	if errors.As(err, &follow) || errors.Is(err, store.ErrClosed) {
		return false
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return true // of the connection
	}
	switch pg.Code {
	case "40001", "40P01", "55P03", "25P02", "25P03", readOnly:
		return true
	}
	switch pg.Code[:2] { // connection, resources, operator intervention
	case "08", "53", "57":
		return true
	}
	return false
}
