package dbtest

import "context"

// SizeOf is the number of leaves of an audit that the test can read.
func SizeOf(log interface {
	Size(context.Context) (uint64, error)
}) uint64 {
	n, err := log.Size(context.Background())
	if err != nil {
		panic(err)
	}
	return n
}
