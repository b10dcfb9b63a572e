// Command overhead times calls of the JSON socket from Go, for the tests that compare the Python and TypeScript clients with it:
//
//	overhead SOCKET CALLS [put|get|assemble]
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"
)

func main() {
	n, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", os.Args[1])
	}}}
	call := func(name string, in any) {
		body, err := json.Marshal(in)
		if err != nil {
			panic(err)
		}
		req, err := http.NewRequest(http.MethodPost, "http://ctxpage/v1/"+name, bytes.NewReader(body))
		if err != nil {
			panic(err)
		}
		req.Header.Set("Ctxpage-Scope", "overhead")
		req.Header.Set("Ctxpage-Role", "host")
		res, err := client.Do(req)
		if err != nil {
			panic(err)
		}
		answer, err := io.ReadAll(res.Body)
		res.Body.Close()
		var out map[string]any
		if err != nil || res.StatusCode != http.StatusOK || json.Unmarshal(answer, &out) != nil {
			panic(fmt.Sprintf("%s: %d %s %v", name, res.StatusCode, answer, err))
		}
	}
	median := func(do func(i int)) float64 {
		took := make([]time.Duration, n)
		for i := range took {
			begun := time.Now()
			do(i)
			took[i] = time.Since(begun)
		}
		slices.Sort(took)
		return float64(took[n/2].Microseconds()) / 1000
	}
	type m = map[string]any
	calls := map[string]func(i int){
		"put": func(i int) {
			call("put", m{"writes": []m{{"id": "page-" + strconv.Itoa(i%50), "text": fmt.Sprintf("refund %d within %d days, says go", i, 7*i)}}})
		},
		"get":      func(i int) { call("get", m{"id": "page-" + strconv.Itoa(i%50)}) },
		"assemble": func(int) { call("assemble", m{"query": "refund", "budget": 1000}) },
	}
	out := map[string]float64{}
	for _, name := range []string{"put", "get", "assemble"} {
		if len(os.Args) < 4 || os.Args[3] == name {
			out[name] = median(calls[name])
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		panic(err)
	}
}
