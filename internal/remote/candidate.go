package remote

import (
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// candidateFields are the fields of a candidate and of the structs in it. A search answers with
// hundreds; reflection took more time than the search.
var candidateFields = codec.Record[store.Candidate]{Name: "a candidate", Fields: []codec.Field[store.Candidate]{
	codec.Uint(1, "Key.Num", func(c *store.Candidate) *uint64 { return &c.Key.Num }),
	codec.Uint(2, "Key.Version", func(c *store.Candidate) *uint32 { return &c.Key.Version }),
	codec.Text(3, "Ref.Scope", func(c *store.Candidate) *string { return &c.Ref.Scope }),
	codec.Text(4, "Ref.ID", func(c *store.Candidate) *string { return &c.Ref.ID }),
	codec.Int(5, "Ref.Page", func(c *store.Candidate) *int { return &c.Ref.Page }),
	codec.Uint(6, "Ref.Version", func(c *store.Candidate) *uint32 { return &c.Ref.Version }),
	codec.Uint(7, "Kind", func(c *store.Candidate) *store.Kind { return &c.Kind }),
	codec.Uint(8, "Provenance", func(c *store.Candidate) *store.Provenance { return &c.Provenance }),
	codec.Int(9, "AsOf", func(c *store.Candidate) *int64 { return &c.AsOf }),
	codec.Int(10, "Tokens", func(c *store.Candidate) *int { return &c.Tokens }),
	codec.Int(11, "Pages", func(c *store.Candidate) *int { return &c.Pages }),
	codec.Flag(12, "Pinned", func(c *store.Candidate) *bool { return &c.Pinned }),
	codec.Flag(13, "Recent", func(c *store.Candidate) *bool { return &c.Recent }),
	codec.Uint(14, "Group", func(c *store.Candidate) *uint64 { return &c.Group }),
	codec.Text(15, "GroupName", func(c *store.Candidate) *string { return &c.GroupName }),
	codec.Int(16, "Seq", func(c *store.Candidate) *int64 { return &c.Seq }),
	codec.Uint(17, "Lexical.Num", func(c *store.Candidate) *uint64 { return &c.Lexical.Num }),
	codec.Float(18, "Lexical.Score", func(c *store.Candidate) *float64 { return &c.Lexical.Score }),
	codec.Float(19, "Lexical.Own", func(c *store.Candidate) *float64 { return &c.Lexical.Own }),
	codec.Float(20, "Lexical.Near", func(c *store.Candidate) *float64 { return &c.Lexical.Near }),
	codec.Float(21, "Lexical.Group", func(c *store.Candidate) *float64 { return &c.Lexical.Group }),
	codec.Float(22, "Lexical.Speaker", func(c *store.Candidate) *float64 { return &c.Lexical.Speaker }),
	codec.Float(23, "Lexical.Date", func(c *store.Candidate) *float64 { return &c.Lexical.Date }),
	codec.Float(24, "Lexical.First", func(c *store.Candidate) *float64 { return &c.Lexical.First }),
	codec.Float(25, "Lexical.Forms", func(c *store.Candidate) *float64 { return &c.Lexical.Forms }),
	codec.Float(26, "Lexical.Level", func(c *store.Candidate) *float64 { return &c.Lexical.Level }),
	codec.Uint(27, "Lexical.Via", func(c *store.Candidate) *uint64 { return &c.Lexical.Via }),
	codec.Flag(28, "Near", func(c *store.Candidate) *bool { return &c.Near }),
	codec.OptFloat(29, "Cosine", func(c *store.Candidate) **float64 { return &c.Cosine }),
	codec.Float(30, "Beside", func(c *store.Candidate) *float64 { return &c.Beside }),
	codec.Text(31, "Excluded", func(c *store.Candidate) *string { return &c.Excluded }),
}}
