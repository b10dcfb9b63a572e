// Command dbctl is for the people who run agents on ctxpage databases: it looks into a database file, puts things into
// it, assembles contexts, decides what was held for review, and proves what was served.
package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
