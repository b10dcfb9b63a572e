package portable

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/store"
)

// Markdown writes an export for people to read: what is held, with its fields and times. It cannot be imported.
func Markdown(ctx context.Context, w io.Writer, r io.Reader) error {
	l := newLineReader(r)
	head, err := l.header()
	if err != nil {
		return err
	}
	out := &mdWriter{w: bufio.NewWriterSize(w, 64<<10)}
	out.header(head)
	for {
		b, err := l.next()
		if err != nil {
			return l.cutOff(err)
		}
		if l.line%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		kind, err := typeOf(b)
		if err != nil {
			return l.jsonError(err)
		}
		switch kind {
		case typeVersion:
			err = readInto(l, b, out.version)
		case typeState:
			err = readInto(l, b, out.state)
		case typeHeld:
			err = readInto(l, b, out.held)
		case typeQuestion:
			err = readInto(l, b, out.question)
		case typeEnd:
			var end endLine
			if err := l.decode(b, &end); err != nil {
				return err
			}
			out.end(&end)
			if err := errors.Join(out.err, out.w.Flush()); err != nil {
				return fmt.Errorf("ctxpage: export: %w", err)
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func readInto[T any](l *lineReader, b []byte, fn func(*T)) error {
	var v T
	if err := l.decode(b, &v); err != nil {
		return err
	}
	fn(&v)
	return nil
}

type mdWriter struct {
	w       *bufio.Writer
	section string
	err     error
}

func (m *mdWriter) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(m.w, format, args...); err != nil && m.err == nil {
		m.err = err
	}
}

func (m *mdWriter) header(h *Header) {
	switch {
	case h.Subject != "" && h.Scope != "":
		m.printf("# What is held about %s in %s\n\n", Line(h.Subject), Line(h.Scope))
	case h.Subject != "":
		m.printf("# What is held about %s\n\n", Line(h.Subject))
	case h.Scope != "":
		m.printf("# What is held of %s\n\n", Line(h.Scope))
	default:
		m.printf("# Export of a database\n\n")
	}
	m.printf("Database %s, exported at %s.\n", h.Database, mdTime(h.At))
}

func (m *mdWriter) begin(section string) {
	if m.section != section {
		m.section = section
		m.printf("\n## %s\n", section)
	}
}

func (m *mdWriter) version(v *versionLine) {
	m.begin("Artefacts")
	for i := range v.Before {
		b := &v.Before[i]
		if m.printf("\n### %s, version %d\n\n", Line(b.Scope+": "+b.ID), b.Version); b.ErasedBy != "" {
			m.printf("- erased by %s\n", Line(b.ErasedBy))
		} else {
			m.printf("- dropped by gc; put at %s\n", mdTime(b.PutAt))
		}
	}
	m.printf("\n### %s, version %d\n\n", Line(v.Scope+": "+v.ID), v.Version)
	by := ""
	if v.Actor != "" {
		by = " by " + Line(v.Actor)
	}
	switch {
	case v.ErasedBy != "":
		m.printf("- erased at %s by %s\n", mdTime(v.PutAt), Line(v.ErasedBy))
		return
	case v.Deleted:
		m.printf("- deleted at %s%s\n", mdTime(v.PutAt), by)
		return
	}
	m.printf("- put at %s%s\n", mdTime(v.PutAt), by)
	if v.Trace != "" {
		m.printf("- written from the context of trace %s\n", Line(v.Trace))
	}
	if v.Artefact != nil {
		m.fields(v.Artefact)
	}
	same := 0
	for i := range v.Pages {
		if v.Pages[i].Text == nil {
			same++
			continue
		}
		m.text(*v.Pages[i].Text)
	}
	if same > 0 {
		m.printf("\n%d of %d pages are those of the version before.\n", same, len(v.Pages))
	}
}

func (m *mdWriter) fields(a *store.Artefact) {
	m.printf("- kind %s, trust %s\n", a.Kind, a.Provenance)
	for _, f := range []struct{ name, v string }{
		{"role", a.Role}, {"name", a.Name}, {"subject", a.Subject}, {"session or group", a.Group}, {"source", a.Source}, {"answers call", a.ToolCallID},
		{"tags", strings.Join(a.Tags, ", ")}, {"replaces", strings.Join(a.Supersedes, ", ")}, {"derived from", strings.Join(refStrings(a.DerivedFrom), ", ")},
		{"expires", mdTime(a.ExpiresAt)}, {"true as of", mdTime(a.CurrentAsOf)},
	} {
		if f.v != "" {
			m.printf("- %s: %s\n", f.name, Line(f.v))
		}
	}
	if a.Pinned {
		m.printf("- pinned\n")
	}
	for _, k := range slices.Sorted(maps.Keys(a.Meta)) {
		m.printf("- %s: %s\n", Line(k), Line(a.Meta[k]))
	}
	for _, c := range a.ToolCalls {
		m.printf("- calls %s with %s\n", Line(c.Name), Line(c.Arguments))
	}
}

func (m *mdWriter) text(s string) {
	m.printf("\n%s\n", Quote(s))
}

// Quote returns a text as a block of Markdown. Nothing in the text can end the block.
func Quote(s string) string {
	fence := "```"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	return fence + "\n" + strings.TrimRight(visible(s), "\n") + "\n" + fence
}

func (m *mdWriter) state(s *stateLine) {
	m.begin("Rows of state")
	m.printf("\n### %s\n", Line(s.Name))
	if said := saidIn(s.Value); said != "" {
		m.text(said)
	} else {
		m.printf("\n%d bytes without words.\n", len(s.Value))
	}
}

// saidIn returns the words in a row whose format only its owner knows.
func saidIn(b []byte) string {
	if json.Valid(b) {
		return string(b)
	}
	var words []string
	from := -1
	end := func(i int) {
		if from >= 0 && i-from >= 4 {
			words = append(words, string(b[from:i]))
		}
		from = -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 || !unicode.IsPrint(r) {
			end(i)
		} else if from < 0 {
			from = i
		}
		i += n
	}
	end(len(b))
	return strings.Join(words, "\n")
}

func (m *mdWriter) held(h *heldLine) {
	m.begin("Held batches")
	m.printf("\n### %s\n\n- held at %s: %s\n- written by %s in %s\n", h.ID, mdTime(h.At), Line(h.Reason), Line(h.Actor), Line(h.Scope))
	if h.Decided != "" {
		m.printf("- %s by %s: %s\n", h.Decided, Line(h.By), Line(h.Note))
	}
	for i := range h.Puts {
		p := &h.Puts[i]
		m.printf("\n#### %s\n\n", Line(p.Artefact.ID))
		m.fields(&p.Artefact)
		for j := range p.Pages {
			if p.Pages[j].Text != nil {
				m.text(*p.Pages[j].Text)
			}
		}
	}
}

func (m *mdWriter) question(q *questionLine) {
	m.begin("Questions")
	m.printf("\n- %s, asked in %s by %s:\n", mdTime(q.At), Line(q.Scope), Line(q.Actor))
	m.text(q.Text)
}

func (m *mdWriter) end(e *endLine) {
	m.printf("\n## In all\n\n%d artefacts, %d versions, %d held batches, %d rows of state, %d questions.\n", e.Artefacts, e.Versions, e.Held, e.State, e.Questions)
}

func mdTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// visible escapes characters that a terminal or a reader would mistake for others.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r == 0x200d || unicode.IsPrint(r) {
			return r
		}
		return '�'
	}, s)
}

// Line returns a text on one line, without characters that Markdown reads as markup.
func Line(s string) string {
	s = strings.Join(strings.Fields(visible(s)), " ")
	return strings.NewReplacer("`", "'", "<", "&lt;", "*", "\\*", "_", "\\_", "[", "\\[", "#", "\\#").Replace(s)
}
