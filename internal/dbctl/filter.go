package dbctl

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/store"
)

// filterFlags restrict what is read. Each condition must hold.
type filterFlags struct {
	IDPrefix     string   `help:"Only ids with this prefix." name:"id-prefix"`
	Tag          []string `sep:"none" help:"Only with this tag. Repeatable: with all of them."`
	AnyTag       []string `sep:"none" help:"Only with this tag. Repeatable: with at least one of them."`
	Subject      string   `help:"Only about this subject."`
	Meta         []string `sep:"none" help:"Only where metadata meets KEY=VALUE, KEY!=VALUE, KEY>VALUE, KEY>=VALUE, KEY<VALUE, KEY<=VALUE, KEY (exists) or !KEY (does not exist). Numbers are compared as numbers. Repeatable." placeholder:"COND"`
	OnlyKind     []string `sep:"none" help:"Only of this kind. Repeatable."`
	Since        string   `help:"Only content that was current at or after this time: RFC 3339, a date, or a duration ago like 7d." placeholder:"TIME"`
	Until        string   `help:"Only content that was current before this time." placeholder:"TIME"`
	WrittenSince string   `help:"Only versions written at or after this time." placeholder:"TIME"`
	WrittenUntil string   `help:"Only versions written before this time." placeholder:"TIME"`
}

func (f *filterFlags) filter() (out ctxpage.Filter, err error) {
	out = ctxpage.Filter{IDPrefix: f.IDPrefix, TagsAll: f.Tag, TagsAny: f.AnyTag, Subject: f.Subject}
	for _, text := range f.Meta {
		c, err := condition(text)
		if err != nil {
			return out, err
		}
		out.Meta = append(out.Meta, c)
	}
	if out.Kinds, err = view.Kinds(f.OnlyKind); err != nil {
		return out, usage("--only-kind: %v", err)
	}
	now := time.Now()
	for _, t := range []struct {
		flag, text string
		to         *time.Time
	}{{"since", f.Since, &out.Since}, {"until", f.Until, &out.Until}, {"written-since", f.WrittenSince, &out.WrittenSince}, {"written-until", f.WrittenUntil, &out.WrittenUntil}} {
		if *t.to, err = moment(t.text, now); err != nil {
			return out, usage("--%s %q: expected a time like 2026-03-01T09:00:00Z, a date like 2026-03-01, or a duration ago like 7d", t.flag, t.text)
		}
	}
	return out, out.Check()
}

// noteUnknownKeys says which keys of metadata that a filter names no artefact in sight of a scope has: a misspelt one
// makes an answer empty.
func (a *app) noteUnknownKeys(db *ctxpage.DB, scope string, f *filterFlags) {
	filter, err := f.filter()
	if err != nil || a.JSON {
		return
	}
	for _, c := range filter.Meta {
		known := c.Op == store.OpExists && c.Value == "false"
		for _, s := range store.ScopeChain(scope) {
			has := ctxpage.Where(ctxpage.Filter{Meta: []store.Condition{{Key: c.Key, Op: store.OpExists, Value: "true"}}})
			some, err := loop.Collect(db.Scope(s).Artefacts(a.ctx, "", has, ctxpage.AtMost(1, "", nil)))
			known = known || err != nil || len(some) > 0
		}
		if !known {
			a.warn(fmt.Sprintf("no artefact in sight of %s has the metadata key %q", scope, c.Key))
		}
	}
}

// where is the filter as an option of a read.
func (f *filterFlags) where() (ctxpage.ReadOption, error) {
	filter, err := f.filter()
	return ctxpage.Where(filter), err
}

// moment reads a time, a date in UTC, or a duration before now; "" is no time.
func moment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	ago, err := parseDuration(text)
	return now.Add(-ago), err
}

// comparison finds the first operator of a condition. swapped finds one that was written the other way round: "=>2" would
// be a comparison with the text ">2", which finds nothing. A value such as <ann@example.com> is left alone.
var (
	comparison = regexp.MustCompile(`!=|>=|<=|=|>|<`)
	swapped    = regexp.MustCompile(`^=(=|[<>]-?[0-9])`)
)

var operators = map[string]store.Operator{
	"=": store.OpEqual, "!=": store.OpNotEqual, ">": store.OpGreater, ">=": store.OpGreaterOrEqual, "<": store.OpLess, "<=": store.OpLessOrEqual,
}

func condition(text string) (store.Condition, error) {
	at := comparison.FindStringIndex(text)
	switch {
	case text == "" || text == "!" || at != nil && at[0] == 0:
		return store.Condition{}, usage("--meta %q: expected a key, or a key, an operator (= != > >= < <=) and a value", text)
	case at != nil && text[at[0]:at[1]] == "=" && swapped.MatchString(text[at[0]:]):
		return store.Condition{}, usage("--meta %q: expected one of the operators = != > >= < <=", text)
	case at != nil:
		return store.Condition{Key: text[:at[0]], Op: operators[text[at[0]:at[1]]], Value: text[at[1]:]}, nil
	}
	key, absent := strings.CutPrefix(text, "!")
	if absent {
		return store.Condition{Key: key, Op: store.OpExists, Value: "false"}, nil
	}
	return store.Condition{Key: key, Op: store.OpExists, Value: "true"}, nil
}
