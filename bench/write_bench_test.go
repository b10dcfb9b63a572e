package bench

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
)

// texts are pages made beforehand: making one costs more than some of what is measured.
func texts(n, size int) []string {
	w := newWords(3)
	out := make([]string, n)
	for i := range out {
		out[i] = w.page(size)
	}
	return out
}

// BenchmarkPut writes one page of 1 KiB a transaction, each under a new id: split, counted, analysed, digested,
// logged with its audit leaf, synced, visible to searches. The baseline stores the bytes.
func BenchmarkPut(b *testing.B) {
	pages := texts(256, longPage)
	for _, workers := range []int{1, 8, 64} {
		put := func(b *testing.B) (op, op) {
			db := open(b, fresh(b), ctxpage.Options{})
			b.Cleanup(func() { must(b, db.Close()) })
			s := db.Scope("acme/bench")
			o := openBolt(b)
			must(b, checkPut(s, o, pages[0]))
			return func(_ int, n uint64) error {
					_, err := s.Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("put-", n), Text: pages[n%256]})
					return err
				}, func(_ int, n uint64) error {
					return o.put(n, []byte(pages[n%256]))
				}
		}
		variants(b, fmt.Sprintf("writers=%d", workers), workers, put)
	}
}

// BenchmarkCommit is the speculative way: Begin, Put, Commit with a verdict through the gate.
func BenchmarkCommit(b *testing.B) {
	pages := texts(256, longPage)
	for _, workers := range []int{1, 8, 64} {
		variants(b, fmt.Sprintf("writers=%d", workers), workers, func(b *testing.B) (op, op) {
			db := open(b, fresh(b), ctxpage.Options{})
			b.Cleanup(func() { must(b, db.Close()) })
			s := db.Scope("acme/bench")
			o := openBolt(b)
			must(b, checkPut(s, o, pages[0]))
			return func(_ int, n uint64) error {
					return commit(s, fmt.Sprint("commit-", n), pages[n%256])
				}, func(_ int, n uint64) error {
					return o.put(n, []byte(pages[n%256]))
				}
		})
	}
}

func commit(s *ctxpage.Scope, id, text string) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	if err := tx.Put(ctx, ctxpage.Artefact{ID: id, Text: text}); err != nil {
		return err
	}
	return tx.Commit(ctx, ctxpage.Verdict{Confidence: .9, By: "checker"})
}

// variants runs ours and the baseline alone, then against each other.
func variants(b *testing.B, name string, workers int, make func(b *testing.B) (ours, theirs op)) {
	b.Run(name+"/v=ctxpage", func(b *testing.B) {
		ours, _ := make(b)
		measure(b, workers, ours)
	})
	b.Run(name+"/v=bbolt", func(b *testing.B) {
		_, theirs := make(b)
		measure(b, workers, theirs)
	})
	b.Run(name+"/v=ratio", func(b *testing.B) {
		once(b, func() figures {
			ours, theirs := make(b)
			return compare(b, workers, ours, theirs)
		})
	})
}

// checkPut makes sure that both databases give back what is put into them, and that ours finds it.
func checkPut(s *ctxpage.Scope, o *plain, text string) error {
	if _, err := s.Put(ctx, ctxpage.Artefact{ID: "check", Text: text}); err != nil {
		return err
	}
	v, err := s.Get(ctx, "check")
	if err != nil || v.Text != text {
		return fmt.Errorf("got %d bytes back, put %d: %w", len(v.Text), len(text), err)
	}
	found, err := s.Search(ctx, text[:40], 1)
	if err != nil || len(found.Hits) != 1 {
		return fmt.Errorf("%d hits for the page just put: %w", len(found.Hits), err)
	}
	if err := o.put(0, []byte(text)); err != nil {
		return err
	}
	back, err := o.get([]byte("\x00\x00\x00\x00\x00\x00\x00\x00"))
	if err != nil || back != text {
		return fmt.Errorf("bbolt: got %d bytes back, put %d: %w", len(back), len(text), err)
	}
	return nil
}

// BenchmarkSustained lets 64 writers put pages of 1 KiB for a while, through several checkpoints, and reports the
// tail: throttling must be felt by all, a little, and stall nobody.
func BenchmarkSustained(b *testing.B) {
	once(b, func() figures {
		pages := texts(256, longPage)
		db := open(b, fresh(b), ctxpage.Options{})
		s := db.Scope("acme/bench")
		disk := diskTail(b)
		before := written(b)
		n, t := run(b, 64, 0, *sustained, func(_ int, n uint64) error {
			_, err := s.Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("put-", n), Text: pages[n%256]})
			return err
		})
		bytes := written(b) - before
		st, err := db.Stats(ctx)
		must(b, err)
		if st.Pages != n {
			b.Fatalf("%d pages in the database, %d were acknowledged", st.Pages, n)
		}
		start := time.Now()
		must(b, db.Close())
		slices.Sort(t.all)
		ms := func(d time.Duration) float64 { return micros(d) / 1000 }
		return figures{
			"puts/s": float64(n) / sustained.Seconds(), "p50-ms": ms(t.at(.5)), "p99-ms": ms(t.at(.99)),
			"p99.9-ms": ms(t.at(.999)), "disk-p99.9-ms": ms(disk), "max-ms": ms(t.at(1)), "written-B/op": float64(bytes) / float64(n),
			"checkpoints": float64(st.Checkpoints), "close-ms": ms(time.Since(start)),
		}
	})
}

// diskTail is the p99.9 of what the disk does without us: a KiB appended to a file and synced, for a second.
func diskTail(b *testing.B) time.Duration {
	f, err := os.Create(fresh(b))
	must(b, err)
	defer f.Close()
	page := make([]byte, longPage)
	_, t := run(b, 1, 0, time.Second, func(int, uint64) error {
		if _, err := f.Write(page); err != nil {
			return err
		}
		return f.Sync()
	})
	slices.Sort(t.all)
	return t.at(.999)
}

// BenchmarkBulk puts many pages, 500 a transaction, and checkpoints: what an import does.
func BenchmarkBulk(b *testing.B) {
	sizes := []struct{ pages, size int }{{10_000, longPage}, {100_000, shortPage}}
	if *big {
		sizes = append(sizes, struct{ pages, size int }{1_000_000, shortPage}, struct{ pages, size int }{1_000_000, longPage})
	}
	for _, c := range sizes {
		b.Run(fmt.Sprintf("pages=%s/size=%d", named(c.pages), c.size), func(b *testing.B) {
			once(b, func() figures {
				d := filled(b, c.pages, c.size)
				st, err := d.db.Stats(ctx)
				must(b, err)
				return figures{
					"s": d.took.Seconds(), "cpu-s": d.cpu.Seconds(), "puts/s": float64(c.pages) / d.took.Seconds(),
					"written-B/page": float64(d.wrote) / float64(c.pages), "file-B/page": float64(st.FileBytes) / float64(c.pages),
				}
			})
		})
	}
}

// BenchmarkIndexing tells what the words of a page cost: the same put, of a text with words to find and of one that
// has only stop words. Bytes are all that was written: log, audit, pages, segments.
func BenchmarkIndexing(b *testing.B) {
	stop := stopText(longPage)
	w := newWords(5)
	const pages = 20_000
	for _, c := range []struct {
		name string
		text func() string
	}{{"stopwords", func() string { return stop }}, {"words", func() string { return w.page(longPage) }}} {
		b.Run("text="+c.name, func(b *testing.B) {
			once(b, func() figures {
				db := open(b, fresh(b), ctxpage.Options{})
				s := db.Scope("acme/bench")
				start, before := time.Now(), written(b)
				for at := 0; at < pages; at += 100 {
					must(b, s.Update(ctx, func(tx *ctxpage.Txn) error {
						for i := at; i < at+100; i++ {
							if err := tx.Put(ctx, ctxpage.Artefact{ID: pageID(i), Text: c.text()}); err != nil {
								return err
							}
						}
						return nil
					}))
				}
				must(b, db.Close())
				return figures{"written-B/page": float64(written(b)-before) / pages, "µs/page": micros(time.Since(start)) / pages}
			})
		})
	}
}

func stopText(size int) string {
	out := ""
	for len(out) < size {
		out += "the and of is to in it that was for on with as be at by this had not are but from or have an they "
	}
	return out[:size]
}
