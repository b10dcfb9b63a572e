package ctxpage_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/stretchr/testify/require"
)

// mutable lists the methods by which a log is changed.
var mutable = []string{"Add", "AddNew", "Archive", "Mark"}

// writers names what of a value could change the log: a method of that name, a *archive.Log among the results of its
// methods, the fields it shows, or inside an interface.
func writers(v any) (out []string) {
	if _, ok := v.(*archive.Log); ok {
		out = append(out, "it is the log")
	}
	log := reflect.TypeFor[*archive.Log]()
	t := reflect.TypeOf(v)
	for i := range t.NumMethod() {
		m := t.Method(i)
		for _, name := range mutable {
			if m.Name == name {
				out = append(out, "method "+name)
			}
		}
		for k := range m.Type.NumOut() {
			if r := m.Type.Out(k); r == log || r.Kind() == reflect.Interface && r.NumMethod() > 0 && r != reflect.TypeFor[error]() {
				out = append(out, fmt.Sprintf("%s gives %v", m.Name, r))
			}
		}
	}
	if t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct {
		for i := range t.Elem().NumField() {
			if f := t.Elem().Field(i); f.IsExported() {
				out = append(out, "field "+f.Name)
			}
		}
	}
	return out
}

// TestHostsReadTheAuditOnly: nothing that a host gets of the audit can append a leaf, and a body or a leaf that the host
// changes is the host's own copy.
func TestHostsReadTheAuditOnly(t *testing.T) {
	ctx := context.Background()
	path := t.TempDir() + "/agent.ctx"
	db, err := ctxpage.Open(path, ctxpage.Options{})
	require.NoError(t, err)
	s := db.Scope("acme")
	_, err = s.Put(ctx, ctxpage.Artefact{ID: "policy", Text: "refunds take 14 days"})
	require.NoError(t, err)
	_, err = s.Get(ctx, "policy")
	require.NoError(t, err)
	require.Empty(t, writers(db.Manifests()))

	read, _, err := filestore.OpenManifests(ctx, path)
	require.NoError(t, err)
	require.Empty(t, writers(read))
	require.NoError(t, read.Close())

	body, err := db.Manifests().Body(ctx, 0)
	require.NoError(t, err)
	clear(body)
	leaf, err := db.Manifests().Leaf(ctx, 0)
	require.NoError(t, err)
	*leaf = manifest.Record{}
	if c, ok := db.Manifests().(interface{ Close() error }); ok {
		require.NoError(t, c.Close(), "a host cannot close the log under the database")
	}
	_, err = db.Manifests().Verify(ctx, nil, nil)
	require.NoError(t, err)
	_, err = s.Get(ctx, "policy")
	require.NoError(t, err, "the database goes on writing")
	require.NoError(t, db.Close())
	db, err = ctxpage.Open(path, ctxpage.Options{})
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

// TestWritersSeesALog is the control: what the database handed out before is found.
func TestWritersSeesALog(t *testing.T) {
	l, _, err := archive.Open(context.Background(), t.TempDir(), nil, archive.Options{DB: "x"})
	require.NoError(t, err)
	defer l.Close()
	found := writers(l)
	require.Contains(t, found, "it is the log")
	require.Contains(t, found, "method AddNew")
	require.Contains(t, writers(struct{ *archive.Log }{l}), "method Add")
}
