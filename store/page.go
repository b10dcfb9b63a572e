package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/render"
	"golang.org/x/text/unicode/norm"
)

// Limits of one input. Each is tested at the limit and one above it.
const (
	MaxID          = 512      // bytes of an artefact id, a group, a subject, an actor, a tag
	MaxScope       = 512      // bytes of a scope path
	MaxScopeDepth  = 16       // names in a scope path
	MaxText        = 16 << 20 // bytes of an artefact's text
	MaxSource      = 4096     // bytes of a source
	MaxTags        = 64       // tags of an artefact
	MaxMeta        = 64 << 10 // bytes of all keys and values of Meta
	maxUnknown     = 64 << 10 // bytes of Artefact.Unknown
	MaxParts       = 256      // parts of a message
	MaxToolCalls   = 128      // tool calls of a message
	MaxToolBytes   = 1 << 20  // bytes of all tool calls of a message
	MaxLineage     = 256      // entries of DerivedFrom or Supersedes
	MaxTxnWrites   = 10_000   // artefacts written by one transaction
	MaxTxnBytes    = 48 << 20 // bytes of text written by one transaction
	MaxNote        = 64 << 10 // bytes of the note of a verdict or a review
	MaxPageTokens  = 8192     // upper bound of Options.PageTokens
	PageTokens     = 512      // default of Options.PageTokens
	MaxQueryText   = 64 << 10
	MinPageTokens  = 16
	DigestSaltSize = 16
)

// Kind classifies an artefact. It sets the defaults of class, provenance and priority.
type Kind uint8

// The kinds. KindAuto picks message for an artefact with a role, chunk for one with a source, else
// fact.
const (
	KindAuto Kind = iota
	KindSystem
	KindFact
	KindChunk
	KindMessage
	KindTool
	KindScratch
	KindSummary
)

// KindNames are the names of the kinds, by kind.
var KindNames = [...]string{"auto", "system", "fact", "chunk", "message", "tool", "scratch", "summary"}

func (k Kind) String() string {
	if int(k) < len(KindNames) {
		return KindNames[k]
	}
	return "kind(" + strconv.Itoa(int(k)) + ")"
}

// MarshalText writes the name of the kind.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the name of a kind.
func (k *Kind) UnmarshalText(b []byte) (err error) {
	*k, err = ParseKind(string(b))
	return err
}

// ParseKind reads the name of a kind.
func ParseKind(s string) (Kind, error) {
	for i, n := range KindNames {
		if s == n {
			return Kind(i), nil
		}
	}
	return 0, Invalid("kind", strconv.Quote(s), "one of "+strings.Join(KindNames[1:], ", "))
}

// Provenance is an order of trust: who wrote an artefact. Zero on an Artefact means the default of
// its kind.
type Provenance = triage.Provenance

// The provenances, from most to least trusted.
const (
	HumanVerified = triage.Verified
	Chunk         = triage.Chunk
	Validated     = triage.Validated
	Tool          = triage.Tool
	Scratch       = triage.Scratch
)

// Priority is used by the compaction watcher. Zero means the default of the kind.
type Priority uint8

// The priorities.
const (
	PriorityAuto Priority = iota
	PriorityLow
	PriorityMedium
	PriorityHigh
	PriorityCritical
)

// ParsePriority reads low, medium, high or critical; "": PriorityAuto.
func ParsePriority(name string) (Priority, error) {
	for p, known := range [...]string{"", "low", "medium", "high", "critical"} {
		if name == known {
			return Priority(p), nil
		}
	}
	return 0, Invalid("priority", fmt.Sprintf("%.40q", name), "low, medium, high or critical")
}

// Part is one part of a message that is not only text. Text parts are joined into the artefact's
// text, in order.
type Part struct {
	Type   string `json:"type"` // "text" is text; anything else is carried as it is
	Text   string `json:"text,omitempty"`
	URL    string `json:"url,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// ToolCall is a call an assistant message makes.
type ToolCall struct {
	ID        string `json:"id"`
	Type      string `json:"type,omitempty"`
	Name      string `json:"name"`
	Arguments string `json:"arguments,omitempty"`
}

// Artefact is a unit of content that a caller puts. It is stored as one or more pages.
type Artefact struct {
	// ID is the caller's key, unique in its scope: 1 to 512 bytes of UTF-8 without control
	// characters.
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	// Provenance: zero takes the default of the kind. A scope handle cannot give HumanVerified
	// (ErrProvenance).
	Provenance Provenance `json:"provenance"`
	// Text is the content. If it is empty and Source is set, the text is fetched from there; if it
	// is empty and Parts are set, it is their text parts.
	Text  string `json:"text,omitempty"`
	Parts []Part `json:"parts,omitempty"`
	// Role of a message: system, developer (another name of system), user, assistant or tool.
	// Providers accept no other role, so a page with any other role, or none, appears as data in a
	// context, not as a message.
	Role       string     `json:"role,omitempty"`
	Name       string     `json:"name,omitempty"`
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	// Source names the origin of the text, scheme first: "file:…", "page:…", or a scheme of
	// Options.Sources. The source is probed before the text is served; a change makes the artefact
	// dirty.
	Source string `json:"source,omitempty"`
	// ExpiresAt zero: never. After it the artefact is never served. TTL is the same counted from
	// the put; giving both is an error.
	ExpiresAt time.Time     `json:"expires_at,omitzero"`
	TTL       time.Duration `json:"ttl,omitempty"`
	// CurrentAsOf is the time at which the content was true; recency is measured from it. Zero means the time of
	// the put.
	CurrentAsOf time.Time `json:"current_as_of,omitzero"`
	Priority    Priority  `json:"priority,omitempty"`
	Relevance   *float64  `json:"relevance,omitempty"` // 0 to 1, for the watcher
	// Group names a conversation, file or thread, and Seq the order within it. Members next to each
	// other are neighbours. Without a group the pages of an artefact are neighbours of each other.
	Group   string `json:"group,omitempty"`
	Seq     int64  `json:"seq,omitempty"`
	Subject string `json:"subject,omitempty"` // the person or thing it is about
	// DerivedFrom lists what the artefact was made from. Its trust is at most the lowest of theirs,
	// and it becomes dirty when one changes, ends, or is superseded by another artefact.
	DerivedFrom []Ref    `json:"derived_from,omitempty"`
	Supersedes  []string `json:"supersedes,omitempty"` // ids of the same scope that this one replaces
	Pinned      bool     `json:"pinned,omitempty"`
	// Tags and Meta belong to the caller and are stored unchanged.
	Tags []string          `json:"tags,omitempty"`
	Meta map[string]string `json:"meta,omitempty"`
	// Unknown holds fields that a later release stored. Keep it when you put the artefact again, so
	// that they survive.
	Unknown []byte `json:"unknown,omitempty"`
}

// RoleDeveloper is the name that some providers use for the role system.
const RoleDeveloper = "developer"

// SpokenAs returns the role under which a message enters a window and a request.
func SpokenAs(role string) string {
	if role == RoleDeveloper {
		return render.RoleSystem
	}
	return role
}

// KindDefaults sets the fields that the caller left zero to the defaults of the kind.
func (a *Artefact) KindDefaults() {
	if a.Kind == KindAuto {
		switch {
		case a.Role != "":
			a.Kind = KindMessage
		case a.Source != "":
			a.Kind = KindChunk
		default:
			a.Kind = KindFact
		}
	}
	if a.Provenance == 0 {
		a.Provenance = defaultProvenance(a.Kind, a.Role)
	}
	if a.Priority == PriorityAuto {
		a.Priority = defaultPriority(a.Kind)
	}
}

// defaultProvenance returns the provenance of a host-vouched write of a kind (DESIGN: a user's words count
// as chunk, an agent's as validated once somebody answers for them).
func defaultProvenance(k Kind, role string) Provenance {
	switch k {
	case KindChunk, KindSystem:
		return Chunk
	case KindTool:
		return Tool
	case KindScratch:
		return Scratch
	case KindMessage:
		switch role {
		case "user", "system", RoleDeveloper:
			return Chunk
		case "tool":
			return Tool
		}
		return Scratch
	}
	return Validated
}

// defaultPriority is the priority of an artefact whose writer gave none.
func defaultPriority(k Kind) Priority {
	switch k {
	case KindSystem:
		return PriorityCritical
	case KindFact:
		return PriorityHigh
	case KindScratch:
		return PriorityLow
	}
	return PriorityMedium
}

// Check rejects an artefact that breaks a rule or a limit; the error says what was expected. Its
// names are put in the form in which they are stored (Canonical).
func (a *Artefact) Check() error {
	a.ID, a.Group, a.Subject = Canonical(a.ID), Canonical(a.Group), Canonical(a.Subject)
	a.Tags, a.Supersedes = canonicalAll(a.Tags), canonicalAll(a.Supersedes)
	if err := CheckID("id", a.ID); err != nil {
		return err
	}
	for _, f := range []struct{ name, v string }{
		{"group", a.Group}, {"subject", a.Subject}, {"role", a.Role}, {"name", a.Name}, {"tool_call_id", a.ToolCallID},
	} {
		if f.v == "" {
			continue
		}
		if err := CheckID(f.name, f.v); err != nil {
			return err
		}
	}
	if int(a.Kind) >= len(KindNames) {
		return Invalid("kind", a.Kind.String(), "one of "+strings.Join(KindNames[1:], ", "))
	}
	if a.Provenance != 0 && !a.Provenance.Valid() {
		return Invalid("provenance", strconv.Itoa(int(a.Provenance)), "one of human-verified, chunk, validated, tool, scratch")
	}
	if a.Priority > PriorityCritical {
		return Invalid("priority", strconv.Itoa(int(a.Priority)), "low, medium, high or critical")
	}
	if err := a.checkTimes(); err != nil {
		return err
	}
	return a.checkSizes()
}

func (a *Artefact) checkTimes() error {
	if a.TTL < 0 {
		return Invalid("ttl", a.TTL.String(), "zero (never) or a positive duration")
	}
	if a.TTL > 0 && !a.ExpiresAt.IsZero() {
		return Invalid("ttl", "both ttl and expires_at", "one of them")
	}
	for _, t := range []struct {
		name string
		t    time.Time
	}{{"expires_at", a.ExpiresAt}, {"current_as_of", a.CurrentAsOf}} {
		if y := t.t.Year(); !t.t.IsZero() && (y < 1 || y > 9999) {
			return Invalid(t.name, fmt.Sprint("year ", y), "a year from 1 to 9999")
		}
	}
	if r := a.Relevance; r != nil && !(*r >= 0 && *r <= 1) {
		return Invalid("relevance", fmt.Sprint(*r), "a number from 0 to 1")
	}
	return nil
}

func (a *Artefact) checkSizes() error {
	tools, meta := 0, 0
	for _, c := range a.ToolCalls {
		tools += len(c.ID) + len(c.Name) + len(c.Arguments) + len(c.Type)
	}
	for k, v := range a.Meta {
		meta += len(k) + len(v)
	}
	for _, t := range a.Tags {
		if err := CheckID("tag", t); err != nil {
			return err
		}
	}
	text := len(a.Text)
	for _, p := range a.Parts {
		text += len(p.Text) + len(p.URL) + len(p.Detail)
	}
	for _, f := range []struct {
		name     string
		got, max int
		unit     string
	}{
		{"text", text, MaxText, "bytes"}, {"source", len(a.Source), MaxSource, "bytes"}, {"tags", len(a.Tags), MaxTags, "tags"},
		{"meta", meta, MaxMeta, "bytes"}, {"parts", len(a.Parts), MaxParts, "parts"},
		{"tool_calls", len(a.ToolCalls), MaxToolCalls, "calls"}, {"tool_calls", tools, MaxToolBytes, "bytes"},
		{"derived_from", len(a.DerivedFrom), MaxLineage, "references"}, {"supersedes", len(a.Supersedes), MaxLineage, "ids"},
		{"unknown", len(a.Unknown), maxUnknown, "bytes"},
	} {
		if f.got > f.max {
			return Invalid(f.name, fmt.Sprintf("%d %s", f.got, f.unit), fmt.Sprintf("at most %d", f.max))
		}
	}
	if a.Text != "" && len(a.Parts) > 0 {
		return Invalid("parts", "both text and parts", "one of them")
	}
	if err := a.checkUTF8(); err != nil {
		return err
	}
	for _, id := range a.Supersedes {
		if err := CheckID("supersedes", id); err != nil {
			return err
		}
		if id == a.ID {
			return Invalid("supersedes", "the artefact itself", "ids of other artefacts of the scope")
		}
	}
	return nil
}

// checkUTF8 refuses what could not be shown, or not be written as JSON, as it is.
func (a *Artefact) checkUTF8() error {
	err := cmp.Or(validUTF8("text", a.Text), validUTF8("source", a.Source))
	for i := 0; i < len(a.Parts) && err == nil; i++ {
		p := &a.Parts[i]
		err = validUTF8("parts", p.Type, p.Text, p.URL, p.Detail)
	}
	for i := 0; i < len(a.ToolCalls) && err == nil; i++ {
		c := &a.ToolCalls[i]
		err = validUTF8("tool_calls", c.ID, c.Type, c.Name, c.Arguments)
	}
	for k, v := range a.Meta {
		err = cmp.Or(err, validUTF8("meta", k, v))
	}
	return err
}

func validUTF8(field string, texts ...string) error {
	for _, t := range texts {
		if !utf8.ValidString(t) {
			return Invalid(field, "bytes that are not UTF-8", "UTF-8 text")
		}
	}
	return nil
}

// Canonical returns the form in which ids, groups, subjects and tags are stored and compared: NFC. So
// a name that was typed on another system is the same name.
func Canonical(s string) string { return norm.NFC.String(s) }

// canonicalAll is Canonical for a list. It changes the list of nobody else.
func canonicalAll(list []string) []string {
	for i, s := range list {
		if !norm.NFC.IsNormalString(s) {
			list = slices.Clone(list)
			for ; i < len(list); i++ {
				list[i] = Canonical(list[i])
			}
			break
		}
	}
	return list
}

// CheckID rejects an id that is empty, longer than MaxID, not UTF-8, or has control characters.
// field is the name in the *InvalidError.
func CheckID(field, s string) error {
	switch {
	case s == "":
		return Invalid(field, "nothing", "1 to 512 bytes of UTF-8")
	case len(s) > MaxID:
		return Invalid(field, fmt.Sprintf("%d bytes", len(s)), fmt.Sprintf("at most %d", MaxID))
	case !utf8.ValidString(s):
		return Invalid(field, strconv.QuoteToASCII(s), "UTF-8")
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return Invalid(field, strconv.QuoteToASCII(s), "no control characters")
		}
	}
	return nil
}

// CheckScope accepts paths like acme/support/agent-7: names joined by single slashes.
func CheckScope(s string) error {
	if s == "" || len(s) > MaxScope {
		return Invalid("scope", fmt.Sprintf("%d bytes", len(s)), fmt.Sprintf("a path like acme/support/agent-7 of 1 to %d bytes", MaxScope))
	}
	names := strings.Split(s, "/")
	if len(names) > MaxScopeDepth {
		return Invalid("scope", fmt.Sprintf("%d names", len(names)), fmt.Sprintf("at most %d", MaxScopeDepth))
	}
	for _, n := range names {
		if n == "" || n == "." || n == ".." {
			return Invalid("scope", strconv.QuoteToASCII(s), "names joined by single slashes, none empty, '.' or '..'")
		}
		if err := CheckID("scope", n); err != nil {
			return err
		}
	}
	return nil
}

// ScopeChain returns the scope and its ancestors, nearest first.
func ScopeChain(s string) []string {
	chain := []string{s}
	for i := strings.LastIndexByte(s, '/'); i >= 0; i = strings.LastIndexByte(s, '/') {
		s = s[:i]
		chain = append(chain, s)
	}
	return chain
}

// ContentHash is a fast hash that detects changed pages. It must not leave the file or enter the
// audit: it has no salt, so an erased text could be guessed from it.
func ContentHash(text string) uint64 { return xxhash.Sum64String(text) }

// SaltedDigest returns the HMAC-SHA256 of a text under a salt. The audit holds only this, so an
// erased text cannot be guessed.
func SaltedDigest(salt []byte, text string) [32]byte {
	return SaltedMAC(salt, func(b []byte) []byte { return append(b, text...) })
}

// Source loads the content of one scheme, such as web pages; hosts register their own in ctxpage.Options.Sources. Both methods run concurrently, under a deadline and under no lock of the
// database; they must not call it. Key is the source without its scheme and colon.
type Source interface {
	// Probe returns the current validator of the content. It must be cheap: it may compare a stamp alone with have, the last known validator,
	// and returns have if nothing changed.
	Probe(ctx context.Context, key string, have Validator) (Validator, error)
	// Fetch loads the content. It may use a network.
	Fetch(ctx context.Context, key string) (Fetched, error)
}

// Fetched is the result of Source.Fetch. Text must be UTF-8.
type Fetched struct {
	Text      string
	Validator Validator
	// AsOf is the time for which the content was true; zero: now.
	AsOf time.Time
}

// Validator identifies the state of a source.
type Validator struct {
	Stamp string    `json:"stamp,omitempty"` // cheap: size and mtime, ETag, version
	Hash  uint64    `json:"hash,omitempty"`  // xxhash64 of the content; 0 unknown. Fast, not cryptographic
	At    time.Time `json:"at,omitzero"`     // when it was taken
}
