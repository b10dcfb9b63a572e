// Package pager is the pager as a command, compatible byte for byte with the
// reference implementation (spec: history file, contract lines, records on
// standard error, one summary line, argument rules, exit codes).
//
// It differs on purpose in one way: a pass is all or nothing. Every block is
// scored and checked first; only then is the contract extended, with a single
// write. On any failure the contract stays as it was, no record is printed, and
// the error names the block and the field.
package pager
