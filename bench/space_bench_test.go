package bench

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage"
)

// BenchmarkSpace says what a page or a turn takes on the disk when the log is cut, and where: for each bucket of the
// file what its keys, its values, its elements of 16 bytes and its unused space take, then the archive by file, and the snapshot of
// the columns. One round fills, the next compacts the file as well.
func BenchmarkSpace(b *testing.B) {
	for _, size := range []int{shortPage, longPage} {
		for _, pages := range []int{10_000, 100_000, 1_000_000} {
			if pages == 1_000_000 && !*big || size == longPage && pages == 100_000 && !*big {
				continue
			}
			spaceOf(b, fmt.Sprintf("page=%d/pages=%s", size, named(pages)), pages, func(s *ctxpage.Scope) { fill(b, s, pages, size) })
		}
	}
	for _, turns := range []int{5_000, 20_000} {
		spaceOf(b, fmt.Sprintf("turn=150/turns=%s", named(turns)), turns, func(s *ctxpage.Scope) { chat(b, s, turns) })
	}
}

// chat appends turns of 150 bytes to eight conversations, one by one.
func chat(tb testing.TB, s *ctxpage.Scope, turns int) {
	w := newWords(4)
	for i := range turns {
		_, err := s.Session(fmt.Sprint("chat-", i%8)).Append(ctx, ctxpage.Turn{Role: "user", Text: w.page(150)})
		must(tb, err)
	}
}

func spaceOf(b *testing.B, name string, units int, fill func(*ctxpage.Scope)) {
	b.Run(name, func(b *testing.B) {
		path := fresh(b)
		defer os.RemoveAll(filepath.Dir(path))
		for _, state := range []string{"filled", "compacted"} {
			b.Run(state, func(b *testing.B) {
				once(b, func() figures {
					db := open(b, path, ctxpage.Options{})
					if state == "compacted" {
						_, err := db.Admin().Compact(ctx, false, nil)
						must(b, err)
					} else {
						fill(db.Scope("acme/bench"))
					}
					for range 2 {
						_, err := db.Admin().Checkpoint(ctx)
						must(b, err)
					}
					must(b, db.Close())
					return space(b, path, float64(units))
				})
			})
		}
	})
}

// space is what the files of a closed database take without its log, bytes a unit.
func space(tb testing.TB, path string, units float64) figures {
	out := figures{}
	add := func(name string, n int64) { out[name+"-B"] += float64(n) / units }
	must(tb, filepath.WalkDir(filepath.Dir(path), func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.Contains(p, "-wal/") {
			return err
		}
		info, err := e.Info()
		name, _, _ := strings.Cut(filepath.Base(p), "-0")
		add("all", info.Size())
		if p != path {
			add(name, info.Size())
		}
		return err
	}))
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	must(tb, err)
	defer db.Close()
	must(tb, db.View(func(tx *bbolt.Tx) error {
		left := tx.Size()
		err := tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
			keys, values, rows := int64(0), int64(0), int64(0)
			err := bucket.ForEach(func(k, v []byte) error {
				keys, values, rows = keys+int64(len(k)), values+int64(len(v)), rows+1
				return nil
			})
			st := bucket.Stats()
			all := int64(st.BranchPageN+st.BranchOverflowN+st.LeafPageN+st.LeafOverflowN) * int64(db.Info().PageSize)
			add(string(name)+"-keys", keys)
			add(string(name)+"-values", values)
			add(string(name)+"-elements", 16*rows)
			add(string(name)+"-unused", all-keys-values-16*rows)
			add(string(name), all)
			left -= all
			return err
		})
		add("free", left)
		return err
	}))
	return out
}
