package main

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage"
)

// clock is the time of the story.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = t
}

// desktop is the database of one story, its files, and a plain index filled from the same store at the same moments.
type desktop struct {
	*story
	db    *ctxpage.DB
	clock *clock
	model *bagOfWords
	files string
	plain plainIndex
}

// open makes the database in dir. Pages are large enough that a transcript is one page: an artefact is scored once.
func open(dir string, seed uint64) (*desktop, error) {
	d := &desktop{story: tell(seed), clock: &clock{}, model: &bagOfWords{}, files: filepath.Join(dir, "kb")}
	if err := os.MkdirAll(d.files, 0o700); err != nil {
		return nil, err
	}
	var key [32]byte
	key[0] = byte(seed)
	d.clock.set(d.before(183 * day))
	var err error
	d.db, err = ctxpage.Open(filepath.Join(dir, "agent.ctx"), ctxpage.Options{
		PageTokens: ctxpage.MaxPageTokens, FileRoots: []string{d.files}, Clock: d.clock.now, Rand: rand.NewChaCha8(key), Embedder: d.model,
	})
	return d, err
}

// changedAt is when the article's file was edited, the day on which the new policy came.
func (d *desktop) changedAt() time.Time { return d.before(14 * day) }

// live writes the story into the store in the order of its time, and changes two files on the way. The agent's copy of
// the article is older than the change; nobody tells the database.
func (d *desktop) live(ctx context.Context) error {
	slices.SortStableFunc(d.entries, func(a, b entry) int { return a.at.Compare(b.at) })
	from := 0
	for _, end := range []time.Time{d.before(150 * day), d.before(120 * day), d.before(90 * day), d.before(60 * day), d.before(30 * day), d.before(14*day + 12*time.Hour), d.now} {
		to := from
		for to < len(d.entries) && !d.entries[to].at.After(end) {
			to++
		}
		d.clock.set(end)
		if err := d.putAll(ctx, d.entries[from:to]); err != nil {
			return err
		}
		from = to
	}
	if err := d.write(idArticle+".md", d.changedArticle, d.changedAt()); err != nil {
		return err
	}
	path := filepath.Join(d.files, idTouched+".md") // touched, and the same as before
	return os.Chtimes(path, d.before(day), d.before(day))
}

func (d *desktop) write(name, text string, at time.Time) error {
	path := filepath.Join(d.files, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Chtimes(path, at, at)
}

// putAll writes what belongs to one stretch of time: what a person verified alone, the rest a scope at a time.
func (d *desktop) putAll(ctx context.Context, entries []entry) error {
	byScope := map[string][]entry{}
	for _, e := range entries {
		if e.verified == "" {
			byScope[e.scope] = append(byScope[e.scope], e)
			continue
		}
		if _, err := d.db.PutVerified(ctx, e.scope, e.verified, e.art); err != nil {
			return err
		}
	}
	for _, scope := range []string{company, desk, agent, sibling} {
		err := d.db.Scope(scope).Update(ctx, func(tx *ctxpage.Txn) error {
			for _, e := range byScope[scope] {
				if err := d.put(ctx, tx, e); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return d.index(ctx, entries)
}

func (d *desktop) put(ctx context.Context, tx *ctxpage.Txn, e entry) error {
	if e.file == "" {
		return tx.Put(ctx, e.art)
	}
	if err := d.write(e.file, e.text, e.at); err != nil {
		return err
	}
	e.art.Source = "file:" + filepath.Join(d.files, e.file)
	return tx.Put(ctx, e.art)
}

// index fills the plain index with what the store has at this moment. A page that has expired by the end of the stretch
// is taken from the story: a plain index would have had it since it was written.
func (d *desktop) index(ctx context.Context, entries []entry) error {
	for _, e := range entries {
		if e.art.Kind == ctxpage.KindSystem {
			continue // instructions are not retrieved
		}
		text := e.art.Text + e.text
		if e.art.ExpiresAt.IsZero() || e.art.ExpiresAt.After(d.clock.now()) {
			v, err := d.db.Scope(e.scope).Get(ctx, e.art.ID, ctxpage.WithCheck(ctxpage.CheckNever))
			if err != nil {
				return err
			}
			text = v.Text
		}
		d.plain.add(plainDoc{scope: e.scope, id: e.art.ID, text: text, at: e.at, tokens: d.count(text), expires: e.art.ExpiresAt})
	}
	return nil
}

// sourceSays is what the file of an artefact holds now; "" and false without one.
func (d *desktop) sourceSays(id string) (string, bool) {
	b, err := os.ReadFile(filepath.Join(d.files, id+".md"))
	return string(b), err == nil && strings.HasPrefix(id, "kb-")
}
