package profile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// resolver turns the settings of a file and its bases into quantities, and keeps the first error.
type resolver struct {
	name, file string
	layers     []map[string]setting // the file's first
	err        *Error
}

func (r *resolver) fail(key, value, allowed string, err error) {
	if r.err != nil {
		return
	}
	r.err = &Error{File: r.file, Key: key, Value: value, Allowed: allowed, Err: err}
	if s, _, ok := r.find(key); ok {
		r.err.File = s.where
	}
}

// find returns the first of some settings that is there: the file goes before its base, and in a file one key
// before the next. If none is, key is the last one, which is where it should stand.
func (r *resolver) find(keys ...string) (s setting, key string, ok bool) {
	for _, layer := range r.layers {
		for _, key = range keys {
			if s, ok = layer[key]; ok {
				return s, key, true
			}
		}
	}
	return s, key, false
}

// has reports whether a key is there, or one in its table.
func (r *resolver) has(key string) bool {
	for _, layer := range r.layers {
		for k := range layer {
			if k == key || strings.HasPrefix(k, key+".") {
				return true
			}
		}
	}
	return false
}

// required returns a setting of a kind; it must be there.
func (r *resolver) required(kind unstable.Kind, allowed string, keys ...string) (text, key string, ok bool) {
	s, key, ok := r.find(keys...)
	switch {
	case !ok:
		r.fail(key, "", allowed, ErrMissing)
	case s.kind != kind:
		r.fail(key, s.text, allowed, ErrValue)
	}
	return s.text, key, ok && s.kind == kind
}

// text reads a text that may be missing.
func (r *resolver) text(key string) string {
	if !r.has(key) {
		return ""
	}
	text, _, _ := r.required(unstable.String, "a text in quotes", key)
	return text
}

// word reads one of some words.
func (r *resolver) word(words []string, keys ...string) string {
	allowed := `"` + strings.Join(words, `" or "`) + `"`
	text, key, ok := r.required(unstable.String, allowed, keys...)
	if ok && !slices.Contains(words, text) {
		r.fail(key, text, allowed, ErrValue)
	}
	return text
}

// quantity reads a number with a unit.
func (r *resolver) quantity(k kind, keys ...string) float64 {
	text, key, ok := r.required(unstable.String, k.allowed, keys...)
	if !ok {
		return k.low
	}
	v, ok := k.parse(text)
	if !ok {
		r.fail(key, text, k.allowed, ErrValue)
		return k.low
	}
	return v
}

func (r *resolver) time(keys ...string) Time { return Micros(r.quantity(span, keys...)) }

// cost reads a transfer's: the keys of its overhead, and those of its bandwidth.
func (r *resolver) cost(overhead, rate []string) Cost {
	return NewCost(r.quantity(span, overhead...), r.quantity(bandwidth, rate...))
}

// cycle reads a clock rate and returns its period.
func (r *resolver) cycle(key string) Time { return Time(1e6 / r.quantity(clock, key)) }

// bytes reads a size from low to high.
func (r *resolver) bytes(key string, low, high int) int {
	k := size
	k.low, k.high = float64(low), float64(high)
	k.allowed = fmt.Sprintf(`%d to %d B, whole, written as "128 B", "1 KiB" or "4 MiB"`, low, high)
	return int(r.quantity(k, key))
}

// count reads a whole number from low to high.
func (r *resolver) count(key string, low, high int) int {
	return int(r.ranged(key, int64(low), int64(high), fmt.Sprintf("%d to %d", low, high)))
}

// ranged reads a whole number; allowed tells its range in words.
func (r *resolver) ranged(key string, low, high int64, allowed string) int64 {
	text, _, ok := r.required(unstable.Integer, allowed, key)
	if !ok {
		return low
	}
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil || n < low || n > high {
		r.fail(key, text, allowed, ErrValue)
		return low
	}
	return n
}
