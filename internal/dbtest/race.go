//go:build race

package dbtest

// Race: the tests run under the race detector. There it costs most, and finds least, where one thing runs many times on
// one goroutine: such tests take fewer cases.
const Race = true
