package directive

import (
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/directivetext"
)

// What an import refuses. An error wraps one of these and says what was expected.
var (
	errState             = errors.New("directive: invalid state")
	errStateVersion      = errors.New("directive: unsupported state version")
	errCheckpoint        = errors.New("directive: invalid directive checkpoint")
	errCheckpointVersion = errors.New("directive: unsupported directive checkpoint version")
)

// ErrorCode returns the wire word of an import error: invalid_json,
// invalid_state, unsupported_state_version, invalid_checkpoint or
// unsupported_checkpoint_version; "" for any other error.
func ErrorCode(err error) string {
	switch {
	case errors.Is(err, directivetext.ErrJSON):
		return "invalid_json"
	case errors.Is(err, errState):
		return "invalid_state"
	case errors.Is(err, errStateVersion):
		return "unsupported_state_version"
	case errors.Is(err, errCheckpoint):
		return "invalid_checkpoint"
	case errors.Is(err, errCheckpointVersion):
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
func ExportJSON(s State) []byte { return appendJSON(nil, s) }

// appendJSON appends what ExportJSON writes.
func appendJSON(b []byte, s State) []byte {
	b = append(b, `{"policies":{`...)
	i := 0
	for p := range s.Policies() {
		b = appendPolicy(appendComma(b, i), p)
		i++
	}
	b = directivetext.AppendText(append(b, `},"premise":`...), s.premise)
	return append(b, `,"version":`+stateVersion+`}`...)
}

// AppendJSON appends the decision as canonical JSON with the keys of the wire
// format: kind, prompt_to_user and state.
func (d Decision) AppendJSON(b []byte) []byte {
	b = directivetext.AppendString(append(b, `{"kind":`...), d.Kind.String())
	b = append(b, `,"prompt_to_user":`...)
	if d.Kind == Clarify {
		b = directivetext.AppendString(b, d.Prompt)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"state":`...)
	if d.Kind == Update {
		return append(appendJSON(b, d.State), '}')
	}
	return append(b, "null}"...)
}

func appendPolicy(b []byte, p Policy) []byte {
	return directivetext.AppendString(append(directivetext.AppendString(b, p.Item), ':'), string(p.Polarity))
}

func appendComma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

// ImportJSON reads a state. It normalises texts as Step does. It is strict: unknown, missing or repeated
// keys, another version, a blank premise, an item without text, and two items with the same key are refused; ErrorCode
// names the error. An open question is not part of a state, so importing a state drops it.
func ImportJSON(data []byte) (State, error) {
	v, err := directivetext.ParseJSON(data)
	if err != nil {
		return State{}, err
	}
	return stateOf(v)
}

func stateOf(v directivetext.Value) (State, error) {
	fields, ok := v.Exactly(0, "premise", "policies", "version")
	if !ok {
		return State{}, fmt.Errorf("%w: expected an object with exactly the keys premise, policies and version", errState)
	}
	premise, policies, version := fields[0], fields[1], fields[2]
	if version.Kind != directivetext.JSONNumber || version.Text != stateVersion {
		return State{}, fmt.Errorf("%w: version must be the integer %s", errStateVersion, stateVersion)
	}
	if premise.Kind != directivetext.JSONNull && (premise.Kind != directivetext.JSONString || directivetext.Premise(premise.Text) == "") {
		return State{}, fmt.Errorf("%w: premise must be a text that is not blank, or null", errState)
	}
	if policies.Kind != directivetext.JSONObject {
		return State{}, fmt.Errorf("%w: policies must be an object", errState)
	}
	list := make([]Policy, len(policies.Members))
	for i, m := range policies.Members {
		list[i] = Policy{m.Key, polarityOf(m.Value)}
	}
	set, err := distinctSet(list)
	if err != nil {
		return State{}, err
	}
	return State{directivetext.Premise(premise.Text), set}, nil
}

func polarityOf(v directivetext.Value) Polarity {
	for _, p := range [...]Polarity{Use, Prohibit} {
		if v.Kind == directivetext.JSONString && v.Text == string(p) {
			return p
		}
	}
	return ""
}

// ExportCheckpoint writes a session, with its open question, as canonical JSON. ImportCheckpoint returns a session that
// continues exactly as this one.
func ExportCheckpoint(s Session) []byte {
	b := appendJSON([]byte(`{"authoritative_state":`), s.State)
	b = append(b, `,"checkpoint_version":`+checkpointVersion+`,"pending":`...)
	p := s.Pending
	if p == nil {
		return append(b, "null}"...)
	}
	b = directivetext.AppendString(append(b, `{"kind":"replacement","prompt_to_user":`...), p.Prompt)
	kind := "use_only"
	if p.Old != "" {
		kind = "replace_use"
	}
	b = directivetext.AppendString(append(b, `,"replacement":{"kind":`...), kind)
	b = directivetext.AppendString(append(b, `,"new_item":`...), p.New)
	b = append(b, `,"old_item":`...)
	if p.Old != "" {
		b = directivetext.AppendString(b, p.Old)
	} else {
		b = append(b, "null"...)
	}
	return append(b, "}}}"...)
}

// ImportCheckpoint reads a directive checkpoint, as strictly as [ImportJSON]. The
// texts of an open question are taken as they are, its prompt included.
func ImportCheckpoint(data []byte) (Session, error) {
	v, err := directivetext.ParseJSON(data)
	if err != nil {
		return Session{}, err
	}
	fields, ok := v.Exactly(1, "checkpoint_version", "authoritative_state", "pending")
	if !ok {
		return Session{}, fmt.Errorf("%w: expected an object with the keys checkpoint_version, authoritative_state and pending", errCheckpoint)
	}
	if fields[0].Kind != directivetext.JSONNumber || fields[0].Text != checkpointVersion {
		return Session{}, fmt.Errorf("%w: checkpoint_version must be the integer %s", errCheckpointVersion, checkpointVersion)
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

func pendingOf(v directivetext.Value) (*Pending, error) {
	if v.Kind == directivetext.JSONNull {
		return nil, nil
	}
	fields, ok := v.Exactly(0, "kind", "prompt_to_user", "replacement")
	if !ok || fields[0].Kind != directivetext.JSONString || fields[0].Text != "replacement" || fields[1].Kind != directivetext.JSONString {
		return nil, fmt.Errorf("%w: pending must be null or an object with kind \"replacement\", prompt_to_user and replacement", errCheckpoint)
	}
	p, ok := replacementOf(fields[2])
	if !ok {
		return nil, fmt.Errorf("%w: replacement must have a kind \"use_only\" or \"replace_use\", a new_item and a fitting old_item", errCheckpoint)
	}
	p.Prompt = fields[1].Text
	return &p, nil
}

func replacementOf(v directivetext.Value) (Pending, bool) {
	fields, ok := v.Exactly(0, "kind", "new_item", "old_item")
	if !ok || fields[0].Kind != directivetext.JSONString || !isItem(fields[1]) {
		return Pending{}, false
	}
	p := Pending{New: fields[1].Text, Old: fields[2].Text}
	switch fields[0].Text {
	case "use_only":
		ok = fields[2].Kind == directivetext.JSONNull
	case "replace_use":
		ok = isItem(fields[2])
	default:
		ok = false
	}
	return p, ok
}

func isItem(v directivetext.Value) bool {
	return v.Kind == directivetext.JSONString && directivetext.Item(v.Text) != ""
}
