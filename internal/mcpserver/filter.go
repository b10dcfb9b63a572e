package mcpserver

import "github.com/ctxpage/ctxpage"

// options returns the read options of a list.
func (in *listIn) options() ([]ctxpage.ReadOption, error) {
	f, err := in.Filter.Filter()
	opts := []ctxpage.ReadOption{ctxpage.Where(f)}
	if in.Newest {
		opts = append(opts, ctxpage.NewestFirst())
	}
	return opts, err
}
