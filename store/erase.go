package store

import (
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/manifest"
)

// EraseJob lists what to erase for good. The caller has already collected everything to erase: the
// store follows no references.
//
// An erase is bound to its first commit. It takes versions and state rows that were there by then;
// what is written later stays, whoever finishes the erase and however late.
type EraseJob struct {
	Refs      []Ref       // artefacts, by scope and id: their versions, and the tombstones that gc or a deletion left
	Held      []ulid.ULID // held batches, decided or not
	Questions []uint64    // leaves whose question texts are erased
	// State lists rows to delete, or, with a Value, to replace. If LSN is set, the row must still
	// have it.
	State []StateRow
	// By and Reason are written to the audit and stay there, so they must not contain what is
	// erased.
	By, Reason string
	// Asked identifies the request under the database's secret (AskedOf). Cascade says what to do
	// with derived pages. Restoring an older backup uses both to repeat the erase.
	Asked   []string
	Cascade string
	// Backups are those named in the audit; the report repeats them.
	Backups []Backup
	// Leaves are the audit leaves whose bodies are removed; their hashes stay (archive.Log.Prune).
	// A job with nothing else is a prune by age.
	Leaves []manifest.Span
	// Names also erases the names of Refs: all rows of these artefacts, and the references in
	// outcomes. Scopes and Groups (sessions, by scope and id) lose their names if nothing is left
	// in them. So do the other groups in the scopes of Refs.
	Names  bool
	Scopes []string
	Groups []Ref
	// Named is by what leaves name what goes, if Names is set. The store looks for leaves that were
	// written after the search, and removes their bodies, too.
	Named Named
}

// Named says by what audit leaves name what an erase takes.
type Named struct {
	Leaves   uint64   // how many leaves the search has read
	Refs     []Ref    // artefacts, by scope and id
	Scopes   []string // with all scopes below them
	Sessions []Ref    // by scope and id
	Words    []string // names that count where they are a word of a text
}

// EraseReport says what an erase removed.
type EraseReport struct {
	Trace     string    `json:"trace"` // of the run; its leaves and every ErrErased name it
	At        time.Time `json:"at"`
	By        string    `json:"by"`
	Reason    string    `json:"reason"`
	Artefacts int       `json:"artefacts"`
	Versions  int       `json:"versions"`
	Pages     int       `json:"pages"`
	Bytes     int64     `json:"bytes"` // of their texts
	Held      int       `json:"held"`
	Questions int       `json:"questions"`
	State     int       `json:"state"`            // rows of state
	Bodies    uint64    `json:"bodies,omitempty"` // of audit leaves
	Leaf      uint64    `json:"leaf"`             // index of the last leaf of the run, which sums it up
	LSN       uint64    `json:"lsn"`
	// Asked and Cascade are copied from the job. The leaf has their digest. Asked has "names" if
	// names were to go.
	Asked   []string `json:"asked,omitempty"`
	Cascade string   `json:"cascade,omitempty"`
	// Backups are those named in the audit. They were made before the erase, so they still contain
	// what was erased.
	Backups []Backup `json:"backups,omitempty"`
	// Numbers lists the numbers of the erased pages, and Batches the ids of the erased held batches, if the
	// store is encrypted; the leaf does not have them. In an earlier backup the rows of these pages
	// and batches no longer open, because their keys are destroyed, and so do not show their names.
	// Numbers and Batches tell which erase took such a row.
	Numbers []manifest.Span `json:"numbers,omitempty"`
	Batches []ulid.ULID     `json:"batches,omitempty"`
	// FileBefore and FileAfter are the sizes, in bytes, of the file before and after it was
	// rewritten.
	FileBefore int64 `json:"file_before,omitempty"`
	FileAfter  int64 `json:"file_after,omitempty"`
}

// Backup describes a copy of the database that a store made, as recorded in the audit.
type Backup struct {
	Name string    `json:"name"` // of the file, without its directory
	At   time.Time `json:"at"`
	LSN  uint64    `json:"lsn"` // of the newest commit when it began
}

// erasedSentinel is ErrErased. It matches ErrGone without wrapping it, so that it crosses to
// another process as itself.
type erasedSentinel struct{}

func (erasedSentinel) Error() string { return ErrGone.Error() + ": erased" }

func (erasedSentinel) Is(target error) bool { return target == ErrGone }
