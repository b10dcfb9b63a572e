package main

import "context"

// system is one of those compared. Every method uses its public interface only and is safe for concurrent use.
// A method that a system does not offer returns errUnsupported; the jobs ask for what they need before they time it.
type system interface {
	name() string
	// open creates the system in a directory, or opens it there.
	open(dir string) error
	close() error
	// put stores one text under a new id and returns when a power cut cannot take it away.
	put(ctx context.Context, id, text string) error
	// fill stores texts as one durable transaction.
	fill(ctx context.Context, ids, texts []string) error
	// get returns the text of an id.
	get(ctx context.Context, id string) (string, error)
	// search returns the ids of the best k pages, with their texts read.
	search(ctx context.Context, question string, k int) ([]string, error)
	// settle finishes what the system has put off, so that its files are as small as it makes them itself.
	settle(ctx context.Context) error
}

// assembler is a system that makes a context from pages: ours alone.
type assembler interface {
	assemble(ctx context.Context, question string, k int) (pages int, err error)
}

// conversation is a system that stores turns of a chat in order.
type conversation interface {
	turn(ctx context.Context, session, text string) error
}

// backlog is a system that applies its log later: the share of what is durable that is also in its tables.
type backlog interface {
	applied(ctx context.Context) (float64, error)
}

// logged is a system whose log stands in a directory of its own.
type logged interface{ logDir(dir string) string }

// maker makes a system that is not open yet.
type maker struct {
	name string
	make func() system
}

// makers are all systems, in the order of the tables. Ours comes first: the others are divided by it.
var makers = []maker{
	{"ctxpage", func() system { return &page{} }},
	{"bbolt Update", func() system { return &bolt{} }},
	{"bbolt Batch", func() system { return &bolt{batch: true} }},
	{"pebble", func() system { return &lsm{} }},
	{"SQLite", func() system { return &sqlite{} }},
	{"SQLite FTS5", func() system { return &sqlite{fts: true} }},
	{"bleve", func() system { return &index{} }},
	{"raw append", func() system { return &raw{} }},
	{"raw overwrite", func() system { return &raw{overwrite: true} }},
}

func made(names ...string) (out []system) {
	for _, m := range makers {
		for _, n := range names {
			if m.name == n {
				out = append(out, m.make())
			}
		}
	}
	return out
}
