// Command dbctl is for the people who run agents on ctxpage databases: it looks into a database file, puts things into
// it, assembles contexts, decides what was held for review, and proves what was served.
package main

import (
	"os"

	"github.com/ctxpage/ctxpage/internal/dbctl"
)

func main() {
	os.Exit(dbctl.Tool{}.Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
