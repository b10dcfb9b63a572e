// Package peek lets the tests of this module look into the embedded store: its methods for that ask for a Token, which
// nobody outside the module can make.
package peek

// Token is asked for by what only tests of this module may call.
type Token struct{}
