// Package bounded calls functions of the host under a deadline. The call returns at the deadline
// even if the function does not.
package deadline

import (
	"context"
	"fmt"
)

// Call returns what call returns, or the error of the context when that ends first: a source, a summarizer or an embedder
// that ignores its context does not hold up a read. Its late answer is dropped; the goroutine ends when it does. A panic
// of call is returned as an error.
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
