// Package skills has the skills for agents that come with ctxpage, in the form of agentskills.io.
package skills

import _ "embed"

// Ctxpage is the skill for the memory: SKILL.md of the folder ctxpage.
//
//go:embed ctxpage/SKILL.md
var Ctxpage string
