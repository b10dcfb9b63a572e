package format

import (
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// Tombstone returns what stays of a dropped version: what names it and its pages, what it replaced
// (which stays replaced), and what the index knows its pages by, because newer versions may have
// them. Unknown fields stay: this program cannot tell whether they are content.
func Tombstone(h *store.Head, by string) *store.Head {
	return &store.Head{
		Artefact: store.Artefact{
			ID: h.ID, Kind: h.Kind, Provenance: h.Provenance, Priority: h.Priority, CurrentAsOf: h.CurrentAsOf, ExpiresAt: h.ExpiresAt,
			Seq: h.Seq, Name: h.Name, Source: h.Artefact.Source, Supersedes: h.Supersedes, Unknown: h.Artefact.Unknown,
		},
		Unknown: h.Unknown,
		Scope:   h.Scope, Art: h.Art, Version: h.Version, LSN: h.LSN, PutAt: h.PutAt, GroupNum: h.GroupNum, Rows: h.Rows, Gone: true, GoneBy: by,
	}
}

// Erase returns what an erase leaves of the versions of an artefact, which are given oldest first. It takes those that were
// written up to an LSN, and deletions right behind them. end is a deletion by a commit of LSN lsn and time at; nil if a newer
// version stays. rest has what names each version that goes. It counts in t what is taken; t has the trace of the run and its
// operator. Both are nil if nothing is left to take.
func Erase(heads []*store.Head, upTo, lsn uint64, at time.Time, t *store.EraseReport) (end *store.Head, rest []*store.Head) {
	n := 0
	for n < len(heads) && (heads[n].LSN <= upTo || n > 0 && heads[n].Deleted) {
		n++
	}
	stays := map[uint64]bool{} // pages that newer versions have
	for _, h := range heads[n:] {
		for i := range h.Rows {
			stays[h.Rows[i].Num] = true
		}
	}
	if n == 0 || n == len(heads) && heads[n-1].Deleted && heads[n-1].ErasedBy != "" {
		return nil, nil
	}
	for _, h := range heads[:n] {
		if Live(h) {
			t.Versions++
		}
		for i := range h.Rows {
			if r := &h.Rows[i]; Live(h) && r.Version == h.Version && !stays[r.Num] {
				t.Pages, t.Bytes = t.Pages+1, t.Bytes+int64(r.Bytes)
			}
		}
		if h.ErasedBy == "" {
			rest = append(rest, erased(h, t))
		}
	}
	if n == len(heads) {
		end = erased(heads[n-1], t)
		end.Version, end.LSN, end.PutAt, end.Actor = heads[n-1].Version+1, lsn, at, store.OperatorScope
		end.Deleted, end.Gone, end.Floor, end.Rows, end.Supersedes = true, false, false, nil, nil
	}
	if end != nil || len(rest) > 0 {
		t.Artefacts++
	}
	return end, rest
}

// erased returns the remainder of a version: the names of the version, its group and its pages, and
// Supersedes, so that superseded artefacts do not come back. By the group an erase of a session with
// Names finds what an earlier one left. Sizes go, and so do unknown fields: this program cannot tell
// them from content.
func erased(h *store.Head, run *store.EraseReport) *store.Head {
	rows := make([]store.PageRow, len(h.Rows))
	for i, r := range h.Rows {
		rows[i] = store.PageRow{Num: r.Num, Version: r.Version, LSN: r.LSN}
	}
	return &store.Head{
		Artefact: store.Artefact{ID: h.ID, Kind: h.Kind, Provenance: h.Provenance, Group: h.Group, Supersedes: h.Supersedes},
		Scope:    h.Scope, Art: h.Art, Version: h.Version, LSN: h.LSN, PutAt: h.PutAt, GroupNum: h.GroupNum, Rows: rows,
		Deleted: h.Deleted, Floor: h.Floor, Gone: true, GoneBy: run.Trace, ErasedBy: run.By,
	}
}
