//go:build !race

package dbtest

// Race: see race.go.
const Race = false
