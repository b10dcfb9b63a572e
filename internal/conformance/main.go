// Command conformance speaks the formats of outside test cases, one JSON request a line on stdin and one reply a line
// on stdout, so that a runner can compare this module with the systems it joins.
package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	suites := map[string]func(io.Reader, io.Writer) error{
		"allocator": allocator,
	}
	if len(os.Args) != 2 || suites[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: conformance SUITE < requests > replies")
		os.Exit(2)
	}
	if err := suites[os.Args[1]](os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}
