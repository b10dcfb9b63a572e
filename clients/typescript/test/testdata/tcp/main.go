// Command tcp puts a page into a database that a server offers over TCP, and prints the process of that server. It finds the server as
// PROTOCOL.md says, and starts none:
//
//	tcp PATH ID
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

func main() {
	path, id := os.Args[1], os.Args[2]
	var lock, status struct {
		Socket string
		PID    int
	}
	text, err := os.ReadFile(path + ".http.lock")
	must(err)
	must(json.Unmarshal(text, &lock))
	text, err = os.ReadFile(path + ".http.tokens")
	must(err)
	words := strings.Fields(string(text))
	call := func(method, name, body string) []byte {
		req, err := http.NewRequest(method, lock.Socket+"/v1/"+name, strings.NewReader(body))
		must(err)
		req.Header.Set("Authorization", "Bearer "+words[1])
		req.Header.Set("Ctxpage-Scope", "acme")
		req.Header.Set("Ctxpage-Role", "host")
		res, err := http.DefaultClient.Do(req)
		must(err)
		answer, err := io.ReadAll(res.Body)
		must(err)
		if res.StatusCode != http.StatusOK {
			must(fmt.Errorf("%s: %s", name, answer))
		}
		return answer
	}
	call(http.MethodPost, "put", fmt.Sprintf(`{"writes":[{"id":%q,"text":"said by %s"}]}`, id, id))
	must(json.Unmarshal(call(http.MethodGet, "status", ""), &status))
	if status.PID != lock.PID {
		must(fmt.Errorf("pid %d answers, %s names %d", status.PID, path+".http.lock", lock.PID))
	}
	fmt.Println(status.PID)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
