// Package store is the seam between the pipeline, which runs in the agent's process, and the place
// where pages live: the Store interface, the plain data that crosses it, references, limits and
// errors. Users of the library meet these names in package ctxpage. To write another store, read
// this package; package storetest checks what it says, and has a reference store in memory.
//
// These rules belong to no single method:
//
// # Numbers
//
// A commit gets the next LSN, from 1. That includes a commit that holds a batch, decides a review,
// or drops versions; no other call gets one. Artefacts, pages, scopes and groups have numbers of
// their own: from 1, without gaps, in the order of the commits that first wrote them. A number is
// never used again. Versions of an artefact are 1, 2, 3 and so on. A deletion is a version without
// pages. It has the fields of the previous version except Supersedes, and its own Version, LSN,
// PutAt and Actor.
//
// A batch writes an artefact once: a batch that puts or deletes an id twice is an InvalidError,
// whatever its Action. The time in a batch id may be up to 7 days before Batch.Now (beyond that:
// ErrTxnExpired) and up to 12 hours after it (beyond that: InvalidError), because the clocks of
// writers differ.
//
// A reference that names a deletion, by version or by scope, returns ErrNotFound and the zero
// Located, and no ancestor is searched. A PageKey of version 0 means the newest version that has
// the page; Loaded.Key then names it.
//
// # What a put becomes
//
// A put repeats the newest version if its texts and fields are the same. Actor, PutAt and the stamp
// of the source are not compared, and CurrentAsOf only with AsOfGiven. A repeat makes no version:
// the outcome names it in Refs and Repeats, and the leaf has a Write with Touch. Two puts never
// count as repeats: a put of an artefact that is superseded, unless its text comes from a source;
// and a put that supersedes an artefact that is current.
//
// In a new version, a page whose text equals the text of the page in the same place keeps its number,
// with three exceptions: the artefact was superseded, its group changed, or the index would find
// the page differently. The index knows a page by the words and the group it was added
// with. Groups come from Artefact.Group. An artefact of several pages without a group gets one
// of its own, named by a zero byte and the id.
//
// # What is current
//
// An artefact is current until it is deleted or superseded: a later version of another artefact of
// its scope, or one of the same batch, names it in Supersedes. Putting it again makes it current
// again.
//
// At most one page answers for a page version that has ended. If its artefact has a current
// version, that is the page in the same place, or the last page if there are fewer. If its artefact
// is superseded, it is the first page of the artefact that superseded it. If its artefact was
// deleted since, no page answers for it, even if the artefact is put again. So the words of an old
// version find what replaced it (CandidateQuery), and a Seen page is stale as "replaced", "deleted"
// or "expired". A Seen page with number 0 (a draft), or with a number that no page has, is never
// stale: a batch that was held in another database, or salvaged, has numbers of that database.
//
// # Candidates
//
// A query sees the chain of its Scopes except Mask, as of AsOf. A page may enter if it was current
// then and none of these rules keeps it out. If several rules apply, the first is reported:
//
//   - it has expired by Now; this is the only rule for pages of kind system
//   - it is below Floor, unless it is a turn of Session in the nearest scope
//   - it is a turn of another session, with a provenance not above Tool
//   - it is not of Kinds
//
// Hits are the K best pages by words (package lexical scores them, with Weights). To these come, whatever
// their words: pinned, system and human-verified pages, the newest Recent pages, and the newest Newest
// pages of each provenance and scope. Excluded counts the pages that each rule keeps out, and pages of
// superseded artefacts. It names at most 20 of those that match the words. It counts pages that are live
// now, whatever AsOf and Mask say.
//
// In a hit, Lexical.Via is the ended page whose words matched; 0 means the page's own words. The
// same holds in Excluded.Nearest, except for a superseded page, which is named itself: its Via is
// 0, and Lexical.Own is the score of its words. Stats are returned if there is a Mask. They
// describe the index as it is now, with all page versions of the chain, even under AsOf: they only
// weigh words, and are not part of the snapshot.
//
// # The audit
//
// A commit has one leaf: the Leaf of its batch with Trace and Batch (its id), Parent (Batch.Trace),
// Scope, Actor, Time, LSN, From, Status ("applied", "held", "rejected"), Stale and Writes. Its Type
// is the batch's, except TypeHeld for a held batch, and TypeApprove and TypeReject for a review. A
// refused batch leaves a leaf of TypeConflict with Status "conflict" and Conflicts, or with Status
// "stale". Each new page is a Write with its digest; each page of a deleted artefact is a Write
// with Deleted; a version that kept its pages is a Write without a digest. A commit and its leaf
// are durable together.
//
// # GC
//
// A version ended when the next one was written or, with GCJob.Expired, when it expired. It is
// dropped if that is longer ago than KeepFor, if there are KeepVersions newer ones, and if nothing
// keeps it. These keep it: a Hold of an earlier moment, a held batch that waits, a row whose
// StateKind says it names the version's pages, and a live artefact that was derived from it or has
// it as its source. A page stays as long as any version that has it stays. What remains of a
// dropped version is a Head with Gone and GoneBy, which reads as ErrGone. It keeps scope, id, kind,
// provenance, Art, Version, LSN, PutAt, Supersedes and Rows, and no content.
//
// A run that drops something is one commit or several. Each has an LSN and a leaf of TypeGC, which
// ByTrace finds under GCReport.Trace; GoneBy is that trace. A plan, or a run that drops nothing,
// makes no commit and has no trace. With GCJob.Expired, an artefact that expired while it was
// current is deleted first: OperatorScope writes the deletion as a version, and GCJob.By is in the
// leaf. Nothing else of an artefact changes: its LSN, which Expect compares, stays. Runs over all
// scopes also drop what StateKind.Past and StateKind.Journal name, and reviews that were decided
// longer ago than KeepFor.
//
// GCJob.Scopes restricts a run to scopes, each with its own GCKeep. A run with GCJob.Reviews drops
// those decided held batches, whatever their age, and nothing else.
//
// # Quotas
//
// A store that keeps quotas reads them from the rows under QuotaRows. The quotas of a commit's
// scope and of all scopes above it apply. They are checked after everything else, in the order of
// commits, against what is stored and in flight. A refused commit returns a QuotaError and leaves a
// leaf of TypeConflict with Status "quota". Page versions count until gc or an erase takes them.
// Never refused are a commit of TypeRefetch, artefacts whose ids begin with "ctxpage:", and a
// commit that adds no page and no held batch. Quota.Closed refuses these, too, except a refetch, a
// change of the quota, retention, gc, an erase and what comes from another database; a commit that
// is numbered after the one that closed the scope must be refused.
//
// # Erase
//
// An erase takes every version of the artefacts it names, even if they are held or named elsewhere,
// and the held batches, questions and state rows. A live artefact is deleted as well. What remains
// of a version is a Head with Gone, GoneBy and ErasedBy. It has the name, numbers and times, but no
// content, salt or digest. It reads as ErrErased. The leaves have type erase, with By, Reason and,
// as Note, counts. When Maintain returns, no byte of what was erased is in what the store keeps on
// disk, old logs and free space included. If it is interrupted, the next open for writing finishes
// it. An artefact that was erased before is left alone, so a second run with the same job takes
// nothing.
//
// # Carry
//
// Batch.Carry brings versions that another database had. They keep version, put time, writer,
// provenance, salts and digests, and get numbers and an LSN of this database. Each must continue
// its artefact here: it is the next version, or version 1 of a new artefact, or a version with
// Floor, before which nothing is kept. Otherwise the batch returns a ConflictError. A page that the
// previous version also has, with the same salt and digest, keeps its number. A version that is
// gone is carried in the batch of the next version that is not gone, and so under the same LSN. The
// leaf is the import's. A carried version is never a repeat.
//
// Batch.Hold with ActHold stores a held batch as another database had it, decided or not. It is not
// judged.
package store
