package anthropicmemory

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

const (
	root     = "memories"
	maxLines = 999_999
	folder   = 4096 // bytes that a directory is shown with, as on most file systems
	// metaBytes names the metadata with the size of a file, so that a directory is listed without reading its files.
	metaBytes = "bytes"
)

// idOf returns the id of a path: memories, or memories/…
func idOf(p string) (string, error) {
	if p != "/"+root && !strings.HasPrefix(p, "/"+root+"/") {
		return "", fmt.Errorf("Path must start with /memories, got: %s", p) //nolint:staticcheck // the text that models know
	}
	id := path.Clean(p[1:])
	if id != root && !strings.HasPrefix(id, root+"/") {
		return "", fmt.Errorf("Path %s would escape /memories directory", p) //nolint:staticcheck // likewise
	}
	return id, nil
}

func absent(p string) error {
	return fmt.Errorf("The path %s does not exist. Please provide a valid path.", p) //nolint:staticcheck // likewise
}

// page makes the page of a file. A page needs a text or a part, so that of an empty file has a part without text.
func page(id, text string) ctxpage.Artefact {
	a := ctxpage.Artefact{ID: id, Kind: store.KindScratch, Text: text, Meta: map[string]string{metaBytes: strconv.Itoa(len(text))}}
	if text == "" {
		a.Parts = []store.Part{{Type: "file"}}
	}
	return a
}

func directory(id string) ctxpage.Artefact {
	return ctxpage.Artefact{ID: id, Kind: store.KindScratch, Parts: []store.Part{{Type: "directory"}}}
}

// text returns the content of a file. The Python adapter marks an empty file by metadata.
func text(v *ctxpage.Version) string {
	if v.Meta["empty"] != "" {
		return ""
	}
	return v.Text
}

type reader interface {
	Get(ctx context.Context, id string, opts ...ctxpage.ReadOption) (*ctxpage.Version, error)
}

// read returns a page of the scope itself; nil: there is none.
func (t *Tool) read(ctx context.Context, from reader, id string) (*ctxpage.Version, error) {
	v, err := from.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && v.Ref.Scope != t.scope.Name() {
		return nil, nil
	}
	return v, err
}

// list returns the pages below a directory, without their text and without that of the directory itself.
func (t *Tool) list(ctx context.Context, id string, opts ...ctxpage.ReadOption) ([]*ctxpage.Version, error) {
	var out []*ctxpage.Version
	for v, err := range t.scope.Artefacts(ctx, id+"/", opts...) {
		if err != nil {
			return nil, err
		}
		if v.ID != id+"/" {
			out = append(out, v)
		}
	}
	return out, nil
}

func (t *Tool) below(ctx context.Context, id string) ([]string, error) {
	pages, err := t.list(ctx, id)
	ids := make([]string, len(pages))
	for i, v := range pages {
		ids[i] = v.ID
	}
	return ids, err
}

// isDir reports whether a directory exists: it has a page, or something is in it.
func (t *Tool) isDir(ctx context.Context, id string) (bool, error) {
	if id == root {
		return true, nil
	}
	for _, err := range t.scope.Artefacts(ctx, id+"/", ctxpage.AtMost(1, "", nil)) {
		return err == nil, err
	}
	return false, nil
}

// parents puts the directories above a new file or directory that have no page yet.
func (t *Tool) parents(ctx context.Context, tx *ctxpage.Txn, id, p string) error {
	for dir := path.Dir(id); dir != root; dir = path.Dir(dir) {
		if file, err := t.read(ctx, tx, dir); err != nil {
			return err
		} else if file != nil {
			return fmt.Errorf("The path %s is below the file /%s", p, dir) //nolint:staticcheck // in the manner of the others
		}
		if have, err := t.read(ctx, tx, dir+"/"); err != nil {
			return err
		} else if have == nil {
			if err := tx.Put(ctx, directory(dir+"/")); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Tool) view(ctx context.Context, c Command) (string, error) {
	id, err := idOf(c.Path)
	if err != nil {
		return "", err
	}
	if id != root {
		if v, err := t.read(ctx, t.scope, id); err != nil {
			return "", err
		} else if v != nil {
			return viewFile(c, text(v))
		}
	}
	if dir, err := t.isDir(ctx, id); err != nil {
		return "", err
	} else if !dir {
		return "", absent(c.Path)
	}
	return t.viewDir(ctx, c.Path, id)
}

func viewFile(c Command, content string) (string, error) {
	lines := strings.Split(content, "\n")
	if len(lines) > maxLines {
		return "", fmt.Errorf("File %s exceeds maximum line limit of 999,999 lines.", c.Path) //nolint:staticcheck // the text that models know
	}
	first := int64(0)
	if len(c.ViewRange) == 2 {
		n, last := int64(len(lines)), c.ViewRange[1]
		first = max(1, c.ViewRange[0]) - 1
		switch {
		case last == -1:
			last = n
		case last < 0: // counted from the end, as the Python SDK does
			last += n
		}
		last = min(max(last, 0), n)
		lines = lines[min(first, last):last]
	}
	return "Here's the content of " + c.Path + " with line numbers:\n" + numbered(lines, first+1), nil
}

func numbered(lines []string, first int64) string {
	var b strings.Builder
	for i, line := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%6d\t%s", first+int64(i), line)
	}
	return b.String()
}

// viewDir lists two levels of a directory, in the order of the names, each directory before what is in it.
func (t *Tool) viewDir(ctx context.Context, p, id string) (string, error) {
	pages, err := t.list(ctx, id)
	if err != nil {
		return "", err
	}
	sizes := map[string]int{} // by path below the directory; those of directories end with a slash
	for _, v := range pages {
		names := strings.Split(strings.TrimSuffix(v.ID[len(id)+1:], "/"), "/")
		shown := names[:min(2, len(names))]
		if slices.ContainsFunc(shown, func(n string) bool { return strings.HasPrefix(n, ".") }) {
			continue
		}
		for n := 1; n <= len(shown); n++ {
			one := strings.Join(shown[:n], "/")
			if n < len(names) || strings.HasSuffix(v.ID, "/") {
				sizes[one+"/"] = folder
			} else if sizes[one], err = t.size(ctx, v); err != nil {
				return "", err
			}
		}
	}
	found := make([]string, 0, len(sizes))
	for one := range sizes {
		found = append(found, one)
	}
	slices.SortFunc(found, func(a, b string) int {
		return slices.Compare(strings.Split(strings.TrimSuffix(a, "/"), "/"), strings.Split(strings.TrimSuffix(b, "/"), "/"))
	})
	var b strings.Builder
	fmt.Fprintf(&b, "Here're the files and directories up to 2 levels deep in %s, excluding hidden items:\n%s\t%s", p, sizeText(folder), p)
	for _, one := range found {
		fmt.Fprintf(&b, "\n%s\t%s/%s", sizeText(sizes[one]), p, one)
	}
	return b.String(), nil
}

// size returns the bytes of a file. Those of a file that another client wrote may have to be counted.
func (t *Tool) size(ctx context.Context, listed *ctxpage.Version) (int, error) {
	if n, err := strconv.Atoi(listed.Meta[metaBytes]); err == nil {
		return n, nil
	}
	v, err := t.read(ctx, t.scope, listed.ID)
	if err != nil || v == nil {
		return 0, err
	}
	return len(text(v)), nil
}

// sizeText writes a size as the Python SDK does.
func sizeText(n int) string {
	unit := min(max(bits.Len(uint(n))-1, 0)/10, 3)
	size := float64(n) / float64(int(1)<<(10*unit))
	if size == float64(int(size)) {
		return strconv.Itoa(int(size)) + "BKMG"[unit:unit+1]
	}
	return fmt.Sprintf("%.1f%c", size, "BKMG"[unit])
}

func (t *Tool) create(ctx context.Context, c Command) (string, error) {
	id, err := idOf(c.Path)
	if err != nil {
		return "", err
	}
	err = t.update(ctx, func(tx *ctxpage.Txn) error {
		have, err := t.exists(ctx, tx, id)
		if err != nil {
			return err
		}
		if have {
			return fmt.Errorf("File %s already exists", c.Path) //nolint:staticcheck // the text that models know
		}
		if err := t.parents(ctx, tx, id, c.Path); err != nil {
			return err
		}
		return tx.Put(ctx, page(id, c.FileText))
	})
	return "File created successfully at: " + c.Path, err
}

func (t *Tool) exists(ctx context.Context, tx *ctxpage.Txn, id string) (bool, error) {
	if dir, err := t.isDir(ctx, id); dir || err != nil {
		return dir, err
	}
	v, err := t.read(ctx, tx, id)
	return v != nil, err
}

// edit replaces a file by what change makes of its content.
func (t *Tool) edit(ctx context.Context, p string, change func(content string) (string, error)) error {
	id, err := idOf(p)
	if err != nil {
		return err
	}
	return t.update(ctx, func(tx *ctxpage.Txn) error {
		var v *ctxpage.Version
		if id != root {
			if v, err = t.read(ctx, tx, id); err != nil {
				return err
			}
		}
		if v == nil {
			if dir, err := t.isDir(ctx, id); err != nil {
				return err
			} else if dir {
				return fmt.Errorf("The path %s is not a file.", p) //nolint:staticcheck // the text that models know
			}
			return absent(p)
		}
		changed, err := change(text(v))
		if err != nil {
			return err
		}
		return tx.Put(ctx, page(id, changed))
	})
}

func (t *Tool) replace(ctx context.Context, c Command) (string, error) {
	var snippet string
	err := t.edit(ctx, c.Path, func(content string) (string, error) {
		switch strings.Count(content, c.OldStr) {
		case 0:
			return "", fmt.Errorf("No replacement was performed, old_str `%s` did not appear verbatim in %s.", c.OldStr, c.Path) //nolint:staticcheck // the text that models know
		case 1:
		default:
			return "", fmt.Errorf("No replacement was performed. Multiple occurrences of old_str `%s` in lines: %s. Please ensure it is unique", //nolint:staticcheck // likewise
				c.OldStr, strings.Join(linesOf(content, c.OldStr), ", "))
		}
		at := strings.Count(content[:strings.Index(content, c.OldStr)], "\n")
		changed := strings.Replace(content, c.OldStr, c.NewStr, 1)
		lines := strings.Split(changed, "\n")
		first := max(0, at-2)
		snippet = numbered(lines[first:min(len(lines), at+3)], int64(first)+1)
		return changed, nil
	})
	return "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n" + snippet, err
}

// maxNamed bounds the lines that an error lists.
const maxNamed = 10_000

// linesOf returns the numbers of the lines where a text begins. Occurrences may overlap.
func linesOf(content, part string) []string {
	var out []string
	line := 1
	for at := 0; len(out) < maxNamed; {
		next := strings.Index(content[at:], part)
		if next < 0 {
			break
		}
		line += strings.Count(content[at:at+next], "\n")
		out = append(out, strconv.Itoa(line))
		at += next
		_, size := utf8.DecodeRuneInString(content[at:])
		if size == 0 {
			break
		}
		line += strings.Count(content[at:at+size], "\n")
		at += size
	}
	return out
}

func (t *Tool) insert(ctx context.Context, c Command) (string, error) {
	err := t.edit(ctx, c.Path, func(content string) (string, error) {
		lines := strings.Split(content, "\n")
		if lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		if c.InsertLine < 0 || c.InsertLine > int64(len(lines)) {
			return "", fmt.Errorf("Invalid `insert_line` parameter: %d. It should be within the range [0, %d].", c.InsertLine, len(lines)) //nolint:staticcheck // the text that models know
		}
		changed := strings.Join(slices.Insert(lines, int(c.InsertLine), strings.TrimRight(c.InsertText, "\n")), "\n")
		if !strings.HasSuffix(changed, "\n") {
			changed += "\n"
		}
		return changed, nil
	})
	return "The file " + c.Path + " has been edited.", err
}

// members returns the ids of a file, or of a directory and everything in it.
func (t *Tool) members(ctx context.Context, tx *ctxpage.Txn, id string) ([]string, error) {
	if v, err := t.read(ctx, tx, id); err != nil {
		return nil, err
	} else if v != nil {
		return []string{id}, nil
	}
	ids, err := t.below(ctx, id)
	if err != nil {
		return nil, err
	}
	if v, err := t.read(ctx, tx, id+"/"); err != nil {
		return nil, err
	} else if v != nil {
		ids = append([]string{id + "/"}, ids...)
	}
	return ids, nil
}

func (t *Tool) delete(ctx context.Context, c Command) (string, error) {
	id, err := idOf(c.Path)
	if err != nil {
		return "", err
	}
	if id == root {
		return "", errors.New("Cannot delete the /memories directory itself") //nolint:staticcheck // the text that models know
	}
	err = t.update(ctx, func(tx *ctxpage.Txn) error {
		ids, err := t.members(ctx, tx, id)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			return fmt.Errorf("The path %s does not exist", c.Path) //nolint:staticcheck // likewise
		}
		return remove(ctx, tx, ids)
	})
	return "Successfully deleted " + c.Path, err
}

func (t *Tool) rename(ctx context.Context, c Command) (string, error) {
	from, err := idOf(c.OldPath)
	if err != nil {
		return "", err
	}
	to, err := idOf(c.NewPath)
	if err != nil {
		return "", err
	}
	if from == root {
		return "", errors.New("Cannot rename the /memories directory itself") //nolint:staticcheck // the text that models know
	}
	err = t.update(ctx, func(tx *ctxpage.Txn) error {
		if have, err := t.exists(ctx, tx, to); err != nil {
			return err
		} else if have {
			return fmt.Errorf("The destination %s already exists", c.NewPath) //nolint:staticcheck // likewise
		}
		ids, err := t.members(ctx, tx, from)
		switch {
		case err != nil:
			return err
		case len(ids) == 0:
			return fmt.Errorf("The path %s does not exist", c.OldPath) //nolint:staticcheck // likewise
		case strings.HasPrefix(to, from+"/"):
			return fmt.Errorf("Cannot rename %s to %s, which is inside it", c.OldPath, c.NewPath) //nolint:staticcheck // in the manner of the others
		}
		if err := t.parents(ctx, tx, to, c.NewPath); err != nil {
			return err
		}
		return t.move(ctx, tx, ids, from, to)
	})
	return "Successfully renamed " + c.OldPath + " to " + c.NewPath, err
}

// move writes pages under new ids and deletes the old ones.
func (t *Tool) move(ctx context.Context, tx *ctxpage.Txn, ids []string, from, to string) error {
	for _, id := range ids {
		moved := directory(to + id[len(from):])
		if !strings.HasSuffix(id, "/") {
			v, err := t.read(ctx, tx, id)
			if err != nil {
				return err
			}
			if v == nil {
				continue // another agent deleted it since it was listed
			}
			moved = page(moved.ID, text(v))
		}
		if err := tx.Put(ctx, moved); err != nil {
			return err
		}
	}
	return remove(ctx, tx, ids)
}
