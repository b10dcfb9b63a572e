package manifest

import "errors"

var (
	// ErrNoLeaf: the log has no leaf at that index, or none of that trace.
	ErrNoLeaf = errors.New("manifest: no such leaf")

	// ErrNoQuestion: the text of a question is not there, only its digest.
	ErrNoQuestion = errors.New("manifest: the question was erased or not kept")

	// ErrPruned: the body of the leaf was removed. Its hash stays, so proofs hold.
	ErrPruned = errors.New("manifest: the body of the leaf is gone")

	// ErrHead: the log does not contain what the given head vouches for.
	ErrHead = errors.New("manifest: the log does not agree with the head")

	// ErrProof: a proof does not prove what it claims.
	ErrProof = errors.New("manifest: the proof does not hold")
)
