package dbctl

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/serve"
)

// maxTokenFile bounds a file of tokens.
const maxTokenFile = 64 << 10

// readPrivate reads the file of a flag that nobody else can read.
func readPrivate(flag, path string) ([]byte, error) {
	var f *os.File
	err := system.Patiently(func() (err error) { // another process may be about to give it this name
		f, err = os.Open(path)
		return err
	})
	if err != nil {
		return nil, failed("%s: %v", flag, err)
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, failed("%s: %v", flag, err)
	case !st.Mode().IsRegular() || system.Modes && st.Mode().Perm()&0o077 != 0:
		return nil, usage("%s %s (%s): expected a file that only you can read: chmod 600", flag, path, st.Mode())
	case st.Size() > maxTokenFile:
		return nil, usage("%s %s: %d bytes, expected at most %d", flag, path, st.Size(), maxTokenFile)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, failed("%s: %v", flag, err)
	}
	return text, nil
}

// readOrMake is readPrivate. It makes a file that is missing, with one line: the prefix and a random token.
func readOrMake(flag, path, prefix string) ([]byte, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := makeToken(path, prefix); err != nil {
			return nil, failed("%s: %v", flag, err)
		}
	}
	return readPrivate(flag, path)
}

// makeToken makes a file with one line. Several processes may do so at once: the first one's file stays, and none is seen half written.
func makeToken(path, prefix string) error {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)                                              // it never fails
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // only the user can read it
	if err != nil {
		return err
	}
	_, err = f.WriteString(prefix + base64.RawURLEncoding.EncodeToString(secret) + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = system.RenameNew(f.Name(), path)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return errors.Join(err, os.Remove(f.Name()))
}

// readTokens reads a file of tokens that nobody else can read. It makes a file that is missing, if it may, with a token of an operator.
func readTokens(path string, mayMake bool) (map[string]serve.Role, error) {
	read := readPrivate
	if mayMake {
		read = func(flag, path string) ([]byte, error) { return readOrMake(flag, path, "operator ") }
	}
	text, err := read("--token-file", path)
	if err != nil {
		return nil, err
	}
	tokens := map[string]serve.Role{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) != 2 || len(words[1]) < view.MinToken {
			return nil, usage("--token-file %s, line %d: expected a role and a token of at least %d bytes, like: host 6f1c…", path, n, view.MinToken)
		}
		role, err := serve.ParseRole(words[0])
		if err != nil {
			return nil, usage("--token-file %s, line %d: %v", path, n, err)
		}
		if _, twice := tokens[words[1]]; twice {
			return nil, usage("--token-file %s, line %d: the token stands there twice", path, n)
		}
		tokens[words[1]] = role
	}
	if err := lines.Err(); err != nil {
		return nil, failed("--token-file: %v", err)
	}
	if len(tokens) == 0 {
		return nil, usage("--token-file %s: expected at least one line with a role and a token", path)
	}
	return tokens, nil
}
