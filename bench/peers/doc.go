// Package peers measures ctxpage beside other systems. It is a module of its own, so that users of the library never
// see what it needs.
//
//	go test -run '^$' -bench . .      # from this folder: indexing and searching beside bleve, taking turns
//	go run ./evidence ingest DIR      # the retrieval protocol of bench/evidence, answered by bleve
package peers
