//go:build sqlite_fts5

package main

import _ "github.com/mattn/go-sqlite3"

// With the tag sqlite_fts5 (its own name for the index) SQLite is compiled from C. It is the faster of the two and the
// one that published figures use.
const driver, driverName = "sqlite3", "github.com/mattn/go-sqlite3"

func dsn(path string) string {
	return "file:" + path + "?_journal_mode=WAL&_synchronous=FULL&_busy_timeout=10000"
}
