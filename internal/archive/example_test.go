package archive_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/manifest"
)

// A head kept elsewhere finds a log that was forged as a whole.
func ExampleLog_Verify() {
	dir, err := os.MkdirTemp("", "manifest")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	write := func(name string, served ...uint64) *archive.Log {
		log, _, err := archive.Open(context.Background(), filepath.Join(dir, name), nil, archive.Options{DB: "db1"})
		if err != nil {
			panic(err)
		}
		for i, num := range served {
			body, _ := archive.Encode(&manifest.Record{Type: manifest.TypeGet, Trace: fmt.Sprint("t", i), Pages: []manifest.Page{{Num: num, Version: 1}}})
			if err := log.Add(uint64(i), body); err != nil {
				panic(err)
			}
		}
		if err := log.Archive(context.Background(), log.Size()); err != nil {
			panic(err)
		}
		return log
	}
	log := write("log", 1, 2, 3)
	defer log.Close()
	head, _ := log.Head(log.Size(), 0)
	line := head.String() // kept elsewhere: in a ticket, on paper, on another machine

	forged := write("forged", 1, 3, 3)
	defer forged.Close()
	kept, _ := manifest.ParseHead(line)
	for _, l := range []*archive.Log{log, forged} {
		_, err = l.Verify(context.Background(), nil, nil)
		fmt.Println("on its own:", err)
		_, err = l.Verify(context.Background(), &kept, nil)
		fmt.Println("against the head:", err)
	}
	// Output:
	// on its own: <nil>
	// against the head: <nil>
	// on its own: <nil>
	// against the head: manifest: verify found 1 problems, the first: manifest: the log does not agree with the head: the first 3 leaves give another root
}
