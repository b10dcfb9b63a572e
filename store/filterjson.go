package store

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

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
