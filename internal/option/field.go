package option

import (
	"cmp"
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Field is an option that a tagged field of a struct holds. These are the tags, besides the one that has the name:
//
//	oneof:"WORD,WORD"   the words that are allowed; of a bool or a number, the position of the word is the value
//	range:"LOW..HIGH"   the least and the greatest value; of a text, its length in bytes. Either may be left out
//	allowed:"…"         what errors say that the value may be, where that is not clear from the other tags
//	required:"true"     the option must be given
//	excludes:"NAME"     options, with commas between them, that cannot be given together with this one
//	default:"…"         the value if the option is not given; else it stays as it is
//	split:"comma"       of []string: a value has several texts, as of other slices it always does
//
// Values are texts, bools, numbers, time.Duration, slices of these, and types with a method Set or UnmarshalText.
type Field struct {
	Name string
	Tag  reflect.StructTag
	To   reflect.Value // can be set
}

// setter is a flag's value, such as Bytes.
type setter interface{ Set(text string) error }

// fieldsOf returns the fields of structs that have a tag, and those of the structs in them. into are pointers.
func fieldsOf(tag string, into ...any) (fields []Field) {
	var add func(v reflect.Value)
	add = func(v reflect.Value) {
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if name, ok := f.Tag.Lookup(tag); ok {
				fields = append(fields, Field{name, f.Tag, v.Field(i)})
			} else if f.Type.Kind() == reflect.Struct && (f.IsExported() || f.Anonymous) {
				add(v.Field(i))
			}
		}
	}
	for _, p := range into {
		add(reflect.ValueOf(p).Elem())
	}
	return fields
}

// Set reads the field's value. An error says what is allowed, and leaves the field as it was.
func (f Field) Set(texts ...string) error {
	v := reflect.New(f.To.Type()).Elem()
	if _, own := f.To.Addr().Interface().(setter); own || f.To.Kind() != reflect.Slice {
		if len(texts) != 1 {
			return &NotAllowedError{"one value: " + f.Allowed()}
		}
		if err := f.read(v, texts[0]); err != nil {
			return err
		}
		f.To.Set(v)
		return nil
	}
	split := f.Tag.Get("split") != "" || v.Type().Elem().Kind() != reflect.String
	for _, text := range texts {
		parts := []string{text}
		if split {
			parts = strings.Split(text, ",")
		}
		for _, part := range parts {
			element := reflect.New(v.Type().Elem()).Elem()
			if err := f.read(element, part); err != nil {
				return err
			}
			v = reflect.Append(v, element)
		}
	}
	f.To.Set(v)
	return nil
}

// NotAllowedError is about a value that the tags of its field do not allow.
type NotAllowedError struct{ Allowed string }

func (e *NotAllowedError) Error() string { return "it is " + e.Allowed }

// Allowed says which values there are.
func (f Field) Allowed() string {
	if text := f.Tag.Get("allowed"); text != "" {
		return text
	}
	if words := f.words(); len(words) > 0 {
		last := len(words) - 1
		return strings.TrimPrefix(strings.Join(words[:last], ", ")+" or "+words[last], " or ")
	}
	of, several := f.To.Type(), ""
	if of.Kind() == reflect.Slice {
		of, several = of.Elem(), ", or several with commas between them"
	}
	low, high, limited := strings.Cut(f.Tag.Get("range"), "..")
	limits := " in " + low + ".." + high
	switch {
	case limited && high == "":
		limits = " of at least " + low
	case !limited:
		limits = ""
	}
	switch kind := of.Kind(); {
	case of == reflect.TypeFor[time.Duration]():
		return "a time" + limits + " such as 5us, 200ms or 1.5s" + several
	case of == reflect.TypeFor[Bytes]():
		return "a number of bytes" + limits + " such as 64, 4K or 1M" + several
	case kind == reflect.Bool:
		return "true or false"
	case kind == reflect.String:
		if limited {
			limits = strings.Replace(limits, " in ", " of ", 1) + " bytes"
		}
		return "a text" + limits + several
	case kind == reflect.Float64:
		return "a number" + limits + several
	case kind >= reflect.Uint8 && kind <= reflect.Uint32 && !limited:
		limits = fmt.Sprintf(" in 0..%d", 1<<of.Bits()-1)
	case kind >= reflect.Uint && kind <= reflect.Uint64 && !limited:
		limits = ", 0 or more"
	}
	return "a whole number" + limits + several
}

// words are those of the tag oneof, without the empty ones, which only take a position.
func (f Field) words() []string {
	return slices.DeleteFunc(strings.Split(f.Tag.Get("oneof"), ","), func(word string) bool { return word == "" })
}

// read reads a value as the tags say.
func (f Field) read(v reflect.Value, text string) error {
	if oneof, ok := f.Tag.Lookup("oneof"); ok {
		i := slices.Index(strings.Split(oneof, ","), text)
		if i < 0 || text == "" {
			return &NotAllowedError{f.Allowed()}
		}
		switch {
		case v.Kind() == reflect.Bool:
			v.SetBool(i == 1)
		case v.CanInt():
			v.SetInt(int64(i))
		default:
			v.SetString(text)
		}
		return nil
	}
	var err error
	switch to := v.Addr().Interface().(type) {
	case setter:
		err = to.Set(text)
	case encoding.TextUnmarshaler:
		err = to.UnmarshalText([]byte(text))
	default:
		if parse(v, text) != nil {
			err = &NotAllowedError{f.Allowed()}
		}
	}
	if _, bytes := v.Addr().Interface().(*Bytes); err == nil && !f.inRange(v) || err != nil && bytes {
		err = &NotAllowedError{f.Allowed()}
	}
	return err
}

// inRange reports whether a value is in the range of the tag. A bound is written as a value is.
func (f Field) inRange(v reflect.Value) bool {
	low, high, ok := strings.Cut(f.Tag.Get("range"), "..")
	if !ok {
		return true
	}
	if v.Kind() == reflect.String {
		v = reflect.ValueOf(v.Len())
	}
	return (low == "" || compare(v, bound(v.Type(), low)) >= 0) && (high == "" || compare(v, bound(v.Type(), high)) <= 0)
}

// bound reads a bound of a range.
func bound(of reflect.Type, text string) reflect.Value {
	v := reflect.New(of).Elem()
	_ = Field{To: v}.read(v, text) // the tests have read it
	return v
}

// compare compares numbers of one type. What is not a number, as NaN, is less than all.
func compare(a, b reflect.Value) int {
	switch {
	case a.CanInt():
		return cmp.Compare(a.Int(), b.Int())
	case a.CanUint():
		return cmp.Compare(a.Uint(), b.Uint())
	default:
		return cmp.Compare(a.Float(), b.Float())
	}
}

// parse reads a value of a type that knows nothing of texts.
func parse(v reflect.Value, text string) error {
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(text)
		v.SetInt(int64(d))
		return err
	case v.Kind() == reflect.String:
		v.SetString(text)
		return nil
	case v.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(text)
		v.SetBool(b)
		return err
	case v.CanInt():
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		v.SetInt(n)
		return err
	case v.CanUint():
		n, err := strconv.ParseUint(text, 10, v.Type().Bits())
		v.SetUint(n)
		return err
	case v.CanFloat():
		n, err := strconv.ParseFloat(text, v.Type().Bits())
		v.SetFloat(n)
		return err
	}
	return fmt.Errorf("no option is a %v", v.Type())
}
