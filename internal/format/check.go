package format

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// The arguments of a Store come from other processes, too. Every store checks them with the functions here before it looks
// at anything else, so that a malformed call is an InvalidError at the store that answers it, whatever carried it there.

// maxStateKey is the length of the longest key of a state row, in bytes.
const maxStateKey = 16 << 10

// CheckScan refuses a listing without what its kind needs.
func CheckScan(q *store.ScanQuery) error {
	switch q.What {
	case store.ScanArtefacts, store.ScanGroup, store.ScanMembers, store.ScanSourced:
		if len(q.Scopes) == 0 {
			return store.Invalid("scopes", "none", "the scope that is listed")
		}
	case store.ScanHistory, store.ScanHeld, store.ScanSummaries, store.ScanScopes, store.ScanState, store.ScanUnembedded:
	default:
		return store.Invalid("what", fmt.Sprint(q.What), "a listing that this program knows")
	}
	return nil
}

// CheckJob refuses a job without what its kind needs.
func CheckJob(j *store.Job) error {
	switch j.Kind {
	case store.JobBackup:
		if j.Path == "" {
			return store.Invalid("path", "none", "the path of the backup")
		}
	case store.JobGCPlan, store.JobGC:
		if j.GC == nil {
			return store.Invalid("gc", "nothing", "what gc drops")
		}
	case store.JobErase:
		if j.Erase == nil {
			return store.Invalid("erase", "nothing", "what the erase takes")
		}
	case store.JobCheckpoint, store.JobCheck, store.JobCompactPlan, store.JobCompact:
	default:
		return store.Invalid("job", fmt.Sprint(j.Kind), "a job that this program knows")
	}
	return nil
}

// CheckLeaves refuses leaves that a caller of Append must not write: what they record is written with the commit or the job
// itself, and a caller could forge it.
func CheckLeaves(leaves []*manifest.Record) error {
	for i, l := range leaves {
		if l == nil {
			return store.Invalid("leaves", fmt.Sprintf("nothing at %d", i), "a leaf")
		}
		switch t := l.Type; {
		case t.Reads(), t == manifest.TypeRollback, t == manifest.TypeHandoff, t == manifest.TypePass:
		default:
			return store.Invalid("leaves", "a leaf of type "+l.Type.String(), "a read, a rollback, a handoff or a pass; the store writes the others itself")
		}
	}
	return nil
}

// CheckCommit refuses a batch that no caller may commit. Leaves of its type are written by jobs of the store, and rows of
// erases by an erase. Stores check their own commits with CheckIDs only.
func CheckCommit(b *store.Batch) error {
	decides := b.Action == store.ActApprove && b.Leaf.Type == manifest.TypeApprove || b.Action == store.ActReject && b.Leaf.Type == manifest.TypeReject
	switch t := b.Leaf.Type; t {
	case 0, manifest.TypeCommit, manifest.TypeRefetch, manifest.TypeDirective, manifest.TypePass, manifest.TypePromote:
	default:
		if decides {
			break
		}
		return store.Invalid("leaf", "a leaf of type "+t.String(), "commit, refetch, directive, pass or promote; the store decides on the others")
	}
	for i := range b.State {
		if strings.HasPrefix(b.State[i].Key, EraseRows) {
			return store.Invalid("state", fmt.Sprintf("the row %q", b.State[i].Key), "another row: only an erase writes it")
		}
	}
	for i := range b.Puts {
		if len(b.Puts[i].Pages) == 0 {
			return store.Invalid("puts", "an artefact without pages", "at least one page")
		}
		if err := store.CheckID("id", b.Puts[i].Artefact.ID); err != nil {
			return err
		}
	}
	return nil
}

// CheckIDs rejects a batch that writes an artefact twice, by puts or deletes: it would be unclear
// which version readers see.
func CheckIDs(b *store.Batch) error {
	if err := errors.Join(checkCarried(b), checkHeld(b), checkState(b)); err != nil {
		return err
	}
	if len(b.Puts)+len(b.Deletes) < 2 {
		return nil
	}
	seen := make(map[string]bool, len(b.Puts)+len(b.Deletes))
	ids := func(yield func(string) bool) {
		for i := range b.Puts {
			if !yield(b.Puts[i].Artefact.ID) {
				return
			}
		}
		for _, id := range b.Deletes {
			if !yield(id) {
				return
			}
		}
	}
	for id := range ids {
		if seen[id] {
			return store.Invalid("batch", "two writes of "+strconv.Quote(id), "each artefact to be put or deleted once")
		}
		seen[id] = true
	}
	return nil
}

// SourceHost names the host that read the file: source of a version; "": none is recorded, or it
// has no such source.
func SourceHost(h *store.Head) string {
	if !strings.HasPrefix(h.Artefact.Source, "file:") {
		return ""
	}
	_, host, _ := strings.Cut(h.Source.Stamp, hostMark)
	return host
}

// BelowFloor returns what is still known of a version below the floor.
func BelowFloor(h *store.Head, version uint32) *store.Head {
	return &store.Head{Artefact: store.Artefact{ID: h.ID, Kind: h.Kind}, Scope: h.Scope, Art: h.Art, Version: version, Gone: true, GoneBy: h.GoneBy}
}

// checkHeld rejects a batch to hold that asks for more than a reviewer can judge. A held batch writes and deletes
// artefacts. It carries no rows of state: an approval would apply them, and no text that a reviewer reads shows what they
// do. It claims no human verification: the approval decides on that.
func checkHeld(b *store.Batch) error {
	if b.Action != store.ActHold {
		return nil
	}
	if len(b.State)+len(b.ExpectState) > 0 {
		return store.Invalid("batch", "rows of state in a batch to hold", "puts and deletes of artefacts only")
	}
	for i := range b.Puts {
		a := &b.Puts[i].Artefact
		if strings.HasPrefix(a.ID, store.ReservedPrefix) {
			return store.Invalid("batch", "a draft of "+strconv.Quote(a.ID), "an id that does not begin with "+store.ReservedPrefix+", which the database keeps for its own pages")
		}
		if a.Provenance == store.HumanVerified {
			return store.Invalid("batch", "a human-verified draft of "+strconv.Quote(a.ID), "a lower provenance; whoever approves the batch may raise it")
		}
	}
	for _, id := range b.Deletes {
		if err := store.CheckID("deletes", id); err != nil {
			return err
		}
		if strings.HasPrefix(id, store.ReservedPrefix) {
			return store.Invalid("batch", "a deletion of "+strconv.Quote(id), "an id that does not begin with "+store.ReservedPrefix)
		}
	}
	return nil
}

// checkState rejects keys that no file could store.
func checkState(b *store.Batch) error {
	for i := range b.State {
		if n := len(b.State[i].Key); n == 0 || n > maxStateKey {
			return store.Invalid("state", fmt.Sprintf("a key of %d bytes", n), fmt.Sprintf("1 to %d", maxStateKey))
		}
	}
	return nil
}

// BatchBytes is the length of the texts that a batch puts.
func BatchBytes(b *store.Batch) (n int64) {
	for i := range b.Puts {
		for j := range b.Puts[i].Pages {
			n += int64(len(b.Puts[i].Pages[j].Text))
		}
	}
	for i := range b.Carry {
		for _, text := range b.Carry[i].Texts {
			n += int64(len(text))
		}
	}
	return n
}

// JobWrites reports whether running the job twice may have another result than running it once. If the
// answer to such a job is lost, its outcome is unknown. The others change nothing that a read shows.
func JobWrites(j *store.Job) bool {
	switch j.Kind {
	case store.JobGC, store.JobBackup, store.JobErase, store.JobCompact:
		return true
	}
	return false
}
