// Command conformance puts the compatible parts of ctxpage behind one binary,
// so that cases made elsewhere can be run against them:
//
//	conformance pager --history H --contract C …
package main

import (
	"fmt"
	"os"
)

func main() {
	os.Exit(dispatch(os.Args[1:]))
}

func dispatch(args []string) int {
	if len(args) > 0 {
		switch args[0] {
		case "pager":
			return pager(args[1:])
		}
	}
	fmt.Fprintln(os.Stderr, "usage: conformance pager [argument ...]")
	return 2
}
