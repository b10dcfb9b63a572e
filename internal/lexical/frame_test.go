package lexical

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFrames: what is said around a question changes no term of it; the same words inside it are asked for.
func TestFrames(t *testing.T) {
	an := NewAnalyzer()
	for _, question := range []string{"copy a file to another host", "the way that Go finds a package", "what Ann wants to find out", "refund limit"} {
		want := an.Terms(question)
		require.NotEmpty(t, want)
		for _, frame := range []string{
			"How do I %?", "How can I %?", "I want to %", "Is there a way to %?", "Please tell me how to %.", "What is the best way to %?",
			"Could you help me to % please?", "I’d like to know how to %", "Do you know something that can %? Thank you in advance!",
			"I'm looking for something to %", "Can you show me what I need to %\n", "PLEASE: %, thanks", "  where do I find %",
			"I would like to know whether %",
		} {
			require.Equal(t, want, an.Terms(strings.Replace(frame, "%", question, 1)), frame)
		}
	}
	require.Equal(t, []string{"ann", "know", "pleas", "tell", "way"}, an.Terms("Ann: tell me the way, please know"), "control: in the middle they are words")
	require.Equal(t, an.Terms("help"), an.Terms("I want help"))
	for _, all := range []string{"please", "Thank you", "I need to know", "want"} {
		require.NotEmpty(t, an.Terms(all), "there is nothing else: %s", all)
	}
	require.Equal(t, []string{"how", "to"}, an.Terms("how to"))
	for _, odd := range []string{"", "’", "please\xff", "\xe2please", strings.Repeat("please ", 1000), strings.Repeat("’", 100)} {
		_ = stripPhrases(odd)
	}
}

// TestPhrases: every phrase fits what is looked at, and is taken off.
func TestPhrases(t *testing.T) {
	for _, p := range opens {
		require.LessOrEqual(t, len(p), longestPhrase, p)
		require.Equal(t, " peanuts", stripPhrases(strings.Join(p, " ")+" peanuts"))
	}
	for _, p := range closes {
		require.LessOrEqual(t, len(p), longestPhrase, p)
		require.Equal(t, "peanuts, ", stripPhrases("peanuts, "+strings.Join(p, " ")))
	}
}
