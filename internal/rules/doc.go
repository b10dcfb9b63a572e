// Package rules has rules of package store that every store applies alike, as functions over plain data: how a batch is
// admitted and reviewed, what a deletion is, and which versions gc drops. The engine and the reference in package storetest
// share them. What a rule of the contract does to an index, a catalogue or a log is not here: there the two are compared.
package rules
