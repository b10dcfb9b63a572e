//go:build race

package wal_test

// underRace thins out the tests that run one thing many times on one goroutine: there the race detector costs
// much and finds nothing that the rest of them would not show it.
const underRace = 16
