package remote_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/store"
)

var (
	handOvers = flag.Int("handovers", dbtest.Size(4, 12), "how often TestHandOverOfProcesses ends the owner")
	stored    = flag.Int("stored", 0, "how many pages there are before TestHandOverOfProcesses begins")
)

// roleEnv makes this program an agent: a process that opens the database and does what its role says.
const roleEnv = "CTXPAGE_TEST_ROLE"

// roles say a line for each thing that was acknowledged, and end when their input does.
var roles = map[string]func(db *ctxpage.DB, name string, end <-chan struct{}) error{
	"puts": func(db *ctxpage.DB, name string, end <-chan struct{}) error {
		for n := 0; ; n++ {
			select {
			case <-end:
				return nil
			default:
			}
			id := fmt.Sprintf("%s-%d", name, n)
			begun := time.Now()
			if _, err := db.Scope("acme").Put(ctx, ctxpage.Artefact{ID: id, Text: "the zebra " + id}); err != nil {
				return fmt.Errorf("put %s: %w", id, err)
			}
			fmt.Println("acked", id)
			if took := time.Since(begun); took > 10*time.Millisecond {
				fmt.Println("slow", int64(took))
			}
			time.Sleep(5 * time.Millisecond) // no owner lives for long enough to checkpoint, and each reads the whole log
		}
	},
	"directives": func(db *ctxpage.DB, name string, _ <-chan struct{}) error {
		for n := range 20 {
			if _, err := db.Scope("acme").Directives().Step(ctx, fmt.Sprintf("use %s%d", name, n)); err != nil {
				return err
			}
			fmt.Println("acked", n)
		}
		return nil
	},
	"turns": func(db *ctxpage.DB, name string, _ <-chan struct{}) error {
		for n := range 150 {
			turn := ctxpage.Turn{ID: fmt.Sprintf("%s-%d", name, n), Role: "user", Text: fmt.Sprintf("%s says %d", name, n)}
			if _, err := db.Scope("acme").Session("chat").Append(ctx, turn); err != nil {
				return err
			}
			fmt.Println("acked", turn.ID)
		}
		return nil
	},
	"idle": func(_ *ctxpage.DB, _ string, end <-chan struct{}) error { <-end; return nil },
}

func TestMain(m *testing.M) {
	role, rest, _ := strings.Cut(os.Getenv(roleEnv), " ")
	if path := os.Getenv(ownedFile); path != "" {
		serveOwned(path)
		return
	}
	if role == "" {
		dbtest.Main(m)
	}
	name, path, _ := strings.Cut(rest, " ")
	end := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(end) }()
	db, err := ctxpage.Open(path, ctxpage.Options{})
	if err == nil {
		fmt.Println("open")
		err = roles[role](db, name, end)
		fmt.Println("closing", time.Now().UnixNano())
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
}

// agent is a process, and what it said was acknowledged.
type agent struct {
	*exec.Cmd
	in     io.Closer
	open   chan struct{}
	done   chan struct{} // its output has ended
	mu     sync.Mutex
	acked  []string
	failed string
	slow   time.Duration  // its longest write since somebody looked
	closes chan time.Time // when it began to close the database
}

func start(t *testing.T, role, name, path string) *agent {
	t.Helper()
	a := &agent{Cmd: exec.Command(os.Args[0]), open: make(chan struct{}), done: make(chan struct{}), closes: make(chan time.Time, 1)}
	a.Env = append(os.Environ(), roleEnv+"="+role+" "+name+" "+path)
	a.Stderr = os.Stderr
	out := must(a.StdoutPipe())(t)
	a.in = must(a.StdinPipe())(t)
	require.NoError(t, a.Start())
	t.Cleanup(func() { _ = a.Process.Kill(); _ = a.Wait() })
	go func() {
		defer close(a.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			what, rest, _ := strings.Cut(lines.Text(), " ")
			a.mu.Lock()
			switch what {
			case "open":
				close(a.open)
			case "acked":
				a.acked = append(a.acked, rest)
			case "failed":
				a.failed = rest
			case "slow":
				ns, _ := strconv.ParseInt(rest, 10, 64)
				a.slow = max(a.slow, time.Duration(ns))
			case "closing":
				ns, _ := strconv.ParseInt(rest, 10, 64)
				a.closes <- time.Unix(0, ns)
			}
			a.mu.Unlock()
		}
	}()
	return a
}

// ready waits until the agent has opened the database.
func (a *agent) ready(t *testing.T) *agent {
	t.Helper()
	select {
	case <-a.open:
	case <-a.done:
		t.Fatalf("the agent ended: %s", a.failed)
	}
	return a
}

// finish waits for an agent that ends by itself, or is told to.
func (a *agent) finish(t *testing.T) []string {
	t.Helper()
	<-a.done
	require.Empty(t, a.failed)
	require.NoError(t, a.Wait())
	return a.acked
}

// holder is the process that the lock file names.
func holder(path string) int {
	b, err := os.ReadFile(path + ".lock")
	var h struct{ PID int }
	if err != nil || json.Unmarshal(b, &h) != nil {
		return 0
	}
	return h.PID
}

// serving waits until a process other than one serves, and gives its number.
func serving(t *testing.T, path string, not int) int { t.Helper(); return statusOf(t, path, not).PID }

// served waits likewise, and gives what the process says of itself.
func statusOf(t *testing.T, path string, not int) remote.Status {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(time.Millisecond) {
		is, err := remote.GetStatus(ctx, path+".sock", remote.ClientOptions{})
		if err == nil && is.State == "" && is.PID != not {
			return is
		}
	}
	t.Fatal("nobody serves the database")
	return remote.Status{}
}

// takeover is how long a database had no owner, and how much of that nobody had the lock.
type takeover struct{ whole, lock time.Duration }

// The owner is killed again and again while four agents write: another one takes its place within milliseconds, no
// acknowledged write is lost, and none is applied twice. Nobody notices: an agent that is not killed reports no error.
func TestOwnersKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes")
	}
	path := dbtest.MemoryPath(t)
	var live []*agent
	var acked []string
	var took []takeover
	stalls := dbtest.WatchStalls(t)
	begin := func(n int) { live = append(live, start(t, "puts", fmt.Sprint("agent", n), path).ready(t)) }
	for n := range 4 {
		begin(n)
	}
	for n := range *kills {
		time.Sleep(10 * time.Millisecond)
		pid := serving(t, path, 0)
		i := slices.IndexFunc(live, func(a *agent) bool { return a.Process.Pid == pid })
		require.GreaterOrEqual(t, i, 0, "the owner is one of the agents")
		require.NoError(t, live[i].Process.Kill())
		begun := time.Now()
		next := statusOf(t, path, pid)
		took = append(took, takeover{stalls.Since(begun), next.Since.Sub(begun)})
		require.NotEqual(t, pid, next.PID)
		<-live[i].done
		_ = live[i].Wait()
		require.Empty(t, live[i].failed)
		acked = append(acked, live[i].acked...)
		live = slices.Delete(live, i, i+1)
		begin(4 + n)
	}
	for _, a := range live {
		require.NoError(t, a.in.Close())
	}
	for _, a := range live {
		acked = append(acked, a.finish(t)...)
	}
	require.Greater(t, len(acked), *kills)
	require.NoError(t, judge(t, path, acked))
	slices.SortFunc(took, func(a, b takeover) int { return cmp.Compare(a.whole, b.whole) })
	half, p99, longest := took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	t.Logf("%d kills, %d writes acknowledged; a new owner after %v (median), %v (p99), %v (longest)", *kills, len(acked), half.whole, p99.whole, longest.whole)
	t.Logf("of that until somebody had the lock: %v, %v and %v; the rest is the reading of the log", half.lock, p99.lock, longest.lock)
	for _, slow := range took[len(took)*97/100:] {
		t.Logf("one of the slowest: %v, the lock after %v", slow.whole, slow.lock)
	}
	for _, o := range took { // how long the log takes to read is the machine's affair
		require.Less(t, o.lock, 2*time.Second, "an owner is not missed for as long as a silent one")
	}
}

// longest takes the longest write of some agents.
func longest(agents []*agent) (most time.Duration) {
	for _, a := range agents {
		a.mu.Lock()
		most, a.slow = max(most, a.slow), 0
		a.mu.Unlock()
	}
	return most
}

// The owner ends again and again while four agents write: how long the others are without an owner, from the moment it begins
// to close the database, and how long the longest write beside that takes. Nothing acknowledged is lost.
func TestHandOverOfProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	path := dbtest.Path(t) // of a real file system: its syncs are what an end takes
	fillPages(t, path, *stored)
	var live []*agent
	var acked []string
	var gone, waited []time.Duration
	stalls := dbtest.WatchStalls(t)
	for n := range 5 {
		live = append(live, start(t, "puts", fmt.Sprint("agent", n), path).ready(t))
	}
	for n := range *handOvers {
		time.Sleep(150 * time.Millisecond)
		pid := serving(t, path, 0)
		i := slices.IndexFunc(live, func(a *agent) bool { return a.Process.Pid == pid })
		require.GreaterOrEqual(t, i, 0, "the owner is one of the agents")
		ends := live[i]
		live = slices.Delete(live, i, i+1)
		_ = longest(live)
		require.NoError(t, ends.in.Close())
		begun := <-ends.closes
		statusOf(t, path, pid)
		gone = append(gone, stalls.Since(begun))
		acked = append(acked, ends.finish(t)...)
		time.Sleep(100 * time.Millisecond) // until the writes of that time have ended
		waited = append(waited, longest(live))
		live = append(live, start(t, "puts", fmt.Sprint("agent", 5+n), path).ready(t))
	}
	for _, a := range live {
		require.NoError(t, a.in.Close())
	}
	for _, a := range live {
		acked = append(acked, a.finish(t)...)
	}
	require.NoError(t, judge(t, path, acked))
	slices.Sort(gone)
	slices.Sort(waited)
	half := len(gone) / 2
	t.Logf("%d ends beside four writers, %d pages: another owner after %v (median), %v (longest)", *handOvers, *stored+len(acked), gone[half], gone[len(gone)-1])
	t.Logf("the longest write beside each: %v (median), %v (longest)", waited[half], waited[len(waited)-1])
	require.LessOrEqual(t, gone[half], 2*time.Second, "it is not waited for as for a silent owner")
}

// fillPages makes a database of as many pages.
func fillPages(t *testing.T, path string, pages int) {
	t.Helper()
	if pages == 0 {
		return
	}
	db := must(ctxpage.Open(path, ctxpage.Options{}))(t)
	defer db.Close()
	for n := 0; n < pages; n += 500 {
		require.NoError(t, db.Scope("acme/stored").Update(ctx, func(tx *ctxpage.Txn) error {
			for i := n; i < min(n+500, pages); i++ {
				text := fmt.Sprintf("page %d of the zoo: %d zebras, and what they eat in month %d", i, i%97, i%12)
				if err := tx.Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("stored-", i), Text: text}); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// judge holds the database against what was acknowledged: each is there, and was applied once.
func judge(t *testing.T, path string, acked []string) error {
	t.Helper()
	st := must(remote.Open(remote.Options{Exclusive: true, Files: filestore.Options{Path: path, MustExist: true}}))(t)
	defer func() { require.NoError(t, st.Close()) }()
	for _, id := range acked {
		l, err := st.Resolve(ctx, store.Scopes{"acme"}, store.Ref{ID: id})
		if err != nil {
			return fmt.Errorf("%s was acknowledged: %w", id, err)
		}
		if l.Version != 1 {
			return fmt.Errorf("%s was applied %d times", id, l.Version)
		}
	}
	rep := must(st.Maintain(ctx, store.Job{Kind: store.JobCheck}, nil))(t)
	require.Empty(t, rep.Problems)
	return nil
}

// The control: the judge tells a write that is lost, and one that was applied twice.
func TestJudgeTells(t *testing.T) {
	t.Parallel()
	path := dbtest.MemoryPath(t)
	db := must(ctxpage.Open(path, ctxpage.Options{}))(t)
	for _, text := range []string{"the zebra", "the zebra once more"} {
		must(db.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "a-0", Text: text}))(t)
	}
	must(db.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "a-1", Text: "the zebra"}))(t)
	require.NoError(t, db.Close())
	require.NoError(t, judge(t, path, []string{"a-1"}))
	require.ErrorContains(t, judge(t, path, []string{"a-1", "a-2"}), "a-2 was acknowledged")
	require.ErrorContains(t, judge(t, path, []string{"a-0", "a-1"}), "a-0 was applied 2 times")
}

// Two processes step 20 directives each, at once: each ends with 40.
func TestDirectivesOfTwoProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	path := dbtest.MemoryPath(t)
	a, b := start(t, "directives", "hammer", path), start(t, "directives", "saw", path)
	require.Len(t, a.finish(t), 20)
	require.Len(t, b.finish(t), 20)
	db := must(ctxpage.Open(path, ctxpage.Options{}))(t)
	defer db.Close()
	state := must(db.Scope("acme").Directives().State(ctx))(t)
	said := strings.Join(state.Own.State.Items(), " ")
	for n := range 20 {
		require.Contains(t, said, fmt.Sprint("hammer", n))
		require.Contains(t, said, fmt.Sprint("saw", n))
	}
}

// Two processes write 150 turns each into one session, at once: all 300 are there, those of each in its order.
func TestTurnsOfTwoProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	path := dbtest.MemoryPath(t)
	a, b := start(t, "turns", "ann", path), start(t, "turns", "bob", path)
	said := map[string][]string{"ann": a.finish(t), "bob": b.finish(t)}
	db := must(ctxpage.Open(path, ctxpage.Options{}))(t)
	defer db.Close()
	there := map[string][]string{}
	for v, err := range db.Scope("acme").Session("chat").Turns(ctx, 0) {
		require.NoError(t, err)
		who, _, _ := strings.Cut(v.ID, "-")
		there[who] = append(there[who], v.ID)
	}
	require.Len(t, there["ann"], 150)
	require.Len(t, there["bob"], 150)
	require.Equal(t, said, there)
}

// An owner that is stopped is named within 2 s, by whoever opens and by whoever is a client, and loses nothing: when it
// goes on, so do they.
func TestStoppedOwner(t *testing.T) {
	dbtest.NeedsPosix(t, "a signal that stops a process")
	if testing.Short() {
		t.Skip("takes seconds")
	}
	path := dbtest.MemoryPath(t)
	a := start(t, "idle", "a", path).ready(t)
	client := must(ctxpage.Open(path, ctxpage.Options{}))(t)
	defer client.Close()
	must(client.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "x", Text: "before"}))(t)
	require.NoError(t, dbtest.Pause(a.Process))
	require.Eventually(t, func() bool { return stopped(t, a.Process.Pid) }, time.Minute, time.Millisecond)
	stalls := dbtest.WatchStalls(t)
	for name, call := range map[string]func() error{
		"open": func() error { _, err := ctxpage.Open(path, ctxpage.Options{}); return err },
		"get":  func() error { _, err := client.Scope("acme").Get(ctx, "x"); return err },
	} {
		begun := time.Now()
		err := call()
		took, worked := time.Since(begun), stalls.Since(begun)
		require.ErrorIs(t, err, store.ErrLocked, name)
		require.ErrorContains(t, err, fmt.Sprintf("held by pid %d (", a.Process.Pid), name)
		require.ErrorContains(t, err, "since", name)
		require.ErrorContains(t, err, "not answering", name)
		t.Logf("%s: %v after %v", name, err, took)
		require.GreaterOrEqual(t, took, 1900*time.Millisecond, name)
		require.Less(t, worked, 3900*time.Millisecond, name) // a server that is asked twice takes 4 s; TestSilentServerTime of package remote has the exact bound
	}
	require.NoError(t, dbtest.Resume(a.Process))
	must(client.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "x", Text: "after"}))(t)
	require.NoError(t, a.in.Close())
	a.finish(t)
	v := must(client.Scope("acme").Get(ctx, "x"))(t)
	require.Equal(t, "after", v.Text)
}

// stopped tells that every thread of a process stands still: a signal takes its time, in which it still answers.
func stopped(t *testing.T, pid int) bool {
	threads := must(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)))(t)
	for _, path := range threads {
		b := must(os.ReadFile(path))(t)
		_, rest, _ := strings.Cut(string(b), ") ")
		if !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return true // where there is no /proc, nothing can be seen
}

// A transaction that a client began before its owner was killed is committed after.
func TestTransactionAcrossKill(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes")
	}
	path := dbtest.MemoryPath(t)
	a := start(t, "idle", "a", path).ready(t)
	client := must(ctxpage.Open(path, ctxpage.Options{}))(t)
	defer client.Close()
	s := client.Scope("acme")
	must(s.Put(ctx, ctxpage.Artefact{ID: "policy", Text: "The zebra limit is 400."}))(t)
	shown := must(s.Assemble(ctx, ctxpage.Query{Text: "what is the zebra limit?", Budget: 1000}))(t)
	tx := must(s.Resume(ctx, shown.Trace))(t)
	require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: "answer", Text: "It is 400."}))
	require.NoError(t, a.Process.Kill())
	_, _ = a.Process.Wait()
	require.NoError(t, tx.Commit(ctx, ctxpage.Verdict{Confidence: .9, By: "checker"}))
	v := must(s.Get(ctx, "answer"))(t)
	require.Equal(t, "It is 400.", v.Text)
	require.Equal(t, os.Getpid(), holder(path))
}
