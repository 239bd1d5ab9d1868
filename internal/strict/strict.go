// Package strict decodes JSON of others into structs. encoding/json takes Users for users, and the last of two:
// what one reader of a file sees in it is then not what the decoder does.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Error says which key of a text is wrong.
type Error struct {
	Key string // such as grant.rate; empty: the text as a whole
	Err error
}

func (e *Error) Error() string {
	if e.Key == "" {
		return e.Err.Error()
	}
	return e.Key + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// JSON decodes one value. Each key must be one of the struct, in the same letters, and stand once. Errors are *Error, and into
// is as it was unless they are about a value.
func JSON(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if err := keys(d, reflect.TypeOf(into), ""); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return &Error{Err: errors.New("there is more behind it")}
	}
	err := json.Unmarshal(text, into)
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind):
		return &Error{Key: kind.Field, Err: fmt.Errorf("a %s cannot stand there", kind.Value)}
	case err != nil:
		return &Error{Err: err}
	}
	return nil
}

// keys reads one value of a type, and looks at all keys in it.
func keys(d *json.Decoder, t reflect.Type, at string) error {
	token, err := d.Token()
	if err != nil {
		return &Error{Key: at, Err: err}
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case token == json.Delim('[') && t.Kind() != reflect.Slice:
		return &Error{Key: at, Err: errors.New("an array cannot stand there")}
	case token == json.Delim('['):
		for i := 0; d.More(); i++ {
			if err := keys(d, t.Elem(), fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case token == json.Delim('{'):
		seen := map[string]bool{}
		for d.More() {
			token, err := d.Token()
			if err != nil {
				return &Error{Key: at, Err: err}
			}
			key := token.(string)
			inside, of := strings.TrimPrefix(at+"."+key, "."), field(t, key)
			switch {
			case of == nil:
				return &Error{Key: inside, Err: errors.New("there is no such key")}
			case seen[key]:
				return &Error{Key: inside, Err: errors.New("it stands there twice")}
			}
			seen[key] = true
			if err := keys(d, of, inside); err != nil {
				return err
			}
		}
	default:
		return nil
	}
	if _, err := d.Token(); err != nil { // what ends it
		return &Error{Key: at, Err: err}
	}
	return nil
}

// field returns the type of what a struct, or a map, has under a key: that of a tag json, or else of the field's name in small
// letters. It is nil if there is no such key.
func field(t reflect.Type, key string) reflect.Type {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return field(t.Elem(), key)
	case reflect.Map:
		return t.Elem()
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				name = strings.ToLower(f.Name)
			}
			if name == key && f.IsExported() && !f.Anonymous {
				return f.Type
			}
		}
	}
	return nil
}
