// Command dbctl-pg is for the people who run ctxpage databases on PostgreSQL: it makes and upgrades the schema, shows hosts and
// databases, verifies the audit, copies a file to a server, and serves a database to the agents of this host at a socket. Every
// other verb is dbctl's, run on a postgres:// URL.
package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}
