// Package store is the seam between the pipeline, which runs in the agent's process, and the place where pages live: the
// Store interface, the plain data that crosses it, references, limits and errors. Users of the library meet these names in
// package ctxpage. Whoever writes another store reads this package; package storetest checks what it says, and has a
// reference store in memory.
//
// The rules that no single method has:
//
// # Numbers
//
// A commit gets the next LSN, from 1; so does one that holds a batch, decides a review, or drops versions, and no other
// call. Artefacts, pages, scopes and groups have numbers of their own, dense, from 1, in the order of the commits that
// first wrote them. A number is never used again. Versions of an artefact are 1, 2, 3 and so on; a deletion is a version
// without pages. It has the fields of the version before it, without Supersedes, and its own Version, LSN, PutAt and Actor.
//
// A batch writes an artefact once: one that puts or deletes an id twice is an InvalidError, whatever its Action. The time
// in a batch id may be up to 7 days before Batch.Now (after that: ErrTxnExpired) and up to 12 hours after it (after that:
// InvalidError), because clocks of writers differ.
//
// A reference that names a deletion, by version or by scope, gives ErrNotFound and the zero Located, and no ancestor is
// asked. A PageKey of version 0 stands for the newest version that has the page, which Loaded.Key then names.
//
// # What a put becomes
//
// A put whose texts and fields (all but Actor, PutAt, the stamp of the source, and CurrentAsOf unless AsOfGiven) are those of
// the newest version repeats it: no version is made, the outcome names it in Refs and Repeats, the leaf has a Write with
// Touch. It repeats nothing while its artefact is superseded, unless its text comes from a source, and nothing where it
// supersedes an artefact that is current. In a new version a page whose text is that of the page in the same place goes on
// under its number, unless the artefact was superseded, or its group changed, or it is not found alike any more (FoundAlike): the index knows a page by
// the words and the group it was added with. Groups are those of Artefact.Group; the pages of an artefact of several pages
// without one are a group of their own, named by a zero byte and the id.
//
// # What is current
//
// An artefact is current until it is deleted, or superseded: a later version of another artefact of its scope, or one of the
// same batch, names it in Supersedes. Putting it again ends that. For a page version that ended, the page in the same place
// of the current version answers (the last one, where there are fewer), for a superseded artefact the first page of the one
// that superseded it, for what was deleted since nothing, also when it is put again. So the words of an old version find what
// says it now (CandidateQuery), and a Seen page is stale as "replaced", "deleted" or "expired". A Seen page with number 0
// (a draft) or with a number that no page has makes nothing stale: a batch that was held in another database, or salvaged,
// brings numbers of that one.
//
// # Candidates
//
// A question sees the chain of its Scopes but for Mask, as of AsOf. What is current then and kept out by no rule may enter.
// The rules, the first that applies: expired by Now; pages of kind system are never kept out by the others; below Floor,
// unless it is a turn of Session in the nearest scope; a turn of another session that is trusted no more than a tool; not of
// Kinds. Hits are the K best by words (package lexical scores them, under Weights), and whatever they say: pinned, system
// and human-verified pages, the Recent newest, and the Newest newest of each provenance and scope. Excluded counts what each
// rule keeps out, superseded artefacts among it, and names up to 20 of those that the words asked for. The counts are of
// the pages that are live now, whatever AsOf and Mask say.
//
// In a hit, Lexical.Via is the ended page by whose words it was found, 0: by its own. So it is in Excluded.Nearest, but for
// a superseded page, which is named itself: its Via is 0, and Lexical.Own is what its words score. Stats are asked for with
// a Mask. They are of the index as it is now, with all page versions of the chain that it has, also under AsOf: they weigh
// words, and are no part of the snapshot.
//
// # The audit
//
// A commit has one leaf: the Leaf of its batch with Trace and Batch (its id), Parent (Batch.Trace), Scope, Actor, Time, LSN,
// From, Status ("applied", "held", "rejected"), Stale and Writes. Its Type is the batch's, but TypeHeld of a held one,
// TypeApprove and TypeReject of a review. A refused batch leaves one of TypeConflict with Status "conflict" and Conflicts, or
// "stale". Each new page is a Write with its digest, each page of a deleted artefact one with Deleted, a version that kept
// its pages one without a digest. A commit and its leaf are durable together.
//
// # GC
//
// A version ended when the next one was written, or, with GCJob.Expired, when it expired. It goes when that is longer than
// KeepFor ago, KeepVersions newer ones are there, and nothing keeps it: no Hold of an earlier moment, no held batch that
// waits, no row that a StateKind says names its pages, no live artefact that was derived from it or has it as its source.
// A page that stays with another version stays. What is left of a version is a Head with Gone and GoneBy, which reads as
// ErrGone: scope, id, kind, provenance, Art, Version, LSN, PutAt, Supersedes and Rows hold on, and no content does.
//
// A run that drops something is one commit or several. Each has an LSN and a leaf of TypeGC, which ByTrace finds under
// GCReport.Trace; GoneBy is that trace. A plan, and a run that drops nothing, is no commit and has no trace. What expired
// while it was current is deleted first, in a version of its own by OperatorScope; GCJob.By is in the leaf. Nothing else
// of an artefact changes: its LSN, as Expect knows it, stays. Runs over all scopes also drop what
// StateKind.Past and StateKind.Journal say, and reviews that were decided as long ago.
//
// # Erase
//
// An erase takes every version of the artefacts it names, whoever holds or names them, and the held batches, questions and
// rows of state. An artefact that was live is deleted. What is left of a version is a Head with Gone, GoneBy and ErasedBy:
// its name, numbers and times, no field of content, and no salt and no digest. It reads as ErrErased. The leaves have type
// erase, with By, Reason and, as Note, counts. When Maintain returns, no byte of what was erased is in what the store keeps
// on a disk, old logs and free space included; where it was stopped before, the next open for writing finishes it. An
// artefact that was erased before is left alone, so a second run with the same job takes nothing.
package store
