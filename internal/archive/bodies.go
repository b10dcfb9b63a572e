package archive

import "context"

// Bodies calls fn for the leaves [from, to) that still have their bodies, in order, with the scope
// of each and the size of its body in bytes. It reads no further into a body than its scope.
func (l *Log) Bodies(ctx context.Context, from, to uint64, fn func(scope string, size int)) error {
	v, err := l.view()
	if err != nil {
		return err
	}
	return v.each(ctx, from, min(to, v.size()), false, func(s slot) error {
		if s.err != nil || s.row.pruned {
			return s.err
		}
		if err := peek(s.body, tagScope, func(w *wire) { fn(w.Scope, len(s.body)) }); err != nil {
			return leafError(s.index, err)
		}
		return nil
	})
}
