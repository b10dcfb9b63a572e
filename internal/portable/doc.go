// Package portable exports databases as text and imports them again.
//
// Export writes all of a database, or the data of a scope or of a person, as lines of JSON. Import brings such a file into
// a database, new or not. It reads a store.Store and writes through it; ctxpage.Admin.Export and Admin.Import are the way in.
//
// # What a file has
//
// The first line is the header. The last line has counts and a digest of all lines before it, so a file that was cut
// off or edited is refused before anything is written. Between them are, in this order:
//
//	version   a version of an artefact: its fields, pages with texts, salts and digests, writer and time. Older versions that
//	          gc dropped or an erase took are named in its field "before", without content. In the order of the commits
//	state     a row of state: sessions, passes, windows, notes, directives and their history, recorded directories, file roots
//	held      a held batch, waiting or decided
//	question  a question that was asked of a person, in an export of that person only; an import passes over it
//
// A move exports a tenant in parts: versions while writers go on (ExportOptions.Versions), what came since, and at the end,
// with the scope closed for writes, the rest with the rows of state (Since).
//
// # What an import keeps
//
// Artefacts keep scope, id, version numbers, put times, writers, provenance, expiry, pins, tags, metadata, subjects,
// lineage, salts and digests; so references hold, and contexts have the same pages. The new database assigns LSNs and
// page numbers. Fences of contexts are made from the id and secret of a database. So contexts are the same byte for
// byte if the new database was created with the id and secret of the header (ctxpage.Options.Identity; dbctl import
// does so for a new file).
//
// The audit is not exported. It records what happened in the other database, so past contexts are explained and
// replayed there. Vectors are computed again. Content that either database erased never comes back. To keep everything,
// make a backup.
//
// # Trust
//
// An export keeps the provenance human-verified, and an import restores it: the operator who imports the file vouches for
// it. Data from other systems is not trusted like that; package portable/foreign imports it as scratch.
package portable
