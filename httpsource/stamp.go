package httpsource

import (
	"net/http"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// fresh is the age beside its answer that a Last-Modified must have to prove anything: it counts whole seconds.
const fresh = 2 * time.Second

// maxValidator is the longest tag or date that is kept: it is stored with every version of a page.
const maxValidator = 512

// stamp is the mark by which a server recognises its content. At is the place to which redirects had led: a tag means something at one place
// only, so no other is asked to compare it.
//
// As a Validator's Stamp it is a line each of `etag …`, `modified …`, `at …`, those that are there.
type stamp struct {
	etag     string
	modified string
	at       string
}

func (s stamp) zero() bool { return s.etag == "" && s.modified == "" }

func (s stamp) String() string {
	var lines []string
	for _, f := range []struct{ name, value string }{{"etag ", s.etag}, {"modified ", s.modified}, {"at ", s.at}} {
		if f.value != "" {
			lines = append(lines, f.name+f.value)
		}
	}
	return strings.Join(lines, "\n")
}

// parseStamp reads what String made. A validator of another source, or one without a hash to stand by, says nothing.
func parseStamp(v store.Validator) (s stamp) {
	if v.Hash == 0 {
		return stamp{}
	}
	for line := range strings.SplitSeq(v.Stamp, "\n") {
		name, value, _ := strings.Cut(line, " ")
		switch name {
		case "etag":
			s.etag = value
		case "modified":
			s.modified = value
		case "at":
			s.at = value
		}
	}
	return s
}

// stampOf keeps what an answer may be recognised by later. A tag is worth more than a date; with a tag the date is not
// asked for, since an old cache between might answer by it alone.
func stampOf(h http.Header) (s stamp) {
	if tag := h.Get("ETag"); tag != "" && len(tag) <= maxValidator && visible(tag) {
		s.etag = tag
		return s
	}
	modified, date := lastModified(h), answered(h)
	if !modified.IsZero() && !date.IsZero() && date.Sub(modified) >= fresh {
		s.modified = h.Get("Last-Modified")
	}
	return s
}

func visible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func lastModified(h http.Header) time.Time {
	t, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		return time.Time{}
	}
	return t
}

func answered(h http.Header) time.Time {
	t, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return t
}

// asOf is the server's Last-Modified, unless that lies after the answer itself.
func asOf(h http.Header) time.Time {
	t, date := lastModified(h), answered(h)
	if !date.IsZero() && t.After(date) {
		return time.Time{}
	}
	return t
}

// ask makes a request conditional.
func (s stamp) ask(h http.Header) {
	switch {
	case s.etag != "":
		h.Set("If-None-Match", s.etag)
	case s.modified != "":
		h.Set("If-Modified-Since", s.modified)
	}
}
