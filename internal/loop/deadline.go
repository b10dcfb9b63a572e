package loop

import (
	"context"
	"fmt"
)

// Call runs call and returns its result, or the error of the context if that ends first. So a source, a summarizer or an
// embedder that ignores its context cannot hold up a read. A late result is dropped; the goroutine ends when call does. A
// panic of call is returned as an error.
func Call[T any](ctx context.Context, call func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	ch := make(chan answer, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				ch <- answer{err: fmt.Errorf("panicked: %v", r)}
			}
		}()
		v, err := call()
		ch <- answer{v, err}
	}()
	select {
	case a := <-ch:
		return a.v, a.err
	case <-ctx.Done():
		var zero T
		return zero, ctx.Err()
	}
}
