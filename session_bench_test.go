package ctxpage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/wal"
)

// longTalk is a session of ten thousand turns of some fifty words.
func longTalk(b *testing.B, path string) (*DB, *Session) {
	b.Helper()
	db, err := Open(path, Options{noSync: true})
	require.NoError(b, err)
	chat := db.Scope("acme/agent").Session("chat")
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		turns := make([]Turn, 500)
		for i := range turns {
			turns[i] = Turn{Role: []string{"user", "assistant"}[i%2], Name: "Ann", Text: prose(r, 50)}
		}
		_, err := chat.Append(context.Background(), turns...)
		require.NoError(b, err)
	}
	return db, chat
}

func twelve(i int) session.PassQuery {
	q := session.PassQuery{}
	for k := range 12 {
		q.Keywords = append(q.Keywords, fmt.Sprint("w", (i*31+k*97)%5000))
	}
	return q
}

func BenchmarkSession(b *testing.B) {
	ctx := context.Background()
	path := filepath.Join(b.TempDir(), "agent.ctx")
	db, chat := longTalk(b, path)
	b.Run("pass/turns=10k/words=12", func(b *testing.B) {
		faults := db.table.stats().Faults
		for i := 0; b.Loop(); i++ {
			p, err := chat.Pass(ctx, twelve(i))
			require.NoError(b, err)
			require.Len(b, p.Verdicts, 10_000)
		}
		require.Equal(b, faults, db.table.stats().Faults)
	})
	b.Run("assemble/turns=10k/budget=8k", func(b *testing.B) {
		for b.Loop() {
			_, err := db.Scope("acme/agent").Assemble(ctx, Query{Text: "w17 w100", Budget: 8000, Session: "chat"})
			require.NoError(b, err)
		}
	})
	require.NoError(b, db.Close())
	b.Run("open+pass/turns=10k", func(b *testing.B) {
		first := time.Duration(0)
		for i := 0; b.Loop(); i++ {
			db, err := Open(path, Options{noSync: true})
			require.NoError(b, err)
			start := time.Now()
			_, err = db.Scope("acme/agent").Session("chat").Pass(ctx, twelve(i+1))
			require.NoError(b, err)
			first += time.Since(start)
			require.Zero(b, db.table.stats().Faults)
			require.NoError(b, db.Close())
		}
		b.ReportMetric(float64(first.Microseconds())/1e3/float64(b.N), "ms/first-pass")
	})
	db, err := Open(path, Options{noSync: true})
	require.NoError(b, err)
	defer db.Close()
	chat = db.Scope("acme/agent").Session("chat")
	b.Run("append/turns=10k", func(b *testing.B) { // last: it makes the session longer
		for b.Loop() {
			_, err := chat.Append(ctx, Turn{Role: "assistant", Text: "short"})
			require.NoError(b, err)
		}
	})
}

// BenchmarkLongSession: what is done with a session must cost what its window costs, some ten thousand turns, and not what
// its history costs, ten times as many. Assembly and append are measured as the session grows; from 10,000 turns on the
// window is full, and their cost must stay where it is.
func BenchmarkLongSession(b *testing.B) {
	ctx := context.Background()
	db, err := Open(dbtest.MemoryPath(b), Options{noSync: true})
	require.NoError(b, err)
	defer db.Close()
	chat := db.Scope("acme/agent").Session("chat")
	require.NoError(b, chat.SetWindow(ctx, session.Config{Total: 725_000}))
	w, err := chat.Watch(ctx)
	require.NoError(b, err)
	r := rand.New(rand.NewPCG(1, 2))
	run := func(name string, op func(i int) error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			runtime.GC()
			cpu := cpuTime(b)
			for i := 0; b.Loop(); i++ {
				require.NoError(b, op(i))
			}
			b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
	assemble := func(int) error {
		_, err := db.Scope("acme/agent").Assemble(ctx, Query{Text: "w17 w100", Budget: 8000, Session: "chat"})
		return err
	}
	texts := make([]string, 64)
	for i := range texts {
		texts[i] = prose(r, 25)
	}
	grown := 0
	for _, turns := range []int{1_000, 10_000, 100_000} {
		grown = growTalk(b, chat, w, r, grown, turns)
		st, err := w.Stats(ctx)
		require.NoError(b, err)
		b.Logf("%d sections in the window of %d turns", st.Analysis.Items, turns)
		run(fmt.Sprintf("assemble/budget=8k/turns=%dk", turns/1000), assemble)
		run(fmt.Sprintf("append/turns=%dk", turns/1000), func(i int) error { // it makes the session a little longer
			_, err := chat.Append(ctx, Turn{Role: "assistant", Text: texts[i%len(texts)]})
			return err
		})
	}
	run("window", func(int) error {
		_, err := chat.Inspect(ctx)
		return err
	})
	run("stats", func(int) error {
		_, err := w.Stats(ctx)
		return err
	})
	run("recall+stats", func(i int) error { // a turn out of the window
		if _, err := chat.Recall(ctx, fmt.Sprint("block-chat-", 1+i%1000)); err != nil {
			return err
		}
		_, err := w.Stats(ctx)
		return err
	})
	run("pin+unpin", func(i int) error {
		id := fmt.Sprint("block-chat-", 100_000-i%1000)
		if err := chat.Pin(ctx, id); err != nil {
			return err
		}
		return chat.Unpin(ctx, id)
	})
}

// growTalk appends turns to a watched session until it has had so many from here, and gives how many those are.
func growTalk(b *testing.B, chat *Session, w *Watcher, r *rand.Rand, have, want int) int {
	b.Helper()
	ctx := context.Background()
	for have < want {
		turns := make([]Turn, min(400, want-have))
		for i := range turns {
			turns[i] = Turn{Role: "assistant", Text: prose(r, 25)}
			if i%100 == 0 { // what the user says is not compacted
				turns[i].Role = "user"
			}
		}
		_, err := chat.Append(ctx, turns...)
		require.NoError(b, err)
		_, err = w.Step(ctx, time.Now())
		require.NoError(b, err)
		have += len(turns)
	}
	return have
}

// BenchmarkAppendBesidePut compares durable appends to a conversation whose window is full with durable puts of the same
// texts, by turns of ten in one database. An append also writes the row of its turn and makes room in the window.
func BenchmarkAppendBesidePut(b *testing.B) {
	ctx := context.Background()
	db, err := Open(filepath.Join(b.TempDir(), "agent.ctx"), Options{})
	require.NoError(b, err)
	defer db.Close()
	chat := db.Scope("acme/agent").Session("chat")
	require.NoError(b, chat.SetWindow(ctx, session.Config{Total: 128_000}))
	w, err := chat.Watch(ctx)
	require.NoError(b, err)
	r := rand.New(rand.NewPCG(1, 2))
	growTalk(b, chat, w, r, 0, 8_000)
	took := map[string]*struct {
		clock []time.Duration
		cpu   time.Duration
	}{"append": {}, "put": {}}
	turn := func(name string, op func(text string) error) {
		t := took[name]
		cpu := cpuTime(b)
		for range 10 {
			text := prose(r, 25)
			begun := time.Now()
			require.NoError(b, op(text))
			t.clock = append(t.clock, time.Since(begun))
		}
		t.cpu += cpuTime(b) - cpu
	}
	n := 0
	for b.Loop() {
		turn("append", func(text string) error {
			_, err := chat.Append(ctx, Turn{Role: "assistant", Text: text})
			return err
		})
		turn("put", func(text string) error {
			n++
			_, err := db.Scope("acme/notes").Put(ctx, Artefact{ID: fmt.Sprint("note-", n), Text: text})
			return err
		})
	}
	for name, t := range took {
		slices.Sort(t.clock)
		b.ReportMetric(float64(t.clock[len(t.clock)/2].Nanoseconds())/1e3, name+"-p50-µs")
	}
	median := func(name string) float64 { return float64(took[name].clock[len(took[name].clock)/2]) }
	b.ReportMetric(median("append")/median("put"), "×put")
	b.ReportMetric(float64(took["append"].cpu)/float64(took["put"].cpu), "×put-cpu")
}

// cpuTime is what this process has used of the processors.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// From the commit that crosses the trigger to the commit of the pass, at ten thousand sections.
func BenchmarkWatchCrossing(b *testing.B) {
	ctx := context.Background()
	disk := &timedFS{FS: wal.OS()}
	db, err := Open(filepath.Join(b.TempDir(), "agent.ctx"), Options{fs: disk})
	require.NoError(b, err)
	defer db.Close()
	chat := db.Scope("acme/agent").Session("chat")
	require.NoError(b, chat.SetWindow(ctx, session.Config{Total: 725_000}))
	w, err := chat.Watch(ctx)
	require.NoError(b, err)
	r := rand.New(rand.NewPCG(1, 2))
	turns := make([]Turn, 400)
	for i := range turns {
		turns[i] = Turn{Role: "assistant", Text: prose(r, 25)}
	}
	var took, own []time.Duration
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		for {
			_, err := chat.Append(ctx, turns...)
			require.NoError(b, err)
			st, err := w.Stats(ctx)
			require.NoError(b, err)
			if st.Actual > st.Limits.Trigger {
				break
			}
		}
		b.StartTimer()
		start, waited := time.Now(), disk.waited.Load()
		events, err := w.Step(ctx, start)
		took = append(took, time.Since(start))
		own = append(own, took[len(took)-1]-time.Duration(disk.waited.Load()-waited))
		require.NoError(b, err)
		require.Equal(b, session.EventApplied, events[len(events)-2].Kind)
		require.Greater(b, events[len(events)-2].Items, 100)
	}
	slices.Sort(took)
	slices.Sort(own)
	b.ReportMetric(took[len(took)/2].Seconds()*1e3, "p50-ms")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1e3, "p99-ms")
	b.ReportMetric(own[len(own)*99/100].Seconds()*1e3, "p99-without-fdatasync-ms")
	st, err := w.Stats(ctx)
	require.NoError(b, err)
	b.Log("sections at the end", st.Analysis.Items)
}

// timedFS sums what syncs of the log took.
type timedFS struct {
	wal.FS
	waited atomic.Int64
}

type timedFile struct {
	wal.File
	fs *timedFS
}

func (t *timedFS) OpenFile(name string, flag int, perm os.FileMode) (wal.File, error) {
	f, err := t.FS.OpenFile(name, flag, perm)
	if err == nil && strings.HasSuffix(filepath.Dir(name), "-wal") {
		f = timedFile{f, t}
	}
	return f, err
}

func (f timedFile) Sync() error {
	start := time.Now()
	defer func() { f.fs.waited.Add(int64(time.Since(start))) }()
	return f.File.Sync()
}
