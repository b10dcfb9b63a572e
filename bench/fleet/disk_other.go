//go:build !unix

package main

import "io/fs"

// taken is the size of a file.
func taken(info fs.FileInfo) float64 { return float64(info.Size()) }
