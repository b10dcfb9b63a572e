package session

// Packet is a handoff packet: everything a following agent needs to go on.
// Its JSON form has exactly these 18 fields.
type Packet struct {
	CreatedFor           string           `json:"created_for"`
	CreatedBy            string           `json:"created_by"`
	Date                 string           `json:"date"`
	SessionOrProject     string           `json:"session_or_project"`
	CurrentGoal          string           `json:"current_goal"`
	CurrentState         string           `json:"current_state"`
	ActiveIntent         ActiveIntent     `json:"active_intent"`
	VerifiedSources      []PacketSource   `json:"verified_sources"`
	InferredClaims       []BasisItem      `json:"inferred_claims"`
	LockedDecisions      []BasisItem      `json:"locked_decisions"`
	OpenQuestions        []QuestionItem   `json:"open_questions"`
	ActiveCorrections    []CorrectionItem `json:"active_user_corrections"`
	ContextToPreserve    []ContextItem    `json:"context_to_preserve"`
	WorkCompleted        []string         `json:"work_completed"`
	WorkNotYetCompleted  []string         `json:"work_not_yet_completed"`
	DoNotClaimBeyondThis []BoundaryItem   `json:"do_not_claim_beyond_this"`
	RecommendedNext      string           `json:"recommended_next_action"`
	HandoffNotes         string           `json:"handoff_notes"`
}

// ActiveIntent is what the session was doing.
type ActiveIntent struct {
	PrimaryIntent    string   `json:"primary_intent"` // explain, create, transform, analyze, decide, plan, fix, unknown
	TargetOrArtifact string   `json:"target_or_artifact"`
	Status           string   `json:"status"`
	Basis            string   `json:"basis"`
	SecondaryIntent  string   `json:"secondary_intent,omitempty"`
	UnresolvedSlots  []string `json:"unresolved_slots,omitempty"`
	Flags            []string `json:"flags,omitempty"`
}

// PacketSource is one source and how far it may be relied on.
type PacketSource struct {
	Source          string `json:"source"`
	Type            string `json:"type"`
	State           string `json:"state"` // verified, scanned, referenced, unavailable
	WhatWasVerified string `json:"what_was_verified"`
}

// BasisItem is a claim or a decision, and what it rests on.
type BasisItem struct {
	Text  string `json:"text"`
	Basis string `json:"basis"`
}

// QuestionItem is an open question.
type QuestionItem struct {
	Question     string `json:"question"`
	WhyItMatters string `json:"why_it_matters"`
}

// CorrectionItem is a correction of the user that still holds.
type CorrectionItem struct {
	Correction          string `json:"correction"`
	MeaningForNextAgent string `json:"meaning_for_next_agent"`
}

// ContextItem is a piece of context that must not get lost.
type ContextItem struct {
	Context      string `json:"context"`
	WhyItMatters string `json:"why_it_matters"`
}

// BoundaryItem is something that must not be claimed.
type BoundaryItem struct {
	Boundary string `json:"boundary"`
	Reason   string `json:"reason"`
}
