// Command endpoint serves a folder with a model as POST /v1/embeddings on loopback, for bench/evidence:
//
//	go -C embed/hugot run ./internal/endpoint /models/all-MiniLM-L6-v2
//	EVIDENCE_MODEL=http://127.0.0.1:8099/v1 evidence …
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"os"

	"github.com/ctxpage/ctxpage/embed/hugot"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: endpoint FOLDER")
	}
	m, err := hugot.Load(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:8099", handler(m)))
}

func handler(m *hugot.Model) http.Handler {
	type vector struct {
		Index     int       `json:"index"`
		Embedding []float32 `json:"embedding"`
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Input []string }
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 16<<20)).Decode(&q); err != nil {
			http.Error(w, "expected a JSON object with input, a list of texts: "+err.Error(), http.StatusBadRequest)
			return
		}
		vectors, err := m.Embed(r.Context(), q.Input)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		data := make([]vector, len(vectors))
		for i, v := range vectors {
			data[i] = vector{i, v}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
	})
}
