package eraseplan_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// childEnv makes the test binary the process that erases, and is killed.
const childEnv = "CTXPAGE_TEST_ERASER"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		dbtest.Main(m)
	}
	run := map[string]func([]string) error{"1": eraser, "client": client}[os.Getenv(childEnv)]
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// What a process does to a scope.
const (
	erases   = "content"
	names    = "names"  // erases it with its names
	seals    = "sealed" // erases it from an encrypted database
	unnames  = "sealed names"
	turns    = "turn" // erases one turn of its session from an encrypted database
	compacts = "compact"
)

// eraser is told a path, at which step to stop for its end ("": nowhere), the scope to erase ("": it only opens the database,
// which finishes what another one began), and what to do to it. It says each step that it comes to.
func eraser(args []string) error {
	path, stop, scope, mode := args[0], args[1], args[2], args[3]
	seen := map[string]int{}
	hook := func(step string) error {
		seen[step]++
		at := fmt.Sprintf("%s %d", step, seen[step])
		fmt.Println(at)
		if at == stop {
			dbtest.UntilKilled()
		}
		return nil
	}
	db, err := openFiles(path, nil, keyOf(mode), hook)
	if err != nil {
		return err
	}
	if scope != "" {
		clear(seen)
		switch mode {
		case compacts:
			_, err = db.Admin().Compact(ctx, false, nil)
		case turns:
			_, err = db.Admin().Erase(ctx, turnRequest(scope))
		default:
			_, err = db.Admin().Erase(ctx, (&garden{scope: scope, names: mode == names || mode == unnames}).request())
		}
		if err != nil {
			return err
		}
	}
	if fmt.Println("done"); stop == "done" {
		dbtest.UntilKilled()
	}
	return db.Close()
}

// life runs an eraser until it stops at a step, or for a time (0: to its end), and kills it. It gives the steps.
func life(path, stop, scope, mode string, after time.Duration) (steps []string, err error) {
	cmd := exec.Command(os.Args[0], path, stop, scope, mode)
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"=1"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	patience := wait
	if after > 0 {
		patience = after
	}
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if steps = append(steps, lines.Text()); lines.Text() == stop {
			_ = cmd.Process.Kill()
		}
	}
	end := cmd.Wait()
	switch killed := end != nil && strings.Contains(end.Error(), "killed"); {
	case stop != "" && !killed:
		return steps, fmt.Errorf("it never came to %q: %w", stop, end)
	case stop == "" && after == 0 && end != nil:
		return steps, end
	}
	return steps, nil
}

func (g *garden) mode() string {
	switch {
	case g.names && g.key != nil:
		return unnames
	case g.names:
		return names
	case g.key != nil:
		return seals
	}
	return erases
}

// finish is the mode of a process that only opens the database.
func (g *garden) finish() string {
	if g.key != nil {
		return seals
	}
	return erases
}

// hits counts the needles in the files of a database; of an encrypted one those in the rows that its keyring opens.
func (g *garden) hits(path string) (n int, err error) {
	if g.key == nil {
		return hits(filepath.Dir(path))
	}
	in, err := opened(path, path+".keys")
	for _, k := range in {
		n += k
	}
	return n, err
}

func (g *garden) none(path string) error {
	n, err := g.hits(path)
	if n > 0 {
		err = fmt.Errorf("%d needles in %s", n, path)
	}
	return err
}

// planted makes a database to be erased, once; the tests work on copies of it.
func (g *garden) database(t *testing.T) (path string, heads []manifest.Head) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "agent.ctx")
	db := must(openFiles(path, g, g.key, nil))(t)
	require.NoError(t, g.plant(db))
	for range 2 {
		h := must(db.Head(ctx))(t)
		heads = append(heads, h)
		must(db.Admin().Checkpoint(ctx))(t)
	}
	require.NoError(t, db.Close())
	return path, heads
}

func copyOf(t *testing.T, path string) string {
	t.Helper()
	to := filepath.Join(filepath.Dir(dbtest.MemoryPath(t)), "copy", "agent.ctx")
	require.NoError(t, os.Mkdir(filepath.Dir(to), 0o700))
	require.NoError(t, dbtest.Copy(path, to))
	columns, err := os.ReadFile(path + ".columns")
	if errors.Is(err, os.ErrNotExist) { // of an encrypted one
		return to
	}
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to+".columns", columns, 0o600))
	return to
}

// clean opens a database as the next process would, and looks at all of it: no needle, what is bob's, the heads of before. It
// gives how many needles there were before.
func (g *garden) clean(path string, heads []manifest.Head) (before int, err error) {
	if before, err = g.hits(path); err != nil {
		return before, err
	}
	db, err := openFiles(path, nil, g.key, nil)
	if err != nil {
		return before, err
	}
	if g.key == nil {
		err = g.none(path)
	}
	return before, errors.Join(err, g.whole(db, heads), db.Close(), g.none(path))
}

func none(dir string) error {
	n, err := hits(dir)
	if n > 0 {
		err = fmt.Errorf("%d needles in %s", n, dir)
	}
	return err
}

// whole looks at what must be there after an erase.
func (g *garden) whole(db *ctxpage.DB, heads []manifest.Head) error {
	s := &state{heads: heads}
	if err := s.proved(db); err != nil {
		return err
	}
	for i := range pans {
		v, err := db.Scope("acme/bob").Get(ctx, fmt.Sprint("pan-", i))
		if err != nil || v.Text != fmt.Sprintf("kettle and pan %d", i) {
			return fmt.Errorf("bob's page %d: %w", i, err)
		}
	}
	if r, err := db.Replay(ctx, g.bobs); err != nil || !r.Same {
		return fmt.Errorf("bob's context: %w", err)
	}
	if _, err := db.Replay(ctx, g.shown); !errors.Is(err, store.ErrGone) || !strings.Contains(err.Error(), "by desk") {
		return fmt.Errorf("ann's context: %w", err)
	}
	problems, err := db.Admin().Check(ctx, nil)
	if len(problems) > 0 {
		err = fmt.Errorf("check: %+v", problems)
	}
	return err
}

// TestKilledErase kills a process that erases, at each of its steps and at random moments, and one that finishes the erase of
// another. After the next open no file has any of 1,000 needles. The control: before it, files have them. Of an encrypted
// database no row that the keyring opens has any; TestKilledSealedErase looks at its backups.
func TestKilledErase(t *testing.T) {
	for _, mode := range []string{erases, names, seals, unnames} {
		if keyOf(mode) != nil && !dbtest.Long {
			continue
		}
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			g := &garden{needles: &needles{}, names: mode == names || mode == unnames, key: keyOf(mode)}
			base, heads := g.database(t)
			require.Greater(t, g.n, 1000)
			n := must(g.hits(base))(t)
			require.Greater(t, n, 500, "control: they are there")
			path := copyOf(t, base)
			began := time.Now()
			steps, err := life(path, "", g.scope, g.mode(), 0)
			took := time.Since(began)
			require.NoError(t, err)
			require.NoError(t, g.none(path))
			g.killedAt(t, base, heads, steps)
			g.killedAnyTime(t, base, heads, took)
		})
	}
}

// killedAt kills at each step: the first time of each, in the long form at all of them, and then once more in the open that
// finishes it.
func (g *garden) killedAt(t *testing.T, base string, heads []manifest.Head, steps []string) {
	left := map[string]int{}
	for i, step := range steps[:len(steps)-1] {
		if strings.HasPrefix(step, "opened") || !dbtest.Long && !strings.HasSuffix(step, " 1") {
			continue
		}
		path := copyOf(t, base)
		_, err := life(path, step, g.scope, g.mode(), 0)
		require.NoError(t, err)
		left[step] = must(g.hits(path))(t)
		if dbtest.Long || i%3 == 0 { // the next process is killed, too: while it finishes, if it comes so far
			_, err = life(path, "compact synced 1", "", g.finish(), wait/10)
			if err != nil {
				require.ErrorContains(t, err, "it never came to", step)
			}
		}
		require.NoError(t, errOf(g.clean(path, heads)), step)
		require.NoError(t, os.RemoveAll(filepath.Dir(path)))
	}
	t.Logf("needles left by a kill: %v", left)
	require.NotZero(t, left["erase committed 1"], "control: without the rest of the erase the files have them")
	if g.key == nil { // free pages of an encrypted file nobody opens
		require.NotZero(t, left["erase cut 1"], "control: without the compaction the file has them")
	}
	require.Contains(t, left, "compact renamed 1")
	require.Contains(t, left, "erase purged 1")
	if g.names {
		require.Contains(t, left, "prune vouched 1")
	}
}

// killedAnyTime kills at random moments. Before the first commit of the erase nothing is erased; then it must be asked for again.
func (g *garden) killedAnyTime(t *testing.T, base string, heads []manifest.Head, took time.Duration) {
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for range dbtest.Times(2, 5, 60) {
		path, after := copyOf(t, base), time.Duration(rng.Int64N(int64(took)))
		steps := must(life(path, "", g.scope, g.mode(), after))(t)
		if rng.IntN(2) == 0 { // the next process is killed, too
			more := must(life(path, "", "", g.finish(), time.Duration(1+rng.Int64N(int64(took)))))(t)
			steps = append(steps, more...)
		}
		db := must(openFiles(path, nil, g.key, nil))(t)
		_, err := db.Admin().Erase(ctx, g.request())
		if err != nil {
			require.ErrorIs(t, err, store.ErrNotFound)
		}
		require.NoError(t, db.Close())
		require.NoError(t, errOf(g.clean(path, heads)), "killed after %v, at %v", after, steps)
		require.NoError(t, os.RemoveAll(filepath.Dir(path)))
	}
}

// TestSalvageAfterErase: of an erased database that is damaged then, and of one that was killed on the way, a salvage brings
// nothing back. The control: of one that was not erased it brings needles back.
func TestSalvageAfterErase(t *testing.T) {
	for _, mode := range []string{erases, seals} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			g := &garden{needles: &needles{}, key: keyOf(mode)}
			base, _ := g.database(t)
			_, n := g.salvaged(t, base)
			require.NotZero(t, n, "control")
			rng := rand.New(rand.NewPCG(3, 5))
			for i, step := range append([]string{"erase committed 1", "erase cut 1", "compact copied 1", "compact renamed 1"}, make([]string, dbtest.Times(2, 8, 80))...) {
				path := copyOf(t, base)
				must(life(path, step, g.scope, g.mode(), 0))(t)
				if step == "" {
					spoil(t, path, rng, 1+i%4)
				}
				rep, n := g.salvaged(t, path)
				require.Zero(t, n, "%s %d", step, i)
				if step != "" {
					require.Equal(t, pans, rep.Artefacts, step)
				}
				require.NoError(t, os.RemoveAll(filepath.Dir(path)))
			}
		})
	}
}

// spoil damages pages of a file, of 4 KiB.
func spoil(t *testing.T, path string, rng *rand.Rand, pages int) {
	t.Helper()
	b := must(os.ReadFile(path))(t)
	for range pages {
		at := rng.IntN(len(b)/4096) * 4096
		for j := range 64 {
			b[at+rng.IntN(4096)] ^= byte(1 + j)
		}
	}
	require.NoError(t, os.WriteFile(path, b, 0o600))
}

// salvaged salvages a database and counts the needles in the copy. What cannot be salvaged has none.
func (g *garden) salvaged(t *testing.T, path string) (rep filestore.Salvaged, n int) {
	t.Helper()
	to := filepath.Join(filepath.Dir(dbtest.MemoryPath(t)), "saved", "agent.ctx")
	require.NoError(t, os.Mkdir(filepath.Dir(to), 0o700))
	rep, failed := filestore.Salvage(ctx, path, to, filestore.SalvageOptions{State: ctxpage.StateKinds(), Key: g.key})
	if _, err := os.Stat(to); err == nil && g.key != nil { // all of it into rows
		db := must(openFiles(to, nil, g.key, nil))(t)
		must(db.Admin().Checkpoint(ctx))(t)
		require.NoError(t, db.Close())
	}
	n, err := g.hits(to)
	if failed == nil || g.key == nil {
		require.NoError(t, err)
	}
	require.NoError(t, os.RemoveAll(filepath.Dir(to)))
	return rep, n
}

// talks is an encrypted database with a conversation in each of two scopes. One turn of ann's is to be erased: its rows and the
// notes go, the row of the pass is written anew without its keyword. All other rows stay.
type talks struct {
	gone, stay []string // words
}

func turnRequest(scope string) ops.Request {
	return ops.Request{Refs: []store.Ref{{Scope: scope, ID: "turn-1"}}, By: "desk", Reason: "asked for"}
}

func (w *talks) plant(t *testing.T) (path, backup string) {
	t.Helper()
	n := &needles{}
	path, backup = filepath.Join(t.TempDir(), "agent.ctx"), filepath.Join(t.TempDir(), "backup.ctx")
	db := must(openFiles(path, nil, keyOf(turns), nil))(t)
	for _, scope := range []string{"acme/ann", "acme/bob"} {
		own := func(goes bool) string {
			word := n.next()
			if goes && scope == "acme/ann" {
				w.gone = append(w.gone, word)
			} else {
				w.stay = append(w.stay, word)
			}
			return word
		}
		talk := db.Scope(scope).Session("talk")
		for i := range 4 {
			must(talk.Append(ctx, ctxpage.Turn{ID: fmt.Sprint("turn-", i), Role: "user", Text: "kettle " + own(i == 1)}))(t)
		}
		require.NoError(t, talk.Record(ctx, session.Notes{Text: own(true)}))
		must(talk.Pass(ctx, session.PassQuery{Keywords: []string{own(true)}}))(t)
	}
	must(db.Admin().Backup(ctx, backup, nil))(t)
	require.NoError(t, db.Close())
	return path, backup
}

// opens says which words the rows of a file have that a keyring opens.
func opens(t *testing.T, path, keyring string) (words []string) {
	t.Helper()
	require.NoError(t, eachOpened(path, keyring, func(_ string, in []string) error {
		words = append(words, in...)
		return nil
	}))
	slices.Sort(words)
	return slices.Compact(words)
}

// whole looks at what must be there after the erase.
func (w *talks) whole(t *testing.T, db *ctxpage.DB, step string) {
	t.Helper()
	for scope, want := range map[string][]string{"acme/ann": {"turn-0", "turn-2", "turn-3"}, "acme/bob": {"turn-0", "turn-1", "turn-2", "turn-3"}} {
		talk, ids := db.Scope(scope).Session("talk"), []string{}
		list, err := loop.Collect(talk.Turns(ctx, 0, ctxpage.AtMost(10, "", nil)))
		require.NoError(t, err, "%s %s", step, scope)
		for _, v := range list {
			ids = append(ids, v.ID)
		}
		require.Equal(t, want, ids, "%s %s", step, scope)
		passes, err := talk.Passes(ctx)
		require.NoError(t, err, "%s %s", step, scope)
		require.Len(t, passes, 1, "%s %s", step, scope)
		in, err := talk.Inspect(ctx)
		require.NoError(t, err, "%s %s", step, scope)
		require.Equal(t, scope == "acme/bob", in.Notes.Text != "", "%s %s", step, scope)
	}
	problems, err := db.Admin().Check(ctx, nil)
	require.NoError(t, err, step)
	require.Empty(t, problems, step)
}

// TestKilledWhileStateKeysGo kills a process at each step of an erase that deletes state rows and writes one anew, in a database
// and in a restored backup, whose rows are under keys of their own already. After the next open the keyring opens nothing of
// what went, neither in the files nor in the backup, and everything else in both; a new backup has the row that was written anew.
// The control: before its keyring changes, a killed process leaves rows of the backup that open.
func TestKilledWhileStateKeysGo(t *testing.T) {
	t.Parallel()
	w := &talks{}
	first, backup := w.plant(t)
	restored := filepath.Join(t.TempDir(), "agent.ctx")
	require.NoError(t, dbtest.Copy(first, filepath.Join(filepath.Dir(backup), "ring.ctx")))
	require.NoError(t, os.Rename(filepath.Join(filepath.Dir(backup), "ring.ctx.keys"), backup+".keys"))
	must(filestore.Restore(ctx, backup, restored, filestore.RestoreOptions{Key: keyOf(turns)}))(t)
	for name, base := range map[string]string{"made": first, "restored": restored} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps := must(life(copySealed(t, base), "", "acme/ann", turns, 0))(t)
			was := map[string]int{}
			for i, step := range steps[:len(steps)-1] {
				if strings.HasPrefix(step, "opened") || !dbtest.Long && !strings.HasSuffix(step, " 1") {
					continue
				}
				path := copySealed(t, base)
				_, err := life(path, step, "acme/ann", turns, 0)
				require.NoError(t, err)
				for _, word := range opens(t, backup, path+".keys") {
					if slices.Contains(w.gone, word) {
						was[step]++
					}
				}
				if dbtest.Long || i%3 == 0 {
					if _, err = life(path, "keyring renamed 1", "", turns, wait/10); err != nil {
						require.ErrorContains(t, err, "it never came to", step)
					}
				}
				w.after(t, path, backup, step)
				require.NoError(t, os.RemoveAll(filepath.Dir(path)))
			}
			t.Logf("words of the backup that the keyring opens after a kill: %v", was)
			require.Equal(t, len(w.gone), was["keys planned 1"], "control")
			require.Contains(t, was, "keyring written 1")
			require.Zero(t, was["keys destroyed 1"])
		})
	}
}

// after opens a database as the next process would.
func (w *talks) after(t *testing.T, path, backup, step string) {
	t.Helper()
	db, err := openFiles(path, nil, keyOf(turns), nil)
	require.NoError(t, err, step)
	w.whole(t, db, step)
	later := filepath.Join(filepath.Dir(path), "later.ctx")
	require.NoError(t, errOf(db.Admin().Backup(ctx, later, nil)), step)
	require.NoError(t, db.Close())
	for _, file := range []string{path, backup, later} {
		require.Equal(t, w.stay, opens(t, file, path+".keys"), "%s: %s", step, file)
	}
	to := filepath.Join(filepath.Dir(path), "again.ctx")
	ring := must(os.ReadFile(path + ".keys"))(t)
	require.NoError(t, os.WriteFile(later+".keys", ring, 0o600))
	require.NoError(t, errOf(filestore.Restore(ctx, later, to, filestore.RestoreOptions{Key: keyOf(turns)})), step)
	if db, err = openFiles(to, nil, keyOf(turns), nil); err == nil {
		w.whole(t, db, step)
		err = db.Close()
	}
	require.NoError(t, err, step)
}
