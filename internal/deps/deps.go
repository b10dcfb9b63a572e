// Package deps holds the module requirements until each has its importer.
package deps

import (
	_ "github.com/alecthomas/kong"
	_ "github.com/cespare/xxhash/v2"
	_ "github.com/go-git/go-git/v5/plumbing/format/gitignore"
	_ "github.com/hashicorp/golang-lru/v2/simplelru"
	_ "github.com/kljensen/snowball/english"
	_ "github.com/oklog/ulid/v2"
	_ "github.com/schollz/progressbar/v3"
	_ "github.com/stretchr/testify/require"
	_ "github.com/tiktoken-go/tokenizer"
	_ "github.com/vmihailenco/msgpack/v5"
	_ "go.etcd.io/bbolt"
	_ "go.uber.org/goleak"
	_ "golang.org/x/mod/sumdb/tlog"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "golang.org/x/text/unicode/norm"
	_ "pgregory.net/rapid"
)
