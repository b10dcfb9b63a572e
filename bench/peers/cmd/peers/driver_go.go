//go:build !sqlite_fts5

package main

import (
	"net/url"

	_ "modernc.org/sqlite"
)

// The default driver is SQLite translated to Go. It needs no C compiler, so that the tests of this module run wherever
// Go does.
const driver, driverName = "sqlite", "modernc.org/sqlite"

func dsn(path string) string {
	v := url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(10000)"}}
	return "file:" + path + "?" + v.Encode()
}
