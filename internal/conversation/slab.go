package conversation

// slab gives slices of one element out of a few large arrays: as many small ones are as much work for the collector.
type slab[T any] struct{ Free []T }

func (s *slab[T]) one(v T) []T {
	if len(s.Free) == 0 {
		s.Free = make([]T, 512)
	}
	out := s.Free[:1:1]
	s.Free = s.Free[1:]
	out[0] = v
	return out
}
