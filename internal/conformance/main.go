// Command conformance lets an outside runner check ctxpage against cases kept elsewhere: it reads one JSON request a
// line on stdin and writes one JSON reply a line on stdout.
//
//	go run ./internal/conformance SYSTEM
package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// systems are the adapters by name.
var systems = map[string]func(in io.Reader, out io.Writer) error{
	"allocator":  allocator,
	"directives": directives,
}

func main() {
	if len(os.Args) != 2 || systems[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: conformance", strings.Join(slices.Sorted(maps.Keys(systems)), "|"))
		os.Exit(2)
	}
	if err := systems[os.Args[1]](os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}
