package store

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Quota limits what a scope and the scopes below it hold. Zero means no limit. Each commit is
// checked in commit order, so concurrent writers cannot exceed it together. Reads, deletes, gc,
// erase, refetches of sources and the database's own writes are never refused. A quota below
// current use refuses new writes and deletes nothing.
type Quota struct {
	Bytes int64 `json:"bytes,omitempty"` // of text in all stored page versions, including old ones
	Pages int   `json:"pages,omitempty"` // stored page versions, including old ones
	Held  int   `json:"held,omitempty"`  // batches awaiting review
	// Bodies limits the bytes of the kept bodies of audit leaves. Every read is recorded, so reads
	// can exceed the limit. From then on commits that add pages or hold a batch are refused, until
	// bodies are pruned (package retention).
	Bodies int64 `json:"bodies,omitempty"`
	// Closed, if not empty, refuses every write of a caller to these scopes: puts, deletes, turns,
	// directives and reviews. It says where the scope was moved to, at most 512 bytes; the refusal
	// repeats it. When the commit that set it was answered, no later write is accepted. Reads, gc,
	// erase, retention and imports go on. An import never brings it.
	Closed string `json:"closed,omitempty"`
}

// StoredQuota is the quota that was set for one scope.
type StoredQuota struct {
	Scope string    `json:"scope"`
	By    string    `json:"by"`
	At    time.Time `json:"at"`
	Quota
}

// Check rejects negative limits, and a Closed that is too long or has control characters.
func (q *Quota) Check() error {
	if q.Closed != "" {
		if err := CheckID("closed", q.Closed); err != nil {
			return err
		}
	}
	if q.Bytes < 0 || q.Pages < 0 || q.Held < 0 || q.Bodies < 0 {
		return Invalid("quota", fmt.Sprintf("%d bytes, %d pages, %d held, %d bytes of bodies", q.Bytes, q.Pages, q.Held, q.Bodies), "numbers above zero, or zero for no bound")
	}
	return nil
}

// KindSpace is the space used by stored page versions of one kind.
type KindSpace struct {
	Kind  string `json:"kind"`
	Pages int    `json:"pages"`
	Bytes int64  `json:"bytes"`
	// OldPages and OldBytes count versions that are no longer current; gc may drop them.
	OldPages int   `json:"old_pages"`
	OldBytes int64 `json:"old_bytes"`
}

// Below reports whether a scope equals another one or lies below it.
func Below(scope, of string) bool { return scope == of || strings.HasPrefix(scope, of+"/") }

// ErrQuota is matched by the *QuotaError of a commit that a quota refused. Nothing was written. If
// What is closed, no room helps: the scope is written elsewhere.
var ErrQuota = errors.New("ctxpage: over quota")

// QuotaError says which quota refused a commit, how much is used, and by which kinds.
type QuotaError struct {
	Scope string // that has the quota
	What  string // bytes, pages, held, bodies or closed
	Limit int64
	Used  int64
	Asked int64 // by the commit; 0 for bodies
	Old   int64 // part of Used that belongs to old versions; gc may drop them
	Kinds []KindSpace
	// Closed is Quota.Closed of the scope, if What is closed.
	Closed string
}

func (e *QuotaError) Error() string {
	if e.What == "closed" {
		return fmt.Sprintf("ctxpage: %s is closed for writes: %s. Nothing was written: write where the scope is now, or open it here again (dbctl quota set FILE %s --closed '')", e.Scope, e.Closed, e.Scope)
	}
	var by []string
	for _, k := range e.Kinds {
		n := k.Bytes
		if e.What == "pages" {
			n = int64(k.Pages)
		}
		by = append(by, fmt.Sprintf("%s %d", k.Kind, n))
	}
	what := ""
	if len(by) > 0 {
		what = fmt.Sprintf(" (%s; %d of it old versions)", strings.Join(by, ", "), e.Old)
	}
	remedy := fmt.Sprintf("delete what is not needed (dbctl rm) and drop old versions (dbctl gc FILE --keep-for 0s), or raise the quota (dbctl quota set FILE %s)", e.Scope)
	if e.What == "held" {
		remedy = fmt.Sprintf("decide some (dbctl review ls FILE), or raise the quota (dbctl quota set FILE %s)", e.Scope)
	}
	if e.What == "bodies" {
		return fmt.Sprintf("ctxpage: the quota of %s is %d bytes of manifest bodies: %d are kept; reads go on and are recorded, writes wait until old bodies are pruned (dbctl retention set FILE %s --prune AGE, then dbctl retention run FILE), or raise the quota (dbctl quota set FILE %s --bodies N)",
			e.Scope, e.Limit, e.Used, e.Scope, e.Scope)
	}
	return fmt.Sprintf("ctxpage: the quota of %s is %d %s: %d are used%s, the commit adds %d; %s", e.Scope, e.Limit, e.What, e.Used, what, e.Asked, remedy)
}

// Is makes errors.Is(err, ErrQuota) true.
func (e *QuotaError) Is(target error) bool { return target == ErrQuota }
