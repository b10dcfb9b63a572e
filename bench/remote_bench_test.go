package bench

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/stretchr/testify/require"
)

// What a client pays for not being the owner: medians of calls to one database, by turns, in one process. The clock says what a
// caller waits; the CPU, of both sides, what the work costs, also where others use the machine.
func BenchmarkRemote(b *testing.B) {
	path := dbtest.Path(b) // of a real file system: a commit is durable there
	own, err := ctxpage.Open(path, ctxpage.Options{})
	require.NoError(b, err)
	defer own.Close()
	client, err := ctxpage.Open(path, ctxpage.Options{})
	require.NoError(b, err)
	defer client.Close()
	for n := range 500 {
		_, err := own.Scope("acme").Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("page-", n), Text: fmt.Sprintf("the zebra of page %d has %d stripes, and eats grass in the morning", n, n*7)})
		require.NoError(b, err)
	}
	for _, do := range []struct {
		name string
		call func(db *ctxpage.DB, n int) error
	}{
		{"get", func(db *ctxpage.DB, n int) error {
			_, err := db.Scope("acme").Get(ctx, fmt.Sprint("page-", n%500))
			return err
		}},
		{"assemble50", func(db *ctxpage.DB, n int) error {
			a, err := db.Scope("acme").Assemble(ctx, ctxpage.Query{Text: fmt.Sprint("zebra stripes grass ", n%500), Budget: 4000, TopK: 50})
			if err == nil && len(a.Blocks) < 45 {
				return fmt.Errorf("%d blocks", len(a.Blocks))
			}
			return err
		}},
		{"commit", func(db *ctxpage.DB, n int) error {
			_, err := db.Scope("acme/other").Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("w-", n%50), Text: fmt.Sprint("the zebra ", n)})
			return err
		}},
	} {
		b.Run(do.name, func(b *testing.B) {
			took, cpu := map[*ctxpage.DB][]time.Duration{}, map[*ctxpage.DB]time.Duration{}
			var ratios []float64
			both := []*ctxpage.DB{own, client}
			call := func(db *ctxpage.DB, n int) {
				begun := time.Now()
				if err := do.call(db, n); err != nil {
					b.Fatal(err)
				}
				took[db] = append(took[db], time.Since(begun))
			}
			for n := 0; b.Loop(); n += remoteRound {
				for i := range remoteRound {
					for _, db := range both { // by turns: the machine may be busy
						call(db, n+i)
					}
				}
				for _, db := range both {
					used := cpuTime()
					for i := range remoteRound {
						if err := do.call(db, n+i); err != nil {
							b.Fatal(err)
						}
					}
					cpu[db] = cpuTime() - used
				}
				ratios = append(ratios, float64(cpu[client])/float64(cpu[own]))
			}
			slices.Sort(took[own])
			slices.Sort(took[client])
			slices.Sort(ratios)
			at := len(took[own]) / 2
			b.ReportMetric(float64(took[own][at].Microseconds()), "µs-owner")
			b.ReportMetric(float64(took[client][at].Microseconds()), "µs-client")
			b.ReportMetric(float64(took[client][at])/float64(took[own][at]), "times")
			b.ReportMetric(ratios[len(ratios)/2], "×cpu")
			b.ReportMetric(ratios[len(ratios)-1], "×cpu-worst")
		})
	}
}

// remoteRound is how many calls one side makes in a turn: enough for the clock of the CPU, which ticks in milliseconds.
const remoteRound = 20

// What a durable commit through a client of another process could cost at best: BenchmarkRemoteFloor commits by turns in this
// process, as the client of an owner in another one, and with a server there that does nothing but write what it gets into a
// file, sync it and answer as many bytes. Of the last, the times that are not the server's are what two processes pay for
// waking each other twice (µs-hops). The floor is a commit in one process with these beside it; the rest of the difference is
// ours: messages to write and read, sessions, the search for a stream.

const (
	floorOwner  = "CTXPAGE_BENCH_OWNER" // in the environment of the other process: the database that it owns
	floorBare   = "CTXPAGE_BENCH_BARE"  // and where the bare server listens
	floorAsk    = 350                   // bytes of a commit of one short page on a stream
	floorAnswer = 80
	floorBlock  = 4 << 10
)

// ownForOthers makes this process the other one: it owns a database, and serves the bare file, until its input ends.
func ownForOthers(path string) error {
	db, err := ctxpage.Open(path, ctxpage.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	l, err := net.Listen("unix", os.Getenv(floorBare))
	if err != nil {
		return err
	}
	f, err := os.Create(path + ".bytes")
	if err != nil {
		return err
	}
	if _, err := f.Write(make([]byte, 1<<20)); err != nil {
		return err
	}
	go func() {
		if conn, err := l.Accept(); err == nil {
			_ = serveBare(conn, f)
		}
	}()
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// serveBare answers each request when it is durable, and says how long that took here.
func serveBare(conn net.Conn, f *os.File) error {
	ask, answer := make([]byte, floorAsk), make([]byte, floorAnswer)
	for n := int64(0); ; n++ {
		if _, err := io.ReadFull(conn, ask); err != nil {
			return err
		}
		begun := time.Now()
		if _, err := f.WriteAt(ask, n%200*floorBlock); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(answer, uint64(time.Since(begun)))
		if _, err := conn.Write(answer); err != nil {
			return err
		}
	}
}

// startOwner starts the other process.
func startOwner(b *testing.B, path string) net.Conn {
	bare := filepath.Join(b.TempDir(), "bare")
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), floorOwner+"="+path, floorBare+"="+bare), os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() { _ = in.Close(); require.NoError(b, cmd.Wait()) })
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	conn, err := net.Dial("unix", bare)
	require.NoError(b, err)
	return conn
}

func BenchmarkRemoteFloor(b *testing.B) {
	own, err := ctxpage.Open(fresh(b), ctxpage.Options{})
	require.NoError(b, err)
	defer own.Close()
	path := fresh(b)
	conn := startOwner(b, path)
	defer conn.Close()
	client, err := ctxpage.Open(path, ctxpage.Options{})
	require.NoError(b, err)
	defer client.Close()
	ask, answer := make([]byte, floorAsk), make([]byte, floorAnswer)
	var inProcess, asClient, hops []time.Duration
	commit := func(db *ctxpage.DB, n int) time.Duration {
		begun := time.Now()
		if _, err := db.Scope("acme/other").Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("w-", n%50), Text: fmt.Sprint("the zebra ", n)}); err != nil {
			b.Fatal(err)
		}
		return time.Since(begun)
	}
	for n := 0; b.Loop(); n++ {
		inProcess = append(inProcess, commit(own, n))
		asClient = append(asClient, commit(client, n))
		inProcess = append(inProcess, commit(own, n)) // the other process has slept as long before either
		begun := time.Now()
		_, err := conn.Write(ask)
		must(b, err)
		_, err = io.ReadFull(conn, answer)
		must(b, err)
		hops = append(hops, time.Since(begun)-time.Duration(binary.LittleEndian.Uint64(answer)))
	}
	own1, client1, hops1 := median(inProcess), median(asClient), median(hops)
	b.ReportMetric(own1, "µs-owner")
	b.ReportMetric(client1, "µs-client")
	b.ReportMetric(hops1, "µs-hops")
	b.ReportMetric(client1/own1, "times")
	b.ReportMetric((own1+hops1)/own1, "times-floor")
}

// median is in microseconds.
func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Nanoseconds()) / 1000
}
