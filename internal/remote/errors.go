package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// An error keeps its meaning across the socket: errors.Is and errors.As answer at the client as at
// the server. A sentinel crosses by name (sentinels), a type with its fields (typed), and every
// error with its text and those that it wraps. An error that the other side does not know keeps its
// text and the sentinels that it matches.
//
// The two tables are part of the protocol. A name is never reused. A sentinel that is missing from
// the table arrives as text only.

// SkewError means that the two ends of a connection greet differently (stream.go), so they share no
// protocol. Nothing was done.
type SkewError struct {
	Path string // of the socket; "": the other end is a client
	PID  int    // of the server; 0: not known
	Said string // how the other end began
}

// Before reports whether the other end was made before v0.1.0. Such a program speaks HTTP.
func (e *SkewError) Before() bool { return strings.HasPrefix(e.Said, "HTTP/") || isRequest(e.Said) }

// Error says which program to end.
func (e *SkewError) Error() string {
	what := fmt.Sprintf("which greets with %q, expected %q", e.Said, greeting)
	if e.Before() {
		what = "which was made before v0.1.0"
	}
	if e.Path == "" {
		return "ctxpage: the other end is a program " + what + "; use a newer one"
	}
	return fmt.Sprintf("ctxpage: %s is served by pid %d, %s; end that program, and open the file again", e.Path, e.PID, what)
}

// UnavailableError means that no process answers at the socket: the process that holds the database
// is stopped or hangs (PID is known), or it no longer exists. It matches store.ErrLocked: the
// database is never taken from its holder.
type UnavailableError struct {
	Path    string // of the socket
	PID     int    // 0: not known
	Program string
	Since   time.Time
	Err     error
}

// Error names the process that holds the database, if it is known.
func (e *UnavailableError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("ctxpage: no process answers at %s: %v", e.Path, e.Err)
	}
	since := ""
	if !e.Since.IsZero() {
		since = ", since " + e.Since.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("ctxpage: %s is held by pid %d (%s%s), not answering: %v", e.Path, e.PID, cmp.Or(e.Program, "unknown program"), since, e.Err)
}

// Is makes errors.Is(err, store.ErrLocked) true if the process that holds the database is known.
func (e *UnavailableError) Is(target error) bool { return target == store.ErrLocked && e.PID != 0 }

// Unwrap returns the error of the connection.
func (e *UnavailableError) Unwrap() error { return e.Err }

// TakenError means that this process took the database over (ClientOptions.Vacant): repeat the call
// on the opened store. Sent means that the previous server may already have made it. A Commit that
// was sent is repeated under its id, which never applies twice.
type TakenError struct{ Sent bool }

// Error says what happened; the caller repeats the call on the opened store.
func (e *TakenError) Error() string { return "ctxpage: this process has the database itself now" }

// Gone reports whether an error of Dial means that there is no server, or that the server has ended
// or is closing. A retry then finds the next server, or a database that is not locked. Gone is
// false if a process is there and does not answer.
func Gone(err error) bool {
	var no *refused
	var skew *SkewError
	switch {
	case errors.Is(err, errClosing):
		return true
	case errors.As(err, &no):
		return no.Code == refusedClosing
	case errors.As(err, &skew), errors.Is(err, ErrForeign), errors.Is(err, errSilent), errors.Is(err, store.ErrClosed):
		return false
	}
	return true
}

// sentinels are the errors that are told by their identity, by the names they cross the socket
// under. A name is never given to another error.
var sentinels = []struct {
	name string
	err  error
}{
	{"store.ErrLocked", store.ErrLocked},
	{"store.ErrNewerFormat", store.ErrNewerFormat},
	{"store.ErrOldFormat", store.ErrOldFormat},
	{"store.ErrCorrupt", store.ErrCorrupt},
	{"store.ErrNotDatabase", store.ErrNotDatabase},
	{"store.ErrReadOnly", store.ErrReadOnly},
	{"store.ErrNotExist", store.ErrNotExist},
	{"store.ErrClosed", store.ErrClosed},
	{"store.ErrOutcomeUnknown", store.ErrOutcomeUnknown},
	{"store.ErrNotFound", store.ErrNotFound},
	{"store.ErrGone", store.ErrGone},
	{"store.ErrErased", store.ErrErased},
	{"store.ErrKey", store.ErrKey},
	{"store.ErrExpired", store.ErrExpired},
	{"store.ErrDirty", store.ErrDirty},
	{"store.ErrFileRoot", store.ErrFileRoot},
	{"store.ErrVanished", store.ErrVanished},
	{"store.ErrInvalid", store.ErrInvalid},
	{"store.ErrGated", store.ErrGated},
	{"store.ErrProvenance", store.ErrProvenance},
	{"store.ErrBudget", store.ErrBudget},
	{"store.ErrConflict", store.ErrConflict},
	{"store.ErrStaleContext", store.ErrStaleContext},
	{"store.ErrHeld", store.ErrHeld},
	{"store.ErrTxnDone", store.ErrTxnDone},
	{"store.ErrTxnFailed", store.ErrTxnFailed},
	{"store.ErrTxnExpired", store.ErrTxnExpired},
	{"store.ErrSelfCertified", store.ErrSelfCertified},
	{"store.ErrReviewed", store.ErrReviewed},
	{"store.ErrMisfit", store.ErrMisfit},
	{"store.ErrNoSpace", store.ErrNoSpace},
	{"store.ErrQuota", store.ErrQuota},
	{"manifest.ErrNoLeaf", manifest.ErrNoLeaf},
	{"manifest.ErrNoQuestion", manifest.ErrNoQuestion},
	{"manifest.ErrPruned", manifest.ErrPruned},
	{"manifest.ErrHead", manifest.ErrHead},
	{"manifest.ErrProof", manifest.ErrProof},
	{"lexical.ErrCorrupt", lexical.ErrCorrupt},
	{"lexical.ErrAnalyzer", lexical.ErrAnalyzer},
	{"context.Canceled", context.Canceled},
	{"context.DeadlineExceeded", context.DeadlineExceeded},
	{"fs.ErrNotExist", fs.ErrNotExist},
	{"fs.ErrExist", fs.ErrExist},
	{"fs.ErrPermission", fs.ErrPermission},
	{"fs.ErrInvalid", fs.ErrInvalid},
	{"fs.ErrClosed", fs.ErrClosed},
	{"io.EOF", io.EOF},
	{"remote.closing", errClosing},
	{"io.ErrUnexpectedEOF", io.ErrUnexpectedEOF},
}

// ErrorKind returns a name of few words for an error: of the first sentinel that it matches, as in not_found; other: it matches none.
func ErrorKind(err error) string {
	for _, s := range sentinels {
		if !errors.Is(err, s.err) {
			continue
		}
		_, name, _ := strings.Cut(s.name, ".")
		name = strings.TrimPrefix(name, "Err")
		var out []byte
		for i := range name {
			if upper(name[i]) && i > 0 && !upper(name[i-1]) {
				out = append(out, '_')
			}
			out = append(out, name[i])
		}
		return strings.ToLower(string(out))
	}
	return "other"
}

func upper(c byte) bool { return 'A' <= c && c <= 'Z' }

// typed are the errors that keep their fields, by name.
var typed = map[string]reflect.Type{
	"store.ConflictError": reflect.TypeFor[*store.ConflictError](),
	"store.CorruptError":  reflect.TypeFor[*store.CorruptError](),
	"store.FileRootError": reflect.TypeFor[*store.FileRootError](),
	"store.HeldError":     reflect.TypeFor[*store.HeldError](),
	"store.InvalidError":  reflect.TypeFor[*store.InvalidError](),
	"store.LockedError":   reflect.TypeFor[*store.LockedError](),
	"store.NoSpaceError":  reflect.TypeFor[*store.NoSpaceError](),
	"store.QuotaError":    reflect.TypeFor[*store.QuotaError](),
	"fs.PathError":        reflect.TypeFor[*fs.PathError](),
	"syscall.Errno":       reflect.TypeFor[syscall.Errno](),
}

var typeNames = func() map[reflect.Type]string {
	out := map[reflect.Type]string{}
	for name, t := range typed {
		out[t] = name
	}
	return out
}()

// sent is an error that another process returned: its text, and the errors that it matches.
type sent struct {
	text string
	is   []error
}

func (e *sent) Error() string   { return e.text }
func (e *sent) Unwrap() []error { return e.is }

// maxDepth bounds how far down an error is described, whatever the types on the way: an error tells
// the texts of those it wraps, so a deep one costs the square of its depth, and a message must not
// use up the stack.
const maxDepth = 8

// An error is four elements: the name of its type, or "", its text, then, of a type that has a
// name, its fields and nil; of another one, or of a sentinel, the names of the sentinels that it
// matches, and the errors that it wraps.
const errorElements = 4

// putError writes an error as errorElements elements. Below maxDepth it keeps the text alone.
func putError(e *writer, err error) error {
	e.depth++
	defer func() { e.depth-- }()
	deep := e.depth > maxDepth
	name := typeNames[reflect.TypeOf(err)]
	if deep { // its fields may have an error
		name = ""
	}
	e.list(errorElements)
	e.text(name)
	e.text(err.Error())
	if name != "" {
		bad := put(e, reflect.ValueOf(err))
		e.null()
		return bad
	}
	var is []string
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			is = append(is, s.name)
		}
	}
	if bad := put(e, reflect.ValueOf(is)); bad != nil {
		return bad
	}
	wraps := unwrap(err)
	if deep {
		wraps = nil
	}
	e.list(len(wraps))
	for _, w := range wraps {
		if bad := putError(e, w); bad != nil {
			return bad
		}
	}
	return nil
}

// unwrap returns the errors that an error wraps, of either kind of Unwrap.
func unwrap(err error) (out []error) {
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		out = []error{err.Unwrap()}
	case interface{ Unwrap() []error }:
		out = err.Unwrap()
	}
	return slices.DeleteFunc(slices.Clone(out), func(err error) bool { return err == nil })
}

// getError reads an error; bad says that it could not.
func getError(d *reader) (err, bad error) {
	d.depth++
	defer func() { d.depth-- }()
	n, bad := d.list()
	switch {
	case bad != nil || n < 0: // nil
		return nil, bad
	case n != errorElements || d.depth > maxDepth+1:
		return nil, fmt.Errorf("an error of %d elements at depth %d, expected %d elements and at most %d errors around it", n, d.depth-1, errorElements, maxDepth)
	}
	name, bad1 := d.text()
	text, bad2 := d.text()
	if bad := errors.Join(bad1, bad2); bad != nil {
		return nil, bad
	}
	if name == "" {
		return getUntyped(d, text)
	}
	t, ok := typed[name]
	if !ok { // of a later release
		return &sent{text: text}, errors.Join(d.skip(), d.skip())
	}
	v := reflect.New(t).Elem()
	if bad := errors.Join(get(d, v), d.skip()); bad != nil {
		return nil, bad
	}
	if v.IsZero() && t.Kind() == reflect.Pointer { // it has a type but no value: its Error would panic
		return nil, fmt.Errorf("a %s that is nil", name)
	}
	return v.Interface().(error), nil
}

// getUntyped reads the rest of an error that has no type in the table. If it is one of the
// sentinels and nothing more, the sentinel itself is returned, so that == holds as well.
func getUntyped(d *reader, text string) (err, bad error) {
	var names []string
	if bad := get(d, reflect.ValueOf(&names).Elem()); bad != nil {
		return nil, bad
	}
	out := &sent{text: text}
	for _, name := range names {
		for _, s := range sentinels {
			if s.name == name {
				out.is = append(out.is, s.err)
			}
		}
	}
	n, bad := d.list()
	for i := 0; bad == nil && i < n; i++ {
		var w error
		if w, bad = getError(d); w != nil {
			out.is = append(out.is, w)
		}
	}
	for _, s := range out.is {
		if n <= 0 && s.Error() == text {
			return s, bad // the sentinel itself
		}
	}
	return out, bad
}
