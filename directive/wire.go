package directive

import (
	"errors"
	"fmt"
	"strconv"
)

// What an import refuses. An error wraps one of these and says what was expected.
var (
	ErrJSON              = errors.New("directive: not valid JSON")
	ErrState             = errors.New("directive: invalid state")
	ErrStateVersion      = errors.New("directive: unsupported state version")
	ErrCheckpoint        = errors.New("directive: invalid directive checkpoint")
	ErrCheckpointVersion = errors.New("directive: unsupported directive checkpoint version")
)

// ErrorCode returns the wire word of an import error: invalid_json,
// invalid_state, unsupported_state_version, invalid_checkpoint or
// unsupported_checkpoint_version; "" for any other error.
func ErrorCode(err error) string {
	switch {
	case errors.Is(err, ErrJSON):
		return "invalid_json"
	case errors.Is(err, ErrState):
		return "invalid_state"
	case errors.Is(err, ErrStateVersion):
		return "unsupported_state_version"
	case errors.Is(err, ErrCheckpoint):
		return "invalid_checkpoint"
	case errors.Is(err, ErrCheckpointVersion):
		return "unsupported_checkpoint_version"
	}
	return ""
}

// The versions written, and the only ones read: an integer, not 2.0 and not true.
const (
	stateVersion      = "2"
	checkpointVersion = "1"
)

// ExportJSON writes a state as canonical JSON: keys in code point order, no
// blanks, ASCII only. Equal states give equal bytes.
func ExportJSON(s State) []byte { return AppendJSON(nil, s) }

// AppendJSON appends what [ExportJSON] writes.
func AppendJSON(b []byte, s State) []byte {
	b = append(b, `{"policies":{`...)
	i := 0
	for p := range s.Policies() {
		b = appendPolicy(appendComma(b, i), p)
		i++
	}
	b = appendText(append(b, `},"premise":`...), s.premise)
	return append(b, `,"version":`+stateVersion+`}`...)
}

// AppendJSON appends the decision as canonical JSON with the keys of the wire
// format: kind, prompt_to_user and state.
func (d Decision) AppendJSON(b []byte) []byte {
	b = AppendString(append(b, `{"kind":`...), d.Kind.String())
	b = append(b, `,"prompt_to_user":`...)
	if d.Kind == Clarify {
		b = AppendString(b, d.Prompt)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"state":`...)
	if d.Kind == Update {
		return append(AppendJSON(b, d.State), '}')
	}
	return append(b, "null}"...)
}

// AppendJSON appends the delta as canonical JSON.
func (d Delta) AppendJSON(b []byte) []byte {
	b = strconv.AppendBool(append(b, `{"changed":`...), !d.Empty())
	b = appendPolicies(append(b, `,"policies":{"added":`...), d.Added)
	b = append(b, `,"changed":{`...)
	for i, c := range d.Changed {
		b = AppendString(appendComma(b, i), c.Item)
		b = AppendString(append(b, `:{"after":`...), c.After.String())
		b = AppendString(append(b, `,"before":`...), c.Before.String())
		b = append(b, '}')
	}
	b = appendPolicies(append(b, `},"removed":`...), d.Removed)
	b = appendText(append(b, `},"premise":{"after":`...), d.PremiseAfter)
	b = appendText(append(b, `,"before":`...), d.PremiseBefore)
	b = strconv.AppendBool(append(b, `,"changed":`...), d.PremiseChanged())
	return append(b, "}}"...)
}

func appendPolicies(b []byte, list []Policy) []byte {
	b = append(b, '{')
	for i, p := range list {
		b = appendPolicy(appendComma(b, i), p)
	}
	return append(b, '}')
}

func appendPolicy(b []byte, p Policy) []byte {
	return AppendString(append(AppendString(b, p.Item), ':'), p.Polarity.String())
}

func appendComma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

// ImportJSON reads a state. It normalises texts like those of a directive. It is strict: unknown, missing or repeated
// keys, another version, a blank premise, an item without text, and two items with the same key are refused; ErrorCode
// names the error. An open question is not part of a state, so importing a state drops it.
func ImportJSON(data []byte) (State, error) {
	v, err := parseJSON(data)
	if err != nil {
		return State{}, err
	}
	return stateOf(v)
}

func stateOf(v jsonValue) (State, error) {
	fields, ok := v.exactly(0, "premise", "policies", "version")
	if !ok {
		return State{}, fmt.Errorf("%w: expected an object with exactly the keys premise, policies and version", ErrState)
	}
	premise, policies, version := fields[0], fields[1], fields[2]
	if version.kind != jsonNumber || version.text != stateVersion {
		return State{}, fmt.Errorf("%w: version must be the integer %s", ErrStateVersion, stateVersion)
	}
	if premise.kind != jsonNull && (premise.kind != jsonString || Premise(premise.text) == "") {
		return State{}, fmt.Errorf("%w: premise must be a text that is not blank, or null", ErrState)
	}
	if policies.kind != jsonObject {
		return State{}, fmt.Errorf("%w: policies must be an object", ErrState)
	}
	list := make([]Policy, len(policies.members))
	for i, m := range policies.members {
		list[i] = Policy{m.key, polarityOf(m.value)}
	}
	set, err := distinctSet(list)
	if err != nil {
		return State{}, err
	}
	return State{Premise(premise.text), set}, nil
}

func polarityOf(v jsonValue) Polarity {
	for _, p := range [...]Polarity{Use, Prohibit} {
		if v.kind == jsonString && v.text == p.String() {
			return p
		}
	}
	return 0
}

// ExportCheckpoint writes a session, with its open question, as canonical JSON. ImportCheckpoint returns a session that
// continues exactly as this one.
func ExportCheckpoint(s Session) []byte {
	b := AppendJSON([]byte(`{"authoritative_state":`), s.State)
	b = append(b, `,"checkpoint_version":`+checkpointVersion+`,"pending":`...)
	p := s.Pending
	if p == nil {
		return append(b, "null}"...)
	}
	b = AppendString(append(b, `{"kind":"replacement","prompt_to_user":`...), p.Prompt)
	b = AppendString(append(b, `,"replacement":{"kind":`...), p.Kind.String())
	b = AppendString(append(b, `,"new_item":`...), p.New)
	b = append(b, `,"old_item":`...)
	if p.Kind == ReplaceUse {
		b = AppendString(b, p.Old)
	} else {
		b = append(b, "null"...)
	}
	return append(b, "}}}"...)
}

// ImportCheckpoint reads a directive checkpoint, as strictly as [ImportJSON]. The
// texts of an open question are taken as they are, its prompt included.
func ImportCheckpoint(data []byte) (Session, error) {
	v, err := parseJSON(data)
	if err != nil {
		return Session{}, err
	}
	fields, ok := v.exactly(1, "checkpoint_version", "authoritative_state", "pending")
	if !ok {
		return Session{}, fmt.Errorf("%w: expected an object with the keys checkpoint_version, authoritative_state and pending", ErrCheckpoint)
	}
	if fields[0].kind != jsonNumber || fields[0].text != checkpointVersion {
		return Session{}, fmt.Errorf("%w: checkpoint_version must be the integer %s", ErrCheckpointVersion, checkpointVersion)
	}
	state, err := stateOf(fields[1])
	if err != nil {
		return Session{}, err
	}
	pending, err := pendingOf(fields[2])
	if err != nil {
		return Session{}, err
	}
	return Session{state, pending}, nil
}

func pendingOf(v jsonValue) (*Pending, error) {
	if v.kind == jsonNull {
		return nil, nil
	}
	fields, ok := v.exactly(0, "kind", "prompt_to_user", "replacement")
	if !ok || fields[0].kind != jsonString || fields[0].text != "replacement" || fields[1].kind != jsonString {
		return nil, fmt.Errorf("%w: pending must be null or an object with kind \"replacement\", prompt_to_user and replacement", ErrCheckpoint)
	}
	p, ok := replacementOf(fields[2])
	if !ok {
		return nil, fmt.Errorf("%w: replacement must have a kind \"use_only\" or \"replace_use\", a new_item and a fitting old_item", ErrCheckpoint)
	}
	p.Prompt = fields[1].text
	return &p, nil
}

func replacementOf(v jsonValue) (Pending, bool) {
	fields, ok := v.exactly(0, "kind", "new_item", "old_item")
	if !ok || fields[0].kind != jsonString || !isItem(fields[1]) {
		return Pending{}, false
	}
	p := Pending{New: fields[1].text, Old: fields[2].text}
	switch fields[0].text {
	case "use_only":
		p.Kind, ok = UseOnly, fields[2].kind == jsonNull
	case "replace_use":
		p.Kind, ok = ReplaceUse, isItem(fields[2])
	default:
		ok = false
	}
	return p, ok
}

func isItem(v jsonValue) bool { return v.kind == jsonString && Item(v.text) != "" }
