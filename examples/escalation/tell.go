package main

import (
	"fmt"
	"strings"
)

// tell is the report for people.
func (r *report) tell() string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p := &r.Plain
	say("A billing escalation over %d artefacts (seed %d)", r.Artefacts, r.Seed)
	say("  %s", r.question)
	say("")
	say("1 triage      %d expired, %d below the provenance floor; %d black in all, before anything was scored", r.Expired, r.BelowFloor, r.Black)
	say("              recency and provenance kept %d for the semantic score (%d texts embedded)", r.Scored, r.EmbedderCalls)
	say("2 paging      %d page dirty: its file changed two weeks ago; fetched again before use", r.DirtyRefetch)
	say("3 assembly    %d of %d tokens, tier %d", r.Tokens, r.Budget, r.Tier)
	say("              the model reads: the refund limit is $%d", r.ServedLimit)
	say("4 validation  answer at %.2f: committed; at %.2f: held (%s), seen in %d places since", r.CommittedAt, r.HeldAt, r.heldWhy, r.heldSeen)
	say("5 audit       trace %s, replay gives the same bytes: %v, %s", r.trace, r.replayed, r.tail)
	say("")
	for _, w := range []struct {
		name string
		t    *tagged
	}{{"the old policy", &r.old}, {"the hearsay note", &r.note}, {"the article", &r.article}} {
		say("why %s (%s)?", w.name, w.t.tag)
		for _, step := range w.t.steps {
			say("    %s", step)
		}
	}
	say("")
	say("%-34s %-30s %s", "the same question", fmt.Sprintf("plain top-%d", plainK), "ctxpage")
	row := func(what, plain, ours string) { say("%-34s %-30s %s", what, plain, ours) }
	row("stale artefact loaded", fmt.Sprintf("%d stale, limit $%d", p.stale, p.ServedLimit), fmt.Sprintf("none, limit $%d", r.ServedLimit))
	row("unvalidated note taken as fact", yes(p.NoteServed, "served", "not served"), yes(r.note.in, "served", "below the floor"))
	row("token budget overflow", fmt.Sprintf("%d asked for (%d %%), %d cut off", p.Wanted, 100*p.Wanted/r.Budget, p.Dropped), fmt.Sprintf("%d of %d, nothing cut", r.Tokens, r.Budget))
	row("  the newest update", yes(p.newestDropped, "cut off", "kept"), "in")
	row("hallucination persisted", "written back unchecked", fmt.Sprintf("held at %.2f, seen %d times", r.HeldAt, r.heldSeen))
	row("no audit trail", "none", "manifest, why, replay")
	row("scope bleeding", fmt.Sprintf("%d of the sibling's", p.leaked), fmt.Sprintf("%d", r.Leaked))
	row(fmt.Sprintf("at $%.0f a million input tokens", pricePerMTk), fmt.Sprintf("$%.2f a call, $%.0f a month", p.USDPerCall, p.USDPerMonth),
		fmt.Sprintf("$%.2f a call, $%.0f a month (%d calls)", r.USDPerCall, r.USDPerCall*callsAMonth, callsAMonth))
	return b.String()
}

func yes(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
