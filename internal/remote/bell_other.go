//go:build unix && !linux

package remote

// rope is nothing here: each listener has a goroutine.
type rope struct{}

func (*listener) unwatch() {}
