package manifest

import "errors"

var (
	// ErrNewerFormat: the bytes were written by a newer program. They are not
	// damaged; use that program to read them.
	ErrNewerFormat = errors.New("manifest: written by a newer version of ctxpage; use that version to read it")

	// ErrOldFormat: the archive was made before v0.1.0. Nothing was changed.
	ErrOldFormat = errors.New("manifest: made before v0.1.0")

	// ErrSealed: the archive is encrypted, and no keys were given.
	ErrSealed = errors.New("manifest: the archive is encrypted, and no key was given")

	// ErrNoLeaf: the log has no leaf at that index, or none of that trace.
	ErrNoLeaf = errors.New("manifest: no such leaf")

	// ErrNoQuestion: the text of a question is not there, only its digest.
	ErrNoQuestion = errors.New("manifest: the question was erased or not kept")

	// ErrPruned: the body of the leaf was removed. Its hash stays, so proofs
	// hold.
	ErrPruned = errors.New("manifest: the body of the leaf is gone")

	// ErrGap: a leaf was added that is not the next one and not one the log
	// has.
	ErrGap = errors.New("manifest: leaves are missing between the archive and the log")

	// ErrHead: the log does not contain what the given head vouches for.
	ErrHead = errors.New("manifest: the log does not agree with the head")

	// ErrProof: a proof does not prove what it claims.
	ErrProof = errors.New("manifest: the proof does not hold")

	// ErrReadOnly: the log was opened for reading.
	ErrReadOnly = errors.New("manifest: opened read-only")

	// ErrFailed: an earlier write or sync of the archive failed. The leaves are
	// still in the log; close and open again.
	ErrFailed = errors.New("manifest: archiving failed earlier; close the database and open it again")

	// ErrClosed: the log was closed.
	ErrClosed = errors.New("manifest: closed")
)
