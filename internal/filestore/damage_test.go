package filestore_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

var (
	damageTimes = flag.Int("damage.times", dbtest.Times(30, 120, 240), "how many databases TestDamage damages")
	damageSeed  = flag.Uint64("damage.seed", 1, "the first seed")
)

const segmentHeader = 80 // synced before the segment has its name: no crash damages it

// everything is what a database answers, by question.
type everything map[string]string

// ask asks a database all there is to ask. An answer that is damage is left out and counted; any other error is one.
func ask(db *DB) (ans everything, damaged int, err error) {
	ans = everything{}
	put := func(question string, answer any, aerr error) {
		switch {
		case errors.Is(aerr, store.ErrCorrupt):
			damaged++
		case aerr != nil:
			ans[question] = aerr.Error()
		default:
			ans[question] = fmt.Sprintf("%+v", answer)
		}
	}
	for _, scope := range []string{"acme", "acme/east", "acme/west"} {
		s := db.Scope(scope)
		for n := range damagePages {
			id := fmt.Sprint("page-", n)
			v, err := s.Get(ctx, id)
			put("get "+scope+" "+id, versionText(v), err)
			if n%4 == 0 {
				hist, err := loop.Collect(s.Versions(ctx, id))
				put("history "+scope+" "+id, heads(hist), err)
				v, err = s.Recall(ctx, Ref{Scope: scope, ID: id, Version: 1})
				put("first "+scope+" "+id, versionText(v), err)
			}
		}
		list, err := loop.Collect(s.Artefacts(ctx, "", AtMost(1000, "", nil)))
		put("list "+scope, heads(list), err)
		hits, err := hitsOf(s.Search(ctx, "refund number 7", 5))
		put("search "+scope, hitTexts(hits), err)
		for _, h := range hits { // a hit is a page of what Get gives
			v, err := s.Recall(ctx, Ref{Scope: h.Ref.Scope, ID: h.Ref.ID})
			if err == nil && !strings.Contains(v.Text, h.Text) {
				put("hit of "+scope, h, nil)
			}
		}
	}
	bulk := db.Scope("acme/bulk")
	for n := range bulkPages / 8 {
		v, err := bulk.Get(ctx, fmt.Sprint("bulk-", n*8))
		put(fmt.Sprint("bulk ", n), versionText(v), err)
	}
	hits, err := hitsOf(bulk.Search(ctx, "shelf 77 parcel", 20))
	put("search bulk", hitTexts(hits), err)
	for _, h := range hits {
		var n int
		if _, err := fmt.Sscanf(h.Ref.ID, "bulk-%d", &n); err != nil || h.Text != bulkText(n) {
			put("hit "+h.Ref.ID, h.Text, err)
		}
	}
	held, err := loop.Collect(db.Review().Batches(ctx, "", true, AtMost(100, "", nil)))
	for i := range held {
		if h, serr := db.Review().Show(ctx, held[i].ID); serr == nil {
			held[i] = *h
		} else {
			err = errors.Join(err, serr)
		}
	}
	put("held", fmt.Sprint(len(held), heldWrites(held)), err)
	roots, err := db.Admin().FileRoots(ctx)
	put("roots", roots, err)
	st, err := db.Stats(ctx)
	put("stats", fmt.Sprint(st.LSN, st.Artefacts, st.Pages, st.PageVersions, st.Scopes, st.Held), err)
	return ans, damaged, nil
}

// misses reports whether a search gave another list than the true one.
func (ans everything) misses(truth everything) bool {
	for q, a := range ans {
		if strings.HasPrefix(q, "search ") && a != truth[q] {
			return true
		}
	}
	return false
}

const (
	damagePages = 24
	bulkPages   = 1100 // enough for a segment of the index
)

func bulkText(n int) string { return fmt.Sprintf("parcel %d lies on shelf %d", n, n%100) }

func versionText(v *Version) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%s %d %v %s", v.Ref, v.Version, v.Provenance, v.Text)
}

func heads(list []*Version) (out []string) {
	for _, v := range list {
		out = append(out, fmt.Sprintf("%s %d %d", v.Ref, v.Version, v.Tokens))
	}
	return out
}

func hitTexts(hits []Hit) (out []string) {
	for _, h := range hits {
		out = append(out, fmt.Sprintf("%s %.6f %s", h.Ref, h.Score, h.Text))
	}
	return out
}

func heldWrites(held []Held) (out []string) {
	for _, h := range held {
		out = append(out, h.Reason, h.Writes[0].ID, h.Writes[0].Text)
	}
	return out
}

// differences names the answers that are not the true ones. A search may find less: what a damaged page of the index hides
// is found by the check, not by a query; but what it finds must be true.
func (truth everything) differences(ans everything) error {
	var errs []error
	for q, a := range ans {
		if a != truth[q] && !strings.HasPrefix(q, "search ") {
			errs = append(errs, fmt.Errorf("%s: expected %.200q, got %.200q", q, truth[q], a))
		}
	}
	return errors.Join(errs...)
}

// makeDamageBase writes a database of all sorts of rows, checkpointed several times, with some commits in the log only,
// as a killed process leaves it.
func makeDamageBase(t *testing.T, path string) {
	live := dbtest.MemoryPath(t)
	db := openTest(t, live, Options{}, filestore.Options{Rotate: 1})
	defer db.Close()
	require.NoError(t, db.Admin().AddFileRoot(ctx, t.TempDir()))
	require.NoError(t, db.Scope("acme/bulk").Update(ctx, func(tx *Txn) error {
		for n := range bulkPages {
			if err := tx.Put(ctx, Artefact{ID: fmt.Sprint("bulk-", n), Kind: store.KindFact, Text: bulkText(n)}); err != nil {
				return err
			}
		}
		return nil
	}))
	for round := range 4 {
		for i, scope := range []string{"acme", "acme/east", "acme/west"} {
			s := db.Scope(scope, WithActor("writer"))
			for n := round; n < damagePages; n += 2 {
				require.NoError(t, errOf(s.Put(ctx, Artefact{
					ID: fmt.Sprint("page-", n), Kind: store.KindFact, Group: fmt.Sprint("group-", n%3), Seq: int64(n),
					Text: strings.Repeat(fmt.Sprintf("The refund number %d of round %d is %d dollars.\n", n, round, n*i), 1+n%3*60),
				})))
			}
			require.NoError(t, s.Delete(ctx, fmt.Sprint("page-", round)))
			tx := must(s.Begin(ctx))(t)
			require.NoError(t, tx.Put(ctx, Artefact{ID: "draft", Text: fmt.Sprint("held in round ", round)}))
			require.ErrorIs(t, tx.Commit(ctx, Verdict{}), store.ErrHeld)
		}
		if round < 3 {
			must(db.Admin().Checkpoint(ctx))(t)
		}
	}
	require.NoError(t, dbtest.Copy(live, path))
	c := copyBolt(path)
	require.NoError(t, os.Truncate(path, int64(len(c.used)))) // it is copied often
}

// harm does one thing to one file of a database, by a seed. It says what it did.
func harm(path string, seed uint64) (string, error) {
	rng := rand.New(rand.NewPCG(seed, 11))
	file := path
	if rng.IntN(3) == 0 {
		var files []string
		for _, dir := range []string{"-wal", "-manifest"} {
			entries, err := os.ReadDir(path + dir)
			if err != nil {
				return "", err
			}
			for _, e := range entries {
				files = append(files, filepath.Join(path+dir, e.Name()))
			}
		}
		file = files[rng.IntN(len(files))]
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	used := max(1, len(bytes.TrimRight(b, "\x00")))
	page := rng.IntN((used + names.PageSize - 1) / names.PageSize)
	bit := byte(1) << rng.IntN(8)
	what := ""
	switch kind := rng.IntN(10); {
	case kind < 5:
		at := rng.IntN(used)
		b[at] ^= bit
		what = fmt.Sprintf("flip %d/%d", at, bit)
	case kind < 7:
		at := min(page*names.PageSize+rng.IntN(64), used-1)
		b[at] ^= bit
		what = fmt.Sprintf("flip %d/%d, in a page's head", at, bit)
	case kind < 9:
		clear(b[page*names.PageSize : min(len(b), (page+1)*names.PageSize)])
		what = fmt.Sprintf("zero page %d", page)
	default:
		b = b[:rng.IntN(used)]
		what = fmt.Sprintf("cut at %d", len(b))
	}
	return filepath.Base(file) + " " + what, os.WriteFile(file, b, 0o600)
}

// damagedChild takes a base, a place for copies, and a range of seeds. For each seed it damages a copy and asks it
// everything; it prints a line before and one after, so that the parent knows which one killed it.
func init() { children["damaged"] = damagedChild }

func damagedChild(args []string) error {
	base, path := args[0], args[1]
	from, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return err
	}
	to, err := strconv.ParseUint(args[3], 10, 64)
	if err != nil {
		return err
	}
	truth, err := truthOf(base, path)
	if err != nil {
		return err
	}
	for seed := from; seed < to; seed++ {
		if err := copyAnew(base, path); err != nil {
			return err
		}
		what, err := harm(path, seed)
		if err != nil {
			return err
		}
		fmt.Printf("seed %d: %s\n", seed, what)
		fmt.Println(judgeDamaged(path, truth, Options{ReadOnly: seed%2 == 0}))
	}
	return nil
}

func truthOf(base, path string) (map[uint64]everything, error) {
	truth := map[uint64]everything{}
	if err := copyAnew(base, path); err != nil {
		return nil, err
	}
	db, err := openOver(path, Options{ReadOnly: true}, filestore.Options{})
	if err != nil {
		return nil, err
	}
	ans, _, err := ask(db)
	truth[storeOf(db).Mark().LSN] = ans
	return truth, errors.Join(err, db.Close())
}

func copyAnew(base, path string) error {
	for _, suffix := range []string{"", "-wal", "-manifest", ".lock"} {
		if err := os.RemoveAll(path + suffix); err != nil {
			return err
		}
	}
	return dbtest.Copy(base, path)
}

// judgeDamaged opens a damaged database and asks it everything: "refused", "told n", "whole", or "WRONG …".
func judgeDamaged(path string, truth map[uint64]everything, opts Options, files ...filestore.Options) string {
	opts.WorkingSet = -1
	low := append(files, filestore.Options{})[0]
	db, err := openOver(path, opts, low)
	if errors.Is(err, store.ErrCorrupt) {
		return "refused"
	}
	if err != nil {
		return "WRONG error of Open: " + err.Error()
	}
	verdict := judgeOpen(db, truth)
	if !opts.ReadOnly && !strings.HasPrefix(verdict, "WRONG") { // writing to what is damaged must not make it answer wrongly
		_, perr := db.Scope("acme/new").Put(context.Background(), Artefact{ID: "new", Text: "written on damage"})
		_, cerr := db.Admin().Checkpoint(context.Background())
		_, kerr := db.Admin().Check(context.Background(), nil)
		if perr != nil || cerr != nil || kerr != nil {
			verdict += " (write refused)"
		}
	}
	if err := db.Close(); err != nil && !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrOutcomeUnknown) {
		return "WRONG error of Close: " + err.Error()
	}
	return verdict
}

func judgeOpen(db *DB, truth map[uint64]everything) string {
	ans, damaged, err := ask(db)
	if err != nil {
		return "WRONG " + err.Error()
	}
	lsn := storeOf(db).Mark().LSN
	want := truth[lsn]
	if want == nil {
		return fmt.Sprintf("shorter: ends at lsn %d", lsn)
	}
	if err := want.differences(ans); err != nil {
		return "WRONG " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if ans.misses(want) {
		problems, err := db.Admin().Check(context.Background(), nil)
		if err == nil && len(problems) == 0 {
			return "WRONG a search finds less, and the check finds nothing"
		}
		return "told"
	}
	if damaged > 0 {
		return "told"
	}
	return "whole"
}

// TestDamage damages the files of a database at random and asks it everything: it answers right, or says that it is
// damaged; it does not die and does not hang.
func TestDamage(t *testing.T) {
	t.Parallel()
	base := dbtest.MemoryPath(t)
	makeDamageBase(t, base)
	const each = 60
	for part := range *damageTimes / each {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			from, trials := *damageSeed+uint64(part*each), each
			if dbtest.Race { // a trial runs on one goroutine, ten times slower
				trials /= 6
			}
			path := dbtest.MemoryPath(t)
			ctx, cancel := context.WithTimeout(context.Background(), each*4*time.Second) // a hang; a trial takes .3 s on an idle machine
			defer cancel()
			out, err := childCommandContext(ctx, "damaged", base, path, fmt.Sprint(from), fmt.Sprint(from+uint64(trials))).Output()
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			require.NoError(t, err, "died or hung at: %s", lines[len(lines)-1])
			require.Len(t, lines, 2*trials)
			count := map[string]int{}
			for i := 0; i < len(lines); i += 2 {
				count[strings.Fields(lines[i+1])[0]]++
				if strings.HasPrefix(lines[i+1], "WRONG") || strings.HasPrefix(lines[i+1], "shorter") && !strings.Contains(lines[i], ".wal") {
					t.Errorf("%s\n  %s", lines[i], lines[i+1])
				}
			}
			t.Log(count)
			require.Greater(t, count["refused"]+count["told"], trials/10, "too little damage was noticed to mean anything")
		})
	}
}

// TestDamageControl: a content with its checksum made right again is told by its digest; as if nobody compared that either,
// it is a wrong answer that the questions of TestDamage see.
func TestDamageControl(t *testing.T) {
	t.Parallel()
	base, path := dbtest.MemoryPath(t), dbtest.MemoryPath(t)
	makeDamageBase(t, base)
	truth := must(truthOf(base, path))(t)
	require.Equal(t, "whole", judgeDamaged(path, truth, Options{ReadOnly: true}))

	edit := func(change func(v []byte) []byte) {
		require.NoError(t, copyAnew(base, path))
		raw := must(bbolt.Open(path, 0o600, nil))(t)
		require.NoError(t, raw.Update(func(tx *bbolt.Tx) error {
			b, key := tx.Bucket(names.Content), textKey(9) // of bulk-8
			return b.Put(key, change(slices.Clone(b.Get(key))))
		}))
		require.NoError(t, raw.Close())
	}
	edit(func(v []byte) []byte { v[0] ^= 1; return v })
	require.Equal(t, "told", judgeDamaged(path, truth, Options{ReadOnly: true}))
	edit(func(v []byte) []byte { v[0] ^= 1; return codec.Seal('c', textKey(9), v[:len(v)-8]) })
	require.Equal(t, "told", judgeDamaged(path, truth, Options{ReadOnly: true}), "its digest is another")
	require.Contains(t, judgeDamaged(path, truth, Options{ReadOnly: true}, filestore.Options{Trust: true}), "WRONG")
}

// TestBoltWalk: the walk finds nothing in a file that bbolt's own check finds sound, and finds each page that is zeroed,
// the second meta page and free ones apart.
func TestBoltWalk(t *testing.T) {
	t.Parallel()
	base := dbtest.MemoryPath(t)
	makeDamageBase(t, base)
	raw := must(bbolt.Open(base, 0o600, &bbolt.Options{ReadOnly: true}))(t)
	free := map[int]bool{}
	require.NoError(t, raw.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		for id := 0; ; id++ {
			p, err := tx.Page(id)
			if err != nil || p == nil {
				return err
			}
			free[id] = p.Type == "free"
		}
	}))
	require.NoError(t, raw.Close())
	b := must(os.ReadFile(base))(t)
	walk := func(b []byte) (found []string) {
		names.Walk(bytes.NewReader(b), int64(len(b)), nil, func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) })
		return found
	}
	require.Empty(t, walk(b))
	overflow := 0
	for id := 2; id < len(free); id++ {
		if free[id] {
			continue
		}
		page := b[id*names.PageSize : (id+1)*names.PageSize]
		if overflow--; overflow >= 0 {
			continue // the rest of a large page: its rows have checksums
		}
		overflow = int(binary.NativeEndian.Uint32(page[12:]))
		was := slices.Clone(page)
		clear(page)
		require.NotEmpty(t, walk(b), "page %d zeroed", id)
		copy(page, was)
	}
}

// TestCheckListsTheAudit: a leaf that was changed in the archive is a problem like any other, not the end of the check.
func TestCheckListsTheAudit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, Options{})
	for n := range 20 {
		must(db.Scope("acme").Put(ctx, Artefact{ID: fmt.Sprint(n), Text: "text"}))(t)
	}
	must(db.Admin().Checkpoint(ctx))(t)
	found := must(db.Admin().Check(ctx, nil))(t)
	require.Empty(t, found)

	names := must(filepath.Glob(path + "-manifest/leaves-*"))(t)
	require.Len(t, names, 1)
	f := must(os.OpenFile(names[0], os.O_WRONLY, 0))(t)
	_, err := f.WriteAt([]byte("forged"), 400)
	require.NoError(t, errors.Join(err, f.Close()))
	found = must(db.Admin().Check(ctx, nil))(t)
	require.NotEmpty(t, found)
	require.Equal(t, "I8", found[0].Invariant)
}
