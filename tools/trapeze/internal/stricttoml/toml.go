// Package stricttoml decodes TOML files of users into structs. The decoder that it uses takes Users for users.
package stricttoml

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/trapeze-nic/trapeze/internal/strict"
)

// Decode decodes a file. Each key must be one of the struct, in the same letters, and stand once. Errors are *strict.Error with a
// line, and name keys of the file; into is as it was unless they are about a value.
func Decode(text []byte, into any) error {
	w := walk{}
	w.parser.Reset(text)
	root := reflect.TypeOf(into)
	table, at := root, ""
	var err error
	for err == nil && w.parser.NextExpression() {
		e := w.parser.Expression()
		if e.Kind == unstable.KeyValue {
			err = w.pair(e, table, at)
		} else {
			table, at, err = w.find(e, root, "")
		}
	}
	if err != nil {
		return err
	}
	var bad *toml.DecodeError
	switch err := toml.Unmarshal(text, into); {
	case errors.As(err, &bad):
		line, _ := bad.Position()
		said := strings.TrimPrefix(bad.Error(), "toml: ")
		if len(bad.Key()) > 0 && strings.HasPrefix(said, "cannot ") { // what follows names Go types
			said = "such a value cannot stand there"
		}
		return &strict.Error{Line: line, Key: strings.Join(bad.Key(), "."), Err: errors.New(said)}
	case err != nil:
		return &strict.Error{Err: err}
	}
	return nil
}

type walk struct{ parser unstable.Parser }

// find follows the key of a table, or of a pair, from a type.
func (w *walk) find(e *unstable.Node, t reflect.Type, at string) (reflect.Type, string, error) {
	for k := e.Key(); k.Next(); {
		key := string(k.Node().Data)
		at = strings.TrimPrefix(at+"."+key, ".")
		if t = strict.Field(t, "toml", key); t == nil {
			return nil, at, &strict.Error{Line: w.line(k.Node()), Key: at, Err: strict.ErrUnknown}
		}
	}
	return t, at, nil
}

func (w *walk) line(n *unstable.Node) int { return w.parser.Shape(n.Raw).Start.Line }

func (w *walk) pair(e *unstable.Node, t reflect.Type, at string) error {
	t, at, err := w.find(e, t, at)
	if err != nil {
		return err
	}
	k := e.Key()
	k.Next()
	return w.value(e.Value(), t, at, w.line(k.Node()))
}

// takes says which value a kind of field takes.
var takes = map[reflect.Kind]struct {
	kind unstable.Kind
	what string
}{
	reflect.String: {unstable.String, "a text in quotes"},
	reflect.Int:    {unstable.Integer, "a whole number"},
	reflect.Int64:  {unstable.Integer, "a whole number"},
	reflect.Bool:   {unstable.Bool, "true or false"},
	reflect.Slice:  {unstable.Array, "a list in brackets"},
	reflect.Struct: {unstable.InlineTable, "a table"},
	reflect.Map:    {unstable.InlineTable, "a table"},
}

// value looks at a value, and at the keys and values in it.
func (w *walk) value(v *unstable.Node, t reflect.Type, at string, line int) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if want, known := takes[t.Kind()]; known && v.Kind != want.kind {
		return &strict.Error{Line: line, Key: at, Err: fmt.Errorf("it takes %s", want.what)}
	}
	for c := v.Children(); c.Next(); {
		var err error
		if v.Kind == unstable.InlineTable {
			err = w.pair(c.Node(), t, at)
		} else {
			err = w.value(c.Node(), t.Elem(), at, line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
