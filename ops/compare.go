package ops

import (
	"cmp"
	"context"
	"slices"
	"sort"

	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/store"
)

// compared bounds how many different texts of one sketch an artefact is compared with.
const compared = 8

// duplicates finds artefacts that repeat an earlier one: first by their bytes, then artefacts of one sketch by reading both. Only
// a whole artefact repeats another. One page that two documents share, such as a licence, says nothing about the rest.
func (l *look) duplicates(ctx context.Context) error {
	sort.Slice(l.rows, func(i, j int) bool {
		a, b := &l.rows[i], &l.rows[j]
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.exact, b.exact), cmp.Compare(a.num, b.num)) < 0
	})
	for at := 0; at < len(l.rows); {
		end := at + 1
		for end < len(l.rows) && l.rows[end].key == l.rows[at].key {
			end++
		}
		if err := l.alike(ctx, l.rows[at:end]); err != nil {
			return err
		}
		at = end
		l.progress("duplicates", at, len(l.rows))
	}
	return nil
}

// alike compares the artefacts of one sketch. Texts too short to repeat another have sketch 0: of these only equal bytes count.
func (l *look) alike(ctx context.Context, same []row) error {
	var first []row // one of each text
	for i, p := range same {
		if i > 0 && p.exact == same[i-1].exact {
			if err := l.repeats(ctx, duplicate, p, same[i-1]); err != nil {
				return err
			}
			continue
		}
		first = append(first, p)
	}
	if first[0].key == 0 || len(first) == 1 {
		return ctx.Err()
	}
	sort.Slice(first, func(i, j int) bool { return first[i].num < first[j].num })
	var others kept
	for _, p := range first {
		of, err := l.like(ctx, p, &others)
		if err != nil {
			return err
		}
		if of.num != 0 {
			if err := l.repeats(ctx, nearDuplicate, p, of); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// kept are artefacts that others are compared with, and their texts where these are not large: beside a busy process each
// call takes its time.
type kept struct {
	rows  []row
	texts [][]string // nil: to be loaded again
	bytes int
}

func (k *kept) add(p row, texts []string) {
	if len(k.rows) == compared {
		return
	}
	for _, t := range texts {
		k.bytes += len(t)
	}
	if k.bytes > textBytes {
		texts = nil
	}
	k.rows, k.texts = append(k.rows, p), append(k.texts, texts)
}

// like finds an artefact among those kept that says what another one says, page by page. If there is none, it keeps this one.
func (l *look) like(ctx context.Context, p row, others *kept) (of row, err error) {
	mine, err := l.whole(ctx, p)
	if err != nil || mine == nil {
		return of, err
	}
	for i, k := range others.rows {
		other := others.texts[i]
		if other == nil {
			if other, err = l.whole(ctx, k); err != nil {
				return of, err
			}
		}
		if slices.EqualFunc(mine, other, func(a, b string) bool { return a == b || prose.SameText(a, b) }) {
			return k, nil
		}
	}
	others.add(p, mine)
	return of, nil
}

// whole loads the texts of an artefact; nil: one text cannot be read.
func (l *look) whole(ctx context.Context, p row) (texts []string, err error) {
	first, err := l.load(ctx, p, store.WantHead)
	if err != nil || first.Err != nil {
		return nil, err
	}
	loaded, err := l.st.Load(ctx, l.scopes, keysOf(first.Head), store.WantText)
	if err != nil {
		return nil, err
	}
	for i := range loaded {
		if loaded[i].Err != nil {
			return nil, nil
		}
		texts = append(texts, loaded[i].Text)
	}
	return texts, nil
}

func (l *look) load(ctx context.Context, p row, want store.Want) (store.Loaded, error) {
	got, err := l.st.Load(ctx, l.scopes, []store.PageKey{{Num: p.num, Version: p.version}}, want)
	if err != nil {
		return store.Loaded{}, err
	}
	return got[0], nil
}

// repeats counts an artefact that repeats another, and names the first ones. Both were read before.
func (l *look) repeats(ctx context.Context, what string, p, of row) error {
	if f := l.by[what]; len(f.Examples) == l.o.Examples {
		f.Count++
		return nil
	}
	a, err := l.load(ctx, p, store.WantHead)
	if err != nil || a.Err != nil {
		return err
	}
	b, err := l.load(ctx, of, store.WantHead)
	if err != nil || b.Err != nil {
		return err
	}
	l.found(what, a.Head.ID, b.Head.ID)
	return nil
}

// contradictions finds artefacts that a later one of the same key contradicts.
func (l *look) contradictions(ctx context.Context) error {
	sort.Slice(l.facts, func(i, j int) bool {
		a, b := &l.facts[i], &l.facts[j]
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.num, b.num)) < 0
	})
	for i := range l.facts {
		end := i + 1
		for end < len(l.facts) && l.facts[end].key == l.facts[i].key {
			end++
		}
		if end == i+1 || l.facts[end-1].text == l.facts[i].text {
			continue
		}
		old, err := l.load(ctx, row{num: l.facts[i].num}, store.WantHead)
		if err != nil {
			return err
		}
		last, err := l.load(ctx, row{num: l.facts[end-1].num}, store.WantHead)
		if err != nil {
			return err
		}
		if old.Err == nil && last.Err == nil {
			l.found(contradiction, old.Head.ID, last.Head.ID)
		}
	}
	return ctx.Err()
}
