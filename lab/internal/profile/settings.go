package profile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
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

// setting is a value of a file, and where it stands.
type setting struct {
	kind        unstable.Kind
	text, where string
}

// reader reads the settings of one file, by dotted keys.
type reader struct {
	file     string
	keys     []string // those that the file may have
	parser   unstable.Parser
	settings map[string]setting
}

// read returns the settings of a file. Each of its keys must be one of keys, and stand once.
func read(file string, text []byte, keys []string) (map[string]setting, error) {
	// No field takes a value, so that these are errors of the syntax, and keys that stand twice.
	if err := toml.Unmarshal(text, new(struct{})); err != nil {
		if bad, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, _ := bad.Position()
			file = fmt.Sprint(file, ":", line)
		}
		return nil, &Error{File: file, Err: fmt.Errorf("%w: %s", ErrSyntax, strings.TrimPrefix(err.Error(), "toml: "))}
	}
	r := reader{file: file, keys: keys, settings: map[string]setting{}}
	r.parser.Reset(text)
	table := ""
	var err error
	for err == nil && r.parser.NextExpression() {
		if e := r.parser.Expression(); e.Kind == unstable.KeyValue {
			err = r.pair(e, table)
		} else {
			table, _, err = r.key(e, "")
		}
	}
	return r.settings, err
}

// key follows the key of a table, or of a pair, and returns where it stands.
func (r *reader) key(e *unstable.Node, at string) (key, where string, err error) {
	for k := e.Key(); k.Next(); {
		at = strings.TrimPrefix(at+"."+string(k.Node().Data), ".")
		where = fmt.Sprint(r.file, ":", r.parser.Shape(k.Node().Raw).Start.Line)
		leaf := e.Kind == unstable.KeyValue && k.IsLast()
		if !slices.ContainsFunc(r.keys, func(k string) bool { return leaf && k == at || strings.HasPrefix(k, at+".") }) {
			return at, where, &Error{File: where, Key: at, Err: ErrUnknownKey, Allowed: strings.Join(r.keys, ", ")}
		}
	}
	if e.Kind == unstable.ArrayTable {
		err = &Error{File: where, Key: at, Err: ErrValue, Allowed: "a table, once"}
	}
	return at, where, err
}

func (r *reader) pair(e *unstable.Node, table string) error {
	key, where, err := r.key(e, table)
	if err != nil {
		return err
	}
	v := e.Value()
	switch {
	case v.Kind == unstable.InlineTable:
		for c := v.Children(); c.Next() && err == nil; {
			err = r.pair(c.Node(), key)
		}
	case !slices.Contains(r.keys, key):
		err = &Error{File: where, Key: key, Err: ErrValue, Allowed: "a table in brackets"}
	default:
		r.settings[key] = setting{v.Kind, string(v.Data), where}
	}
	return err
}
