// Command escalation plays a billing escalation over the public API of ctxpage: 847 artefacts of six months, a refund
// limit that changed two weeks ago, a knowledge-base article that did not notice, a note with hearsay, and a confidential
// note of another agent; beside it the same question through plain top-k retrieval over the same store.
//
//	go run ./examples/escalation [-seed N] [-json]
//
// Seeds change the data, not what must come out.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

func main() {
	seed := flag.Uint64("seed", 1, "seed of the generated store")
	asJSON := flag.Bool("json", false, "print one JSON object")
	flag.Parse()
	if err := play(context.Background(), *seed, *asJSON, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "escalation:", err)
		os.Exit(1)
	}
}

func play(ctx context.Context, seed uint64, asJSON bool, out io.Writer) error {
	dir, err := tempDir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	r, err := run(ctx, dir, seed)
	if err != nil {
		return err
	}
	if asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	_, err = io.WriteString(out, r.tell())
	return err
}

// tempDir makes a directory whose name is always as long, which os.MkdirTemp does not promise: the path stands in the
// context as the source of an article, and the same seed must come to the same number of tokens.
func tempDir() (string, error) {
	for {
		dir := filepath.Join(os.TempDir(), fmt.Sprintf("escalation-%09d", rand.IntN(1e9)))
		if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
			return dir, err
		}
	}
}
