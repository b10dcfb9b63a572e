package dbctl

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ctxpage/ctxpage/internal/system"
)

type contractView struct {
	Path  string `json:"path"`
	Bytes int    `json:"bytes"`
}

// growContract appends to a contract file, with one write, what delta makes of what it has. The file is made when it is not
// there.
func growContract(a *app, path string, delta func(have []byte) ([]byte, error)) error {
	f, err := system.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return failed("contract: %v", err)
	}
	v := contractView{Path: path}
	v.Bytes, err = appendContract(f, delta)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return a.emit(v, func(w io.Writer) { fmt.Fprintf(w, "%s: %d bytes appended\n", line(v.Path), v.Bytes) })
}

// previewContract shows what growContract would append.
func previewContract(a *app, path string, delta func(have []byte) ([]byte, error)) error {
	have, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return failed("contract: %v", err)
	}
	more, err := delta(have)
	if err != nil {
		return err
	}
	return a.emit(contractView{path, len(more)}, func(w io.Writer) { fmt.Fprint(w, printable(w, string(more))) })
}

func appendContract(f *os.File, delta func(have []byte) ([]byte, error)) (int, error) {
	// Until f is closed: two that read the same file would both begin it, and the second declaration empties the lists.
	if err := system.Lock(f); err != nil {
		return 0, failed("contract: lock: %v", err)
	}
	have, err := io.ReadAll(f)
	if err != nil {
		return 0, failed("contract: %v", err)
	}
	more, err := delta(have)
	if err != nil || len(more) == 0 {
		return 0, err
	}
	n, err := f.Write(more)
	return n, errors.Join(err, f.Sync())
}
