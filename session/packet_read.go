package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/internal/prose"
)

// ReadPacket reads a packet in either form: JSON as parsePacket, or Markdown as parseMarkdown.
func ReadPacket(raw []byte) (Packet, error) {
	if text := strings.TrimSpace(strings.TrimPrefix(string(raw), "\ufeff")); strings.HasPrefix(text, "#") || strings.HasPrefix(text, "**") {
		return parseMarkdown([]byte(text))
	}
	return parsePacket(raw)
}

var (
	packetTitle   = prose.Expression(`^#{1,2} +(?:[0-9]+[.)] *)?(.+?) *#*$`)
	packetHeader  = prose.Expression(`^\*\*(.+?):\*\* *(.*)$`)
	packetItem    = prose.Expression(`^( *)[-*] +(?:([^:]{1,40}):(?: +|$))?(.*)$`)
	markdownMarks = prose.Expression(`\\([\\|<>\x60\[\]#\-*+=~_])`)
)

// parseMarkdown reads a packet from its document: a header of created for, created by, date and session, and the 14 sections of
// Markdown, in any order. A section that is missing is empty. A section of another title is an error, as its words would be lost, and
// so is a line without a place in its section. The error reports every fault and matches ErrPacket.
func parseMarkdown(raw []byte) (Packet, error) {
	r := &packetReader{}
	for i, l := range strings.Split(strings.ReplaceAll(string(raw), "\r\n", "\n"), "\n") {
		r.line(i+1, strings.TrimRight(l, " \t"))
	}
	r.end()
	p := r.p.filled()
	if !r.any {
		r.fault(1, "expected the sections of a handoff packet, such as ## 1. Current Goal")
	}
	if p.ActiveIntent.PrimaryIntent == "" {
		p.ActiveIntent.PrimaryIntent = "unknown"
	}
	return p, errors.Join(append(r.faults, p.Validate())...)
}

// packetReader is a document on its way through.
type packetReader struct {
	p      Packet
	title  string
	at     int // the line of the title
	body   []string
	any    bool
	faults []error
}

func (r *packetReader) fault(at int, format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf("%w: line %d: %s", ErrPacket, at, fmt.Sprintf(format, args...)))
}

func (r *packetReader) line(n int, l string) {
	if m := packetTitle().FindStringSubmatch(l); m != nil {
		r.end()
		r.title, r.at, r.body = strings.ToLower(m[1]), n, nil
		return
	}
	if m := packetHeader().FindStringSubmatch(l); m != nil && (r.title == "" || r.title == "handoff packet") {
		to := map[string]*string{"created for": &r.p.CreatedFor, "created by": &r.p.CreatedBy, "date": &r.p.Date, "session / project": &r.p.SessionOrProject, "session/project": &r.p.SessionOrProject}[strings.ToLower(m[1])]
		if to == nil {
			r.fault(n, "%s is not in the header of a packet", m[1])
			return
		}
		*to = plainText(m[2])
		return
	}
	r.body = append(r.body, l)
}

// end reads the section that ends.
func (r *packetReader) end() {
	p := &r.p
	second := func(set func(x, y string)) func([][2]string) {
		return func(items [][2]string) {
			for _, i := range items {
				set(i[0], i[1])
			}
		}
	}
	text := strings.TrimSpace(plainText(strings.Join(r.body, "\n")))
	if r.title == "" || r.title == "handoff packet" {
		if text != "" {
			r.fault(max(r.at, 1), "%q stands outside of the sections", prose.Clip(prose.OneLine(text), 40))
		}
		return
	}
	read, known := map[string]func([][2]string){
		"inferred claims":          second(func(x, y string) { p.InferredClaims = append(p.InferredClaims, BasisItem{x, y}) }),
		"locked decisions":         second(func(x, y string) { p.LockedDecisions = append(p.LockedDecisions, BasisItem{x, y}) }),
		"open questions":           second(func(x, y string) { p.OpenQuestions = append(p.OpenQuestions, QuestionItem{x, y}) }),
		"active user corrections":  second(func(x, y string) { p.Corrections = append(p.Corrections, CorrectionItem{x, y}) }),
		"context to preserve":      second(func(x, y string) { p.Context = append(p.Context, ContextItem{x, y}) }),
		"work completed":           second(func(x, _ string) { p.WorkCompleted = append(p.WorkCompleted, x) }),
		"work not yet completed":   second(func(x, _ string) { p.WorkNotYetCompleted = append(p.WorkNotYetCompleted, x) }),
		"do not claim beyond this": second(func(x, y string) { p.DoNotClaim = append(p.DoNotClaim, BoundaryItem{x, y}) }),
	}[r.title]
	switch {
	case known:
		read(r.items())
	case r.title == "current goal":
		p.CurrentGoal = text
	case r.title == "current state":
		p.CurrentState = text
	case r.title == "recommended next action":
		p.NextAction = text
	case strings.HasPrefix(r.title, "handoff notes"):
		p.Notes = text
	case r.title == "active intent":
		r.intent()
	case r.title == "verified sources":
		r.sources()
	default:
		r.fault(r.at, "section %q is not one of a handoff packet", r.title)
		return
	}
	r.any = true
}

var itemLabels = []string{
	"inferred", "decision", "question", "correction", "context", "completed", "remaining", "boundary", "basis", "reason", "why it matters", "meaning for next agent",
}

// items reads a list in which an item may have a second text one level below. Labels such as Basis are left out; further lines belong
// to the text before them.
func (r *packetReader) items() (out [][2]string) {
	level := 0
	for _, l := range r.body {
		m := packetItem().FindStringSubmatch(l)
		text := strings.TrimSpace(l)
		if m != nil {
			text = m[3]
			if m[2] != "" && !slices.Contains(itemLabels, strings.ToLower(m[2])) {
				text = m[2] + ": " + m[3]
			}
		}
		switch text = plainText(text); {
		case text == "" || len(out) == 0 && strings.EqualFold(strings.TrimSuffix(text, "."), "none recorded"):
			continue
		case m != nil && m[1] == "" || len(out) == 0:
			out, level = append(out, [2]string{text}), 0
			continue
		case m != nil:
			level = 1
		}
		last := &out[len(out)-1][level]
		*last = strings.TrimSpace(*last + " " + text)
	}
	return out
}

func (r *packetReader) intent() {
	a := &r.p.ActiveIntent
	split := func(s string) []string { return strings.Split(s, "; ") }
	for i, l := range r.body {
		m := packetItem().FindStringSubmatch(l)
		if m == nil {
			if strings.TrimSpace(l) != "" {
				r.fault(r.at+i+1, "expected an item like - Status: open, got %q", prose.Clip(l, 40))
			}
			continue
		}
		value := plainText(m[3])
		switch strings.ToLower(m[2]) {
		case "primary intent":
			a.PrimaryIntent = strings.ToLower(value)
		case "target/artifact", "target / artifact":
			a.TargetOrArtifact = value
		case "status":
			a.Status = value
		case "basis":
			a.Basis = value
		case "secondary intent":
			a.SecondaryIntent = value
		case "unresolved slots":
			a.UnresolvedSlots = split(value)
		case "flags":
			a.Flags = split(value)
		default:
			r.fault(r.at+i+1, "%q is not in the active intent of a packet", prose.Clip(l, 40))
		}
	}
}

var cellEnds = prose.Expression(`(^|[^\\])\|`)

// sources reads the table of sources.
func (r *packetReader) sources() {
	rows := 0
	for i, l := range r.body {
		l = strings.TrimSpace(l)
		if !strings.HasPrefix(l, "|") {
			if l != "" && !strings.EqualFold(strings.TrimSuffix(l, "."), "none recorded") {
				r.fault(r.at+i+1, "expected a row of the table of sources, got %q", prose.Clip(l, 40))
			}
			continue
		}
		if rows++; rows <= 2 { // the head, and the line below it
			continue
		}
		cells := strings.Split(cellEnds().ReplaceAllString(strings.TrimSuffix(strings.TrimPrefix(l, "|"), "|"), "$1\x00"), "\x00")
		if len(cells) != 4 {
			r.fault(r.at+i+1, "got %d cells, expected source, type, state and what was verified", len(cells))
			continue
		}
		for k := range cells {
			cells[k] = plainText(cells[k])
		}
		r.p.VerifiedSources = append(r.p.VerifiedSources, PacketSource{cells[0], cells[1], strings.ToLower(cells[2]), cells[3]})
	}
}

// plainText undoes the escapes of Markdown.
func plainText(s string) string {
	return strings.TrimSpace(markdownMarks().ReplaceAllString(s, "$1"))
}

// parsePacket reads a packet from JSON and checks it against the schema: all 18 fields, no others at any depth, no
// null, the two enumerations. The error reports every fault and matches ErrPacket.
func parsePacket(raw []byte) (Packet, error) {
	var tree any
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&tree); err != nil {
		return Packet{}, fmt.Errorf("%w: %w", ErrPacket, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Packet{}, fmt.Errorf("%w: more text after the packet", ErrPacket)
	}
	faults := memberFaults("packet", tree, reflect.TypeFor[Packet]())
	var p Packet
	if err := json.Unmarshal(raw, &p); err == nil {
		faults = append(faults, p.Validate())
	} else if len(faults) == 0 {
		faults = append(faults, fmt.Errorf("%w: %w", ErrPacket, err))
	}
	if err := errors.Join(faults...); err != nil {
		return Packet{}, err
	}
	return p, nil
}

// memberFaults walks the decoded JSON along the Go type and reports members that are absent, null
// or unknown. encoding/json alone ignores case and leaves absent members at zero.
func memberFaults(path string, v any, t reflect.Type) (faults []error) {
	switch t.Kind() {
	case reflect.Struct:
		members, ok := v.(map[string]any)
		if !ok {
			return []error{fmt.Errorf("%w: %s must be an object", ErrPacket, path)}
		}
		known := map[string]bool{}
		for i := range t.NumField() {
			name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			got, given := members[name]
			known[name] = true
			switch {
			case got != nil:
				faults = append(faults, memberFaults(path+"."+name, got, t.Field(i).Type)...)
			case given || options == "":
				faults = append(faults, fmt.Errorf("%w: %s.%s is missing or null", ErrPacket, path, name))
			}
		}
		for _, k := range slices.Sorted(maps.Keys(members)) {
			if !known[k] {
				faults = append(faults, fmt.Errorf("%w: %s is not in the schema", ErrPacket, member(path, k)))
			}
		}
	case reflect.Slice:
		items, ok := v.([]any)
		if !ok {
			return []error{fmt.Errorf("%w: %s must be an array", ErrPacket, path)}
		}
		for i, item := range items {
			at := fmt.Sprintf("%s[%d]", path, i)
			if item == nil {
				faults = append(faults, fmt.Errorf("%w: %s is null", ErrPacket, at))
				continue
			}
			faults = append(faults, memberFaults(at, item, t.Elem())...)
		}
	case reflect.String:
		if _, ok := v.(string); !ok {
			return []error{fmt.Errorf("%w: %s must be a text", ErrPacket, path)}
		}
	}
	return faults
}

var plainMember = prose.Expression(`^[A-Za-z0-9_-]+$`)

// member is the path of a member, its name quoted where that is not a plain one.
func member(path, name string) string {
	if plainMember().MatchString(name) {
		return path + "." + name
	}
	return path + "[" + strconv.QuoteToASCII(name) + "]"
}
