package directive_test

import (
	"testing"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/directivetext"
)

func FuzzStep(f *testing.F) {
	f.Add("use docker", "prohibit The Docker", "yes")
	f.Add("prohibit a", "use J\u030c instead of a", "ＹＥＳ！")
	f.Add("set premise to x", "change premise x", "clear state")
	f.Add("use x and prohibit y", "use x\tinstead of\xff y", "no")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		for _, opts := range [][]directive.Option{nil, {directive.AnyCase}, {directive.AnyCase, directive.RefuseCompound}} {
			var s directive.Session
			for _, in := range []string{a, b, c} {
				trial := directive.Preview(nil, s, in, opts...)
				next, d := directive.Step(s, in, opts...)
				if d.Kind == directive.Clarify && !s.State.Equal(next.State) || !trial.Before.Equal(trial.After) != d.Changed {
					t.Fatalf("%q: %+v", in, d)
				}
				checkpoint := directive.ExportCheckpoint(next)
				back, err := directive.ImportCheckpoint(checkpoint)
				if err != nil || string(directive.ExportCheckpoint(back)) != string(checkpoint) {
					t.Fatalf("%q: %s: %v", in, checkpoint, err)
				}
				s = next
			}
		}
	})
}

func FuzzImport(f *testing.F) {
	f.Add([]byte(`{"policies":{"The Docker":"use","x":"prohibit"},"premise":"p","version":2}`))
	f.Add([]byte(`{"authoritative_state":{"policies":{},"premise":null,"version":2},"checkpoint_version":1,"pending":` +
		`{"kind":"replacement","prompt_to_user":"\ud83d\ude00","replacement":{"kind":"replace_use","new_item":"a b","old_item":"\u0301"}}}`))
	f.Add([]byte(`[{"a":[1e5,-0.1,true]},"\udead"]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := directive.ImportJSON(data); err == nil {
			text := directive.ExportJSON(s)
			again, err := directive.ImportJSON(text)
			if err != nil || !again.Equal(s) {
				t.Fatalf("%s: %v", text, err)
			}
		} else if directive.ErrorCode(err) == "" {
			t.Fatal(err)
		}
		if s, err := directive.ImportCheckpoint(data); err == nil {
			directive.Step(s, "yes")
			again, err := directive.ImportCheckpoint(directive.ExportCheckpoint(s))
			if err != nil || string(directive.ExportCheckpoint(again)) != string(directive.ExportCheckpoint(s)) {
				t.Fatal(err)
			}
		}
	})
}

func FuzzPreprocess(f *testing.F) {
	f.Add("use docker", "Use Docker.")
	f.Add(`{"classification":"directive","output":"clear state"}`, "1) for example, 'clear state'?")
	f.Add("<NO_DIRECTIVE>", "use x instead y and prohibit z; notes: [a]")
	f.Fuzz(func(t *testing.T, output, message string) {
		if found := directivetext.Preprocess(message); found.Class == directivetext.IsDirective {
			if directivetext.Validate(found.Directive).Class != directivetext.IsDirective {
				t.Fatalf("%q", found.Directive)
			}
		}
		loose, strict := directivetext.Validate(output), directivetext.ValidateAgainst(output, message)
		if strict != loose && strict != (directivetext.Verdict{}) {
			t.Fatalf("%+v %+v", loose, strict)
		}
		if loose.Class == directivetext.IsDirective && utf8.ValidString(output) {
			if _, d := directive.Step(directive.Session{}, loose.Directive); d.Kind == directive.Passthrough {
				t.Fatalf("%q is no directive", loose.Directive)
			}
		}
	})
}
