// Package peers measures ctxpage beside other systems. It is a module of its own, so that users of the library never
// see what it needs.
//
//	go run ./cmd/peers                # from this folder: all systems in one process, by turns; --help lists the flags
//	go run ./evidence ingest DIR      # the retrieval protocol of bench/evidence, answered by bleve
package peers
