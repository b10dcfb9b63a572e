// Package filestore is the embedded store: an engine over a log of segments (package wal) and rows in bbolt, in one file
// with its log and audit beside it. It opens, recovers, checkpoints, backs up, restores and salvages.
package filestore
