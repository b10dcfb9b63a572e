package mcpserver

import "github.com/modelcontextprotocol/go-sdk/mcp"

// addTools registers the tools. Their order is the one that clients list, and does not change.
func (s *server) addTools(out *mcp.Server) error {
	add := []func() error{
		func() error {
			return tool(out, &mcp.Tool{
				Name: "assemble", Description: "The context for a question within a token budget. The last line is JSON: the trace to cite in put and why, and which pages are in.",
				Annotations: hints("Assemble a context", true, false, false),
			}, s.assemble)
		},
		func() error {
			return tool(out, &mcp.Tool{
				Name: "search", Description: "Pages that match words, best first. A hit that says more is cut: get has the rest.", Annotations: hints("Search pages", true, false, true),
			}, s.search)
		},
		func() error {
			return tool(out, &mcp.Tool{
				Name: "get", Description: "One page, by id or reference, also what a context showed as a stub. A long page comes in parts: next is the offset of the part that follows.", Annotations: hints("Get a page", true, false, true),
			}, s.get)
		},
		func() error {
			return tool(out, &mcp.Tool{
				Name: "list", Description: "Ids of pages, by prefix, in order.", Annotations: hints("List pages", true, false, true),
			}, s.list)
		},
	}
	if s.Write {
		add = append(add, func() error {
			return tool(out, &mcp.Tool{
				Name: "put", Description: "Write pages. What the gate does not pass is held for a person.", Annotations: hints("Write pages", false, false, true),
			}, s.put)
		}, func() error {
			return tool(out, &mcp.Tool{
				Name: "delete", Description: "Mark pages as deleted; their versions stay readable. What the gate does not pass is held for a person.",
				Annotations: hints("Delete pages", false, true, true),
			}, s.delete)
		})
	}
	add = append(add, func() error {
		return tool(out, &mcp.Tool{
			Name: "why", Description: "Why a page was in or out of a context.", Annotations: hints("Explain a context", true, false, true),
		}, s.why)
	})
	for _, fn := range add {
		if err := fn(); err != nil {
			return err
		}
	}
	return nil
}
