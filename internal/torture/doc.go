// Package torture holds the slow and the privileged tests of ctxpage: linearizability of a database that is maintained
// meanwhile, power cuts of a real file system, simulated crash states of all files (under strace), and a soak (cmd/soak).
// It is a module of its own, so that the library's users do not see what it needs.
//
//	cd internal/torture && go test ./...
//
// A test that cannot run here is skipped and says why. Every test has a control that must fail.
package torture
