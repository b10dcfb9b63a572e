package bench

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/ops"
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

// contextsAudited is how many contexts BenchmarkAudit asks for.
const contextsAudited = 500

// BenchmarkAudit says what a context of 50 pages leaves on the disk: its leaf, its hashes, its row and the text of its
// question, with the log cut. Then 400 days pass, and a retention of a year takes its body and its question.
func BenchmarkAudit(b *testing.B) {
	once(b, func() figures {
		path := fresh(b)
		defer os.RemoveAll(filepath.Dir(path))
		opts, day := tenantOptions, time.Unix(1_800_000_000, 0)
		opts.Clock = func() time.Time { return day }
		with := func(do func(db *ctxpage.DB)) float64 {
			db := open(b, path, opts)
			do(db)
			must(b, closed(db))
			return auditBytes(b, path)
		}
		before := with(func(db *ctxpage.DB) { fill(b, db.Scope("acme/bench"), 10_000, shortPage) })
		pages, w := 0, newWords(9)
		young := with(func(db *ctxpage.DB) {
			for range contextsAudited {
				a, err := db.Scope("acme/bench").Assemble(ctx, ctxpage.Query{Text: w.question(8), Budget: 6000, TopK: 50})
				must(b, err)
				pages += len(a.Blocks)
			}
		})
		day = day.AddDate(0, 0, 400)
		old := with(func(db *ctxpage.DB) {
			must(b, db.Admin().Retention().Set(ctx, "", ops.Presets()["year"], "bench"))
			_, err := db.Admin().Retention().Run(ctx, ops.RunOptions{By: "bench"})
			must(b, err)
		})
		return figures{"blocks": float64(pages) / contextsAudited, "context-B": (young - before) / contextsAudited, "after-a-year-B": (old - before) / contextsAudited}
	})
}

// auditBytes is the size of the archive and of the bucket of questions.
func auditBytes(tb testing.TB, path string) float64 {
	all := space(tb, path, 1)
	return all["leaves-B"] + all["index-B"] + all["hashes-B"] + all["question-B"]
}
