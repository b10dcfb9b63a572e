package directive

// Message is one message of a transcript; only those of role "user" count.
type Message struct {
	Role    string
	Content string
}

// Outcome is where a transcript led: to a State, or to a question that stopped it.
type Outcome struct {
	State   State
	Prompt  string // the question at which it stopped; "" when it ran to its end
	Stopped bool
	Read    int // messages read, the stopping one included
}

// Compile steps a transcript on a fresh session.
func Compile(messages []Message, opts ...Option) Outcome { panic("skeleton") }

// Apply steps a transcript on s. The first clarify ends it; changes made before stay.
func Apply(s Session, messages []Message, opts ...Option) (Session, Outcome) { panic("skeleton") }
