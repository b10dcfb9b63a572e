package store_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/store"
)

// A condition means the same however a value is written.
func TestConditionHolds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value   string
		there   bool
		op      store.Operator
		operand string
		want    bool
	}{
		{"a", true, store.OpEqual, "a", true},
		{"1.0", true, store.OpEqual, "1", true},
		{"1.50", true, store.OpEqual, "1.5", true},
		{"1.50", true, store.OpNotEqual, "1.5", false},
		{"high", true, store.OpGreater, "7", false},
		{"high", true, store.OpLess, "7", false},
		{"high", true, store.OpNotEqual, "7", true},
		{"9", true, store.OpGreater, "high", false},
		{"007", true, store.OpEqual, "7", false},
		{"0.5", true, store.OpEqual, ".50", true},
		{"", false, store.OpEqual, "", false},
		{"", false, store.OpNotEqual, "a", true},
		{"a", true, store.OpNotEqual, "a", false},
		{"10", true, store.OpGreater, "9", true},
		{"10", true, store.OpGreater, "9x", false},
		{"1.0", true, store.OpGreaterOrEqual, "1", true},
		{"-1e3", true, store.OpLess, "0", true},
		{"Inf", true, store.OpGreater, "9", false},
		{"0x10", true, store.OpLess, "9", false},
		{"0x10", true, store.OpLess, "0x9", true}, // as text
		{"2026-03-01T00:00:00Z", true, store.OpLess, "2026-03-02T00:00:00Z", true},
		{"", false, store.OpLess, "z", false},
		{"", true, store.OpLessOrEqual, "", true},
		{"", true, store.OpExists, "true", true},
		{"", false, store.OpExists, "false", true},
		{"", false, store.OpExists, "true", false},
	} {
		is := store.Condition{Key: "k", Op: c.op, Value: c.operand}
		require.Equal(t, c.want, is.Holds(c.value, c.there), "%+v", c)
	}
}

// A filter is read back from what it is recorded as, and two that are the same have the same record.
func TestFilterJSON(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	f := store.Filter{
		IDPrefix: "a/", TagsAny: []string{"x"}, TagsAll: []string{"y", "z"}, Subject: "Ada", Kinds: []store.Kind{store.KindFact}, Since: day, WrittenUntil: day,
		Meta: store.Conditions{{Key: "n", Op: store.OpGreaterOrEqual, Value: "3"}, {Key: "n", Op: store.OpLess, Value: "9"}, {Key: "team", Op: store.OpEqual, Value: "red"}, {Key: "x", Op: store.OpExists, Value: "false"}},
	}
	require.NoError(t, f.Check())
	text := f.JSON()
	require.Contains(t, text, `"meta":{"n":{"$gte":"3","$lt":"9"},"team":"red","x":{"$exists":false}}`)
	got, err := store.ParseFilter(text)
	require.NoError(t, err)
	require.Equal(t, &f, got)
	require.Equal(t, text, got.JSON())

	require.Empty(t, new(store.Filter).JSON())
	none, err := store.ParseFilter("")
	require.NoError(t, err)
	require.Nil(t, none)
	require.True(t, none.Match(&store.Head{}))
	for _, bad := range []string{`{"tag":"x"}`, `[]`, `{"meta":{"k":[1]}}`, `{"meta":{"k":{}}}`, `{"meta":{"k":{"$in":"x"}}}`, `{"meta":7}`} {
		_, err := store.ParseFilter(bad)
		require.ErrorIs(t, err, store.ErrInvalid, bad)
	}
	var loose store.Conditions
	require.NoError(t, json.Unmarshal([]byte(`{"n":{"$gte":3},"on":true}`), &loose))
	require.Equal(t, store.Conditions{{Key: "n", Op: store.OpGreaterOrEqual, Value: "3"}, {Key: "on", Op: store.OpEqual, Value: "true"}}, loose)
}

// Each limit holds at the limit and is refused one above it.
func TestFilterLimits(t *testing.T) {
	t.Parallel()
	tags := make([]string, store.MaxTags)
	meta := make(store.Conditions, 32)
	for i := range tags {
		tags[i] = fmt.Sprint(i)
	}
	for i := range meta {
		meta[i] = store.Condition{Key: fmt.Sprint(i), Op: store.OpExists, Value: "true"}
	}
	f := store.Filter{TagsAny: tags, Meta: meta}
	require.NoError(t, f.Check())
	f.Meta = append(meta, store.Condition{Key: "more", Op: store.OpExists, Value: "true"})
	require.ErrorIs(t, f.Check(), store.ErrInvalid)
	require.ErrorIs(t, (&store.Filter{TagsAll: append(tags, "more")}).Check(), store.ErrInvalid)
	require.ErrorIs(t, (&store.Filter{Meta: store.Conditions{{Key: "k", Op: store.OpNotEqual, Value: "a"}, {Key: "k", Op: store.OpNotEqual, Value: "b"}}}).Check(), store.ErrInvalid)
}
