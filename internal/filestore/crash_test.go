package filestore_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var (
	killSeed  = flag.Uint64("kill.seed", 0, "seed of TestKill; 0: by the clock")
	killTimes = flag.Int("kill.times", dbtest.Times(16, 64, 208), "how often TestKill kills")
)

// childEnv makes the test binary another program: the tests start it to be killed, or to hold a lock.
const childEnv = "CTXPAGE_TEST_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		debug.SetGCPercent(400)
		os.Exit(child(role, os.Args[1:]))
	}
	_ = flag.Set("rapid.checks", strconv.Itoa(dbtest.Size(10, 30))) // the random tests here open databases; .ci/run makes 100 of each
	dbtest.CollectLess()
	filestore.PeekAge(time.Hour)
	code := dbtest.InMemory(m.Run)
	if err := dbtest.Leaks(func() error { return goleak.Find() }); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// children are what this binary can be started as, by role.
var children = map[string]func([]string) error{"writer": writerChild, "holder": holderChild, "reader": readerChild}

func child(role string, args []string) int {
	run, ok := children[role]
	if !ok {
		fmt.Fprintf(os.Stderr, "unknown role %q\n", role)
		return 2
	}
	if err := run(args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3 // a killed process ends with 1 on Windows
	}
	return 0
}

// wasKilled reports whether a process that Kill was called for ended by it.
func wasKilled(end error) bool {
	var exit *exec.ExitError
	return errors.As(end, &exit) && (strings.Contains(end.Error(), "killed") || runtime.GOOS == "windows" && exit.ExitCode() == 1)
}

// childCommand starts this binary in a role.
func childCommand(role string, args ...string) *exec.Cmd {
	return childCommandContext(context.Background(), role, args...)
}

func childCommandContext(ctx context.Context, role string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), childEnv+"="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

// The life of a writer that is killed. Each of its lanes commits step after step, always the same kind of step at the
// same number, and says so when the commit was answered: so what a database must hold follows from the last number
// that was acknowledged in each lane, and from whether the next one, which may have been under way, came through.
//
//	step   batch of three artefacts a, b, c of the lane, one of several pages, vouched or through the gate;
//	       every 5th deletes d, the next puts it back; every 7th is held instead, and writes only h
const lanes = 3

const lanePageTokens = 128 // small: a text is analysed at each of the many opens

// stepIDTime is how many characters of a batch id are time.
const stepIDTime = 10

func stepKey(lane, n int) string { return batchIDOf(lane, n)[stepIDTime:] }

type laneStep struct {
	held, gated, deleted bool
}

func stepOf(n int) laneStep {
	return laneStep{held: n%7 == 3, gated: n%3 == 1, deleted: n%5 == 0}
}

// applied is the number of the newest step up to n that was not held.
func applied(n int) int {
	for n > 0 && stepOf(n).held {
		n--
	}
	return n
}

func laneText(lane, n int, part string) string {
	line := fmt.Sprintf("lane %d step %d of %s\n", lane, n, part)
	if part == "b" {
		return strings.Repeat(line, 1+n%4*10) // up to two pages of lanePageTokens
	}
	return line
}

func laneID(lane int, part string) string { return fmt.Sprintf("lane-%d-%s", lane, part) }

// batchIDOf is fixed by lane and step but for the time it begins with.
func batchIDOf(lane, n int) string {
	id, err := store.NewID(time.Now(), strings.NewReader(fmt.Sprintf("%02d%08d", lane, n)))
	if err != nil {
		panic(err)
	}
	return id.String()
}

func writeStep(ctx context.Context, s *Scope, lane, n int) error {
	st := stepOf(n)
	fill := func(tx *Txn) error {
		if st.held {
			return tx.Put(ctx, Artefact{ID: laneID(lane, "h"), Text: laneText(lane, n, "h")})
		}
		for _, part := range []string{"a", "b", "c"} {
			if err := tx.Put(ctx, Artefact{ID: laneID(lane, part), Text: laneText(lane, n, part)}); err != nil {
				return err
			}
		}
		if st.deleted {
			err := tx.Delete(ctx, laneID(lane, "d"))
			if errors.Is(err, store.ErrNotFound) {
				return nil
			}
			return err
		}
		return tx.Put(ctx, Artefact{ID: laneID(lane, "d"), Text: laneText(lane, n, "d")})
	}
	if !st.held && !st.gated {
		return s.Update(ctx, fill, WithID(batchIDOf(lane, n)))
	}
	tx, err := s.Begin(ctx, WithID(batchIDOf(lane, n)))
	if err != nil {
		return err
	}
	if err := fill(tx); err != nil {
		return err
	}
	v := Verdict{Confidence: .9, By: "checker"}
	if st.held {
		v.Confidence = .2
	}
	if err = tx.Commit(ctx, v); st.held && errors.Is(err, store.ErrHeld) {
		return nil
	}
	return err
}

// writerChild: path, then for each lane the last step that is done.
func writerChild(args []string) error {
	db, err := openOver(args[0], Options{WorkingSet: 1 << 16, AuditSync: true, PageTokens: lanePageTokens}, filestore.Options{Columns: 1})
	if err != nil {
		return err
	}
	var out sync.Mutex
	fail := make(chan error)
	for lane := range lanes {
		n, err := strconv.Atoi(args[1+lane])
		if err != nil {
			return err
		}
		go func() {
			s := db.Scope("acme", WithActor("writer"))
			for {
				n++
				if err := writeStep(ctx, s, lane, n); err != nil {
					fail <- fmt.Errorf("lane %d step %d: %w", lane, n, err)
					return
				}
				out.Lock()
				fmt.Printf("%d %d\n", lane, n) // one write; what is in the pipe survives the kill
				out.Unlock()
				if lane == 0 && n%4 == 0 {
					if _, err := db.Admin().Checkpoint(ctx); err != nil {
						fail <- err
						return
					}
					filestore.KeepColumns(storeOf(db)) // of no use if the other lanes commit meanwhile
				}
			}
		}()
	}
	return <-fail
}

// laneState is what must be there.
type laneState struct {
	acked [lanes]int
	head  *manifest.Head
}

// ack takes a line of the writer.
func (s *laneState) ack(line string) error {
	var lane, n int
	if _, err := fmt.Sscanf(line, "%d %d", &lane, &n); err != nil {
		return fmt.Errorf("%q: %w", line, err)
	}
	if n != s.acked[lane]+1 {
		return fmt.Errorf("lane %d acknowledged step %d after %d", lane, n, s.acked[lane])
	}
	s.acked[lane] = n
	return nil
}

// verify compares a database with what was acknowledged. A step that was under way may be there, whole; then it must
// stay there from now on.
func (s *laneState) verify(db *DB) error {
	if _, err := db.Manifests().Verify(ctx, s.head, nil); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	head, err := db.Head(ctx)
	if err != nil {
		return err
	}
	s.head = &head
	done, err := doneSteps(db)
	if err != nil {
		return err
	}
	held, err := heldTexts(db)
	if err != nil {
		return err
	}
	for lane := range lanes {
		if err := s.verifyLane(db.Scope("acme"), lane, done, held); err != nil {
			return fmt.Errorf("lane %d, acknowledged %d: %w", lane, s.acked[lane], err)
		}
	}
	return nil
}

func (s *laneState) verifyLane(scope *Scope, lane int, done, held map[string]bool) error {
	now := s.acked[lane]
	if done[stepKey(lane, now+1)] {
		now++
	}
	live := applied(now)
	for _, part := range []string{"a", "b", "c", "d", "h"} {
		want := laneText(lane, live, part)
		if live == 0 || part == "h" || part == "d" && stepOf(live).deleted {
			want = ""
		}
		got, err := textOf(scope, laneID(lane, part))
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("at step %d: expected %q in %s, found %q", now, firstLine(want), part, firstLine(got))
		}
	}
	for n := 1; n <= now; n++ {
		if !done[stepKey(lane, n)] {
			return fmt.Errorf("step %d has no leaf", n)
		}
		if stepOf(n).held != held[laneText(lane, n, "h")] {
			return fmt.Errorf("step %d: the draft it holds is not listed", n)
		}
	}
	if done[stepKey(lane, now+1)] {
		return fmt.Errorf("step %d is there already", now+1)
	}
	s.acked[lane] = now
	return nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// doneSteps lists the steps that left any trace: one leaf is enough to say that it happened.
func doneSteps(db *DB) (map[string]bool, error) {
	done := map[string]bool{}
	err := store.EachRecord(context.Background(), db.Manifests(), 0, dbtest.SizeOf(db.Manifests()), false, func(r *manifest.Record) error {
		if r.Batch != "" {
			done[r.Batch[stepIDTime:]] = true
		}
		return nil
	})
	return done, err
}

func heldTexts(db *DB) (map[string]bool, error) {
	held := map[string]bool{}
	for h, err := range db.Review().Batches(context.Background(), "", false) {
		if err != nil {
			return nil, err
		}
		b, err := db.Review().Show(context.Background(), h.ID)
		if err != nil {
			return nil, err
		}
		held[b.Writes[0].Text] = true
	}
	return held, nil
}

// TestKill kills a writing process at random moments, its recovery included, and looks at what is left each time. It
// says nothing about syncs: a killed process loses nothing it has written. TestPowerCut is for those.
func TestKill(t *testing.T) {
	t.Parallel()
	seed := *killSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-kill.seed=%d -kill.times=%d", seed, *killTimes)
	databases := min(max(*killTimes/8, 1), 16) // a longer run gives each a longer life
	lives := *killTimes / databases
	for p := range databases {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			t.Parallel()
			path := dbtest.CheckedPath[store.Problem](t, openChecked)
			rng := rand.New(rand.NewPCG(seed, uint64(p)))
			state := &laneState{}
			for life := range lives {
				require.NoError(t, killOnce(path, state, rng), "life %d", life)
				require.NoError(t, state.look(path, life), "life %d", life)
			}
			require.Greater(t, state.acked[0]+state.acked[1]+state.acked[2], lives, "the writer got too little done to show anything")
		})
	}
}

func killOnce(path string, state *laneState, rng *rand.Rand) error {
	args := []string{path}
	for _, n := range state.acked {
		args = append(args, strconv.Itoa(n))
	}
	cmd := childCommand("writer", args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	// Every fourth dies by the clock, often before it has recovered; the others after a number of answers and a moment.
	answers, moment := 1+rng.IntN(10), time.Duration(rng.IntN(2000))*time.Microsecond
	if rng.IntN(4) == 0 {
		answers, moment = 0, time.Duration(rng.IntN(30))*time.Millisecond
	}
	lines := bufio.NewScanner(out)
	for range answers {
		if lines.Scan() {
			err = errors.Join(err, state.ack(lines.Text()))
		}
	}
	<-time.After(moment)
	err = errors.Join(err, cmd.Process.Kill())
	for lines.Scan() { // what was in the pipe
		err = errors.Join(err, state.ack(lines.Text()))
	}
	end := cmd.Wait()
	if !wasKilled(end) {
		err = errors.Join(err, fmt.Errorf("the writer ended by itself: %w", end))
	}
	return errors.Join(err, lines.Err())
}

// look verifies the files as another process would: mostly read-only, which leaves the recovery to the next writer, who
// may be killed in it; every 5th time for writing, every 10th with a whole check.
func (s *laneState) look(path string, life int) error {
	db, err := Open(path, Options{ReadOnly: life%5 != 4, WorkingSet: -1})
	if s.acked == [lanes]int{} && errors.Is(err, store.ErrNotExist) {
		return nil // the writer was killed before it had made the database
	}
	if err != nil {
		return err
	}
	err = s.verify(db)
	if life%10 == 9 {
		problems, cerr := db.Admin().Check(context.Background(), nil)
		if err = errors.Join(err, cerr); len(problems) > 0 {
			err = errors.Join(err, fmt.Errorf("check: %+v", problems))
		}
	}
	return errors.Join(err, db.Close())
}

// TestKillControl: what TestKill looks for is found when it is there.
func TestKillControl(t *testing.T) {
	db := openTest(t, dbtest.CheckedPath[store.Problem](t, openChecked), Options{})
	s := db.Scope("acme", WithActor("writer"))
	for n := 1; n <= 9; n++ {
		require.NoError(t, writeStep(ctx, s, 0, n))
	}
	require.NoError(t, (&laneState{acked: [lanes]int{9}}).verify(db))
	require.NoError(t, (&laneState{acked: [lanes]int{8}}).verify(db), "a step that was under way")
	require.Error(t, (&laneState{acked: [lanes]int{10}}).verify(db), "an acknowledged step is missing")
	require.Error(t, (&laneState{acked: [lanes]int{7}}).verify(db), "a step came from nowhere")

	must(s.Put(ctx, Artefact{ID: laneID(0, "c"), Text: laneText(0, 10, "c")}))(t)
	require.ErrorContains(t, (&laneState{acked: [lanes]int{9}}).verify(db), "in c", "half a step is visible")
}

func holderChild(args []string) error {
	db, err := Open(args[0], Options{ReadOnly: len(args) > 1}) // a second word: a reader
	if err != nil {
		return err
	}
	fmt.Println("open")
	_, err = bufio.NewReader(os.Stdin).ReadString('\n') // until the parent lets go
	return errors.Join(err, db.Close())
}
