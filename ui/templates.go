package ui

import (
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"strings"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

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
