package serve

import (
	"fmt"
	"reflect"
	"slices"
	"sort"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ctxpage/ctxpage/internal/view"
)

var calls = sorted(pageCalls, contextCalls, conversationCalls, directiveCalls, auditCalls, reviewCalls, operatorCalls)

var byName = index(calls)

// sorted joins the tables of the files by name.
func sorted(parts ...[]call) []call {
	all := slices.Concat(parts...)
	sort.Slice(all, func(i, j int) bool { return all[i].name < all[j].name })
	return all
}

func index(all []call) map[string]*call {
	m := map[string]*call{}
	for i := range all {
		m[all[i].name] = &all[i]
	}
	return m
}

type schemas struct {
	Version int                `json:"version"`
	Headers map[string]string  `json:"headers"`
	Calls   []callSchema       `json:"calls"`
	Error   *jsonschema.Schema `json:"error"`
	Codes   []string           `json:"codes"`
}

// callSchema describes one call. Its schemas are made from the Go types that the server decodes and encodes.
type callSchema struct {
	Path   string             `json:"path"`
	Role   string             `json:"role"` // the least that may make it
	About  string             `json:"about"`
	In     *jsonschema.Schema `json:"in"`
	Out    *jsonschema.Schema `json:"out"`             // of each line, if Stream
	Stream bool               `json:"stream,omitzero"` // the answer is a line of JSON for each event
}

// Schema returns the answer of GET /v1/schema: calls with their JSON schemas, headers, and codes of errors.
func Schema() (any, error) {
	out := schemas{Version: Version, Headers: map[string]string{
		headerKey: "the key from hello", headerScope: "instead of a key: the scope of this call", headerActor: "with " + headerScope + ": name of the caller",
		headerRole: "with " + headerScope + ": agent, host or operator", headerTimeout: "seconds that the call may take", headerTrace: "W3C trace context of the caller",
	}}
	var err error
	if out.Error, err = view.SchemaOf(reflect.TypeFor[errorOut]()); err != nil {
		return nil, err
	}
	open := []call{
		{name: "hello", about: "Fix scope, actor and role. Returns a key for the other calls.", in: reflect.TypeFor[helloIn](), out: reflect.TypeFor[helloOut]()},
		{name: "bye", about: "End the key of the header, and its open transactions.", in: reflect.TypeFor[struct{}](), out: reflect.TypeFor[struct{}]()},
		{name: "status", about: "Describe the server. GET; needs no key.", in: reflect.TypeFor[struct{}](), out: reflect.TypeFor[statusOut]()},
		{name: "stop", least: Operator, about: "End a server that exists only to serve.", in: reflect.TypeFor[struct{}](), out: reflect.TypeFor[struct{}]()},
	}
	for _, c := range slices.Concat(open, calls) {
		line := callSchema{Path: "/v1/" + c.name, Role: c.least.String(), About: c.about, Stream: c.flow != nil}
		if line.In, err = view.SchemaOf(c.in); err != nil {
			return nil, fmt.Errorf("ctxpage: schema of %s: %w", c.name, err)
		}
		if line.Out, err = view.SchemaOf(c.out); err != nil {
			return nil, fmt.Errorf("ctxpage: schema of %s: %w", c.name, err)
		}
		out.Calls = append(out.Calls, line)
	}
	out.Codes = codes()
	return out, nil
}

func codes() []string {
	all := []string{"internal", "not_answering", "skew"}
	for _, c := range coded {
		all = append(all, c.code)
	}
	for code := range refusals {
		all = append(all, code)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
