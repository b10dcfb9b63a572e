package eraseplan_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/eraseplan"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// check compares a database, and the bytes of its files, with the model.
func (s *state) check(db *ctxpage.DB, dir string) error {
	for _, look := range []func(*ctxpage.DB) error{s.visible, s.references, s.explained, s.drafts, s.proved} {
		if err := look(db); err != nil {
			return err
		}
	}
	return s.bytes(dir)
}

var planted = regexp.MustCompile(`^(?i)zq[0-9]+x[0-9]+x`)

// plantedIn are the words in the bytes of a file. A search for the regular expression alone was four fifths of a sequence.
func plantedIn(b []byte) (words []string) {
	for _, begin := range []string{"zq", "Zq", "ZQ"} {
		for rest := b; ; {
			at := bytes.Index(rest, []byte(begin))
			if at < 0 {
				break
			}
			rest = rest[at:]
			if w := planted.Find(rest); w != nil {
				words = append(words, strings.ToLower(string(w)))
			}
			rest = rest[1:]
		}
	}
	return words
}

// bytes looks for words that no file may have.
func (s *state) bytes(dir string) error {
	kept := s.kept()
	files, err := dbtest.Files(dir)
	for path, b := range files {
		for _, w := range plantedIn(b) {
			if s.never[w] && !kept[w] {
				return fmt.Errorf("%s has %s", path, w)
			}
		}
	}
	return err
}

// visible compares what readers of the scopes see.
func (s *state) visible(db *ctxpage.DB) error {
	for _, scope := range []string{"acme/ann", "acme/bob"} {
		want := map[string]string{}
		for _, a := range s.arts {
			if a.live && a.scope == scope {
				want[a.id] = s.versions[a.versions[len(a.versions)-1]].text
			}
		}
		have := map[string]string{}
		for v, err := range db.Scope(scope).Artefacts(ctx, "") {
			if err != nil {
				return err
			}
			if v.Kind == store.KindSystem { // directives
				continue
			}
			got, err := db.Scope(scope).Recall(ctx, v.Ref, ctxpage.ServeStale())
			if err != nil {
				return err
			}
			have[v.ID] = got.Text
		}
		if !maps.Equal(want, have) {
			return fmt.Errorf("%s has %v, expected %v", scope, have, want)
		}
		if err := s.found(db.Scope(scope), want); err != nil {
			return err
		}
	}
	return nil
}

// found searches: what was derived from what changed may be missing, all else is found, and nothing else is.
func (s *state) found(scope *ctxpage.Scope, want map[string]string) error {
	res, err := scope.Search(ctx, "kettle", 200)
	if err != nil {
		return err
	}
	hits := map[string]bool{}
	for _, h := range res.Hits {
		if h.Ref.Scope != scope.Name() {
			continue
		}
		if hits[h.Ref.ID] = true; want[h.Ref.ID] == "" {
			return fmt.Errorf("a search finds %s, which is not there", h.Ref)
		}
	}
	for id := range want {
		if a := s.arts[name{scope.Name(), id}]; a.parent == "" && a.session == "" && !hits[id] {
			return fmt.Errorf("no search finds %s:%s", scope.Name(), id)
		}
	}
	return nil
}

// references reads every version that there ever was.
func (s *state) references(db *ctxpage.DB) error {
	for _, a := range s.sorted() {
		for i, at := range a.versions {
			ref := store.Ref{Scope: a.scope, ID: a.id, Version: uint32(i + 1)}
			v, got := s.versions[at], ""
			read, err := db.Scope(a.scope).Recall(ctx, ref, ctxpage.ServeStale())
			if err == nil {
				got = read.Text
			}
			if problem := a.wrong(&v, got, err); problem != "" {
				return fmt.Errorf("%s: %s: %q, %w", ref, problem, got, err)
			}
		}
	}
	return nil
}

// wrong says what is wrong with the answer to a read of a version.
func (a *art) wrong(v *version, got string, err error) string {
	absent := errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrGone)
	switch {
	case v.readable() && (err != nil || got != v.text):
		return "expected " + v.text
	case v.readable():
		return ""
	case !absent:
		return "it is not gone"
	case a.nameless && !errors.Is(err, store.ErrNotFound):
		return "it still has its name"
	case v.told && !a.nameless && !v.end && !(errors.Is(err, store.ErrErased) && strings.Contains(err.Error(), "by "+v.erased)):
		return "it does not say that " + v.erased + " erased it"
	case v.erased == "" && errors.Is(err, store.ErrErased):
		return "nobody erased it"
	}
	return ""
}

// explained asks why and replays every context.
func (s *state) explained(db *ctxpage.DB) error {
	for i := range s.contexts {
		c := &s.contexts[i]
		if err := s.context(db, c); err != nil {
			return fmt.Errorf("context %s of %s: %w", c.id, c.scope, err)
		}
	}
	return nil
}

func (s *state) context(db *ctxpage.DB, c *assembled) error {
	re, err := db.Replay(ctx, c.id)
	if c.pruned != "" {
		if !errors.Is(err, store.ErrGone) || !errors.Is(err, manifest.ErrPruned) || !strings.Contains(err.Error(), "by "+c.pruned) {
			return fmt.Errorf("it was pruned by %s, and a replay says: %w", c.pruned, err)
		}
		if _, err := db.Why(ctx, c.id, store.Ref{Scope: c.scope, ID: "a0"}); !errors.Is(err, manifest.ErrPruned) {
			return fmt.Errorf("it was pruned, and why says: %w", err)
		}
		return nil
	}
	leaf, readErr := leafOf(db, c.id)
	if c.perhaps != "" && readErr == nil && leaf.Pruned != nil {
		c.pruned = c.perhaps
		return s.context(db, c)
	}
	if readErr != nil || !reflect.DeepEqual(leaf, c.leaf) {
		return fmt.Errorf("its leaf is %+v, was %+v: %w", leaf, c.leaf, readErr)
	}
	who, partly := s.lacks(c)
	switch whole := !partly && !c.taken; {
	case whole && !c.lost && (err != nil || !re.Same || re.Text != c.text):
		return fmt.Errorf("its replay: %w", err)
	case !whole && !errors.Is(err, store.ErrGone):
		return fmt.Errorf("pages of it are gone, and a replay says: %w", err)
	case who != "" && !strings.Contains(err.Error(), "by "+who):
		return fmt.Errorf("%s erased pages of it, and a replay says: %w", who, err)
	}
	return s.why(db, c)
}

// lacks reports whether pages of a context are gone, and who erased one; "": nobody, or it may not be said any more.
func (s *state) lacks(c *assembled) (who string, gone bool) {
	for _, p := range c.pages {
		if p.version < 0 {
			continue
		}
		v := &s.versions[p.version]
		gone = gone || !v.readable()
		if a := s.arts[name{p.ref.Scope, p.ref.ID}]; v.told && !a.nameless && slices.Contains(a.versions, p.version) { // else it is forgotten
			who = v.erased
		}
	}
	return who, gone
}

// why asks for each page of a context.
func (s *state) why(db *ctxpage.DB, c *assembled) error {
	for _, p := range c.pages {
		if p.version < 0 {
			continue
		}
		v, a := &s.versions[p.version], s.arts[name{p.ref.Scope, p.ref.ID}]
		if a.nameless || !slices.Contains(a.versions, p.version) {
			continue
		}
		w, err := db.Why(ctx, c.id, store.Ref{Scope: p.ref.Scope, ID: p.ref.ID, Version: p.ref.Version})
		if err != nil {
			return err
		}
		steps := strings.Join(w.Steps, "\n")
		switch told := strings.Contains(steps, "erased at ") && strings.Contains(steps, "by "+v.erased); {
		case (v.readable() || v.told) && !w.In:
			return fmt.Errorf("why says that %s is not in it: %s", p.ref, steps)
		case v.told && !told:
			return fmt.Errorf("why does not say that %s was erased: %s", p.ref, steps)
		case v.erased == "" && told:
			return fmt.Errorf("why says that %s was erased: %s", p.ref, steps)
		case !c.unsure && c.asked == w.QuestionGone || !c.unsure && c.asked && !strings.Contains(w.Question, c.word):
			return fmt.Errorf("question %q, gone %v, expected to be there: %v", w.Question, w.QuestionGone, c.asked)
		}
	}
	return nil
}

// drafts compares what waits for review.
func (s *state) drafts(db *ctxpage.DB) error {
	for _, h := range s.batches {
		b, err := db.Review().Show(ctx, h.batch)
		switch {
		case h.waits && (err != nil || b.Decided != "" || b.Writes[0].Text != h.text):
			return fmt.Errorf("batch %s should wait: %w", h.batch, err)
		case h.erased != "" && !(errors.Is(err, store.ErrErased) && strings.Contains(err.Error(), "by "+h.erased)):
			return fmt.Errorf("batch %s was erased by %s: %w", h.batch, h.erased, err)
		case !h.waits && err == nil && b.Decided == "":
			return fmt.Errorf("batch %s still waits", h.batch)
		}
	}
	return nil
}

// proved holds every head that was ever taken against the tree of now.
func (s *state) proved(db *ctxpage.DB) error {
	now, err := db.Head(ctx)
	if err != nil {
		return err
	}
	for _, h := range s.heads {
		p, err := db.Manifests().ProveConsistency(ctx, h.Size, now.Size)
		if err == nil {
			err = p.Verify(h, now)
		}
		if err != nil {
			return fmt.Errorf("head of %d leaves: %w", h.Size, err)
		}
	}
	if n := len(s.heads); n > 0 { // stubs, too: the bodies that are there, and what a prune leaf vouches for
		_, err = db.Manifests().Verify(ctx, &s.heads[n-1], nil)
	}
	return err
}

// swept notes what gc dropped: versions that had ended, as many as it said (-1: it is not known).
func (s *state) swept(db *ctxpage.DB, said int) error {
	n := 0
	for _, a := range s.sorted() {
		for i, at := range a.versions {
			v := &s.versions[at]
			v.told = false
			if !v.readable() {
				continue
			}
			_, err := db.Scope(a.scope).Recall(ctx, store.Ref{Scope: a.scope, ID: a.id, Version: uint32(i + 1)}, ctxpage.ServeStale())
			if err == nil {
				continue
			}
			if !errors.Is(err, store.ErrGone) && !errors.Is(err, store.ErrNotFound) || a.live && i == len(a.versions)-1 {
				return fmt.Errorf("gc dropped %s:%s version %d: %w", a.scope, a.id, i+1, err)
			}
			v.gone = true
			n++
		}
		a.lost = a.lost || !a.live && !s.content(a)
	}
	for i := range s.contexts {
		c := &s.contexts[i]
		c.lost = c.lost || c.draft != nil || c.directed()
	}
	for i := range s.batches {
		s.batches[i].erased = ""
	}
	if said >= 0 && n != said {
		return fmt.Errorf("gc says that it dropped %d versions, and %d are gone", said, n)
	}
	return nil
}

// client is a process that does not own the files: it erases with Names over the socket and writes the receipt.
func client(args []string) error {
	db, err := ctxpage.Open(args[0], ctxpage.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	g := garden{scope: args[1], names: true}
	rep, err := db.Admin().Erase(ctx, g.request())
	if err != nil {
		return err
	}
	head, err := db.Head(ctx)
	if err != nil {
		return err
	}
	r, err := ops.NewReceipt(ctx, db.Manifests(), *rep.Done, head)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// TestClientErasesNames: a process that does not own the files erases names over the socket. The owner's files have none of
// them, its receipt holds, and a restore of an older backup takes the names out again.
func TestClientErasesNames(t *testing.T) {
	t.Parallel()
	g := &garden{needles: &needles{}, names: true}
	path, backup := dbtest.MemoryPath(t), filepath.Join(t.TempDir(), "old.ctx")
	db := must(ctxpage.Open(path, ctxpage.Options{Embedder: g}))(t)
	require.NoError(t, g.plant(db))
	head := must(db.Head(ctx))(t)
	must(db.Admin().Backup(ctx, backup, nil))(t)
	n := must(hits(filepath.Dir(path)))(t)
	require.NotZero(t, n, "control")

	cmd := exec.Command(os.Args[0], path, g.scope)
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"=client"), os.Stderr
	out := must(cmd.Output())(t)
	require.NoError(t, none(filepath.Dir(path)))
	require.NoError(t, g.whole(db, []manifest.Head{head}))
	var r ops.Receipt
	require.NoError(t, json.Unmarshal(out, &r))
	now := must(db.Head(ctx))(t)
	require.NoError(t, r.Verify(nil))
	must(db.Manifests().Verify(ctx, &head, nil))(t)
	require.GreaterOrEqual(t, now.Size, r.Done.Leaf)
	require.NotZero(t, r.Done.Bodies)
	require.NotContains(t, string(out), "zq7x", "a receipt names nothing")
	require.NoError(t, db.Close())

	for _, receipts := range [][]*ops.Receipt{nil, {&r}} {
		restored := filepath.Join(filepath.Dir(dbtest.MemoryPath(t)), "agent.ctx")
		must(filestore.Restore(ctx, backup, restored, filestore.RestoreOptions{Prepare: func(ctx context.Context, st store.Store) error {
			_, err := eraseplan.Repeat(ctx, st, receipts, false, nil)
			return err
		}}))(t)
		if receipts == nil {
			require.Error(t, none(filepath.Dir(restored)), "control: without the receipt it brings them back")
			continue
		}
		must(g.clean(restored, []manifest.Head{head}))(t)
	}
}
