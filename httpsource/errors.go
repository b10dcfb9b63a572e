package httpsource

import (
	"errors"
	"fmt"
)

// Why a source could not be read. Every error of this package is an *Error: its text says the reason. It matches one of these, a network
// error, or the end of the context.
var (
	// errURL means that the source is not a URL that this package may request.
	errURL = errors.New("not a source of this kind")
	// ErrNotFound is status 404, ErrGone 410. A page whose source is gone stays stored; it is not served as current.
	ErrNotFound = errors.New("not found")
	ErrGone     = errors.New("gone")
	// errStatus means any other status than one that comes with the content.
	errStatus = errors.New("unexpected status")
	// errTooLarge means that the body, or what it unpacks to, exceeds Options.MaxBytes.
	errTooLarge = errors.New("too large")
	// errType means that the content is no text, JSON, XML or markdown.
	errType = errors.New("not a type of text")
	// errCharset means that the body is not UTF-8.
	errCharset = errors.New("not UTF-8")
	// errTruncated means that the connection ended before the body did.
	errTruncated = errors.New("truncated")
	// errRedirect means that the server redirected too often, in a circle, or to a place where a redirect
	// may not lead.
	errRedirect = errors.New("redirect not followed")
	// errAddress means that a name or a redirect led to a loopback, private or otherwise special address.
	errAddress = errors.New("address not allowed")
)

// Error says what was requested, what was answered and what was expected. It contains no header and
// no body.
type Error struct {
	URL    string // of the last hop
	Status int    // of its answer, 0: none
	Err    error
}

func (e *Error) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("httpsource: %s: status %d: %v", e.URL, e.Status, e.Err)
	}
	return fmt.Sprintf("httpsource: %s: %v", e.URL, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// expected puts a sentinel before what was found and what would have been right.
func expected(sentinel error, format string, args ...any) error {
	return fmt.Errorf("%w: %s", sentinel, fmt.Sprintf(format, args...))
}
