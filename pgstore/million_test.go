package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// newcomer is what a process of the tests of size does: it opens a database, and tells what that took.
type newcomer struct {
	DSN, Name, CacheDir string
	Image               bool // put an image on the server afterwards
}

// arrival is what it tells.
type arrival struct {
	Seconds, CPU float64
	Anonymous    int64 // the most memory of its own that it had at once, bytes: files that are mapped do not count
	Resident     int64 // likewise with them
	LSN          uint64
	Pages        int64
}

const newcomerEnv = "PGSTORE_TEST_NEWCOMER"

// arrive is such a process.
func arrive(env string) {
	var j newcomer
	if err := json.Unmarshal([]byte(env), &j); err != nil {
		panic(err)
	}
	var most atomic.Int64
	go func() {
		for ; ; time.Sleep(5 * time.Millisecond) {
			most.Store(max(most.Load(), memoryOf("RssAnon:")))
		}
	}()
	begun := time.Now()
	st, err := Open(context.Background(), j.DSN, Options{Name: j.Name, CacheDir: j.CacheDir, MustExist: true, ImageBytes: -1})
	if err != nil {
		fmt.Fprintln(os.Stderr, "newcomer:", err)
		os.Exit(1)
	}
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	a := arrival{Seconds: time.Since(begun).Seconds(), CPU: float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9, Anonymous: most.Load(), Resident: memoryOf("VmHWM:"), LSN: st.Mark().LSN}
	if stat, err := st.Stat(context.Background()); err == nil {
		a.Pages = int64(stat.Pages)
	}
	if j.Image {
		if _, err := st.WriteImage(context.Background(), nil); err != nil {
			fmt.Fprintln(os.Stderr, "newcomer: image:", err)
			os.Exit(1)
		}
	}
	_ = st.Close()
	_ = json.NewEncoder(os.Stdout).Encode(a)
	os.Exit(0)
}

// memoryOf reads a line of what the kernel knows of this process, bytes.
func memoryOf(line string) int64 {
	b, _ := os.ReadFile("/proc/self/status")
	for l := range strings.Lines(string(b)) {
		if rest, is := strings.CutPrefix(l, line); is {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}

// newcomerIs runs a process that opens a database.
func newcomerIs(t *testing.T, j newcomer, env ...string) (a arrival) {
	t.Helper()
	says, err := json.Marshal(j)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), newcomerEnv+"="+string(says)), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &a))
	return a
}

// fill commits pages of about 130 bytes, a thousand in a commit.
func fill(t *testing.T, st *Store, pages int) {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 11))
	nouns := make([]string, 20_000)
	for i := range nouns {
		nouns[i] = fmt.Sprintf("n%s", strconv.FormatInt(r.Int64N(1<<30), 36))
	}
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	for from := 0; from < pages; from += 1000 {
		id, err := store.NewID(time.Now(), st.opts.Rand)
		require.NoError(t, err)
		b := store.Batch{ID: id, Scope: fmt.Sprintf("acme/agent-%d", from/1000%50), Actor: "writer", Now: time.Now(), Leaf: manifest.Record{Type: manifest.TypeCommit, By: "host"}}
		for n := from; n < min(from+1000, pages); n++ {
			words := []string{"Order", strconv.Itoa(n), "was", "refunded"}
			for range 14 {
				words = append(words, nouns[int(float64(len(nouns))*r.Float64()*r.Float64())])
			}
			text := strings.Join(words, " ")
			p := store.Put{Artefact: store.Artefact{ID: fmt.Sprint("a", n), Kind: store.KindFact, CurrentAsOf: at}, Counter: "words"}
			p.Artefact.KindDefaults()
			page := store.NewPage{Text: text, Tokens: len(text) / 4, Hash: store.ContentHash(text)}
			page.Digest = store.SaltedDigest(page.Salt[:], text)
			p.Pages = append(p.Pages, page)
			b.Puts = append(b.Puts, p)
		}
		_, err = st.Commit(t.Context(), b)
		require.NoError(t, err)
	}
}

// A host that has nothing follows a long log in bounded memory, because it brings what it read into its cache on the way; from an
// image it is there at once, and from a cache that it kept it reads only what is new. All of them end with the same pages.
// CTXPAGE_LONG=1 does it with a million pages in 512 MB, for a process that was told of that limit.
func TestNewcomers(t *testing.T) {
	pages, limit, env := 20_000, int64(160<<20), []string(nil)
	if long {
		pages, limit, env = 1_000_000, 512<<20, []string{"GOMEMLIMIT=440MiB"}
	}
	srv := ownServer(t)
	dsn := srv.dsn("postgres")
	begun := time.Now()
	writer, err := Open(t.Context(), dsn, Options{Name: "main", ImageBytes: -1})
	require.NoError(t, err)
	fill(t, writer, pages)
	lsn := writer.Mark().LSN
	t.Logf("filled %d pages in %.1f s", pages, time.Since(begun).Seconds())
	require.NoError(t, writer.Close())
	kept := filepath.Join(t.TempDir(), "cache")
	for _, j := range []struct {
		name string
		of   newcomer
	}{
		{"from the log", newcomer{DSN: dsn, Name: "main", CacheDir: kept, Image: true}},
		{"from an image", newcomer{DSN: dsn, Name: "main"}},
		{"from a kept cache", newcomer{DSN: dsn, Name: "main", CacheDir: kept}},
	} {
		a := newcomerIs(t, j.of, env...)
		t.Logf("%-18s %5.1f s, %5.1f s of CPU, %4d MB of its own, %4d MB with mapped files", j.name, a.Seconds, a.CPU, a.Anonymous>>20, a.Resident>>20)
		require.Equal(t, lsn, a.LSN)
		require.EqualValues(t, pages, a.Pages)
		require.Less(t, a.Anonymous, limit, j.name)
	}
}
