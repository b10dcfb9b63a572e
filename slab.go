package ctxpage

// slab gives slices of one element out of a few large arrays: as many small ones are as much work for the collector.
type slab[T any] struct{ free []T }

func (s *slab[T]) one(v T) []T {
	if len(s.free) == 0 {
		s.free = make([]T, 512)
	}
	out := s.free[:1:1]
	s.free = s.free[1:]
	out[0] = v
	return out
}
