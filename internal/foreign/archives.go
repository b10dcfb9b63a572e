package foreign

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/store"
)

func sorted(m map[string]json.RawMessage) []string { return slices.Sorted(maps.Keys(m)) }

// node is a place in the tree of a ChatGPT conversation.
type node struct {
	Parent  string `json:"parent"`
	Message *struct {
		ID     string `json:"id"`
		Author struct {
			Role string `json:"role"`
			Name string `json:"name"`
		} `json:"author"`
		CreateTime json.RawMessage `json:"create_time"`
		Content    json.RawMessage `json:"content"`
		Weight     *float64        `json:"weight"`
	} `json:"message"`
}

// content is the content of a ChatGPT message: text and code, with parts of which some are objects, or another type, kept whole.
type content struct {
	Type  string            `json:"content_type"`
	Text  string            `json:"text"`
	Parts []json.RawMessage `json:"parts"`
}

func (c *content) parts(raw json.RawMessage) (list []store.Part) {
	if c.Text == "" && c.Parts == nil && c.Type != "" && c.Type != "text" && c.Type != "code" {
		return []store.Part{keptPart(c.Type, raw)}
	}
	for _, p := range c.Parts {
		var spoken content
		switch {
		case len(p) > 0 && p[0] == '"':
			list = append(list, store.Part{Type: "text", Text: text(p)})
		case json.Unmarshal(p, &spoken) == nil && spoken.Type == "audio_transcription":
			list = append(list, store.Part{Type: "text", Text: spoken.Text})
		default:
			list = append(list, keptPart(c.Type, p))
		}
	}
	return list
}

type tree struct {
	ID      string           `json:"conversation_id"`
	Other   string           `json:"id"`
	Title   string           `json:"title"`
	Current string           `json:"current_node"`
	Mapping map[string]*node `json:"mapping"`
}

// chatGPT reads a conversation of a ChatGPT export: the branch that ends at the current node, or with branches all of it.
func chatGPT(e element, branches bool) (out []store.Artefact, err error) {
	var v tree
	if err := decode(e, &v); err != nil {
		return nil, err
	}
	if v.ID == "" {
		v.ID = v.Other
	}
	switch {
	case v.ID == "":
		return nil, e.wrong("conversation_id", store.Invalid("conversation_id", "none, and no id", "one of them, which names the session"))
	case v.Mapping == nil:
		return nil, e.wrong("mapping", store.Invalid("mapping", "none", "the nodes of the conversation"))
	}
	order, err := v.path(e, branches)
	if err != nil {
		return nil, err
	}
	for i, name := range order {
		m := v.Mapping[name].Message
		if m == nil || m.Weight != nil && *m.Weight == 0 {
			continue
		}
		var c content
		if len(m.Content) > 0 {
			if err := json.Unmarshal(m.Content, &c); err != nil {
				return nil, e.wrong("mapping."+short(name)+".message.content", store.Invalid("content", cut(string(m.Content), 40), "an object with a content_type"))
			}
		}
		msg := Message{ID: m.ID, Role: m.Author.Role, Name: m.Author.Name, Text: c.Text, Parts: c.parts(m.Content)}
		msg.settle()
		a, ok := msg.artefact()
		if !ok {
			continue
		}
		a.CurrentAsOf = e.when(m.CreateTime)
		a.Group, a.Seq, a.Meta = label(conversation(ChatGPT, v.ID)), int64(i+1), map[string]string{"title": cut(v.Title, 512)}
		out = append(out, item(ChatGPT, v.ID+"/"+m.ID, a, nil))
	}
	return out, nil
}

func conversation(f Format, id string) string { return string(f) + "/" + id }

// newest is the leaf with the newest message, for conversations that do not say which node is the current one; "": there is none.
func (v *tree) newest() (name string) {
	parents, best := map[string]bool{}, 0.0
	for _, n := range v.Mapping {
		if n != nil {
			parents[n.Parent] = true
		}
	}
	for _, at := range slices.Sorted(maps.Keys(v.Mapping)) {
		n, time := v.Mapping[at], 0.0
		if n == nil || parents[at] {
			continue
		}
		if n.Message != nil {
			_ = json.Unmarshal(n.Message.CreateTime, &time) // of a draft: null
		}
		if name == "" || time > best {
			name, best = at, time
		}
	}
	return name
}

// path lists the nodes from the root to the current one; with branches, all nodes, each after its parent.
func (v *tree) path(e element, branches bool) (names []string, err error) {
	up := func(name string) (line []string, err error) {
		seen := map[string]bool{}
		for v.Mapping[name] != nil {
			if seen[name] {
				return nil, e.wrong("mapping."+short(name)+".parent", store.Invalid("parent", "a circle", "a tree"))
			}
			seen[name] = true
			line = append(line, name)
			name = v.Mapping[name].Parent
		}
		slices.Reverse(line)
		return line, nil
	}
	if v.Current == "" {
		v.Current = v.newest()
	}
	if !branches && len(v.Mapping) > 0 {
		if v.Mapping[v.Current] == nil {
			return nil, e.wrong("current_node", store.Invalid("current_node", fmt.Sprintf("%q", short(v.Current)), "a node of the mapping"))
		}
		return up(v.Current)
	}
	children := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(v.Mapping)) {
		if n := v.Mapping[name]; n != nil {
			parent := n.Parent
			if v.Mapping[parent] == nil {
				parent = ""
			}
			children[parent] = append(children[parent], name)
		}
	}
	for todo := children[""]; len(todo) > 0; { // a circle is under no root and is not reached
		names = append(names, todo[0])
		todo = append(slices.Clone(children[todo[0]]), todo[1:]...)
	}
	return names, nil
}

func claude(e element) (out []store.Artefact, err error) {
	var v struct {
		ID       string            `json:"uuid"`
		Name     string            `json:"name"`
		Project  string            `json:"project_uuid"`
		Messages []json.RawMessage `json:"chat_messages"`
		Memory   json.RawMessage   `json:"conversations_memory"`
		Projects json.RawMessage   `json:"project_memories"`
		Account  string            `json:"account_uuid"`
	}
	if err := decode(e, &v); err != nil {
		return nil, err
	}
	if v.Memory != nil || v.Projects != nil {
		return claudeMemories(v.Account, v.Memory, v.Projects), nil
	}
	if v.ID == "" {
		return nil, e.wrong("uuid", store.Invalid("conversation", "no uuid", "a conversation with uuid and chat_messages"))
	}
	for i, raw := range v.Messages {
		turns, err := claudeMessage(e, fmt.Sprintf("chat_messages.%d", i), raw)
		if err != nil {
			return nil, err
		}
		for _, t := range turns {
			a := t.artefact
			a.Group, a.Seq = label(conversation(Claude, v.ID)), int64(len(out)+1)
			if a.Meta = map[string]string{"title": cut(v.Name, 512)}; v.Project != "" {
				a.Meta["project"] = v.Project
			}
			out = append(out, item(Claude, v.ID+"/"+t.key, a, nil))
		}
	}
	return out, nil
}

type claudeTurn struct {
	key      string
	artefact store.Artefact
}

// claudeMessage are the turns of one message: several where it has results of tools.
func claudeMessage(e element, field string, raw json.RawMessage) (out []claudeTurn, err error) {
	var m struct {
		ID      string          `json:"uuid"`
		Sender  string          `json:"sender"`
		Text    string          `json:"text"`
		Content json.RawMessage `json:"content"`
		At      json.RawMessage `json:"created_at"`
		Files   []struct {
			Name string `json:"file_name"`
			Text string `json:"extracted_content"`
		} `json:"attachments"`
	}
	if err := json.Unmarshal(raw, &m); err != nil || m.ID == "" {
		return nil, e.wrong(field, store.Invalid("message", "no message with a uuid", "one"))
	}
	at := e.when(m.At)
	turns, err := body(e, Message{ID: m.ID, Role: m.Sender}, fields{"content": m.Content}, "content")
	if err != nil {
		return nil, err
	}
	last := &turns[len(turns)-1]
	if said := strings.TrimSpace(m.Text); said != "" && !slices.ContainsFunc(turns, func(t Message) bool { return t.Text != "" || hasText(t.Parts) }) {
		last.add("", m.Text) // what the program shows for blocks that it does not
	}
	for _, f := range m.Files {
		if f.Text != "" {
			last.add("\n\n["+f.Name+"]\n", f.Text)
		}
	}
	for i, msg := range turns {
		a, ok := msg.artefact()
		if !ok {
			continue
		}
		key := m.ID
		if i > 0 {
			key += "/" + fmt.Sprint(i+1)
		}
		a.CurrentAsOf = at
		out = append(out, claudeTurn{key, a})
	}
	return out, nil
}

func claudeMemories(account string, memory, projects json.RawMessage) (out []store.Artefact) {
	add := func(key, said string) {
		if said = strings.TrimSpace(said); said != "" {
			out = append(out, item(Claude, "memory/"+key, store.Artefact{Kind: store.KindFact, Text: said, Subject: label(account)}, nil))
		}
	}
	add("conversations", words(memory))
	var of map[string]json.RawMessage
	if json.Unmarshal(projects, &of) == nil {
		for _, id := range sorted(of) {
			add("project/"+id, words(of[id]))
		}
	} else {
		add("projects", words(projects))
	}
	return out
}
