//go:build !race

package wal_test

const underRace = 1
