// Package ops has what an operator asks of a database, and the reports on it: erasing content, retention, quotas, and what is
// useless in a scope. ctxpage.Admin carries it out.
//
// # Erasing
//
// A Request names what is to be erased, a Report what that does to the database, and a Receipt proves it to others. An erase
// cannot reach backups and copies, what was sent to a model or a source, and what the audit keeps by design (names, times, who
// did what). docs/erase.md has the full list.
//
// # Retention
//
// A Policy sets how long a scope keeps things; Retention.Run removes what is older. Policies are stored in the database.
// Nothing is removed until Run is called, or the database is opened with ctxpage.Options.Maintain.
//
// Each field of a policy is looked up separately, in the scope, then in its ancestors, nearest first, then in the policy of
// the whole database, whose scope is "". The first value found applies, Forever included. A field without a value keeps
// everything.
//
//	kinds        artefacts of a kind that were last written longer ago are deleted; their content stays until versions lets gc drop it
//	sessions     conversations whose newest turn is older are removed, with what was decided and noted about them
//	held         batches that wait for review longer are rejected
//	decided      batches that were held longer ago, and decided, are dropped
//	directives   versions of directives that were replaced longer ago are dropped; the newest 32 stay
//	prune        bodies of older audit leaves, such as contexts, are removed; their hashes stay, and every head still verifies
//	versions     gc drops versions that were replaced or deleted longer ago, except the newest keep_versions of an artefact
//
// Each commit of a run writes an audit leaf that says what was removed and by which scope's policy. Retention is not erase:
// for a time the bytes stay in free pages, the log and backups.
//
// # Quotas
//
// A quota limits how much a scope and the scopes below it may hold. The store checks each commit (store.Quota): a commit that
// would exceed a quota fails with a *store.QuotaError and writes nothing. The quotas of all ancestors apply: a commit to
// acme/a must fit the quotas of acme/a and acme. There is no quota for the whole database; its limit is the disk
// (store.NoSpaceError). A quota can also close a scope for writes (store.Quota.Closed), which a move needs.
//
// # Health
//
// Health reports which artefacts of a scope are of no use, or mislead: those that are stored twice, contradict each other, are
// never served, or can no longer be served. It reads a store and its audit, and writes nothing. It needs about 40 bytes of
// memory for each artefact of the scope, and a few megabytes for texts.
package ops
