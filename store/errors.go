package store

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"syscall"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
)

// Opening a database.
var (
	// ErrLocked is matched by the *LockedError that Open returns when another process has the file.
	ErrLocked = errors.New("ctxpage: database is open in another process")
	// ErrNewerFormat means that a later release wrote the file; nothing in it was changed.
	ErrNewerFormat = codec.ErrNewerFormat
	// ErrOldFormat means that the file was made before v0.1.0; nothing in it was changed.
	ErrOldFormat = codec.ErrOldFormat
	// ErrCorrupt is matched by every *CorruptError.
	ErrCorrupt = codec.ErrCorrupt
	// ErrNotDatabase means that the file at the path is something else: it does not begin as a
	// database does, and there is no log and no audit beside it. Nothing in it was changed.
	ErrNotDatabase = errors.New("ctxpage: not a ctxpage database")
	// ErrKey means that a database is encrypted and does not open with the key that was given, or
	// without one, or that it is not encrypted and a key was given. The error says which, and what
	// to do. Nothing in it was changed.
	ErrKey = errors.New("ctxpage: missing or wrong key")
	// ErrReadOnly is returned by every write on a database opened with Options.ReadOnly.
	ErrReadOnly = errors.New("ctxpage: database is open read-only")
	// ErrNotExist means that Open was told to create nothing and there is no database at the path.
	ErrNotExist = errors.New("ctxpage: no database at this path")
	// ErrClosed is returned after Close, by every method but Close itself.
	ErrClosed = codec.ErrClosed
	// ErrOutcomeUnknown means that a write or a sync failed while a commit was under way, or that
	// the caller's context ended while it waited. The commit may or may not have happened: open the
	// database again (after a failed write the handle stays unusable) and repeat with the same id,
	// which never applies twice.
	ErrOutcomeUnknown = errors.New("ctxpage: outcome unknown")
)

// Putting and reading.
var (
	// ErrNotFound means that no live artefact of that name is visible from the scope. A page of
	// another scope returns the same error, so that existence does not leak.
	ErrNotFound = errors.New("ctxpage: not found")
	// ErrGone means that the version existed and gc dropped it; the error names the version and the
	// run. For verdicts of a session it means that they are no longer kept.
	ErrGone = errors.New("ctxpage: version is gone")
	// ErrErased means that an operator erased the version; the error says who and when. It also
	// matches ErrGone.
	ErrErased error = erasedSentinel{}
	// ErrExpired means that the artefact's expiry has passed.
	ErrExpired = errors.New("ctxpage: expired")
	// ErrDirty means that the source of the artefact changed and could not be fetched again.
	ErrDirty = errors.New("ctxpage: dirty")
	// ErrFileRoot is matched by the *FileRootError of a file: source that this process may not
	// read.
	ErrFileRoot = errors.New("ctxpage: no file root allows the source")
	// ErrVanished means that a source no longer exists. A Source returns an error that matches it
	// to distinguish this from being unreachable; a file: source does so if its root exists and the
	// file does not. Such errors also match ErrDirty.
	ErrVanished = errors.New("ctxpage: source vanished")
	// ErrInvalid is matched by every *InvalidError: an input broke a rule or a limit.
	ErrInvalid = errors.New("ctxpage: invalid input")
	// ErrGated means that a gated handle asked for what only its host may do; the error says what
	// and how to do it.
	ErrGated = errors.New("ctxpage: not for a gated handle")
	// ErrProvenance means that a scope handle asked for a provenance that only the operator can
	// give.
	ErrProvenance = errors.New("ctxpage: provenance not allowed")

	// ErrBudget is matched by the *triage.BudgetError of an assembly whose system part alone does
	// not fit.
	ErrBudget = errors.New("ctxpage: budget too small")
)

// Ending a transaction.
var (
	// ErrConflict means that an artefact the transaction overwrites has a newer version. Nothing
	// was applied.
	ErrConflict = errors.New("ctxpage: conflict")
	// ErrStaleContext means that a page version the transaction saw was replaced, expired or
	// deleted, and the transaction was told to fail on it.
	ErrStaleContext = errors.New("ctxpage: stale context")
	// ErrHeld is matched by the *HeldError of a commit that the gate held for review: durable,
	// invisible, listed.
	ErrHeld = errors.New("ctxpage: held for review")
	// ErrTxnDone means that the transaction has already been committed or rolled back.
	ErrTxnDone = errors.New("ctxpage: transaction was committed or rolled back; begin another one")
	// ErrTxnFailed means that an earlier Put or Delete of the transaction failed, so a Commit would
	// keep only a part of what was meant. It wraps that error. Roll back and begin again.
	ErrTxnFailed = errors.New("ctxpage: a write of the transaction failed")
	// ErrTxnExpired means that the id of the batch is older than the time outcomes are remembered
	// (7 days), or was used before the newest 10,000 commits: the manifest has its outcome.
	ErrTxnExpired = errors.New("ctxpage: transaction id has expired")
	// ErrSelfCertified means that the actor who wrote a held batch tried to approve it.
	ErrSelfCertified = errors.New("ctxpage: writer cannot approve its own batch")
	// ErrReviewed means that a held batch has already been decided the other way.
	ErrReviewed = errors.New("ctxpage: batch was already reviewed")
)

// ErrMisfit is matched by the *CorruptError of a database whose log and file do not belong
// together: a part is missing, or the files were copied while the database was being written. Copy
// with Backup, or see what Salvage recovers.
var ErrMisfit = errors.New("the file and its log do not fit together")

// ErrNoSpace is matched by the *NoSpaceError of an operation that found the disk full. Nothing was
// written. Reads, deletes and gc still work, and writes resume once there is space.
var ErrNoSpace = errors.New("ctxpage: disk is full")

// NoSpaceError says how much disk space a database lacks.
type NoSpaceError struct {
	Path   string // of the database
	Needed int64  // bytes that must be free, about
	Free   int64  // bytes that are free there; -1: not known
	Err    error
}

func (e *NoSpaceError) Error() string {
	free := ""
	if e.Free >= 0 {
		free = fmt.Sprintf(", %d are free", e.Free)
	}
	return fmt.Sprintf("ctxpage: the disk of %s is full: about %d bytes are needed%s; delete what is not needed and run gc, or free space on the disk: %v",
		e.Path, e.Needed, free, e.Err)
}

// Is makes errors.Is(err, ErrNoSpace) true, and errors.Is(err, syscall.ENOSPC).
func (e *NoSpaceError) Is(target error) bool { return target == ErrNoSpace || target == syscall.ENOSPC }

// Unwrap returns the cause.
func (e *NoSpaceError) Unwrap() error { return e.Err }

// LockedError says which process has the file: a writer, or, if Reading is set, one of the readers.
// PID is 0 if the process is not known.
type LockedError struct {
	Path    string
	PID     int
	Program string
	Since   time.Time
	Reading bool
	Socket  string // where the process serves the database; "" if it does not
	Opening bool   // it has just taken the lock and is about to serve
}

func (e *LockedError) Error() string {
	switch {
	case e.PID == 0 && e.Reading:
		return fmt.Sprintf("ctxpage: %s is being read by another process; a writer waits until it closes", e.Path)
	case e.PID == 0:
		return fmt.Sprintf("ctxpage: %s is open in another process", e.Path)
	case e.Reading:
		return fmt.Sprintf("ctxpage: %s is being read by pid %d (%s, since %s); a writer waits until it closes",
			e.Path, e.PID, e.Program, e.Since.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("ctxpage: %s is held by pid %d (%s, since %s); close it there",
		e.Path, e.PID, e.Program, e.Since.UTC().Format(time.RFC3339))
}

// Is makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// HintSalvage is the Hint in the *CorruptError of a database that cannot be read as it is.
const HintSalvage = "restore a backup, or copy what can be read to a new database (Salvage; dbctl salvage)"

// CorruptError says where a file is damaged: see package corrupt, which every layer below uses too.
type CorruptError = codec.CorruptError

// InvalidError names the field that broke a rule, what it was and what was expected.
type InvalidError struct {
	Field    string
	Got      string
	Expected string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("ctxpage: %s: got %s, expected %s", e.Field, e.Got, e.Expected)
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// missing is an InvalidError whose input names what is not there; it matches what says so, too.
type missing struct {
	*InvalidError
	cause error
}

func (e *missing) Unwrap() []error { return []error{e.InvalidError, e.cause} }

// InvalidMissing is Invalid for an input that names something that does not exist. The error also
// matches cause.
func InvalidMissing(cause error, field, got, expected string) error {
	return &missing{&InvalidError{Field: field, Got: got, Expected: expected}, cause}
}

// FileRootError names a file that a source wants to read and that lies below none of the allowed
// directories: Options.FileRoots and, with Options.RecordedRoots, the directories of Admin.AddFileRoot.
type FileRootError struct {
	Path string
}

func (e *FileRootError) Error() string {
	return fmt.Sprintf("ctxpage: source file:%s lies below no allowed root; name one in Options.FileRoots or record one with Admin.AddFileRoot", e.Path)
}

// Is makes errors.Is(err, ErrFileRoot) true.
func (e *FileRootError) Is(target error) bool { return target == ErrFileRoot }

// HeldError is returned by a commit that did not pass the gate. The drafts are durable and can be
// reviewed under Batch. It is an error on purpose: a caller who ignored a mere status would believe
// that the answer was kept.
type HeldError struct {
	Batch  string
	Trace  string
	Reason string
	Note   string // of the verdict
	Stale  []Ref
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("ctxpage: held for review as %s: %s", e.Batch, e.Reason)
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// ConflictError names the artefact that has a newer version, or the state row that was written
// since.
type ConflictError struct {
	Ref  Ref
	Key  string // of a state row; then Ref is zero
	Have uint64 // LSN the transaction saw; 0 means it saw none
	Now  uint64 // LSN it has now; 0 means it is absent

	Held bool // a held batch is in conflict; it can never be approved
}

// LsnElsewhere is the expected LSN of a draft that was written from a version which this database
// never had, because a salvage or an import did not copy it. It matches no version.
const LsnElsewhere = math.MaxUint64

func (e *ConflictError) Error() string {
	what, advice := "it changed since it was read", "read it again and retry"
	switch {
	case e.Have == LsnElsewhere:
		what = "it was read in a version that was not salvaged"
	case e.Now == 0:
		what = "it was deleted since it was read"
	case e.Have == 0:
		what = "somebody wrote it meanwhile"
	}
	if e.Held {
		advice = "this batch cannot be approved any more: reject it, and write anew from a new assembly"
	}
	return fmt.Sprintf("ctxpage: conflict on %s: %s; %s", e.Name(), what, advice)
}

// Name returns the reference or the key in conflict, as the audit writes it.
func (e *ConflictError) Name() string {
	if e.Key != "" {
		return "state " + strconv.Quote(e.Key)
	}
	return e.Ref.String()
}

// Is makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// Invalid returns an *InvalidError.
func Invalid(field, got, expected string) error {
	return &InvalidError{Field: field, Got: got, Expected: expected}
}
