package directive

// Message is one message of a transcript. Only those whose Role is exactly
// "user" count.
type Message struct {
	Role    string
	Content string
}

// Outcome is the result of a transcript: a state, or a question that stopped it.
type Outcome struct {
	State   State  // the state reached, also when it stopped
	Stopped bool   // a clarify ended the run; later messages were not read
	Prompt  string // what it asked
	Read    int    // messages read, the stopping one included
}

// Apply steps a transcript on s. The first clarification ends it; changes made before it stay, and a question that it
// opened stays open. The first user message answers a question that was open before.
func Apply(s Session, messages []Message, opts ...Option) (Session, Outcome) {
	for i, m := range messages {
		if m.Role != "user" {
			continue
		}
		var d Decision
		if s, d = Step(s, m.Content, opts...); d.Kind == Clarify {
			return s, Outcome{s.State, true, d.Prompt, i + 1}
		}
	}
	return s, Outcome{State: s.State, Read: len(messages)}
}
