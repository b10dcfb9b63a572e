<<<<<<< HEAD
// Command conformance speaks the formats of outside test cases, one JSON request a line on stdin and one reply a line
// on stdout, so that a runner can compare this module with the systems it joins.
=======
// Command conformance lets an outside runner check ctxpage against cases kept
// elsewhere: it reads one JSON request a line and writes one JSON reply a line.
//
//	go run ./internal/conformance SYSTEM
>>>>>>> directive
package main

import (
	"fmt"
	"io"
	"os"
)

<<<<<<< HEAD
func main() {
	suites := map[string]func(io.Reader, io.Writer) error{
		"allocator": allocator,
	}
	if len(os.Args) != 2 || suites[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: conformance SUITE < requests > replies")
		os.Exit(2)
	}
	if err := suites[os.Args[1]](os.Stdin, os.Stdout); err != nil {
=======
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
>>>>>>> directive
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}
