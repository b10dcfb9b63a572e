package format

import (
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/store"
)

// Why a version goes (GCTally.Reason).
const (
	GoneSuperseded = "superseded"
	GoneDeleted    = "deleted"
	GoneExpired    = "expired"
)

// What keeps a version that has ended (GCTally.Reason).
const (
	KeptNewest  = "among the newest versions"
	KeptYoung   = "ended too recently"
	KeptExpired = "expired, which was not asked for"
	KeptHeld    = "named by a held batch"
	KeptParent  = "a live artefact is derived from it"
	KeptSource  = "the source of a live artefact"
	KeptSession = "named by a session"
	KeptInUse   = "in use by a transaction or a read"
	KeptShared  = "its pages are needed for a version that stays"
	KeptChanged = "its artefact was written to meanwhile"
)

// GoneError returns the error of a version that gc or an erase took: it says which version, when,
// and by which run. page 0 means the whole artefact.
func GoneError(h *store.Head, page int) error {
	if h.ErasedBy != "" {
		return erasedError(h, page)
	}
	ref := store.Ref{Scope: h.Scope, ID: h.ID, Page: page, Version: h.Version}
	when := ""
	if id, err := ulid.ParseStrict(h.GoneBy); err == nil {
		when = " at " + ulid.Time(id.Time()).UTC().Format(time.RFC3339)
	}
	return fmt.Errorf("%w: %s, dropped by gc %s%s", store.ErrGone, ref, h.GoneBy, when)
}

// erasedError says who erased a version and when.
func erasedError(h *store.Head, page int) error {
	ref := store.Ref{Scope: h.Scope, ID: h.ID, Page: page, Version: h.Version}
	return fmt.Errorf("%w at %s by %s: %s, trace %s", store.ErrErased, timeOf(h.GoneBy), h.ErasedBy, ref, h.GoneBy)
}

func timeOf(trace string) string {
	id, err := ulid.ParseStrict(trace)
	if err != nil {
		return "a time that is not known"
	}
	return ulid.Time(id.Time()).UTC().Format(time.RFC3339)
}

// A page takes a share of its neighbours' cosines: a question often uses words of the turn before
// the one it asks for.
const (
	LendNext  = .9
	LendAfter = .8
)

// CheckVectors refuses vectors that do not belong to their numbers one by one.
func CheckVectors(nums []uint64, vecs [][]float32) error {
	if len(nums) != len(vecs) {
		return store.Invalid("vectors", fmt.Sprintf("%d numbers and %d vectors", len(nums), len(vecs)), "a vector for each number")
	}
	for i, v := range vecs {
		if len(v) == 0 {
			return store.Invalid("vectors", fmt.Sprintf("a vector of no numbers for page %d", nums[i]), "1 number or more")
		}
	}
	return nil
}
