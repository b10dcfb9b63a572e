package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// EraseJob says what leaves the database for good. Whoever asks has searched it: the store follows no reference.
type EraseJob struct {
	Refs      []Ref       // artefacts, by scope and id: every version goes, and what gc or a deletion left of one
	Held      []ulid.ULID // held batches, decided or not
	Questions []uint64    // leaves whose questions go
	// State are rows that go, or, with a Value, rows that stand in their place. One with an LSN must still have it.
	State []StateRow
	// By and Reason stand in the audit, so neither may hold what is erased.
	By, Reason string
	// Asked is what was asked for, under the secret of the database (AskedOf), and Cascade what was to become of what was
	// derived. A restore of an older backup does it again by them.
	Asked   []string
	Cascade string
	// Backups are those that the audit names; the report repeats them.
	Backups []Backup
}

// EraseReport says what an erase took.
type EraseReport struct {
	Trace     string    `json:"trace"` // of the run: its leaves and every ErrErased name it
	At        time.Time `json:"at"`
	By        string    `json:"by"`
	Reason    string    `json:"reason"`
	Artefacts int       `json:"artefacts"`
	Versions  int       `json:"versions"`
	Pages     int       `json:"pages"`
	Bytes     int64     `json:"bytes"` // of their texts
	Held      int       `json:"held"`
	Questions int       `json:"questions"`
	State     int       `json:"state"` // rows of state
	Leaf      uint64    `json:"leaf"`  // index of the last leaf of the run, which says all of it
	LSN       uint64    `json:"lsn"`
	// Asked and Cascade are those of the job. The leaf has their digest.
	Asked   []string `json:"asked,omitempty"`
	Cascade string   `json:"cascade,omitempty"`
	// Backups are those that the audit names: they were made before the erase, so they have what was there then.
	Backups []Backup `json:"backups,omitempty"`
	// FileBefore and FileAfter are the bytes of the file that was written anew.
	FileBefore int64 `json:"file_before,omitempty"`
	FileAfter  int64 `json:"file_after,omitempty"`
}

// Counts is what the leaf of an erase says of how much it took.
func (r *EraseReport) Counts() string {
	return fmt.Sprintf("artefacts %d, versions %d, pages %d, bytes %d, held %d, questions %d, state %d", r.Artefacts, r.Versions, r.Pages, r.Bytes, r.Held, r.Questions, r.State)
}

// TakeCounts reads what Counts says.
func (r *EraseReport) TakeCounts(note string) error {
	_, err := fmt.Sscanf(note, "artefacts %d, versions %d, pages %d, bytes %d, held %d, questions %d, state %d",
		&r.Artefacts, &r.Versions, &r.Pages, &r.Bytes, &r.Held, &r.Questions, &r.State)
	return err
}

// Backup is what the audit says of a copy that a store made of the database.
type Backup struct {
	Name string    `json:"name"` // of the file, without its directory
	At   time.Time `json:"at"`
	LSN  uint64    `json:"lsn"` // of the newest commit when it began
}

// AskedOf stands for a name that was asked to be erased, of a kind such as "subject". Only who has the secret of the
// database can tell whether it stands for a name that he guesses.
func AskedOf(secret []byte, kind, name string) string {
	d := SaltedMAC(secret[:min(len(secret), 32)], func(b []byte) []byte { return append(append(append(append(b, "asked"...), kind...), 0), name...) })
	return kind + ":" + hex.EncodeToString(d[:16])
}

// AskedDigest is what the leaf of an erase says of Asked and Cascade; nil: nothing was said.
func AskedDigest(asked []string, cascade string) []byte {
	if len(asked) == 0 {
		return nil
	}
	d := sha256.Sum256([]byte(strings.Join(append([]string{cascade}, asked...), "\n")))
	return d[:]
}

// EraseRows begins the keys of the state rows in which a store keeps, by trace, how far an erase has come.
const EraseRows = "erase/"

// Check refuses a job that names nothing, or nobody.
func (j *EraseJob) Check() error {
	if j == nil || len(j.Refs)+len(j.Held)+len(j.Questions)+len(j.State) == 0 {
		return Invalid("erase", "nothing", "artefacts, held batches, questions or rows of state")
	}
	if err := CheckID("by", j.By); err != nil {
		return err
	}
	if err := CheckID("reason", j.Reason); err != nil {
		return err
	}
	for _, r := range j.Refs {
		if r.Scope == "" || r.ID == "" || r.Page != 0 || r.Version != 0 {
			return Invalid("erase", r.String(), "a scope and an id: an erase takes all versions of an artefact")
		}
	}
	return nil
}

// erasedError says who erased a version, and when.
func erasedError(h *Head, page int) error {
	ref := Ref{Scope: h.Scope, ID: h.ID, Page: page, Version: h.Version}
	return fmt.Errorf("%w at %s by %s: %s, trace %s", ErrErased, timeOf(h.GoneBy), h.ErasedBy, ref, h.GoneBy)
}

func timeOf(trace string) string {
	id, err := ulid.ParseStrict(trace)
	if err != nil {
		return "a time that is not known"
	}
	return ulid.Time(id.Time()).UTC().Format(time.RFC3339)
}

// erasedSentinel is ErrErased. It matches ErrGone without wrapping it, so that it crosses to another process as itself.
type erasedSentinel struct{}

func (erasedSentinel) Error() string { return ErrGone.Error() + ": erased" }

func (erasedSentinel) Is(target error) bool { return target == ErrGone }
