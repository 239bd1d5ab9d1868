package profile

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Sentinel errors inside an *Error.
var (
	ErrUnknown    = errors.New("unknown profile")
	ErrUnreadable = errors.New("cannot be read")
	ErrSyntax     = errors.New("is not TOML")
	ErrUnknownKey = errors.New("unknown key")
	ErrMissing    = errors.New("missing")
	ErrValue      = errors.New("bad value")
	ErrBase       = errors.New("bad base")
)

type layer struct {
	file     string
	settings map[string]any
}

func read(file string, text []byte) (layer, error) {
	var tables map[string]any
	if err := toml.Unmarshal(text, &tables); err != nil {
		if bad, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, _ := bad.Position()
			file = fmt.Sprint(file, ":", line)
		}
		return layer{}, &Error{File: file, Err: fmt.Errorf("%w: %s", ErrSyntax, strings.TrimPrefix(err.Error(), "toml: "))}
	}
	l := layer{file, map[string]any{}}
	l.add("", tables)
	return l, nil
}

func (l layer) add(table string, settings map[string]any) {
	for name, v := range settings {
		key := strings.TrimPrefix(table+"."+name, ".")
		if below, ok := v.(map[string]any); ok {
			l.add(key, below)
		} else {
			l.settings[key] = v
		}
	}
}

// resolver turns the settings of a file and its bases into quantities, and keeps the first error.
type resolver struct {
	name, file string
	layers     []layer  // the file's first
	known      []string // keys that were asked for
	err        *Error
}

func (r *resolver) fail(key, value, allowed string, err error) {
	if r.err != nil {
		return
	}
	r.err = &Error{File: r.file, Key: key, Value: value, Allowed: allowed, Err: err}
	for _, l := range r.layers {
		if _, ok := l.settings[key]; ok {
			r.err.File = l.file
			return
		}
	}
}

// strangers refuses a setting that was not asked for. It may be what another one is missed for.
func (r *resolver) strangers() {
	if r.err != nil && !errors.Is(r.err.Err, ErrMissing) {
		return
	}
	for _, l := range r.layers {
		for _, key := range slices.Sorted(maps.Keys(l.settings)) {
			if !slices.Contains(r.known, key) {
				r.err = &Error{File: l.file, Key: key, Err: ErrUnknownKey, Allowed: strings.Join(r.known, ", ")}
				return
			}
		}
	}
}

// find returns the first of some settings that is there: the file goes before its base, and in a file one key
// before the next. If none is, key is the last one, which is where it should stand.
func (r *resolver) find(keys ...string) (v any, key string, ok bool) {
	for _, key = range keys {
		if !slices.Contains(r.known, key) {
			r.known = append(r.known, key)
		}
	}
	for _, l := range r.layers {
		for _, key = range keys {
			if v, ok = l.settings[key]; ok {
				return v, key, true
			}
		}
	}
	return nil, key, false
}

// has reports whether a key is there, or one in its table.
func (r *resolver) has(key string) bool {
	for _, l := range r.layers {
		for k := range l.settings {
			if k == key || strings.HasPrefix(k, key+".") {
				return true
			}
		}
	}
	return false
}

// fill sets the fields of a struct that have a tag is, which names a kind, from the setting that their tag key names
// in a table, or in the first of some tables that has it. A bool says whether the setting is the second of its words.
// The tag overhead of a Cost lists the keys of its overhead. With the tag optional a setting may be missing, and
// with the tag with it is only of that variant.
func (r *resolver) fill(to any, variant string, tables ...string) {
	v := reflect.ValueOf(to).Elem()
	for i := range v.NumField() {
		f, of := v.Type().Field(i), v.Field(i)
		is, tagged := f.Tag.Lookup("is")
		if with := f.Tag.Get("with"); !tagged || with != "" && with != variant {
			continue
		}
		keys := pick(tables, f.Tag.Get("key"))
		if _, _, ok := r.find(keys...); !ok && f.Tag.Get("optional") != "" {
			continue
		}
		if k, ok := kindOf(is); ok {
			n := r.quantity(k, keys)
			switch to := of.Addr().Interface().(type) {
			case *Cost:
				*to = NewCost(r.quantity(span, pick(tables, f.Tag.Get("overhead"))), n)
			case *float64:
				*to = n
			default:
				of.SetInt(k.whole(n))
			}
			continue
		}
		words := strings.Fields(is)
		word := value(r, keys, `"`+strings.Join(words, `" or "`)+`"`, "", func(v any) (string, bool) {
			text, ok := v.(string)
			return text, ok && slices.Contains(words, text)
		})
		if of.Kind() == reflect.Bool {
			of.SetBool(word == words[1])
		} else {
			of.SetString(word)
		}
	}
}

// pick lists keys in tables, all of a table before those of the next.
func pick(tables []string, keys string) (all []string) {
	for _, table := range tables {
		for key := range strings.SplitSeq(keys, ",") {
			all = append(all, strings.TrimPrefix(table+"."+key, "."))
		}
	}
	return all
}

// value returns what parse makes of a setting, and none if it is not there or not as allowed.
func value[T any](r *resolver, keys []string, allowed string, none T, parse func(v any) (T, bool)) T {
	v, key, ok := r.find(keys...)
	if !ok {
		r.fail(key, "", allowed, ErrMissing)
		return none
	}
	if parsed, ok := parse(v); ok {
		return parsed
	}
	r.fail(key, fmt.Sprint(v), allowed, ErrValue)
	return none
}

func (r *resolver) text(key string) string {
	if _, _, ok := r.find(key); !ok {
		return ""
	}
	return value(r, []string{key}, "a text in quotes", "", func(v any) (string, bool) { text, ok := v.(string); return text, ok })
}

// quantity reads a number that must be there; without it the least one goes on.
func (r *resolver) quantity(k kind, keys []string) float64 {
	return value(r, keys, k.allowed, k.low, k.parse)
}

// kind is a physical quantity: its units and the range that makes sense. Values
// are in the first unit.
type kind struct {
	units     map[string]float64 // none: a whole number without a unit
	low, high float64
	whole     func(v float64) int64 // the value as an integer
	exact     bool                  // it has no part of a unit
	allowed   string
}

var (
	bandwidth = kind{
		units: map[string]float64{"MB/s": 1, "GB/s": 1e3, "Mb/s": 1.0 / 8, "Gb/s": 1e3 / 8},
		low:   0.1, high: 1e6,
		whole:   func(v float64) int64 { return NewCost(0, v).PerByte },
		allowed: `0.1 MB/s to 1000 GB/s, written as "132 MB/s", "7 GB/s", "100 Gb/s" or "800 Mb/s"`,
	}
	span = kind{
		units: map[string]float64{"us": 1, "ns": 1e-3, "ms": 1e3},
		low:   0, high: 1e4,
		whole:   func(v float64) int64 { return int64(Micros(v)) },
		allowed: `0 to 10 ms, written as "1.5 us", "200 ns" or "1 ms"`,
	}
	clock = kind{
		units: map[string]float64{"MHz": 1, "GHz": 1e3},
		low:   0.1, high: 1e5,
		whole:   func(v float64) int64 { return int64(1e6 / v) },
		allowed: `0.1 MHz to 100 GHz, written as "100 MHz" or "1 GHz"`,
	}
)

// kindOf returns the kind that a tag names: "time"; "clock", whose integer is its period; "rate", whose integer is the
// time of a byte; "bytes LOW HIGH"; or "count LOW HIGH".
func kindOf(is string) (k kind, ok bool) {
	switch is {
	case "time":
		return span, true
	case "clock":
		return clock, true
	case "rate":
		return bandwidth, true
	}
	name := ""
	n, _ := fmt.Sscan(is, &name, &k.low, &k.high)
	k.exact, k.whole, k.allowed = true, func(v float64) int64 { return int64(v) }, fmt.Sprintf("%.0f to %.0f", k.low, k.high)
	if name == "bytes" {
		k.units = map[string]float64{"B": 1, "KiB": 1024, "MiB": 1 << 20}
		k.allowed += ` B, whole, written as "128 B", "1 KiB" or "4 MiB"`
	}
	return k, n == 3
}

// parse reads a whole number, or the text of a decimal number and its unit. ok is false if it is neither or out of
// range.
func (k kind) parse(v any) (value float64, ok bool) {
	if k.units == nil {
		n, ok := v.(int64)
		return float64(n), ok && float64(n) >= k.low && float64(n) <= k.high
	}
	text, _ := v.(string)
	number, unit, _ := strings.Cut(strings.TrimSpace(text), " ")
	scale := k.units[strings.TrimSpace(unit)]
	// ParseFloat would take Go's notation, too: hexadecimal, underscores.
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(f) || strings.ContainsAny(number, "xX_") {
		return 0, false
	}
	f *= scale
	return f, scale != 0 && f >= k.low && f <= k.high && !(k.exact && f != math.Trunc(f))
}
