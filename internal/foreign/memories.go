package foreign

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/store"
)

// mem0 reads a memory of mem0 or OpenMemory; none if it has no words. state is set for a memory that is not in use.
func mem0(e element) (all []store.Artefact, state string, err error) {
	if e.key == "relations" {
		all, err = relation(e)
		return all, "", err
	}
	var v struct {
		ID         string                     `json:"id"`
		Memory     string                     `json:"memory"`
		Content    string                     `json:"content"` // of OpenMemory
		State      string                     `json:"state"`
		UserID     string                     `json:"user_id"`
		RunID      string                     `json:"run_id"`
		Metadata   map[string]json.RawMessage `json:"metadata"`
		CreatedAt  json.RawMessage            `json:"created_at"`
		UpdatedAt  json.RawMessage            `json:"updated_at"`
		Expires    json.RawMessage            `json:"expiration_date"`
		Categories []string                   `json:"categories"`
	}
	switch err := decode(e, &v); {
	case err != nil:
		return nil, "", err
	case v.ID == "":
		return nil, "", e.wrong("id", store.Invalid("memory", "no id", "one"))
	case v.State != "" && v.State != "active":
		return nil, v.State, nil
	case v.Memory == "" && v.Content == "":
		return nil, "", nil
	}
	a := store.Artefact{Kind: store.KindFact, Text: cmp.Or(v.Memory, v.Content), Subject: label(v.UserID), Group: label(v.RunID), Tags: v.Categories, Meta: flat(v.Metadata)}
	if a.CurrentAsOf = e.when(v.UpdatedAt); a.CurrentAsOf.IsZero() {
		a.CurrentAsOf = e.when(v.CreatedAt)
	}
	if a.ExpiresAt, err = timeIn(e, "expiration_date", v.Expires); err != nil {
		return nil, "", err
	}
	rest := fieldsBut(e, "id", "memory", "content", "state", "metadata", "updated_at", "user_id", "run_id", "expiration_date", "categories")
	return []store.Artefact{item(Mem0, v.ID, a, rest)}, "", nil
}

func relation(e element) ([]store.Artefact, error) {
	var v fields
	if err := decode(e, &v); err != nil {
		return nil, err
	}
	from, how, to := name(v, "source"), name(v, "relationship", "relation"), name(v, "target", "destination")
	if from == "" || to == "" {
		return nil, e.wrong("source", store.Invalid("relation", "no source, or no target", "both"))
	}
	a := store.Artefact{Kind: store.KindFact, Text: from + " " + how + " " + to, Subject: label(from), Group: label(from)}
	return []store.Artefact{item(Mem0, from+"-"+how+"-"+to, a, fieldsBut(e, "source", "relationship", "relation", "target", "destination"))}, nil
}

// mcpMemory is an entity, a fact for each of its observations, or a relation.
func mcpMemory(e element) (out []store.Artefact, err error) {
	var v struct {
		Type         string   `json:"type"`
		Name         string   `json:"name"`
		EntityType   string   `json:"entityType"`
		Observations []string `json:"observations"`
		From         string   `json:"from"`
		To           string   `json:"to"`
		RelationType string   `json:"relationType"`
	}
	if err := decode(e, &v); err != nil {
		return nil, err
	}
	if v.Type == "" { // as read_graph answers, in lists by type
		v.Type = map[string]string{"entities": "entity", "relations": "relation"}[e.key]
	}
	switch {
	case v.Type == "relation" && v.From != "" && v.To != "":
		a := store.Artefact{Kind: store.KindFact, Text: v.From + " " + v.RelationType + " " + v.To, Subject: label(v.From), Group: label(v.From)}
		return []store.Artefact{item(MCPMemory, v.From+"-"+v.RelationType+"-"+v.To, a, fieldsBut(e, "type", "from", "to", "relationType"))}, nil
	case v.Type != "entity" || v.Name == "":
		return nil, e.wrong("type", store.Invalid("type", strconv.Quote(v.Type), "an entity with a name, or a relation with from and to"))
	}
	rest := fieldsBut(e, "type", "name", "entityType", "observations")
	for i, said := range v.Observations {
		if said == "" {
			continue
		}
		sum := sha256.Sum256([]byte(said))
		a := store.Artefact{Kind: store.KindFact, Text: v.Name + ": " + said, Subject: label(v.Name), Group: label(v.Name), Seq: int64(i), Tags: []string{v.EntityType}}
		out = append(out, item(MCPMemory, v.Name+"#"+hex.EncodeToString(sum[:8]), a, rest))
	}
	if len(v.Observations) == 0 {
		out = append(out, item(MCPMemory, v.Name, store.Artefact{Kind: store.KindFact, Text: v.Name + " is of type " + v.EntityType, Subject: label(v.Name), Tags: []string{v.EntityType}}, rest))
	}
	return out, nil
}

func langGraph(e element) (store.Artefact, error) {
	var v struct {
		Namespace json.RawMessage            `json:"namespace"`
		Key       string                     `json:"key"`
		Value     map[string]json.RawMessage `json:"value"`
		CreatedAt json.RawMessage            `json:"created_at"`
		UpdatedAt json.RawMessage            `json:"updated_at"`
	}
	if err := decode(e, &v); err != nil {
		return store.Artefact{}, err
	}
	var labels []string
	if err := json.Unmarshal(v.Namespace, &labels); err != nil {
		labels = strings.Split(text(v.Namespace), ".")
	}
	if v.Key == "" || v.Value == nil {
		return store.Artefact{}, e.wrong("key", store.Invalid("item", "no key, or no value", "both"))
	}
	at := e.when(v.UpdatedAt)
	for i := range labels {
		labels[i] = strings.ReplaceAll(strings.ReplaceAll(labels[i], "%", "%25"), "/", "%2F")
	}
	name := strings.Join(labels, "/")
	a := store.Artefact{Kind: store.KindFact, Text: sentences(v.Value), Group: label(name), CurrentAsOf: at}
	if raw, err := json.Marshal(v.Value); err == nil {
		a.Parts = []store.Part{{Type: "text", Text: a.Text}, keptPart("item", raw)}
		a.Text = ""
	}
	return item(LangGraph, name+"//"+v.Key, a, fieldsBut(e, "namespace", "key", "value", "updated_at", "score")), nil
}

// sentences are the strings in a value, each with its key; of a value with one string, that.
func sentences(v map[string]json.RawMessage) string {
	var out []string
	var walk func(key string, raw json.RawMessage)
	walk = func(key string, raw json.RawMessage) {
		var o map[string]json.RawMessage
		var l []json.RawMessage
		switch {
		case len(raw) == 0 || string(raw) == "null":
		case json.Unmarshal(raw, &o) == nil:
			for _, k := range sorted(o) {
				walk(strings.TrimPrefix(key+"."+k, "."), o[k])
			}
		case json.Unmarshal(raw, &l) == nil:
			for _, x := range l {
				walk(key, x)
			}
		case raw[0] == '"':
			out = append(out, key+": "+text(raw))
		default:
			out = append(out, key+": "+string(raw))
		}
	}
	for _, k := range sorted(v) {
		walk(k, v[k])
	}
	if len(out) == 1 {
		_, only, _ := strings.Cut(out[0], ": ")
		return only
	}
	return strings.Join(out, "\n")
}

func pam(e element) (store.Artefact, error) {
	var v struct {
		ID       string   `json:"id"`
		Type     string   `json:"type"`
		Content  string   `json:"content"`
		Hash     string   `json:"content_hash"`
		Tags     []string `json:"tags"`
		Temporal struct {
			Created json.RawMessage `json:"created_at"`
			Updated json.RawMessage `json:"updated_at"`
			Expires json.RawMessage `json:"valid_until"`
		} `json:"temporal"`
	}
	if err := decode(e, &v); err != nil {
		return store.Artefact{}, err
	}
	key := v.Hash
	if key == "" {
		key = v.ID
	}
	if key == "" || v.Content == "" {
		return store.Artefact{}, e.wrong("content", store.Invalid("memory", "no content, or neither content_hash nor id", "content and one of them"))
	}
	a := store.Artefact{Kind: store.KindFact, Text: v.Content, Tags: append([]string{v.Type}, v.Tags...)}
	if a.CurrentAsOf = e.when(v.Temporal.Updated); a.CurrentAsOf.IsZero() {
		a.CurrentAsOf = e.when(v.Temporal.Created)
	}
	var err error
	if a.ExpiresAt, err = timeIn(e, "temporal.valid_until", v.Temporal.Expires); err != nil {
		return a, err
	}
	return item(PAM, key, a, fieldsBut(e, "content", "content_hash", "tags")), nil
}

// pamVersion refuses a file of a later major version of PAM, whose fields may mean something else.
func pamVersion(e element) error {
	var v struct {
		Version json.RawMessage `json:"schema_version"`
	}
	if err := json.Unmarshal(e.raw, &v); err != nil {
		return nil // its memories count
	}
	if major, _, _ := strings.Cut(scalar(v.Version), "."); major != "" && major != "1" {
		return e.wrong("schema_version", fmt.Errorf("%w: the file has version %s of PAM, this program reads 1.0", store.ErrNewerFormat, cut(scalar(v.Version), 40)))
	}
	return nil
}

// FieldNames are the names that Options.Map may have.
var FieldNames = []string{"id", "text", "time", "subject", "group", "seq", "tags", "expires"}

func mapped(e element, fields map[string]string) (store.Artefact, error) {
	var all map[string]json.RawMessage
	if err := decode(e, &all); err != nil {
		return store.Artefact{}, err
	}
	at := func(name string) (json.RawMessage, string) {
		path := strings.TrimPrefix(fields[name], ".")
		if path == "" {
			return nil, ""
		}
		return dig(e.raw, strings.Split(path, ".")), path
	}
	id, idPath := at("id")
	said, textPath := at("text")
	key := scalar(id)
	if key == "" {
		return store.Artefact{}, e.wrong(idPath, store.Invalid("id", "nothing", "a string or a number"))
	}
	a := store.Artefact{Kind: store.KindFact, Text: scalar(said)}
	if a.Text == "" {
		got := "nothing"
		if len(said) > 0 && said[0] == '[' {
			got = "a list"
		} else if len(said) > 0 && said[0] == '{' {
			got = "an object"
		}
		return a, e.wrong(textPath, store.Invalid("text", got, "a string"))
	}
	raw, path := at("time")
	var err error
	if a.CurrentAsOf, err = timeIn(e, path, raw); err != nil {
		return a, err
	}
	raw, path = at("expires")
	if a.ExpiresAt, err = timeIn(e, path, raw); err != nil {
		return a, err
	}
	raw, _ = at("subject")
	a.Subject = label(scalar(raw))
	raw, _ = at("group")
	a.Group = label(scalar(raw))
	if raw, path = at("seq"); raw != nil {
		if a.Seq, err = strconv.ParseInt(scalar(raw), 10, 64); err != nil {
			return a, e.wrong(path, store.Invalid("seq", cut(string(raw), 40), "a whole number"))
		}
	}
	raw, _ = at("tags")
	if json.Unmarshal(raw, &a.Tags) != nil && len(raw) > 0 {
		a.Tags = []string{scalar(raw)}
	}
	for _, name := range FieldNames {
		if p := strings.TrimPrefix(fields[name], "."); !strings.Contains(p, ".") {
			delete(all, p)
		}
	}
	return item(JSONL, key, a, all), nil
}

func dig(raw json.RawMessage, path []string) json.RawMessage {
	for _, k := range path {
		var o map[string]json.RawMessage
		if json.Unmarshal(raw, &o) != nil {
			return nil
		}
		raw = o[k]
	}
	return raw
}

func scalar(raw json.RawMessage) string {
	switch {
	case len(raw) == 0 || string(raw) == "null" || raw[0] == '{' || raw[0] == '[':
		return ""
	case raw[0] == '"':
		return text(raw)
	}
	return string(raw)
}

func CheckMap(fields map[string]string) error {
	for name, path := range fields {
		known := false
		for _, f := range FieldNames {
			known = known || f == name
		}
		if !known || strings.Trim(path, ".") == "" {
			return store.Invalid("map", fmt.Sprintf("%s=%s", name, path), "FIELD=.path, FIELD one of "+strings.Join(FieldNames, ", "))
		}
	}
	if fields["id"] == "" || fields["text"] == "" {
		return store.Invalid("map", "no id, or no text", "id=.path and text=.path at least")
	}
	return nil
}
