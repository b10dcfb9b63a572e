// Package foreign brings what other systems know into a scope: chats of OpenAI and Anthropic, transcripts of agents (dialects describes
// each), memories of mem0, of the MCP memory server, of LangGraph and of PAM, the exports of ChatGPT and Claude, and lines of JSON of
// any shape.
//
// # Trust
//
// Everything that is imported is scratch, whatever the file says of itself: no context shows it, except turns in their
// own session, until the operator raises its provenance (ctxpage.Admin.Raise), or vouches for the file (Options.Trust). Messages of system and developer become data
// without a role, so no imported file can instruct a model.
//
// # Repeating
//
// Each item has an id made of the format and of its key in the file, and a digest of what the file says of it. An item
// that is there with the same digest is left alone, also if somebody raised its provenance since. If the item has
// changed in the file, it gets a new version, unless its provenance was raised, or it was deleted or erased here: then
// it is left alone, and the report counts it.
//
// # Hostile files
//
// A file is read item by item. An item, its depth and the number of its keys are bounded, so memory does not grow with
// the file, but for some 50 bytes for each message that has an id. A file that breaks a bound, is not JSON, has a key twice, or has bytes that are not UTF-8 fails with one
// *portable.LineError with line and field. If the file can be read twice, that happens before anything is written.
package foreign
