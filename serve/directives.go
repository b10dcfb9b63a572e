package serve

import (
	"context"

	"github.com/ctxpage/ctxpage/directive"
)

// Step needs a host because its input must be the user's own words: a model that could call it would grant itself permissions.

var directiveCalls = []call{
	unary("directives/show", Agent, "The user's directives of the scope, joined with those of its ancestors.", showDirectives),
	unary("directives/step", Host, "Judge one input of the user and keep the outcome. Pass only the user's words, never a model's.", stepDirectives),
	unary("directives/suggest", Host, "Validate the directive that a preprocessor of yours, such as a model, read in a message of the user, and say what it would do. Changes nothing: step it when the user agrees.", suggestDirective),
}

// directivesOut is the scope's own state joined with its ancestors', which cannot be overruled from below.
type directivesOut struct {
	Version  uint64       `json:"version" jsonschema:"of the scope's own state; 0 before the first change"`
	Premises []premiseOut `json:"premises" jsonschema:"outermost scope first"`
	Policies []policyOut  `json:"policies"`
	Text     string       `json:"text" jsonschema:"as a context shows it"`
	Question bool         `json:"question" jsonschema:"a question to the user is open: the next input answers it"`
}

type premiseOut struct {
	Scope   string `json:"scope"`
	Premise string `json:"premise"`
}

type policyOut struct {
	Scope    string `json:"scope"`
	Item     string `json:"item"`
	Polarity string `json:"polarity"`
}

func showDirectives(ctx context.Context, r *request, _ struct{}) (directivesOut, error) {
	st, err := r.s.Directives().State(ctx)
	if err != nil {
		return directivesOut{}, err
	}
	out := directivesOut{
		Version: st.Version, Premises: []premiseOut{}, Policies: []policyOut{}, Text: st.Effective.Text(), Question: st.Own.Pending != nil,
	}
	for _, p := range st.Effective.Premises {
		out.Premises = append(out.Premises, premiseOut(p))
	}
	for _, p := range st.Effective.Policies {
		out.Policies = append(out.Policies, policyOut{p.Scope, p.Item, string(p.Polarity)})
	}
	return out, nil
}

type stepIn struct {
	Input  string `json:"input" jsonschema:"one message of the user"`
	DryRun bool   `json:"dry_run,omitempty" jsonschema:"say what would be decided, change nothing"`
	directiveOptions
}

type directiveOptions struct {
	AnyCase        bool `json:"any_case,omitempty" jsonschema:"read keywords in any case and with any blanks, such as Use Docker"`
	RefuseCompound bool `json:"refuse_compound,omitempty" jsonschema:"clarify use x and prohibit y by listing its parts"`
}

func (o directiveOptions) list() (out []directive.Option) {
	if o.AnyCase {
		out = append(out, directive.AnyCase)
	}
	if o.RefuseCompound {
		out = append(out, directive.RefuseCompound)
	}
	return out
}

type stepOut struct {
	Kind    string   `json:"kind" jsonschema:"passthrough: call the model; update: it was kept; clarify: show prompt to the user and do not call the model"`
	Changed bool     `json:"changed"`
	Prompt  string   `json:"prompt,omitempty"`
	Code    string   `json:"code,omitempty"`
	Repair  []string `json:"repair,omitempty"`
	Scope   string   `json:"scope,omitempty" jsonschema:"the ancestor that set the item"`
	Hint    string   `json:"hint,omitempty"`
	DryRun  bool     `json:"dry_run,omitempty"`
}

func stepDirectives(ctx context.Context, r *request, in stepIn) (stepOut, error) {
	var d directive.Decision
	var err error
	if in.DryRun {
		var trial directive.Trial
		trial, err = r.s.Directives().Preview(ctx, in.Input, in.list()...)
		d = trial.Decision
	} else {
		d, err = r.s.Directives().Step(ctx, in.Input, in.list()...)
	}
	if err != nil {
		return stepOut{}, err
	}
	return decided(d, in.DryRun), nil
}

func decided(d directive.Decision, dry bool) stepOut {
	return stepOut{d.Kind.String(), d.Changed, d.Prompt, string(d.Code), d.Repair, d.Scope, d.Hint, dry}
}

type suggestIn struct {
	Message string `json:"message" jsonschema:"one message of the user"`
	Draft   string `json:"draft,omitempty" jsonschema:"what the preprocessor answered: one directive, or an object with classification and output; without it, a standing instruction or a preference in the message is suggested as premise"`
	directiveOptions
}

// suggestOut has no directive if the draft holds none, or if a question is open.
type suggestOut struct {
	Directive string   `json:"directive,omitempty"`
	Grounded  bool     `json:"grounded" jsonschema:"the message itself says it, word for word"`
	Would     *stepOut `json:"would,omitempty" jsonschema:"what stepping it would decide"`
}

func suggestDirective(ctx context.Context, r *request, in suggestIn) (suggestOut, error) {
	st, err := r.s.Directives().State(ctx)
	if err != nil {
		return suggestOut{}, err
	}
	var draft func(context.Context, string) (string, error)
	if in.Draft != "" {
		draft = func(context.Context, string) (string, error) { return in.Draft, nil }
	}
	found, err := directive.Suggest(ctx, draft, st.Own, in.Message, in.list()...)
	if err != nil || found.Directive == "" {
		return suggestOut{}, err
	}
	trial, err := r.s.Directives().Preview(ctx, found.Directive, in.list()...) // with what its ancestors hold
	if err != nil {
		return suggestOut{}, err
	}
	would := decided(trial.Decision, true)
	return suggestOut{found.Directive, found.Grounded, &would}, nil
}
