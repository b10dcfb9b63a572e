// Package ui is an inspector in the browser: what the model saw, what was left out, and why. It shows contexts, pages, sessions and held
// batches of an open database, as a handler that a host mounts in its own mux. dbctl ui is the same as a program.
//
// Pages are made on the server; a browser without JavaScript shows everything but live updates. Nothing is loaded from elsewhere.
//
// Who may see it: with Options.Token the handler asks for a login, a link that works once and leaves a cookie. Without a token the host
// decides who reaches the handler. In both cases it answers only to known host names and refuses requests that other sites make.
//
// What it changes: every view that shows text of pages leaves a manifest, as each read of the library does, under Options.Actor. With
// Options.Write people can also decide held batches and keep questions; without it nothing else changes. Sources are not fetched.
//
// What it shows was written by others: text never becomes markup, and characters that hide or turn round text are shown by number.
package ui

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
)

// Options configure a Handler. DB is required.
type Options struct {
	DB *ctxpage.DB
	// Write offers forms that change the database: to approve and reject held batches, and to keep questions.
	Write bool
	// ReadOnly says that the database was opened with ctxpage.Options.ReadOnly, so that no read leaves a manifest. The pages say so.
	ReadOnly bool
	// Token opens the inspector once, at Prefix/enter?token=TOKEN, and leaves a cookie; "": there is no login, because the host has one.
	Token string
	// Hosts are the values of the Host header that are answered; none: the names of the loopback interface, with any port.
	Hosts []string
	// Prefix is the path that the handler is mounted at, without a slash at its end. The handler gets requests with it.
	Prefix string
	// Actor is named in manifests; "": ui.
	Actor string
	// Name is the title of the pages; "": the path of the database.
	Name string
	// Counter tells the tokens of texts from those of headers; nil: headers are not shown apart.
	Counter token.Counter
	// Embedder says that the database has Options.Embedder, so that a question can be tried with and without it.
	Embedder bool
	// Facts are lines for the view of health, such as which process owns the files; nil: none.
	Facts func(ctx context.Context) [][2]string
	Now   func() time.Time // nil: time.Now
	Rand  io.Reader        // of cookies; nil: crypto/rand
}

// Handler serves the inspector. It is safe for concurrent use.
type Handler struct {
	o      Options
	door   *door
	mux    *http.ServeMux
	pages  map[string]*template.Template
	sizes  samples
	day    density
	ended  context.Context
	end    context.CancelFunc
	closed sync.WaitGroup
}

//go:embed templates static
var files embed.FS

// New returns a handler for a database. The caller closes the handler before the database.
func New(o Options) (*Handler, error) {
	if o.DB == nil {
		return nil, store.Invalid("ui.Options.DB", "nil", "an open database")
	}
	if strings.HasSuffix(o.Prefix, "/") || o.Prefix != "" && !strings.HasPrefix(o.Prefix, "/") {
		return nil, store.Invalid("ui.Options.Prefix", o.Prefix, "a path like /ctxpage, without a slash at its end")
	}
	if o.Actor == "" {
		o.Actor = "ui"
	}
	if o.Name == "" {
		o.Name = o.DB.Path()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	h := &Handler{o: o, mux: http.NewServeMux()}
	h.ended, h.end = context.WithCancel(context.Background())
	var err error
	if h.door, err = newDoor(o); err != nil {
		return nil, err
	}
	return h, h.routes()
}

// Close ends the streams of live updates and waits for them.
func (h *Handler) Close() {
	h.end()
	h.closed.Wait()
}

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	if status, why := h.door.refuses(r); status != 0 {
		h.fail(w, r, status, why)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// viewFunc makes the content of a page.
type viewFunc func(r *http.Request) (*content, error)

// content is shown by a template of templates/.
type content struct {
	Name  string // of the template
	Title string
	Nav   string // the entry of the navigation that is current
	View  any
}

// frame has a content and what the layout shows around it.
type frame struct {
	*content
	Database        string
	Write, ReadOnly bool
	Held            int
	Status          int
}

func (h *Handler) routes() (err error) {
	if h.pages, err = parse(h); err != nil {
		return err
	}
	at := func(method, path string) string { return method + " " + h.o.Prefix + path }
	for path, v := range map[string]viewFunc{
		"/{$}": h.live, "/browse": h.browse, "/page": h.page, "/sources": h.sources, "/context": h.context, "/why": h.why, "/diff": h.diff,
		"/sessions": h.sessions, "/session": h.session, "/review": h.review, "/batch": h.batch, "/try": h.try, "/health": h.health,
	} {
		h.mux.Handle(at("GET", path), h.shows(v))
	}
	h.mux.HandleFunc(at("GET", "/events"), h.events)
	h.mux.HandleFunc(at("GET", "/enter"), h.enter)
	h.mux.HandleFunc(at("POST", "/decide"), h.changes(h.decide))
	h.mux.HandleFunc(at("POST", "/keep"), h.changes(h.keep))
	h.mux.HandleFunc(at("GET", "/static/{file}"), h.static)
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		h.fail(w, r, http.StatusNotFound, "There is no such page.")
	})
	return nil
}

// shows is the handler of a view.
func (h *Handler) shows(v viewFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := v(r)
		if err != nil {
			h.fail(w, r, statusOf(err), problem(err))
			return
		}
		h.write(w, r, http.StatusOK, c)
	})
}

// changes is the handler of a form that changes the database. It shows where to go next, so that a reload repeats nothing.
func (h *Handler) changes(do func(r *http.Request) (next string, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !h.o.Write || h.o.ReadOnly {
			h.fail(w, r, http.StatusForbidden, "This inspector only reads. Start it with --write to decide batches and to keep questions.")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
		next, err := do(r)
		if err != nil {
			h.fail(w, r, statusOf(err), problem(err))
			return
		}
		http.Redirect(w, r, next, http.StatusSeeOther)
	}
}

// write renders a page whole before it sends any of it.
func (h *Handler) write(w http.ResponseWriter, r *http.Request, status int, c *content) {
	f := frame{content: c, Database: h.o.Name, Write: h.o.Write && !h.o.ReadOnly, ReadOnly: h.o.ReadOnly, Status: status}
	if status == http.StatusOK {
		if s, err := h.o.DB.Stats(r.Context()); err == nil {
			f.Held = s.Held
		}
	}
	var b bytes.Buffer
	if err := h.pages[c.Name].ExecuteTemplate(&b, "layout", f); err != nil {
		http.Error(w, "The page could not be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Vary", "Accept-Encoding")
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(status)
		_, _ = w.Write(b.Bytes())
		return
	}
	w.Header().Set("Content-Encoding", "gzip") // pages hold no secret whose length could tell
	w.WriteHeader(status)
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
	_, _ = z.Write(b.Bytes())
	_ = z.Close()
}

// fail shows an error as a page.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, status int, why string) {
	h.write(w, r, status, &content{Name: "error", Title: http.StatusText(status), View: why})
}

// problem is an error as people read it.
func problem(err error) string { return strings.TrimPrefix(err.Error(), "ctxpage: ") }

func statusOf(err error) int {
	for _, s := range []struct {
		err    error
		status int
	}{
		{store.ErrNotFound, http.StatusNotFound}, {manifest.ErrNoLeaf, http.StatusNotFound}, {store.ErrGone, http.StatusGone}, {store.ErrExpired, http.StatusGone},
		{store.ErrInvalid, http.StatusBadRequest}, {store.ErrConflict, http.StatusConflict}, {store.ErrStaleContext, http.StatusConflict},
		{store.ErrReviewed, http.StatusConflict}, {store.ErrSelfCertified, http.StatusConflict}, {store.ErrReadOnly, http.StatusForbidden},
		{store.ErrBudget, http.StatusBadRequest}, {context.Canceled, http.StatusServiceUnavailable}, {store.ErrClosed, http.StatusServiceUnavailable},
	} {
		if errors.Is(err, s.err) {
			return s.status
		}
	}
	return http.StatusInternalServerError
}

// scope is the handle that a view reads a scope with.
func (h *Handler) scope(name string) *ctxpage.Scope {
	return h.o.DB.Scope(name, ctxpage.WithActor(h.o.Actor))
}

// link is the address of a view, with a query of names and values. Empty values are left out.
func (h *Handler) link(path string, query ...any) string {
	q := url.Values{}
	for i := 0; i+1 < len(query); i += 2 {
		if v := fmt.Sprint(query[i+1]); v != "" {
			q.Set(fmt.Sprint(query[i]), v)
		}
	}
	if len(q) == 0 {
		return h.o.Prefix + path
	}
	return h.o.Prefix + path + "?" + q.Encode()
}

var mimes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

func (h *Handler) static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	b, err := files.ReadFile("static/" + name)
	if err != nil {
		h.fail(w, r, http.StatusNotFound, "There is no such file.")
		return
	}
	w.Header().Set("Content-Type", mimes[name[strings.LastIndexByte(name, '.'):]])
	w.Header().Set("Cache-Control", "max-age=300")
	_, _ = w.Write(b)
}

// parse makes a template of each file in templates/, within the layout.
func parse(h *Handler) (map[string]*template.Template, error) {
	common := template.New("").Funcs(template.FuncMap{
		"name": name, "when": when, "number": number, "size": size, "percent": percent, "score": score, "link": h.link, "short": short,
		"form": form, "state": state, "plain": plain, "clip": clip, "add": func(a, b int) int { return a + b },
		"join": strings.Join, "ref": func(scope, id string) string { return store.Ref{Scope: scope, ID: id}.String() },
		"hasText": func(l leafRow) bool { return l.Type == manifest.TypeAssemble && l.Pruned == nil },
		"pair":    func(a, b any) [2]any { return [2]any{a, b} },
	})
	common, err := common.ParseFS(files, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return nil, err
	}
	out := map[string]*template.Template{}
	for _, file := range names {
		of, err := common.Clone()
		if err == nil {
			of, err = of.ParseFS(files, file)
		}
		if err != nil {
			return nil, fmt.Errorf("ui: %s: %w", file, err)
		}
		out[strings.TrimSuffix(path.Base(file), ".html")] = of
	}
	return out, nil
}
