package flat

import (
	"bytes"
	"regexp"
	"strconv"
)

var otherThanText = regexp.MustCompile(`[^A-Za-z0-9._+-]`)

// CheckText checks a name or version: 1 to limit letters, digits and characters
// of "._-+". Errors are *Error with ErrMalformed and the given field.
func CheckText(field, s string, limit int) error {
	if len(s) == 0 || len(s) > limit {
		return malformed(field, "%d bytes; allowed: 1 to %d", len(s), limit)
	}
	if otherThanText.MatchString(s) {
		return malformed(field, "%s; allowed: letters, digits and ._-+", quote(s))
	}
	return nil
}

// text reads a field that is padded with zeros.
func text(field string, b []byte) (string, error) {
	s := string(bytes.TrimRight(b, "\x00"))
	return s, CheckText(field, s, len(b))
}

// quote shows text that may hold anything.
func quote(s string) string { return strconv.QuoteToASCII(s) }
