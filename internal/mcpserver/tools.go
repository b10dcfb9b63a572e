package mcpserver

import (
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// addTools registers the tools. Their order is the one that clients list, and does not change.
func (s *server) addTools(out *mcp.Server) error {
	describe := func(name, title, text string, readOnly, destructive, idempotent bool) *mcp.Tool {
		return &mcp.Tool{Name: name, Description: text, Annotations: hints(title, readOnly, destructive, idempotent)}
	}
	writes := func(add func() error) error {
		if !s.Write {
			return nil
		}
		return add()
	}
	return errors.Join(
		tool(out, describe("assemble", "Assemble a context", "The context for a question within a token budget. The last line is JSON: the trace to cite in put and why, and which pages are in.", true, false, false), s.assemble),
		tool(out, describe("search", "Search pages", "Pages that match words, best first. A hit that says more is cut: get has the rest.", true, false, true), s.search),
		tool(out, describe("get", "Get a page", "One page, by id or reference, also what a context showed as a stub or an extract: TRACE#n is page n of a context, whole. A long page comes in parts: next is the offset of the part that follows.", true, false, true), s.get),
		tool(out, describe("list", "List pages", "Ids of pages, by prefix, in order.", true, false, true), s.list),
		writes(func() error {
			return tool(out, describe("put", "Write pages", "Write pages. What the gate does not pass is held for a person.", false, false, true), s.put)
		}),
		writes(func() error {
			return tool(out, describe("delete", "Delete pages", "Mark pages as deleted; their versions stay readable. What the gate does not pass is held for a person.", false, true, true), s.delete)
		}),
		tool(out, describe("history", "List versions", "The versions of a page, newest first, when each was written, and whether it is still served. get reads one by its ref.", true, false, true), s.history),
		tool(out, describe("why", "Explain a context", "Why a page was in or out of a context.", true, false, true), s.why),
	)
}
