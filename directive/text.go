package directive

// Item normalises an item text to its key; "" when nothing is left.
func Item(text string) string { panic("skeleton") }

// Premise normalises a premise text; its case is kept.
func Premise(text string) string { panic("skeleton") }
