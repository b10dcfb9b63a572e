package dbctl

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/system"
)

const keySize = 32

type keyCmd struct {
	New    keyNewCmd    `cmd:"" help:"Print a new key."`
	Add    keyAddCmd    `cmd:"" help:"Encrypt a plain database."`
	Remove keyRemoveCmd `cmd:"" help:"Decrypt a database."`
	Rotate keyRotateCmd `cmd:"" help:"Encrypt the keyring of a database with another key."`
}

type keyNewCmd struct{}

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

type keyAddCmd struct {
	File   string `arg:"" help:"Database."`
	By     string `help:"Name of the operator, for the manifest." default:"operator"`
	DryRun bool   `help:"Say how much there is to write, and write nothing."`
}

func (c *keyAddCmd) Run(a *app) error {
	if a.key == nil {
		return usage("key add: name the key with --key-file FILE (dbctl key new makes one)")
	}
	if a.Keyring != "" {
		return usage("key add: --keyring is for reading; the keyring of a database that is written is beside it")
	}
	rep, err := filestore.AddKey(a.ctx, filestore.Options{Path: c.File, Key: a.key, LockWait: a.Wait}, filestore.RekeyOptions{By: c.By, DryRun: c.DryRun, Progress: a.progress()})
	if err != nil {
		return err
	}
	return a.emit(rep, func(w io.Writer) { printRekeyed(w, rep, "encrypted", "are not encrypted") })
}

type keyRemoveCmd struct {
	File   string `arg:"" help:"Database."`
	By     string `help:"Name of the operator, for the manifest." default:"operator"`
	DryRun bool   `help:"Say how much there is to write, and write nothing."`
}

func (c *keyRemoveCmd) Run(a *app) error {
	if a.key == nil {
		return usage("key remove: give the present key with --key-file FILE")
	}
	rep, err := filestore.RemoveKey(a.ctx, filestore.Options{Path: c.File, Key: a.key, Keyring: a.Keyring, LockWait: a.Wait}, filestore.RekeyOptions{By: c.By, DryRun: c.DryRun, Progress: a.progress()})
	if err != nil {
		return err
	}
	return a.emit(rep, func(w io.Writer) { printRekeyed(w, rep, "in plain text", "are encrypted") })
}

func printRekeyed(w io.Writer, r *filestore.Rekeyed, how, backups string) {
	if r.DryRun {
		fmt.Fprintf(w, "%s would be written anew, %s: %d bytes; %d are free on its disk\n", r.Path, how, r.Before, r.Free)
	} else {
		fmt.Fprintf(w, "%s is %s now: %d bytes, it had %d\n", r.Path, how, r.After, r.Before)
	}
	for _, name := range r.Backups {
		fmt.Fprintf(w, "backups from before %s: %s\n", backups, line(name))
	}
}

type keyRotateCmd struct {
	File string `arg:"" help:"Database."`
	To   string `required:"" help:"File with the new key." placeholder:"FILE"`
}

func (c *keyRotateCmd) Run(a *app) error {
	if a.key == nil {
		return usage("key rotate: give the present key with --key-file FILE")
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
	return a.emit(v, func(w io.Writer) {
		fmt.Fprintf(w, "the keyring of %s is encrypted with the key in %s now\n", c.File, c.To)
	})
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
	if system.Modes && st.Mode().IsRegular() && st.Mode().Perm()&0o077 != 0 {
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
