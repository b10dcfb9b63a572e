//go:build !linux

package ctxpage

// freeBytes is not known here.
func freeBytes(string) int64 { return -1 }
