package render

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Chat templates and tokenizers of model servers turn control words into control tokens even when they come in
// as text, so that a page could speak as another role, end a turn, or forge a tool call or a thought on a server that
// does not keep the two apart. Their first character is escaped.
//
// Most are found by their form: whatever stands between "<" and a bar, a tag whose name has one of a few parts, a word in
// brackets. Case, blanks, characters that do not show and full-width letters make no difference: a tokenizer may not
// take such a word for a token, but a model does. The words themselves come from the special tokens of tokenizers:
//
//	<|…|> <｜…｜>                ChatML, Llama 3 and 4, Phi, Qwen, DeepSeek, Command-R, GLM, Granite, Falcon 3, gpt-oss, Yi, Kimi, Hunyuan
//	<s> <<SYS>> [INST]           Llama 2, Mistral and its tool, image and reasoning words
//	<start_of_turn> <unused7>    Gemma, PaliGemma
//	<BOS_TOKEN> <PAD>            Command-R, Aya
//	[gMASK] <sop> <eop>          GLM, and words of BERT
//	<reserved_106> <eoh>         Baichuan, InternLM
//	>>QUESTION<< <fim_prefix>    Falcon, StarCoder, Granite code
//	<tool_call> <function=f> <think> <seed:think> ]~b]   Qwen, Hermes, Llama, DeepSeek, Seed, MiniMax
//	[|user|] <extra_id_0> <0x0A> EXAONE, T5, byte tokens
func controlWordAt(s string, i int) bool {
	if s[i] == '~' {
		return tildeWord(s, i)
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	switch r {
	case '<', 0xFF1C, 0xFE64:
		return isControlWord(s[i:]) || angleWord(s, i, i+n)
	case '[', 0xFF3B:
		return bracketWord(s[i+n:])
	}
	return false
}

// tagWords are names of tags, in lower case; namely those that no rule of tagName covers.
var tagWords = wordSet("s bos eos pad unk mask sep cls sys eod eop sop eot eom eoh eoa eosys soh eol bom inst im_start im_end " +
	"think thinking thought thoughts reasoning reflection scratchpad scratch_pad analysis final commentary " +
	"tools tool function functions invoke parameter parameters function_calls function_results tool_code tool_output tool_outputs " +
	"filename reponame repo_name file_sep file_name gh_stars issue_start issue_comment issue_closed jupyter_start jupyter_text " +
	"jupyter_code jupyter_output jupyter_script empty_output commit_before commit_msg commit_after pr pr_start intermediate_to_code " +
	"code_to_intermediate image img video audio box ref quad observation")

// roleWords are names of tags that are also names of types: after a letter they are the parameter of one (List<User>).
var roleWords = wordSet("user assistant system human bot developer model ai gpt tool function image video audio box ref parameter parameters pr final mask pad")

// bracketWords stand in brackets, in any case; upperWords only in upper case, for in lower case they are ordinary.
var (
	bracketWords = wordSet("inst tool_call tool_calls tool_result tool_results tool_content available_tools system_prompt model_settings " +
		"gmask smask img_break img_end begin_audio call_id begin_of_text end_of_text")
	upperWords = wordSet("mask cls sep pad unk bos eos eot eop sop eom img audio prefix suffix middle args think transcribe user assistant system sys")
)

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}

// nameParts make a tag a control word wherever in its name they stand; nameEnds and nameStarts at their end.
var (
	nameParts  = []string{"tool_call", "tool_result", "tool_response", "function_call", "function_response", "function_declaration", "available_tool"}
	nameStarts = []string{"start_of_", "end_of_", "begin_of_", "im_", "fim_", "extra_id_", "begin_", "sentinel_"}
	nameEnds   = []string{"_token", "_of_turn", "_of_text", "_of_sentence", "_of_thought", "soft_token", "_end_of_turn"}
	numbered   = []string{"unused", "reserved", "reserved_", "reserved_token_", "special", "special_", "control_", "tokens_unused_", "extra_", "mask_", "mask:", "loc", "seg", "timestamp_", "ipygen_"}
)

// angleWord judges what follows "<", which stands at s[at], from s[from] on.
func angleWord(s string, at, from int) bool {
	rest, _ := skipBlanks(s[from:])
	if r, _ := utf8.DecodeRuneInString(rest); isBar(r) {
		return true
	}
	if falconWord(s[:at], s[from:]) {
		return true
	}
	if r, n := utf8.DecodeRuneInString(rest); r == '/' || r == 0xFF0F {
		rest, _ = skipBlanks(rest[n:])
	}
	name, after := wordIn(rest)
	if name == "" || !tagEnds(after, name) {
		return false
	}
	if space, part, ok := strings.Cut(name, ":"); ok && space != "" && tagName(part) { // seed:think, minimax:tool_call
		return true
	}
	if roleWords[name] {
		before, _ := utf8.DecodeLastRuneInString(s[:at])
		return !unicode.IsLetter(before) && !unicode.IsDigit(before)
	}
	return tagName(name)
}

// tagName reports whether a tag of this name is a control word.
func tagName(name string) bool {
	has := func(f func(string, string) bool) func(string) bool { return func(x string) bool { return f(name, x) } }
	switch {
	case tagWords[name], slices.ContainsFunc(nameParts, has(strings.Contains)), slices.ContainsFunc(nameStarts, has(strings.HasPrefix)), slices.ContainsFunc(nameEnds, has(strings.HasSuffix)):
		return true
	case len(name) == 4 && strings.HasPrefix(name, "0x"):
		return strings.Trim(name[2:], "0123456789abcdef") == ""
	}
	digits := strings.TrimRight(name, "0123456789")
	return len(digits) < len(name) && slices.Contains(numbered, digits)
}

// tagEnds reports whether a tag may be over behind its name: at ">", or before attributes, which only tags of calls have.
func tagEnds(after, name string) bool {
	rest, blank := skipBlanks(after)
	r, _ := utf8.DecodeRuneInString(rest)
	switch {
	case r == '>', r == 0xFF1E, r == 0xFE65, r == '/':
		return true
	case r == '=', blank:
		return strings.HasPrefix(name, "tool") || strings.HasPrefix(name, "function") || name == "invoke" || name == "parameter" || strings.Contains(name, ":")
	}
	return false
}

// bracketWord judges what follows "[".
func bracketWord(s string) bool {
	rest, _ := skipBlanks(s)
	r, n := utf8.DecodeRuneInString(rest)
	if isBar(r) { // [|user|]
		rest, _ = skipBlanks(rest[n:])
		name, after := wordIn(rest)
		after, _ = skipBlanks(after)
		end, _ := utf8.DecodeRuneInString(after)
		return name != "" && isBar(end)
	}
	if r == '/' || r == 0xFF0F {
		rest, _ = skipBlanks(rest[n:])
	}
	name, after := wordIn(rest)
	after, _ = skipBlanks(after)
	if end, _ := utf8.DecodeRuneInString(after); name == "" || end != ']' && end != 0xFF3D {
		return false
	}
	if bracketWords[name] {
		return true
	}
	if upperWords[name] {
		return !strings.ContainsFunc(rest[:len(rest)-len(after)], unicode.IsLower)
	}
	digits := strings.TrimRight(name, "0123456789")
	return len(digits) < len(name) && (digits == "unused" || digits == "control_" || digits == "special_")
}

// tildeWord tells of ]~b], ]~!b[ and [e~[.
func tildeWord(s string, i int) bool {
	before, after := s[:i], s[i+1:]
	return strings.HasSuffix(before, "]") && (strings.HasPrefix(after, "b]") || strings.HasPrefix(after, "!b[")) ||
		strings.HasSuffix(before, "[e") && strings.HasPrefix(after, "[")
}

// falconWord tells of the "<<" of >>QUESTION<<.
func falconWord(before, rest string) bool {
	if !strings.HasPrefix(rest, "<") {
		return false
	}
	word := strings.TrimRightFunc(before, func(r rune) bool { return r >= 'A' && r <= 'Z' || r == '_' })
	return len(word) < len(before) && strings.HasSuffix(word, ">>")
}

// skipBlanks passes over blanks and what does not show.
func skipBlanks(s string) (rest string, some bool) {
	rest = strings.TrimLeftFunc(s, func(r rune) bool { return r != utf8.RuneError && (unicode.IsSpace(r) || r >= 0x80 && hidden(r)) })
	return rest, len(rest) < len(s)
}

// maxWord is more than any control word has.
const maxWord = 64

// wordIn returns the word s begins with, folded: lower case, full-width letters as letters, hidden characters left out.
func wordIn(s string) (name, rest string) {
	var b [maxWord]byte
	n := 0
	for i, r := range s {
		if r >= 0xFF01 && r <= 0xFF5E {
			r -= 0xFEE0
		}
		switch {
		case r >= 'A' && r <= 'Z':
			r += 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_', r == ':' && i > 0:
		case r == '-' || r == 0x2581: // tool-call, begin▁of▁sentence
			r = '_'
		case r >= 0x80 && r != utf8.RuneError && hidden(r):
			continue
		default:
			return string(b[:n]), s[i:]
		}
		if n == maxWord {
			return "", ""
		}
		b[n] = byte(r)
		n++
	}
	return string(b[:n]), ""
}

// isBar tells of the bar and what looks like it.
func isBar(r rune) bool {
	switch r {
	case '|', 0xFF5C, 0x2502, 0x2223, 0x2758, 0x01C0, 0xFFE8, 0xFE31, 0x23D0:
		return true
	}
	return false
}
