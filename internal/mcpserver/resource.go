package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

const (
	pageURI     = "ctxpage://page/"
	manifestURI = "ctxpage://manifest/"
)

// addResources offers pages and the manifests of contexts. Templates, not a list: a memory has too many pages to name.
func (s *server) addResources(out *mcp.Server) {
	out.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "page", Title: "Page", Description: "A page, by id or reference; reserved characters may be percent-encoded.", MIMEType: "text/plain", URITemplate: pageURI + "{+ref}",
	}, s.readPage)
	out.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "manifest", Title: "Manifest", Description: "What a context had and what came of it, by its trace.", MIMEType: "application/json", URITemplate: manifestURI + "{trace}",
	}, s.readManifest)
}

func (s *server) readPage(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	name, err := url.PathUnescape(strings.TrimPrefix(req.Params.URI, pageURI))
	if err != nil {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	v, err := s.find(ctx, name)
	if err != nil {
		return nil, missing(err, req.Params.URI)
	}
	text := textOf(v)
	if end := boundary(text, maxBytes); end < len(text) {
		text = text[:end] + fmt.Sprintf("\n[%d more bytes: the tool get has them from offset %d]", len(text)-end, end)
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, MIMEType: "text/plain", Text: render.Escape(text)}}}, nil
}

func (s *server) readManifest(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	leaves, err := s.recorded(ctx, strings.TrimPrefix(req.Params.URI, manifestURI))
	if err != nil {
		return nil, missing(err, req.Params.URI)
	}
	b, err := json.MarshalIndent(leaves, "", "  ")
	if err != nil {
		return nil, err
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, MIMEType: "application/json", Text: view.EscapeJSON(string(b), func(r rune) bool { return r >= 0x7f })}}}, nil
}

// missing is the protocol's answer for what is not there.
func missing(err error, uri string) error {
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrGone) || errors.Is(err, store.ErrInvalid) {
		return mcp.ResourceNotFoundError(uri)
	}
	return err
}

// addPrompt offers what the user has decided for the scope, for hosts that want it at the start of a conversation. Every
// context of assemble has it anyway.
func (s *server) addPrompt(out *mcp.Server) {
	out.AddPrompt(&mcp.Prompt{Name: "directives", Title: "Directives", Description: "What the user has decided: premise and policies of this scope and its ancestors."},
		func(ctx context.Context, _ *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			state, err := s.scope.Directives().State(ctx)
			if err != nil {
				return nil, err
			}
			text := state.Effective.Text()
			if text == "" {
				text = "Nothing has been decided."
			}
			return &mcp.GetPromptResult{
				Description: "Directives of " + s.Scope,
				Messages:    []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: render.Escape(text)}}},
			}, nil
		})
}
