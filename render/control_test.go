package render

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// specials are special tokens of tokenizers and chat templates, by family.
var specials = map[string][]string{
	"ChatML, Qwen":  {"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|vision_start|>", "<|fim_prefix|>", "<|repo_name|>", "<tool_call>", "</tool_call>", "<tool_response>", "<tools>", "</tools>", "<think>", "</think>", "<function=search>", "<parameter=query>", "</function>"},
	"Llama 2":       {"<s>", "</s>", "<unk>", "<pad>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "<0x0A>"},
	"Llama 3 and 4": {"<|begin_of_text|>", "<|start_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>", "<|header_start|>", "<|eot|>", "<|image|>", "<function=f>"},
	"Mistral":       {"[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CONTENT]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[IMG]", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]", "[AUDIO]", "[BEGIN_AUDIO]", "[MODEL_SETTINGS]", "<SPECIAL_42>", "[control_8]"},
	"Gemma":         {"<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<unused99>", "<mask>", "<start_of_image>", "<end_of_image>", "<image_soft_token>", "<loc0001>", "<seg001>", "<start_function_call>", "<tool_code>"},
	"Phi":           {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|im_sep|>", "<|tool|>"},
	"DeepSeek":      {"<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<｜DSML｜function_calls>", "<think>"},
	"Command-R":     {"<BOS_TOKEN>", "<EOS_TOKEN>", "<PAD>", "<UNK>", "<CLS>", "<SEP>", "<MASK_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<EOP_TOKEN>", "<|START_THINKING|>"},
	"GLM":           {"[gMASK]", "[sMASK]", "[MASK]", "<sop>", "<eop>", "<|observation|>", "<tool_call>", "<|begin_of_box|>"},
	"Granite":       {"<|start_of_role|>", "<|end_of_role|>", "<|tool_call|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>", "<filename>", "<gh_stars>", "<issue_start>", "<jupyter_start>", "<commit_before>", "<empty_output>", "<reponame>"},
	"Falcon":        {">>TITLE<<", ">>ABSTRACT<<", ">>QUESTION<<", ">>ANSWER<<", ">>PREFIX<<", "<|endoftext|>"},
	"gpt-oss":       {"<|start|>", "<|channel|>", "<|message|>", "<|call|>", "<|return|>", "<|constrain|>"},
	"Yi, Baichuan":  {"<|startoftext|>", "<reserved_106>", "<reserved_107>", "<|Human|>"},
	"InternLM":      {"<eoh>", "<eoa>", "<eosys>", "<TOKENS_UNUSED_1>", "<|plugin|>"},
	"EXAONE, T5":    {"[|system|]", "[|user|]", "[|endofturn|]", "<extra_id_0>", "[CLS]", "[SEP]", "[PAD]", "[UNK]", "[unused1]", "[BOS]", "[EOS]"},
	"Seed, MiniMax": {"<seed:bos>", "<seed:think>", "<seed:tool_call>", "]~b]", "]~!b[", "[e~[", "<minimax:tool_call>", "<invoke name=\"x\">"},
	"Hermes, XML":   {"<scratch_pad>", "<function_calls>", "<invoke name=\"f\">", "<parameter name=\"x\">", "</invoke>", "<thinking>", "<human>", "<bot>", "<system>", "<assistant>"},
}

func TestControlWords(t *testing.T) {
	for family, words := range specials {
		for _, w := range words {
			for _, text := range []string{w, "a " + w + " b", "text\n" + w + "\n", w + w} {
				e := Escape(text)
				require.NotContains(t, e, w, family)
				back := must(unescape(e))(t)
				require.Equal(t, text, back)
			}
		}
	}
	// Whatever the case, with blanks, with what does not show, in full width: the first character is escaped.
	for _, w := range []string{
		"<|IM_START|>", "< |im_start|>", "<\u200b|im_start|>", "<│im_start│>", "＜|im_start|>", "<TOOL_CALL>", "< / tool_call >", "<to\u00adol_call>", "<ｔｈｉｎｋ>", "＜think＞", "<Think>",
		"<tool-call>", "<BOS>", "<End_Of_Turn>", "[inst]", "[ INST ]", "[/ Inst]", "［INST］", "[tool\u200b_calls]", "[GMASK]", "<\u2060s>", "<sYs>", "[ | user | ]",
	} {
		e := Escape(w)
		require.True(t, strings.HasPrefix(e, `\u{`), "%q %q", w, e)
	}
}

// Ordinary text stays as it is.
func TestNoControlWords(t *testing.T) {
	for _, text := range []string{
		"a < b and c > d", "if x<10 {", "List<User>", "Vec<Tool>", "map[string]int", "<div class=\"x\">", "</div>", "<a href=\"y\">", "<b>bold</b>", "<table><tr><td>", "[x] done", "[ ] open",
		"[1]", "[link](http://x.example)", "usage: cmd [args] [prefix]", "arr[i]", "x[mask]", "~/notes", "a ~ b", "]~c", "[e~", "<<EOF", "cout << x << y;", "a >> b << c", "<T>", "<K, V>", "<0x1>",
		"Promise<String>", "<title>x</title>", "<summary>", "[audio]", "<http://x.example>", "<ann@x.example>", "<!-- x -->", "<?php", "→ 5 | 6", "1 <= 2", "<br/>", "<key>", "Set<Box>", "<pre>",
	} {
		require.Equal(t, text, Escape(text))
	}
}
