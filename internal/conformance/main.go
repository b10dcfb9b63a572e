// Command conformance lets an outside runner check ctxpage against cases kept
// elsewhere: it reads one JSON request a line and writes one JSON reply a line.
//
//	go run ./internal/conformance SYSTEM
package main

import (
	"fmt"
	"io"
	"os"
)

// systems are the adapters by name.
var systems = map[string]func(in io.Reader, out io.Writer) error{
	"directives": directives,
}

func main() {
	if len(os.Args) != 2 || systems[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: conformance directives")
		os.Exit(2)
	}
	if err := systems[os.Args[1]](os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}
