package store

import (
	"fmt"
	"strings"

	"github.com/ctxpage/ctxpage/manifest"
)

// The arguments of a Store come from other processes, too. Every store checks them with the functions here before it looks
// at anything else, so that a malformed call is an InvalidError at the store that answers it, whatever carried it there.

// Check refuses a listing without what its kind needs.
func (q *ScanQuery) Check() error {
	switch q.What {
	case ScanArtefacts, ScanGroup, ScanMembers, ScanSourced:
		if len(q.Scopes) == 0 {
			return Invalid("scopes", "none", "the scope that is listed")
		}
	case ScanHistory, ScanHeld, ScanSummaries, ScanScopes, ScanState, ScanUnembedded:
	default:
		return Invalid("what", fmt.Sprint(q.What), "a listing that this program knows")
	}
	return nil
}

// Check refuses a job without what its kind needs.
func (j *Job) Check() error {
	switch j.Kind {
	case JobBackup:
		if j.Path == "" {
			return Invalid("path", "none", "the path of the backup")
		}
	case JobGCPlan, JobGC:
		if j.GC == nil {
			return Invalid("gc", "nothing", "what gc drops")
		}
	case JobErase:
		if j.Erase == nil {
			return Invalid("erase", "nothing", "what the erase takes")
		}
	case JobCheckpoint, JobCheck, JobCompactPlan, JobCompact:
	default:
		return Invalid("job", fmt.Sprint(j.Kind), "a job that this program knows")
	}
	return nil
}

// CheckLeaves refuses leaves that a caller of Append must not write: what they record is written with the commit or the job
// itself, and a caller could forge it.
func CheckLeaves(leaves []*manifest.Record) error {
	for i, l := range leaves {
		if l == nil {
			return Invalid("leaves", fmt.Sprintf("nothing at %d", i), "a leaf")
		}
		if !l.Type.Appended() {
			return Invalid("leaves", "a leaf of type "+l.Type.String(), "a read, a rollback, a handoff or a pass; the store writes the others itself")
		}
	}
	return nil
}

// CheckCommit refuses a batch that no caller may commit. Leaves of its type are written by jobs of the store, and rows of
// erases by an erase. Stores check their own commits with CheckIDs only.
func (b *Batch) CheckCommit() error {
	decides := b.Action == ActApprove && b.Leaf.Type == manifest.TypeApprove || b.Action == ActReject && b.Leaf.Type == manifest.TypeReject
	if t := b.Leaf.Type; t != 0 && !t.Committed() && !decides {
		return Invalid("leaf", "a leaf of type "+t.String(), "commit, refetch, directive, pass or promote; the store decides on the others")
	}
	for i := range b.State {
		if strings.HasPrefix(b.State[i].Key, EraseRows) {
			return Invalid("state", fmt.Sprintf("the row %q", b.State[i].Key), "another row: only an erase writes it")
		}
	}
	for i := range b.Puts {
		if len(b.Puts[i].Pages) == 0 {
			return Invalid("puts", "an artefact without pages", "at least one page")
		}
		if err := CheckID("id", b.Puts[i].Artefact.ID); err != nil {
			return err
		}
	}
	return nil
}
