package wal_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ctxpage/ctxpage/wal"
)

func Example() {
	ctx := context.Background()
	tmp, err := os.MkdirTemp("", "wal")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(tmp)
	dir := filepath.Join(tmp, "log")

	l, _, err := wal.Open(ctx, dir, wal.Options{}, nil)
	if err != nil {
		panic(err)
	}
	seq, err := l.Enqueue(wal.KindCommit, false, []byte("refunds take "), []byte("14 days"))
	if err == nil {
		err = l.Sync(ctx, seq, nil) // from here on it survives a power cut
	}
	if err == nil {
		err = l.Close(wal.KindMark, nil)
	}
	if err != nil {
		panic(err)
	}

	rec, err := wal.Scan(ctx, dir, nil, func(r wal.Record) error {
		fmt.Printf("%d %c %q\n", r.Seq, r.Kind, r.Body)
		return nil
	})
	fmt.Println("clean:", rec.Clean, err)
	// Output:
	// 1 C "refunds take 14 days"
	// 2 M ""
	// clean: true <nil>
}
