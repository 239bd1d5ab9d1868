package flat

import "strconv"

// CheckText checks a name or version: 1 to limit letters, digits and characters
// of "._-+". Errors are *Error with ErrMalformed and the given field.
func CheckText(field, s string, limit int) error {
	if len(s) == 0 || len(s) > limit {
		return malformed(field, "%d bytes; allowed: 1 to %d", len(s), limit)
	}
	for i := range len(s) {
		if !textByte(s[i]) {
			return malformed(field, "%s; allowed: letters, digits and ._-+", quote(s))
		}
	}
	return nil
}

func textByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return c == '.' || c == '_' || c == '-' || c == '+'
}

// text reads a padded field.
func text(field string, b []byte) (string, error) {
	end := 0
	for end < len(b) && b[end] != 0 {
		end++
	}
	for _, c := range b[end:] {
		if c != 0 {
			return "", malformed(field, "bytes behind the end of the text are not zero")
		}
	}
	s := string(b[:end])
	return s, CheckText(field, s, len(b))
}

// quote shows text that may hold anything.
func quote(s string) string { return strconv.QuoteToASCII(s) }
