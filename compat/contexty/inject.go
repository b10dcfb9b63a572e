package contexty

import (
	"html"
	"strings"
)

// InjectIntoSystem returns the system message with the facts appended to its text, each escaped and in a tag of its
// own. Without facts the message comes back unchanged; otherwise parts that are not text are lost. It looks at no
// budget: call it before counting.
func InjectIntoSystem(system Message, facts ...Message) Message {
	if len(facts) == 0 {
		return system
	}
	var b strings.Builder
	b.WriteString(text(&system))
	b.WriteString("\n<context>\n")
	for i := range facts {
		b.WriteString("  <fact>" + html.EscapeString(text(&facts[i])) + "</fact>\n")
	}
	b.WriteString("</context>")
	system.Content = []ContentPart{{Type: "text", Text: b.String()}}
	return system
}

func text(m *Message) string {
	var b strings.Builder
	for i := range m.Content {
		if m.Content[i].Type == "text" {
			b.WriteString(m.Content[i].Text)
		}
	}
	return b.String()
}
