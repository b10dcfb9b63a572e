package store

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxFilterMeta is the most conditions on metadata.
const maxFilterMeta = 32

// MaxFilterValue is the most bytes of a key or a value that a Filter compares; a stored one may be longer.
const MaxFilterValue = 256

// Filter restricts a read to artefacts with given properties. All fields that are set must hold.
// The zero Filter restricts nothing. A filter never widens what a scope sees.
//
// A page has the properties of the newest version of its artefact that contains it; a read of the
// past (AsOf) uses the same ones. Times are compared in microseconds, finer parts are cut off.
type Filter struct {
	// IDPrefix is the prefix of the id: at most MaxID bytes, compared byte for byte.
	IDPrefix string `json:"id_prefix,omitempty"`
	// TagsAny: at least one of these tags; TagsAll: all of these. Tags are compared byte for
	// byte. Each list has at most MaxTags.
	TagsAny []string `json:"tags_any,omitempty"`
	TagsAll []string `json:"tags_all,omitempty"`
	// Subject must equal the artefact's subject.
	Subject string `json:"subject,omitempty"`
	// Meta are at most 32 conditions on the metadata; all must hold.
	Meta Conditions `json:"meta,omitempty"`
	// Kinds: one of these.
	Kinds []Kind `json:"kinds,omitempty"`
	// Since and Until bound Artefact.CurrentAsOf, when the content was true: not before Since, and
	// before Until. Zero: no bound.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// WrittenSince and WrittenUntil bound the time of the put in the same way.
	WrittenSince time.Time `json:"written_since,omitzero"`
	WrittenUntil time.Time `json:"written_until,omitzero"`
}

// Operator compares a metadata value with the value of a Condition.
type Operator string

// The operators. Two decimal numbers are compared as numbers, anything else byte for byte, so that
// times in RFC 3339 of one time zone are in order. 1.5 equals 1.50; 007 is no number. OpNotEqual also
// holds where the key is absent. The orders hold only where the key is present, and a number is
// above and below numbers only.
// OpExists has the value "true" or "false".
const (
	OpEqual          Operator = "$eq"
	OpNotEqual       Operator = "$ne"
	OpGreater        Operator = "$gt"
	OpGreaterOrEqual Operator = "$gte"
	OpLess           Operator = "$lt"
	OpLessOrEqual    Operator = "$lte"
	OpExists         Operator = "$exists"
)

// operators lists all operators in the order of their declaration.
var operators = []Operator{OpEqual, OpNotEqual, OpGreater, OpGreaterOrEqual, OpLess, OpLessOrEqual, OpExists}

// Condition is one comparison of a metadata value.
type Condition struct {
	Key   string
	Op    Operator
	Value string
}

// Conditions are written in JSON as an object, as document databases do: {"team": "red",
// "priority": {"$gte": "3"}}. An operator may appear once per key.
type Conditions []Condition

// IsZero reports whether the filter restricts nothing.
func (f *Filter) IsZero() bool {
	return f == nil || f.IDPrefix == "" && len(f.TagsAny) == 0 && len(f.TagsAll) == 0 && f.Subject == "" && len(f.Meta) == 0 && len(f.Kinds) == 0 &&
		f.Since.IsZero() && f.Until.IsZero() && f.WrittenSince.IsZero() && f.WrittenUntil.IsZero()
}

// Check rejects a filter that breaks a limit or that can never match. The *InvalidError names the
// field and what was expected.
// Its texts are put in the form in which they are stored (Canonical).
func (f *Filter) Check() error {
	f.IDPrefix, f.Subject = Canonical(f.IDPrefix), Canonical(f.Subject)
	f.TagsAny, f.TagsAll = canonicalAll(f.TagsAny), canonicalAll(f.TagsAll)
	if f.IDPrefix != "" {
		if err := CheckID("filter.id_prefix", f.IDPrefix); err != nil {
			return err
		}
	}
	if f.Subject != "" {
		if err := CheckID("filter.subject", f.Subject); err != nil {
			return err
		}
	}
	if err := cmp.Or(checkTags("filter.tags_any", f.TagsAny), checkTags("filter.tags_all", f.TagsAll), f.Meta.check()); err != nil {
		return err
	}
	for _, k := range f.Kinds {
		if k == KindAuto || int(k) >= len(KindNames) {
			return Invalid("filter.kinds", k.String(), "kinds: "+strings.Join(KindNames[1:], ", "))
		}
	}
	return cmp.Or(checkRange("filter.since", "filter.until", f.Since, f.Until), checkRange("filter.written_since", "filter.written_until", f.WrittenSince, f.WrittenUntil))
}

func checkTags(field string, tags []string) error {
	if len(tags) > MaxTags {
		return Invalid(field, fmt.Sprintf("%d tags", len(tags)), fmt.Sprintf("at most %d", MaxTags))
	}
	for _, t := range tags {
		if err := CheckID(field, t); err != nil {
			return err
		}
	}
	return nil
}

func checkRange(sinceName, untilName string, since, until time.Time) error {
	for _, b := range []struct {
		name string
		t    time.Time
	}{{sinceName, since}, {untilName, until}} {
		if y := b.t.Year(); !b.t.IsZero() && (y < 1 || y > 9999) {
			return Invalid(b.name, fmt.Sprint("year ", y), "a year from 1 to 9999")
		}
	}
	if !since.IsZero() && !until.IsZero() && since.UnixMicro() >= until.UnixMicro() {
		return Invalid(untilName, until.UTC().Format(time.RFC3339Nano), "a time after "+sinceName+", "+since.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

func (cs Conditions) check() error {
	if len(cs) > maxFilterMeta {
		return Invalid("filter.meta", fmt.Sprintf("%d conditions", len(cs)), fmt.Sprintf("at most %d", maxFilterMeta))
	}
	for i, c := range cs {
		field := "filter.meta." + strconv.Quote(c.Key)
		if err := validUTF8(field, c.Key, c.Value); err != nil {
			return err
		}
		switch {
		case len(c.Key) > MaxFilterValue || len(c.Value) > MaxFilterValue:
			return Invalid("filter.meta", fmt.Sprintf("a key of %d and a value of %d bytes", len(c.Key), len(c.Value)), fmt.Sprintf("at most %d of each", MaxFilterValue))
		case !slices.Contains(operators, c.Op):
			return Invalid(field, strconv.Quote(string(c.Op)), "one of $eq, $ne, $gt, $gte, $lt, $lte, $exists")
		case c.Op == OpExists && c.Value != "true" && c.Value != "false":
			return Invalid(field, "$exists "+strconv.Quote(c.Value), "true or false")
		case slices.ContainsFunc(cs[:i], func(o Condition) bool { return o.Key == c.Key && o.Op == c.Op }):
			return Invalid(field, string(c.Op)+" twice", "each operator at most once for a key")
		}
	}
	return nil
}

// Holds reports whether a metadata value meets the condition. ok is false if the key is absent.
func (c *Condition) Holds(value string, ok bool) bool {
	switch c.Op {
	case OpExists:
		return ok == (c.Value == "true")
	case OpEqual:
		return ok && equalValues(value, c.Value)
	case OpNotEqual:
		return !ok || !equalValues(value, c.Value)
	}
	if !ok {
		return false
	}
	n, ok := compareValues(value, c.Value)
	if !ok {
		return false
	}
	switch c.Op {
	case OpGreater:
		return n > 0
	case OpGreaterOrEqual:
		return n >= 0
	case OpLess:
		return n < 0
	default:
		return c.Op == OpLessOrEqual && n <= 0
	}
}

// equalValues reports whether two values are equal, as numbers or as bytes.
func equalValues(a, b string) bool {
	if a == b {
		return true
	}
	n, ok := compareValues(a, b)
	return ok && n == 0
}

// compareValues compares two values: as numbers where both are, as bytes where neither is. A number
// and a text have no order.
func compareValues(a, b string) (n int, ok bool) {
	x, okx := decimal(a)
	y, oky := decimal(b)
	switch {
	case okx && oky:
		return cmp.Compare(x, y), true
	case okx || oky:
		return 0, false
	}
	return strings.Compare(a, b), true
}

// decimal parses a decimal number: sign, digits, point, exponent. Infinity, hexadecimal, a number
// with leading zeros, which is a code, and anything longer than MaxFilterValue bytes is text; the last so that a store which keeps only the
// beginning of a value compares it the same way.
func decimal(s string) (float64, bool) {
	if s == "" || len(s) > MaxFilterValue || strings.Trim(s, "+-.eE0123456789") != "" || !strings.ContainsAny(s, "0123456789") {
		return 0, false
	}
	if whole := strings.TrimLeft(s, "+-"); len(whole) > 1 && whole[0] == '0' && '0' <= whole[1] && whole[1] <= '9' {
		return 0, false
	}
	x, err := strconv.ParseFloat(s, 64)
	return x, err == nil
}

// Match reports whether a version matches the filter.
func (f *Filter) Match(h *Head) bool { return f.Mismatch(h) == "" }

// Mismatch names the first condition that a version does not meet; "" means that it matches. It
// defines the filter: stores that filter by columns must give the same result.
func (f *Filter) Mismatch(h *Head) string {
	if f == nil {
		return ""
	}
	asOf := h.CurrentAsOf
	if asOf.IsZero() {
		asOf = h.PutAt
	}
	switch {
	case !strings.HasPrefix(h.ID, f.IDPrefix):
		return "its id does not begin with " + strconv.Quote(f.IDPrefix)
	case len(f.TagsAny) > 0 && !slices.ContainsFunc(f.TagsAny, func(t string) bool { return slices.Contains(h.Tags, t) }):
		return "it has none of the tags " + quoted(f.TagsAny)
	case f.Subject != "" && h.Subject != f.Subject:
		return "its subject is " + strconv.Quote(h.Subject) + ", not " + strconv.Quote(f.Subject)
	case len(f.Kinds) > 0 && !slices.Contains(f.Kinds, h.Kind):
		return "its kind is " + h.Kind.String()
	case !Within(asOf.UnixMicro(), f.Since, f.Until):
		return "its content is of " + asOf.UTC().Format(time.RFC3339) + span(f.Since, f.Until)
	case !Within(h.PutAt.UnixMicro(), f.WrittenSince, f.WrittenUntil):
		return "it was written at " + h.PutAt.UTC().Format(time.RFC3339) + span(f.WrittenSince, f.WrittenUntil)
	}
	for _, t := range f.TagsAll {
		if !slices.Contains(h.Tags, t) {
			return "it has no tag " + strconv.Quote(t)
		}
	}
	for i := range f.Meta {
		c := &f.Meta[i]
		if v, ok := h.Meta[c.Key]; !c.Holds(v, ok) {
			return "its metadata does not meet " + strconv.Quote(c.Key) + " " + string(c.Op) + " " + strconv.Quote(c.Value)
		}
	}
	return ""
}

// Within reports whether a time in microseconds lies in a range of a filter.
func Within(at int64, since, until time.Time) bool {
	return (since.IsZero() || at >= since.UnixMicro()) && (until.IsZero() || at < until.UnixMicro())
}

// span describes a range in words.
func span(since, until time.Time) (out string) {
	if !since.IsZero() {
		out += ", asked for since " + since.UTC().Format(time.RFC3339)
	}
	if !until.IsZero() {
		out += ", asked for until " + until.UTC().Format(time.RFC3339)
	}
	return out
}

func quoted(texts []string) string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = strconv.Quote(t)
	}
	return strings.Join(out, ", ")
}

// MarshalJSON writes an object by key: the value alone for one equality, else an object by
// operator.
func (cs Conditions) MarshalJSON() ([]byte, error) {
	var keys []string
	by := map[string][]Condition{}
	for _, c := range cs {
		if by[c.Key] == nil {
			keys = append(keys, c.Key)
		}
		by[c.Key] = append(by[c.Key], c)
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		writeJSON(&b, k)
		b.WriteByte(':')
		if all := by[k]; len(all) == 1 && all[0].Op == OpEqual {
			writeJSON(&b, all[0].Value)
		} else {
			writeOperators(&b, all)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func writeOperators(b *bytes.Buffer, all []Condition) {
	b.WriteByte('{')
	for i, c := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		writeJSON(b, string(c.Op))
		b.WriteByte(':')
		if c.Op == OpExists {
			b.WriteString(strconv.FormatBool(c.Value == "true"))
		} else {
			writeJSON(b, c.Value)
		}
	}
	b.WriteByte('}')
}

func writeJSON(b *bytes.Buffer, s string) {
	text, _ := json.Marshal(s) // a string always has a form
	b.Write(text)
}

// UnmarshalJSON reads what MarshalJSON writes. A value may be a string, a number or a boolean,
// which stands for its text. The conditions are in the order of their keys and operators.
func (cs *Conditions) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var by map[string]any
	if err := d.Decode(&by); err != nil {
		return Invalid("filter.meta", string(data), `an object such as {"team": "red", "priority": {"$gte": 3}}`)
	}
	out, err := conditionsOf(by)
	*cs = out
	return err
}

// conditionsOf makes conditions of a decoded JSON object: {"team": "red", "priority": {"$gte": 3}}.
// The error is an InvalidError.
func conditionsOf(by map[string]any) (Conditions, error) {
	var out Conditions
	for _, k := range slices.Sorted(maps.Keys(by)) {
		ops, ok := by[k].(map[string]any)
		if !ok {
			ops = map[string]any{string(OpEqual): by[k]}
		}
		if len(ops) == 0 {
			return nil, Invalid("filter.meta."+strconv.Quote(k), "{}", `a value, or operators such as {"$gte": 3}`)
		}
		for _, op := range slices.Sorted(maps.Keys(ops)) {
			v, err := scalar(k, ops[op])
			if err != nil {
				return nil, err
			}
			out = append(out, Condition{Key: k, Op: Operator(op), Value: v})
		}
	}
	return out, out.check()
}

func scalar(key string, v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case json.Number:
		return v.String(), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	}
	return "", Invalid("filter.meta."+strconv.Quote(key), notScalar(v), "a string, a number or a boolean")
}

// notScalar names a decoded JSON value as JSON does.
func notScalar(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case []any:
		return "a list"
	}
	return "an object"
}

// JSON returns the filter as a manifest records it: always the same bytes for the same filter; ""
// if it restricts nothing.
func (f *Filter) JSON() string {
	if f.IsZero() {
		return ""
	}
	text, _ := json.Marshal(f) // checked times have a form
	return string(text)
}

// ParseFilter reads what JSON wrote. "" is nil.
func ParseFilter(text string) (*Filter, error) {
	if text == "" {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	f := new(Filter)
	if err := d.Decode(f); err != nil {
		return nil, Invalid("filter", strconv.Quote(text), "a filter as JSON ("+err.Error()+")")
	}
	return f, f.Check()
}
