// Package portable takes databases out of ctxpage and into it, as text.
//
// Export writes all of a database, or the data of a scope or of a person, as lines of JSON. Import brings such a file into
// a database, new or not. It reads a store.Store and writes through it; ctxpage.DB.Export and DB.Import are the way in.
//
// # What a file has
//
// The first line is the header, the last one the end, which has counts and a digest of all lines before it: a file that was
// cut off, or edited, is refused before anything is written. In between stand, in this order:
//
//	version   a version of an artefact: its fields, pages with texts, salts and digests, writer and time. Those that gc
//	          dropped or an erase took stand in it as "before", without content. In the order of the commits
//	state     a row of state: sessions, passes, windows, notes, directives and their history, recorded directories, file roots
//	held      a held batch, waiting or decided
//	question  a question that was asked of a person, in an export of that person only; an import passes over it
//
// # What an import keeps
//
// Artefacts keep scope, id, version numbers, put times, writers, provenance, expiry, pins, tags, metadata, subjects, lineage,
// salts and digests; so references hold, and contexts have the same pages. LSNs and page numbers are those of the new database.
// Fences of contexts are made of the id and secret of a database, so contexts are the same byte for byte where the new
// database was created with those of the header (ctxpage.Options.Identity; dbctl import does so for a new file).
//
// The audit is not exported. It records what happened in the other database, so past contexts are explained and replayed
// there. Vectors are made anew. Content that an erase took in either database never comes back. To keep all of it, make a
// backup.
//
// # Trust
//
// An export keeps the provenance human-verified, and an import restores it: the operator who imports the file vouches for
// it. Data from other systems is not trusted like that; package portable/foreign imports it as scratch.
package portable
