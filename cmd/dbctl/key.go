package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ctxpage/ctxpage/filestore"
)

// keySize is the length of a key, bytes.
const keySize = 32

type keyCmd struct {
	New    keyNewCmd    `cmd:"" help:"Print a new key."`
	Rotate keyRotateCmd `cmd:"" help:"Wrap the keyring of a database by another key."`
}

func (keyCmd) Help() string {
	return `A database that is made with a key is encrypted, and opens with that key alone: --key-file FILE, or CTXPAGE_KEY_FILE, for every verb. The key wraps the keyring of the database, FILE.keys, which is never part of a backup: keep copies of both, apart from the backups. Nothing opens a database whose key or keyring is lost. docs/encryption.md says what is protected and what is not.

Example: dbctl key new >agent.key; dbctl init agent.ctx --key-file agent.key`
}

type keyNewCmd struct{}

func (keyNewCmd) Help() string {
	return `Prints 32 random bytes in base64. A file for it should be readable by you alone.

Example: (umask 077; dbctl key new >agent.key)`
}

func (c *keyNewCmd) Run(a *app) error {
	b := make([]byte, keySize)
	if _, err := rand.Read(b); err != nil {
		return failed("key new: %v", err)
	}
	v := struct {
		Key string `json:"key"`
	}{base64.StdEncoding.EncodeToString(b)}
	return a.emit(v, func(w io.Writer) { fmt.Fprintln(w, v.Key) })
}

type keyRotateCmd struct {
	File string `arg:"" help:"Database."`
	To   string `required:"" help:"File with the new key." placeholder:"FILE"`
}

func (keyRotateCmd) Help() string {
	return `Wraps the keyring by the new key; the data stays as it is, so it takes no time. After it only the new key opens the database. It does not take anything from who has the old key and a copy of the old keyring: import an export into a new database for that. Close the database first.

Example: dbctl key rotate agent.ctx --key-file old.key --to new.key`
}

func (c *keyRotateCmd) Run(a *app) error {
	if a.key == nil {
		return usage("key rotate: name the key of now with --key-file FILE")
	}
	next, err := readKey(c.To)
	if err != nil {
		return err
	}
	if err := filestore.Rotate(filestore.Options{Path: c.File, Key: a.key, Keyring: a.Keyring, MustExist: true, LockWait: a.Wait}, next); err != nil {
		return err
	}
	v := struct {
		File string `json:"file"`
	}{c.File}
	return a.emit(v, func(w io.Writer) { fmt.Fprintf(w, "the keyring of %s is wrapped by the key in %s\n", c.File, c.To) })
}

// readKey reads a key from a file: 32 bytes in hex or base64. A file that others may read is refused: the key would be no secret.
func readKey(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, failed("key file: %v", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, failed("key file: %v", err)
	}
	if st.Mode().IsRegular() && st.Mode().Perm()&0o077 != 0 {
		return nil, failed("key file %s: others may read or write it (%v); run chmod 600 on it", path, st.Mode().Perm())
	}
	b, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return nil, failed("key file: %v", err)
	}
	text := strings.TrimSpace(string(b))
	for _, decode := range []func(string) ([]byte, error){hex.DecodeString, base64.StdEncoding.DecodeString, base64.URLEncoding.DecodeString, base64.RawStdEncoding.DecodeString, base64.RawURLEncoding.DecodeString} {
		if key, err := decode(text); err == nil && len(key) == keySize {
			return key, nil
		}
	}
	return nil, failed("key file %s: expected %d bytes in hex or base64 (dbctl key new prints them)", path, keySize)
}
