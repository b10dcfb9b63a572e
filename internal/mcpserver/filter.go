package mcpserver

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ctxpage/ctxpage"
)

// filterIn is a ctxpage.Filter as a model writes it.
type filterIn struct {
	IDPrefix     string         `json:"id_prefix,omitempty" jsonschema:"how ids begin"`
	TagsAny      []string       `json:"tags_any,omitempty" jsonschema:"at least one of these tags"`
	TagsAll      []string       `json:"tags_all,omitempty" jsonschema:"all of these tags"`
	Subject      string         `json:"subject,omitempty" jsonschema:"whom it is about, exactly"`
	Meta         map[string]any `json:"meta,omitempty" jsonschema:"metadata by key: a value, or an object of operators $eq $ne $gt $gte $lt $lte $exists"`
	Kinds        []string       `json:"kinds,omitempty" jsonschema:"only these kinds: system, fact, chunk, message, tool, scratch, summary"`
	Since        string         `json:"since,omitempty" jsonschema:"current at or after this time, RFC 3339"`
	Until        string         `json:"until,omitempty" jsonschema:"current before this time, RFC 3339"`
	WrittenSince string         `json:"written_since,omitempty" jsonschema:"written at or after this time, RFC 3339"`
	WrittenUntil string         `json:"written_until,omitempty" jsonschema:"written before this time, RFC 3339"`
}

func (in *filterIn) filter() (f ctxpage.Filter, err error) {
	if in == nil {
		return f, nil
	}
	f = ctxpage.Filter{IDPrefix: in.IDPrefix, TagsAny: in.TagsAny, TagsAll: in.TagsAll, Subject: in.Subject}
	if len(in.Meta) > 0 {
		text, err := json.Marshal(in.Meta)
		if err == nil {
			err = f.Meta.UnmarshalJSON(text)
		}
		if err != nil {
			return f, err
		}
	}
	for _, name := range in.Kinds {
		k, err := ctxpage.ParseKind(name)
		if err != nil {
			return f, err
		}
		f.Kinds = append(f.Kinds, k)
	}
	for _, t := range []struct {
		name, text string
		to         *time.Time
	}{{"since", in.Since, &f.Since}, {"until", in.Until, &f.Until}, {"written_since", in.WrittenSince, &f.WrittenSince}, {"written_until", in.WrittenUntil, &f.WrittenUntil}} {
		if t.text == "" {
			continue
		}
		if *t.to, err = time.Parse(time.RFC3339, t.text); err != nil {
			return f, fmt.Errorf("filter.%s %q: expected a time such as 2026-03-01T09:00:00Z", t.name, t.text)
		}
	}
	return f, f.Check()
}

// options are those of a list.
func (in *listIn) options() ([]ctxpage.ReadOption, error) {
	f, err := in.Filter.filter()
	opts := []ctxpage.ReadOption{ctxpage.Where(f)}
	if in.Newest {
		opts = append(opts, ctxpage.NewestFirst())
	}
	return opts, err
}
