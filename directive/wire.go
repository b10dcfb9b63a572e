package directive

import (
	"encoding/json"
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

func stateOf(v any) (State, error) {
	fields, ok := directivetext.Exactly(v, 0, "premise", "policies", "version")
	if !ok {
		return State{}, fmt.Errorf("%w: expected an object with exactly the keys premise, policies and version", errState)
	}
	if fields[2] != json.Number(stateVersion) {
		return State{}, fmt.Errorf("%w: version must be the integer %s", errStateVersion, stateVersion)
	}
	text, _ := fields[0].(string)
	premise := directivetext.Premise(text)
	if fields[0] != nil && premise == "" {
		return State{}, fmt.Errorf("%w: premise must be a text that is not blank, or null", errState)
	}
	policies, ok := fields[1].(directivetext.Object)
	if !ok {
		return State{}, fmt.Errorf("%w: policies must be an object", errState)
	}
	list := make([]Policy, len(policies))
	for i, m := range policies {
		polarity, _ := m.Value.(string)
		list[i] = Policy{m.Key, Polarity(polarity)}
	}
	set, err := distinctSet(list)
	if err != nil {
		return State{}, err
	}
	return State{premise, set}, nil
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
	fields, ok := directivetext.Exactly(v, 1, "checkpoint_version", "authoritative_state", "pending")
	if !ok {
		return Session{}, fmt.Errorf("%w: expected an object with the keys checkpoint_version, authoritative_state and pending", errCheckpoint)
	}
	if fields[0] != json.Number(checkpointVersion) {
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

func pendingOf(v any) (*Pending, error) {
	if v == nil {
		return nil, nil
	}
	fields, ok := directivetext.Exactly(v, 0, "kind", "prompt_to_user", "replacement")
	prompt, isText := "", false
	if ok {
		prompt, isText = fields[1].(string)
	}
	if !isText || fields[0] != "replacement" {
		return nil, fmt.Errorf("%w: pending must be null or an object with kind \"replacement\", prompt_to_user and replacement", errCheckpoint)
	}
	p := &Pending{Prompt: prompt}
	if !p.replacement(fields[2]) {
		return nil, fmt.Errorf("%w: replacement must have a kind \"use_only\" or \"replace_use\", a new_item and a fitting old_item", errCheckpoint)
	}
	return p, nil
}

// replacement sets the items, if v holds those that fit its kind.
func (p *Pending) replacement(v any) bool {
	fields, ok := directivetext.Exactly(v, 0, "kind", "new_item", "old_item")
	if !ok {
		return false
	}
	p.New, _ = fields[1].(string)
	p.Old, _ = fields[2].(string)
	switch fields[0] {
	case "use_only":
		ok = fields[2] == nil
	case "replace_use":
		ok = directivetext.Item(p.Old) != ""
	default:
		ok = false
	}
	return ok && directivetext.Item(p.New) != ""
}
