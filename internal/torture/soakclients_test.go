//go:build linux

package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

// Eight processes do mixed work on one database while its owner is killed now and then, and say how many goroutines and
// file descriptors they have. A count is compared within a spell: the time in which a process was the owner, or was not.
// A spell begins when the process has settled; a count that grows from the first third of a long spell to its last is a leak.
// At the end every process has gone, with what it started, and the directory has the files of a database.
var (
	soakFor  = flag.Duration("clients.for", 12*time.Second, "how long TestSoakClients works")
	soakKill = flag.Duration("clients.kill", 4*time.Second, "how long an owner lives there")
)

const (
	soakEnv     = "CTXPAGE_TORTURE_SOAK" // path, name, seed, what it leaks, when it is read-only
	soakClients = 8
	soakEach    = 500 * time.Millisecond // between two counts
	soakSlack   = 6                      // connections and their goroutines come and go
)

// actAsSoaker works until its input ends.
func actAsSoaker(args string) error {
	f := strings.Split(args, "\n")
	path, name, leaks := f[0], f[1], f[3]
	seed, err := strconv.ParseUint(f[2], 10, 64)
	if err != nil {
		return err
	}
	end := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(end) }()
	opts := ctxpage.Options{ReadOnly: f[4] == "reads"}
	db, err := ctxpage.Open(path, opts)
	for begun := time.Now(); errors.Is(err, store.ErrLocked) && time.Since(begun) < time.Minute; {
		db, err = ctxpage.Open(path, opts)
	}
	if err != nil {
		return err
	}
	var said sync.Mutex
	say := func(format string, args ...any) { said.Lock(); defer said.Unlock(); fmt.Printf(format+"\n", args...) }
	say("open")
	go func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(soakEach):
				fds, _ := os.ReadDir("/proc/self/fd")
				say("count %d %d", runtime.NumGoroutine(), len(fds))
			}
		}
	}()
	rnd := rand.New(rand.NewPCG(seed, 0))
	var kept []*os.File // what leaks stays reachable: a finalizer would close it
	for n := 0; ; n++ {
		select {
		case <-end:
			runtime.KeepAlive(kept)
			return db.Close()
		case <-time.After(time.Duration(rnd.IntN(30)) * time.Millisecond):
		}
		err := soakStep(db, rnd.IntN(8), name, n, opts.ReadOnly, say)
		if err != nil && !errors.Is(err, store.ErrOutcomeUnknown) && !errors.Is(err, store.ErrLocked) && !errors.Is(err, store.ErrConflict) {
			return fmt.Errorf("%s: %w", name, err)
		}
		switch leaks {
		case "goroutine":
			go func() { select {} }()
		case "fd":
			file, err := os.Open(os.DevNull)
			if err != nil {
				return err
			}
			kept = append(kept, file)
		case "file":
			_ = os.WriteFile(path+".left", nil, 0o600)
		case "process":
			if n == 0 {
				if err := exec.Command("sleep", "600").Start(); err != nil {
					return err
				}
			}
		}
	}
}

// soakStep is one piece of work.
func soakStep(db *ctxpage.DB, what int, name string, n int, reads bool, say func(string, ...any)) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := db.Scope("acme/" + name)
	if reads {
		what %= 3
	}
	var err error
	switch what {
	case 0:
		if _, err = s.Get(ctx, fmt.Sprint("page-", n/2)); errors.Is(err, store.ErrNotFound) {
			err = nil
		}
	case 1:
		_, err = s.Search(ctx, "zebra stripes", 10)
	case 2:
		_, err = s.Assemble(ctx, ctxpage.Query{Text: fmt.Sprint("zebra ", n), Budget: 2000})
	case 3:
		_, err = s.Session("chat").Append(ctx, ctxpage.Turn{Role: "user", Text: fmt.Sprint("what of zebra ", n, "?")})
	case 4:
		_, err = s.Directives().Step(ctx, fmt.Sprint("use hammer", n%20))
	case 5:
		var a *ctxpage.Assembly
		var tx *ctxpage.Txn
		if a, err = s.Assemble(ctx, ctxpage.Query{Text: "stripes", Budget: 1000}); err != nil {
			return err
		}
		if tx, err = s.Resume(ctx, a.Trace); err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err = tx.Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("answer-", n%50), Text: fmt.Sprint("zebra answer ", n)}); err == nil {
			err = tx.Commit(ctx, ctxpage.Verdict{Confidence: .9, By: "checker"})
		}
	default:
		if _, err = s.Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("page-", n), Text: fmt.Sprintf("zebra %d of %s has stripes", n, name)}); err == nil {
			say("acked page-%d", n)
		}
	}
	return err
}

// soaker is a process and what it said.
type soaker struct {
	*exec.Cmd
	name string
	in   io.Closer
	open chan struct{}
	done chan struct{}

	mu     sync.Mutex
	acked  []string
	counts []soakCount
}

type soakCount struct {
	at              time.Time
	goroutines, fds int
	owner           bool
}

// soak is a run.
type soak struct {
	path, mark string
	live       []*soaker
	all        []*soaker
	problems   []string
	kills      int
}

func (k *soak) start(t *testing.T, leaks, how string) {
	t.Helper()
	n := len(k.all)
	s := &soaker{Cmd: exec.Command(os.Args[0]), name: fmt.Sprint("agent-", n), open: make(chan struct{}), done: make(chan struct{})}
	s.Env = append(os.Environ(), fmt.Sprintf("%s=%s\n%s\n%d\n%s\n%s", soakEnv, k.path, s.name, n, leaks, how), k.mark+"=1")
	s.Stderr = os.Stderr
	out, err := s.StdoutPipe()
	if err == nil {
		s.in, err = s.StdinPipe()
	}
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Process.Kill(); _ = s.Wait() })
	k.live, k.all = append(k.live, s), append(k.all, s)
	go func() {
		defer close(s.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			f := strings.Fields(lines.Text())
			s.mu.Lock()
			switch f[0] {
			case "open":
				close(s.open)
			case "acked":
				s.acked = append(s.acked, f[1])
			case "count":
				c := soakCount{at: time.Now(), owner: soakOwner(k.path) == s.Process.Pid}
				c.goroutines, _ = strconv.Atoi(f[1])
				c.fds, _ = strconv.Atoi(f[2])
				s.counts = append(s.counts, c)
			}
			s.mu.Unlock()
		}
	}()
	select {
	case <-s.open:
	case <-s.done:
		t.Fatalf("%s ended before it had opened the database", s.name)
	}
}

// soakOwner is the process that the lock file names.
func soakOwner(path string) int {
	b, err := os.ReadFile(path + ".lock")
	var h struct{ PID int }
	if err != nil || json.Unmarshal(b, &h) != nil {
		return 0
	}
	return h.PID
}

// work lets the clients work, and kills owners. On a slow machine it goes on until enough spells can be judged.
func (k *soak) work(t *testing.T, leaks string, length, kill, settle, least time.Duration) {
	t.Helper()
	k.start(t, leaks, "")
	k.start(t, leaks, "reads") // it never takes the owner's place while others want it, so it lives for the whole run
	for range soakClients - 2 {
		k.start(t, leaks, "")
	}
	for end, next := time.Now().Add(length), time.Now().Add(kill); time.Now().Before(end) || k.spells(settle, least) < soakClients/2 && time.Now().Before(end.Add(time.Minute)); time.Sleep(50 * time.Millisecond) {
		for _, s := range k.live {
			select {
			case <-s.done:
				t.Fatalf("%s ended: %v", s.name, s.Wait())
			default:
			}
		}
		pid := soakOwner(k.path)
		i := slices.IndexFunc(k.live, func(s *soaker) bool { return s.Process.Pid == pid })
		if time.Now().Before(next) || i < 0 {
			continue
		}
		victim := k.live[i]
		_ = victim.Process.Kill()
		<-victim.done
		_ = victim.Wait()
		k.live = slices.Delete(k.live, i, i+1)
		k.start(t, leaks, "")
		k.kills, next = k.kills+1, time.Now().Add(kill)
	}
}

// finish ends the clients and looks at what is left.
func (k *soak) finish(t *testing.T, settle, least time.Duration) {
	t.Helper()
	for _, s := range k.live {
		_ = s.in.Close()
	}
	for _, s := range k.live {
		select {
		case <-s.done:
			if err := s.Wait(); err != nil {
				k.problems = append(k.problems, fmt.Sprintf("%s ended with %v", s.name, err))
			}
		case <-time.After(time.Minute):
			k.problems = append(k.problems, s.name+" did not end when it was told to")
			_ = s.Process.Kill()
		}
	}
	k.judgeProcesses()
	k.judgeFiles(t)
	for _, s := range k.all {
		for _, spell := range s.spells(settle, least) {
			k.judgeCounts(t, s, spell)
		}
	}
	spells := k.spells(settle, least)
	if spells < soakClients/2 {
		k.problems = append(k.problems, fmt.Sprintf("only %d spells were long enough to be judged", spells))
	}
	k.judgePages(t)
	t.Logf("%d processes, %d owners killed, %d spells judged", len(k.all), k.kills, spells)
}

// judgeProcesses finds what a client started and left: it inherited the mark.
func (k *soak) judgeProcesses() {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !strings.Contains("\x00"+string(env), "\x00"+k.mark+"=1\x00") {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		k.problems = append(k.problems, fmt.Sprintf("process %d was left", pid))
		_ = syscall.Kill(pid, syscall.SIGKILL) // it has the mark of this run
	}
}

// judgeFiles knows the files of a closed database.
func (k *soak) judgeFiles(t *testing.T) {
	t.Helper()
	files, err := os.ReadDir(filepath.Dir(k.path))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		switch strings.TrimPrefix(f.Name(), filepath.Base(k.path)) {
		case "", "-wal", "-manifest", ".lock", ".columns": // the last from 4,096 versions on
		default:
			k.problems = append(k.problems, "file "+f.Name()+" was left")
		}
	}
}

// spells is how many spells of all processes can be judged.
func (k *soak) spells(settle, least time.Duration) (n int) {
	for _, s := range k.all {
		n += len(s.spells(settle, least))
	}
	return n
}

// spells are the long spells of a process, once it has settled.
func (s *soaker) spells(settle, least time.Duration) (long [][]soakCount) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for from := 0; from < len(s.counts); {
		to := from
		for to < len(s.counts) && s.counts[to].owner == s.counts[from].owner {
			to++
		}
		spell := s.counts[from:to]
		from = to
		spell = spell[min(len(spell), int(settle/soakEach)):]
		if time.Duration(len(spell))*soakEach >= least {
			long = append(long, slices.Clone(spell))
		}
	}
	return long
}

// judgeCounts compares the counts of a process at the begin and at the end of a spell.
func (k *soak) judgeCounts(t *testing.T, s *soaker, spell []soakCount) {
	t.Helper()
	for what, of := range map[string]func(soakCount) int{
		"goroutines": func(c soakCount) int { return c.goroutines }, "file descriptors": func(c soakCount) int { return c.fds },
	} {
		first, last := soakMedian(spell[:len(spell)/3], of), soakMedian(spell[len(spell)*2/3:], of)
		t.Logf("%s, owner %v: %d %s at first, %d at last, %v later", s.name, spell[0].owner, first, what, last, time.Duration(len(spell))*soakEach)
		if last > first+soakSlack {
			k.problems = append(k.problems, fmt.Sprintf("%s: %s grew from %d to %d in %v", s.name, what, first, last, time.Duration(len(spell))*soakEach))
		}
	}
}

func soakMedian(counts []soakCount, of func(soakCount) int) int {
	var all []int
	for _, c := range counts {
		all = append(all, of(c))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// judgePages looks for what was acknowledged, and checks the files.
func (k *soak) judgePages(t *testing.T) {
	t.Helper()
	db, err := ctxpage.Open(k.path, ctxpage.Options{Exclusive: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	acked := 0
	for _, s := range k.all {
		for _, id := range s.acked {
			acked++
			if _, err := db.Scope("acme/"+s.name).Get(context.Background(), id); err != nil {
				k.problems = append(k.problems, fmt.Sprintf("%s of %s was acknowledged: %v", id, s.name, err))
			}
		}
	}
	found, err := db.Admin().Check(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range found {
		k.problems = append(k.problems, fmt.Sprint(p))
	}
	if acked < 10*soakClients {
		k.problems = append(k.problems, fmt.Sprintf("only %d writes were acknowledged", acked))
	}
	t.Logf("%d writes acknowledged", acked)
}

func soaked(t *testing.T, leaks string, length, kill, settle, least time.Duration) []string {
	t.Helper()
	k := &soak{path: filepath.Join(t.TempDir(), "agent.ctx"), mark: fmt.Sprintf("CTXPAGE_SOAK_%d_%d", os.Getpid(), time.Now().UnixNano())}
	k.work(t, leaks, length, kill, settle, least)
	k.finish(t, settle, least)
	return k.problems
}

// Nothing that clients take grows with the time they work, and nothing is left when they end.
func TestSoakClients(t *testing.T) {
	settle, least := min(time.Minute, *soakFor/6), min(2*time.Minute, *soakFor/4)
	for _, problem := range soaked(t, "", *soakFor, *soakKill, settle, least) {
		t.Error(problem)
	}
}

// The control: clients that leak on purpose are told, each kind by its name.
func TestSoakClientsTells(t *testing.T) {
	for leaks, told := range map[string]string{"goroutine": "goroutines grew", "fd": "file descriptors grew", "file": ".left was left", "process": "process "} {
		t.Run(leaks, func(t *testing.T) {
			t.Parallel()
			problems := soaked(t, leaks, 7*time.Second, time.Hour, time.Second, 3*time.Second)
			if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, told) }) {
				t.Errorf("nobody told of %q: %q", told, problems)
			}
		})
	}
}
