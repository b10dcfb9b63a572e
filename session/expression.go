package session

import (
	"regexp"
	"sync"
)

// expression compiles when it is first asked. There are two dozen in this package and a program that opens a database
// seldom asks one: all of them at its start took longer than everything else that is done before main.
func expression(source string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(source) })
}
