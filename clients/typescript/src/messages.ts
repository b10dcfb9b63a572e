/** The providers whose requests `assemble` can render. */
export type Provider = 'openai' | 'anthropic' | 'gemini';

export interface OpenAIText {
  type: 'text';
  text: string;
}

export type OpenAIMessage =
  | { role: 'system' | 'user'; name?: string; content: string | OpenAIText[] }
  | { role: 'assistant'; name?: string; content: string | OpenAIText[] | null; tool_calls?: { id: string; type: 'function'; function: { name: string; arguments: string } }[] }
  | { role: 'tool'; tool_call_id: string; content: string | OpenAIText[] };

/** Part of a request to OpenAI's chat completions. */
export interface OpenAIRequest {
  messages: OpenAIMessage[];
}

interface CacheMark {
  cache_control?: { type: 'ephemeral' };
}
export interface AnthropicText extends CacheMark {
  type: 'text';
  text: string;
}
export interface AnthropicToolUse extends CacheMark {
  type: 'tool_use';
  id: string;
  name: string;
  input: Record<string, unknown>;
}
export interface AnthropicToolResult extends CacheMark {
  type: 'tool_result';
  tool_use_id: string;
  content: string;
}

/** Part of a request to Anthropic's messages, with cache marks. */
export interface AnthropicRequest {
  system: AnthropicText[];
  messages: { role: 'user' | 'assistant'; content: (AnthropicText | AnthropicToolUse | AnthropicToolResult)[] }[];
}

export interface GeminiPart {
  text?: string;
  functionCall?: { id: string; name: string; args: Record<string, unknown> };
  functionResponse?: { id: string; name: string; response: { output: string } };
}

/** Part of a request to Gemini's generateContent. */
export interface GeminiRequest {
  systemInstruction?: { parts: GeminiPart[] };
  contents: { role: 'user' | 'model'; parts: GeminiPart[] }[];
}

/** The part of a request that each provider takes. Spread it into the argument of the provider's client. */
export interface Requests {
  openai: OpenAIRequest;
  anthropic: AnthropicRequest;
  gemini: GeminiRequest;
}
