package foreign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/store"
)

// jsonChecker walks a value by its tokens before it is decoded: package json takes the last of two equal keys, and puts a question
// mark for what is not UTF-8. Either would make an import that is not what the file says.
type jsonChecker struct {
	*json.Decoder
	of   element
	path []string
}

func newChecker(e element) *jsonChecker {
	c := &jsonChecker{Decoder: json.NewDecoder(bytes.NewReader(e.raw)), of: e}
	c.UseNumber()
	return c
}

// check refuses a value that is not what it seems, with line and field.
func check(e element) error {
	c := newChecker(e)
	err := c.value(0)
	if err == nil && len(bytes.TrimSpace(e.raw[c.InputOffset():])) > 0 {
		err = c.fail("more after the value", "one value")
	}
	return err
}

func (c *jsonChecker) fail(got, expected string) error {
	at := int(c.InputOffset())
	for at < len(c.of.raw) && blank(c.of.raw[at]) {
		at++
	}
	return &portable.LineError{Line: c.of.line + bytes.Count(c.of.raw[:at], []byte("\n")), Field: strings.Join(c.path, "."), Err: store.Invalid("value", got, expected)}
}

// next returns the next token, whose bytes must be UTF-8.
func (c *jsonChecker) next() (json.Token, error) {
	from := c.InputOffset()
	t, err := c.Token()
	switch {
	case err != nil:
		return nil, c.fail("no JSON ("+err.Error()+")", "JSON")
	case !utf8.Valid(c.of.raw[from:c.InputOffset()]):
		return nil, c.fail("bytes that are not UTF-8", "UTF-8 text")
	}
	return t, nil
}

func (c *jsonChecker) value(depth int) error {
	if depth > MaxDepth {
		return c.fail(fmt.Sprintf("more than %d levels", MaxDepth), "fewer")
	}
	t, err := c.next()
	if err != nil {
		return err
	}
	switch t := t.(type) {
	case json.Delim:
		return c.inside(t == '{', depth)
	case json.Number:
		if len(t) > 64 {
			return c.fail("a number of more than 64 digits", "a shorter one")
		}
	}
	return nil
}

// inside walks the values of an object or a list up to its end.
func (c *jsonChecker) inside(object bool, depth int) error {
	seen := map[string]bool{}
	for i := 0; c.More(); i++ {
		key := strconv.Itoa(i)
		if object {
			t, err := c.next()
			if err != nil {
				return err
			}
			key, _ = t.(string) // the decoder refuses other keys
		}
		if c.path = append(c.path, short(key)); object && seen[key] {
			return c.fail("the key twice", "each key of an object once")
		}
		if object {
			seen[key] = true
		}
		if err := c.value(depth + 1); err != nil {
			return err
		}
		c.path = c.path[:len(c.path)-1]
	}
	_, err := c.next()
	return err
}

// short is a key in a message.
func short(key string) string {
	if r := []rune(key); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return key
}

// decode reads a checked element. Fields that v has not are of no interest here.
func decode(e element, v any) error {
	err := json.Unmarshal(e.raw, v)
	if err == nil {
		return nil
	}
	out := &portable.LineError{Line: e.line, Err: err}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		out.Line += bytes.Count(e.raw[:min(int(kind.Offset), len(e.raw))], []byte("\n"))
		out.Field, out.Err = kind.Field, store.Invalid("value", "a "+kind.Value, jsonTypeName(kind.Type))
	}
	return out
}

// jsonTypeName returns the name of a type in JSON.
func jsonTypeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Pointer:
		return jsonTypeName(t.Elem())
	case reflect.Float64, reflect.Int, reflect.Int64:
		return "a number"
	}
	return "a " + t.String()
}

// wrong is an error in a field of an element.
func (e element) wrong(field string, err error) error {
	if e.path != "" {
		field = strings.TrimSuffix(e.path+"."+field, ".")
	}
	return &portable.LineError{Line: e.line, Field: field, Err: err}
}

// replay is the state of a file that is a log of changes: the turns are known only at its end.
//
// Gemini CLI appends {"$rewindTo": ID}, which takes back the message with that id and all that follow it; an id that it does not know
// takes back all. Copilot Chat writes {"kind": K, "k": PATH, "v": VALUE}: 0 is the whole session, 1 sets a value, 2 cuts a list
// at "i", if given, and appends to it, 3 deletes.
type replay struct {
	held []heldItem
	at   map[string]int // by key: the place in held

	logged   any // the session of Copilot Chat; nil: the file is no log
	logBytes int // of the lines that made it
	logLine  int // the last of them
}

type heldItem struct {
	item             store.Artefact
	key, id, session string
	line             int
}

// hold keeps a turn. A turn with the same key takes its place.
func (x *reading) hold(h heldItem) {
	if i, again := x.at[h.key]; again {
		x.held[i] = h
		x.left.Repeated++
		return
	}
	x.at[h.key] = len(x.held)
	x.held = append(x.held, h)
}

// geminiRewind takes back turns.
func geminiRewind(x *reading, _ element, v fields) (bool, error) {
	id := name(v, "$rewindTo")
	if id == "" {
		return false, nil
	}
	if err := x.flush(); err != nil {
		return true, err
	}
	from := max(0, slices.IndexFunc(x.held, func(h heldItem) bool { return h.id == id }))
	for i := len(x.held) - 1; i >= from; i-- {
		h := &x.held[i]
		delete(x.at, h.key)
		delete(x.ids, idDigest(h.key))
		x.seq[h.session] = min(x.seq[h.session], h.item.Seq-1)
		count(&x.left.Types, "rewound")
	}
	x.held = x.held[:from]
	return true, nil
}

// chatLog applies a change to the session of Copilot Chat.
func chatLog(x *reading, e element, v fields) (bool, error) {
	kind := string(v["kind"])
	if kind == "" || kind[0] < '0' || kind[0] > '9' {
		return false, nil
	}
	var m struct {
		K []any
		V any
		I *int
	}
	d := json.NewDecoder(bytes.NewReader(e.raw))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		return true, e.wrong("k", store.Invalid("change", cut(string(e.raw), 40), "a path k of names and numbers, and a place i"))
	}
	x.logLine = e.line
	if x.logBytes += len(e.raw); x.logBytes > MaxItem*16 {
		return true, e.wrong("", store.Invalid("file", fmt.Sprintf("a log of more than %d bytes", MaxItem*16), "a smaller one"))
	}
	switch kind {
	case "0":
		x.logged = m.V
	case "1":
		x.logged = changed(x.logged, m.K, func(any) any { return m.V })
	case "2":
		x.logged = changed(x.logged, m.K, func(was any) any {
			list, _ := was.([]any)
			if m.I != nil && *m.I >= 0 && *m.I <= len(list) {
				list = list[:*m.I]
			}
			more, _ := m.V.([]any)
			return append(list, more...)
		})
	case "3":
		x.logged = changed(x.logged, m.K, func(any) any { return nil })
	default:
		return true, e.wrong("kind", store.Invalid("kind", kind, "0 to 3, a change of a chat"))
	}
	return true, nil
}

// changed changes the value at a path; nil deletes it. A path that is not there changes nothing.
func changed(v any, path []any, change func(any) any) any {
	if len(path) == 0 {
		return change(v)
	}
	switch at := v.(type) {
	case map[string]any:
		key, ok := path[0].(string)
		if !ok {
			return v
		}
		if inner := changed(at[key], path[1:], change); inner != nil {
			at[key] = inner
		} else {
			delete(at, key)
		}
	case []any:
		n, ok := path[0].(json.Number)
		i, err := n.Int64()
		switch {
		case !ok || err != nil || i < 0 || i > int64(len(at)):
		case i == int64(len(at)):
			if inner := changed(nil, path[1:], change); inner != nil {
				return append(at, inner)
			}
		default:
			at[i] = changed(at[i], path[1:], change)
		}
	}
	return v
}

// endLog reads the session that a log describes.
func (x *reading) endLog() error {
	if x.logged == nil {
		return nil
	}
	raw, err := json.Marshal(x.logged)
	if err != nil {
		return fmt.Errorf("ctxpage: import: %w", err)
	}
	e := element{raw: raw, line: x.logLine, undated: &x.left.Undated}
	v := object(raw)
	if v == nil {
		return e.wrong("v", store.Invalid("chat", cut(string(raw), 40), "an object"))
	}
	x.logged = nil
	return x.transcript(e, v)
}
