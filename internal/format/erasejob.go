package format

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/store"
)

// OnlyBodies reports whether a job removes nothing but bodies of leaves, with the texts of their
// questions.
func OnlyBodies(j *store.EraseJob) bool {
	return !j.Names && len(j.Leaves) > 0 && len(j.Refs)+len(j.Held)+len(j.State) == 0
}

// EraseCounts returns the counts as the leaf of an erase holds them.
func EraseCounts(r *store.EraseReport) string {
	s := fmt.Sprintf("artefacts %d, versions %d, pages %d, bytes %d, held %d, questions %d, state %d", r.Artefacts, r.Versions, r.Pages, r.Bytes, r.Held, r.Questions, r.State)
	if r.Bodies > 0 {
		s += fmt.Sprintf(", bodies %d", r.Bodies)
	}
	return s
}

// TakeEraseCounts parses what Counts returned.
func TakeEraseCounts(r *store.EraseReport, note string) error {
	_, err := fmt.Sscanf(note, "artefacts %d, versions %d, pages %d, bytes %d, held %d, questions %d, state %d",
		&r.Artefacts, &r.Versions, &r.Pages, &r.Bytes, &r.Held, &r.Questions, &r.State)
	if _, bodies, ok := strings.Cut(note, ", bodies "); ok && err == nil {
		r.Bodies, err = strconv.ParseUint(bodies, 10, 64)
	}
	return err
}

// AskedOf returns a keyed digest of a name that was erased; kind is, for example, "subject".
// Without the database's secret nobody can test a guess against it.
func AskedOf(secret []byte, kind, name string) string {
	d := store.SaltedMAC(secret[:min(len(secret), 32)], func(b []byte) []byte { return append(append(append(append(b, "asked"...), kind...), 0), name...) })
	return kind + ":" + hex.EncodeToString(d[:16])
}

// AskedDigest returns the digest of Asked and Cascade for the leaf of an erase; nil if both are
// empty.
func AskedDigest(asked []string, cascade string) []byte {
	if len(asked) == 0 {
		return nil
	}
	d := sha256.Sum256([]byte(strings.Join(append([]string{cascade}, asked...), "\n")))
	return d[:]
}

// EraseRows is the key prefix of the state rows that record, by trace, how far each erase has come.
const EraseRows = "erase/"

// ReceiptRows is the key prefix of the state rows that remember, by database and trace, the erases
// of other databases whose receipts an import was given.
const ReceiptRows = "receipt/"

// CheckErase rejects a job that erases nothing, or that lacks By or Reason.
func CheckErase(j *store.EraseJob) error {
	if j == nil || len(j.Refs)+len(j.Held)+len(j.Questions)+len(j.State)+len(j.Leaves) == 0 {
		return store.Invalid("erase", "nothing", "artefacts, held batches, questions, rows of state or bodies of leaves")
	}
	if err := store.CheckID("by", j.By); err != nil {
		return err
	}
	if err := store.CheckID("reason", j.Reason); err != nil {
		return err
	}
	for _, r := range j.Refs {
		if r.Scope == "" || r.ID == "" || r.Page != 0 || r.Version != 0 {
			return store.Invalid("erase", r.String(), "a scope and an id: an erase takes all versions of an artefact")
		}
	}
	return nil
}
