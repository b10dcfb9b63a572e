// Package directive holds the premise and the policies of a conversation:
// state that changes only when a user says so in one of a few fixed forms.
package directive
