package commands

import (
	"errors"
	"fmt"
	"io"

	"github.com/ctxpage/ctxpage/session"
)

// matrixPairs are the weight pairs of the reference's benchmark.
var matrixPairs = [][2]float64{{0.9, 0.1}, {0.7, 0.3}, {0.5, 0.5}, {0.3, 0.7}}

// matrixHistory has the property the benchmark needs: active blocks are close
// and on the subject, noise shares no word with it, resolved ones lie between.
const matrixHistory = `{
 "intent_ir": ["ledger", "refund", "invoice", "currency", "rounding", "audit"],
 "current_turn": 15,
 "blocks": [
  {"id": "block-m01", "turn": 1, "kind": "noise", "text": "%PDF-1.7 0 obj endobj xref trailer 7f3a 99c0"},
  {"id": "block-m02", "turn": 3, "kind": "noise", "text": "npm WARN deprecated left-pad, use something else"},
  {"id": "block-m03", "turn": 4, "kind": "resolved", "text": "We agreed where the monthly ledger export is kept."},
  {"id": "block-m04", "turn": 5, "kind": "noise", "text": "Thanks! Have a lovely weekend, see you on Monday."},
  {"id": "block-m05", "turn": 6, "kind": "resolved", "text": "The refund button was moved to the second tab, done."},
  {"id": "block-m06", "turn": 7, "kind": "resolved", "text": "Old plan for the invoice numbers per currency; closed."},
  {"id": "block-m07", "turn": 8, "kind": "resolved", "text": "The audit trail is on by default since spring."},
  {"id": "block-m08", "turn": 10, "kind": "noise", "text": "~~~ ping pong ping pong ~~~ testing one two three"},
  {"id": "block-m09", "turn": 12, "kind": "resolved", "text": "Fixed: a refund carried the wrong currency sign."},
  {"id": "block-m10", "turn": 13, "kind": "active", "text": "Rounding per invoice line in each currency makes the ledger and the refund differ by a cent."},
  {"id": "block-m11", "turn": 14, "kind": "active", "text": "Which rounding does the audit expect for a refund in the ledger?"},
  {"id": "block-m12", "turn": 15, "kind": "active", "text": "Ledger, invoice and refund need one rounding per currency; the audit checks all of them."}
 ]
}`

// runMatrix passes the built-in history under four weight pairs and checks the
// three invariants of the benchmark.
func runMatrix(out, errw io.Writer) int {
	var faults []error
	fmt.Fprintln(out, "alpha beta  retain page evict")
	for _, w := range matrixPairs {
		p, err := matrixPass(w)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		fmt.Fprintf(out, "%5s %4s %7d %4d %5d\n", floatText(w[0]), floatText(w[1]),
			p.count[session.Retain], p.count[session.Page], p.count[session.Evict])
		faults = append(faults, checkMatrix(w, p))
	}
	if err := errors.Join(faults...); err != nil {
		fmt.Fprintf(errw, "error: %v\n", err)
		return exitFailed
	}
	fmt.Fprintln(out, "active always retained, noise evicted for 0.9/0.1 and 0.7/0.3, no block twice: ok")
	return exitOK
}

func matrixPass(w [2]float64) (*pass, error) {
	c := session.CompatParams()
	return decide([]byte(matrixHistory), options{alpha: w[0], beta: w[1], retainCut: c.RetainCut, evictCut: c.EvictCut})
}

// checkMatrix judges what a pass wrote, as the reference does: by reading its
// records back.
func checkMatrix(w [2]float64, p *pass) error {
	var faults []error
	seen := map[string]bool{}
	records, err := readRecords(p.records)
	if err != nil {
		return err
	}
	for _, r := range records {
		if seen[r.block] {
			faults = append(faults, fmt.Errorf("%v: %s is filed twice", w, r.block))
		}
		seen[r.block] = true
		if r.kind == "active" && r.action != "retain" {
			faults = append(faults, fmt.Errorf("%v: active %s is not retained", w, r.block))
		}
		if r.kind == "noise" && w[0] > w[1] && r.action != "evict" {
			faults = append(faults, fmt.Errorf("%v: noise %s is not evicted", w, r.block))
		}
	}
	return errors.Join(faults...)
}

type matrixRecord struct{ block, kind, action string }

func readRecords(b []byte) (out []matrixRecord, err error) {
	doc, err := parse([]byte("[" + joinLines(b) + "]"))
	if err != nil {
		return nil, err
	}
	for _, v := range doc.list {
		out = append(out, matrixRecord{v.member("block").text, v.member("kind").text, v.member("action").text})
	}
	return out, nil
}
