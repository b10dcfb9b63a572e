package foreign

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

// PAMOptions say what goes into a file of Portable AI Memory.
type PAMOptions struct {
	// Scope takes a scope and those below it, Subject what is about one person; both may be set, and neither means everything.
	Scope, Subject string
	Owner          string    // the owner's id in the file; "": the subject, or the scope, or the id of the database
	At             time.Time // the time of the export
	Progress       store.Progress
}

// PAMReport says what was written.
type PAMReport struct {
	Memories int `json:"memories"`
	// Left counts live artefacts that are no memories, by kind: turns, tool results, drafts.
	Left map[string]int `json:"left"`
}

// ExportPAM writes live facts, chunks and summaries as a file of Portable AI Memory 1.0, in the order of scopes and ids. The
// manifest records what was read.
//
// The format has no place for versions, sessions, directives, held batches, vectors, sources, lineage and pins: they are left
// out. Subject, group, trust and metadata go into each memory's metadata, which an import keeps in import.fields. A memory that
// came from such a file has the fields it came with.
func ExportPAM(ctx context.Context, db *ctxpage.DB, w io.Writer, opts PAMOptions) (*PAMReport, error) {
	x := &pamWriter{w: bufio.NewWriterSize(w, 64<<10), opts: opts, rep: PAMReport{Left: map[string]int{}}}
	st, err := db.Stats(ctx)
	if err != nil && !errors.Is(err, store.ErrCorrupt) {
		return nil, err
	}
	head, err := json.Marshal(struct {
		Schema  string    `json:"schema"`
		Version string    `json:"schema_version"`
		By      string    `json:"exported_by"`
		At      time.Time `json:"export_date"`
		Owner   struct {
			ID string `json:"id"`
		} `json:"owner"`
	}{"portable-ai-memory", "1.0", "ctxpage/1.0.0", opts.At.UTC(), struct {
		ID string `json:"id"`
	}{cmp.Or(opts.Owner, opts.Subject, opts.Scope, st.ID)}})
	if err != nil {
		return nil, fmt.Errorf("ctxpage: export: %w", err)
	}
	fmt.Fprintf(x.w, "%s,\"memories\":[", bytes.TrimSuffix(head, []byte("}")))
	done := 0
	for s, err := range db.Scopes(ctx, opts.Scope) {
		if err == nil && (opts.Scope == "" || store.Below(s.Name, opts.Scope)) {
			_, err = db.Scope(s.Name).Export(ctx, &pamLines{x: x, scope: s.Name})
		}
		if err != nil {
			return nil, err
		}
		if done++; opts.Progress != nil {
			opts.Progress("scopes", uint64(done), 0)
		}
	}
	if x.rep.Memories == 0 {
		return nil, fmt.Errorf("%w: no fact, chunk or summary is held of %s", store.ErrNotFound, cmp.Or(opts.Subject, opts.Scope, "the database"))
	}
	x.w.WriteString("\n]}\n")
	if err := x.w.Flush(); err != nil {
		return nil, fmt.Errorf("ctxpage: export: %w", err)
	}
	return &x.rep, nil
}

type pamWriter struct {
	w    *bufio.Writer
	opts PAMOptions
	rep  PAMReport
}

// pamLines takes the artefacts of a scope, one JSON value in each write.
type pamLines struct {
	x     *pamWriter
	scope string
}

func (l *pamLines) Write(b []byte) (int, error) {
	var v ctxpage.Version
	if err := json.Unmarshal(b, &v); err != nil {
		return 0, err
	}
	return len(b), l.x.memory(l.scope, &v)
}

var pamKinds = []store.Kind{store.KindFact, store.KindChunk, store.KindSummary}

func (x *pamWriter) memory(scope string, v *ctxpage.Version) error {
	switch {
	case x.opts.Subject != "" && v.Subject != x.opts.Subject:
		return nil
	case !slices.Contains(pamKinds, v.Kind) || v.Text == "":
		x.rep.Left[v.Kind.String()]++
		return nil
	}
	fields := map[string]json.RawMessage{}
	if v.Meta[MetaSource] == string(PAM) {
		_ = json.Unmarshal([]byte(v.Meta[MetaFields]), &fields) // cut: as if it was not there
	}
	if len(fields) == 0 {
		fields = x.fields(scope, v)
	}
	tags := v.Tags
	if len(tags) > 0 && tags[0] == text(fields["type"]) { // an import puts it there
		tags = tags[1:]
	}
	for k, f := range map[string]any{"content": v.Text, "content_hash": ContentHash(v.Text), "tags": append([]string{}, tags...)} {
		b, err := marshal(f)
		if err != nil {
			return err
		}
		fields[k] = b
	}
	if x.rep.Memories++; x.rep.Memories > 1 {
		x.w.WriteByte(',')
	}
	b, err := marshal(fields) // by key
	if err == nil {
		x.w.WriteByte('\n')
		_, err = x.w.Write(b)
	}
	return err
}

// fields has the fields of a memory that did not come from such a file.
func (x *pamWriter) fields(scope string, v *ctxpage.Version) map[string]json.RawMessage {
	kind, custom := "fact", any(nil)
	if v.Kind != store.KindFact {
		kind, custom = "custom", v.Kind.String()
	}
	meta := map[string]string{"ctxpage.trust": v.Provenance.String()}
	for k, s := range v.Meta {
		meta[k] = s
	}
	for k, s := range map[string]string{"ctxpage.subject": v.Subject, "ctxpage.group": v.Group} {
		if s != "" {
			meta[k] = s
		}
	}
	temporal := map[string]time.Time{"created_at": v.PutAt.UTC(), "updated_at": cmp.Or(v.CurrentAsOf, v.PutAt).UTC()}
	if !v.ExpiresAt.IsZero() {
		temporal["valid_until"] = v.ExpiresAt.UTC()
	}
	out := map[string]json.RawMessage{}
	for k, f := range map[string]any{
		"id": store.Ref{Scope: scope, ID: v.ID}.String(), "type": kind, "custom_type": custom, "status": "active", "temporal": temporal,
		"provenance": map[string]string{"platform": "ctxpage"}, "metadata": meta,
	} {
		if b, err := marshal(f); err == nil {
			out[k] = b
		}
	}
	return out
}

func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// ContentHash is the hash by which Portable AI Memory tells memories apart: SHA-256 of the text without outer spaces, in lower
// case, in normal form C, and with one space for each run of white space.
func ContentHash(content string) string {
	s := norm.NFC.String(strings.ToLower(strings.TrimSpace(content)))
	sum := sha256.Sum256([]byte(strings.Join(strings.Fields(s), " ")))
	return "sha256:" + hex.EncodeToString(sum[:])
}
