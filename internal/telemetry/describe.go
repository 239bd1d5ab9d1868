package telemetry

import (
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Counter describes one field of the struct of a Stats method, from its tags.
type Counter struct {
	// Key is snake_case, Help a sentence, Unit a plural such as "bytes"; "ns" for durations.
	Key, Help, Unit string
	// Gauge says that the value also falls.
	Gauge bool
}

// Value is one counter with its value.
type Value struct {
	*Counter
	// Name is the key behind those of the structs around the field, as in queues_0_received_frames.
	Name  string
	Value uint64
}

// field is a described field of a type: a counter, or a struct, pointer or slice of structs.
type field struct {
	Counter
	index int
}

// described has the fields of each type that was seen, as []field.
var described sync.Map

// fields returns what the tags of a struct say, once for each type.
func fields(t reflect.Type) []field {
	if known, ok := described.Load(t); ok {
		return known.([]field)
	}
	var list []field
	for i := range t.NumField() {
		f := t.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || key == "" || key == "-" {
			continue
		}
		c := Counter{Key: key, Help: f.Tag.Get("help"), Unit: f.Tag.Get("unit"), Gauge: f.Tag.Get("kind") == "gauge"}
		if f.Type == reflect.TypeFor[time.Duration]() {
			c.Unit = "ns"
		}
		list = append(list, field{c, i})
	}
	described.Store(t, list)
	return list
}

// Values returns the counters of a struct whose fields have the tags json, help, unit and kind;
// none of anything else.
func Values(stats any) []Value { return appendValues(nil, "", reflect.ValueOf(stats)) }

// appendValues lists the counters of a value, whose names begin with prefix.
func appendValues(list []Value, prefix string, v reflect.Value) []Value {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return list
		}
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return list
	}
	of := fields(v.Type())
	for i := range of {
		f, value := &of[i], v.Field(of[i].index)
		name := prefix + f.Key
		switch value.Kind() {
		case reflect.Uint64, reflect.Uint32:
			list = append(list, Value{&f.Counter, name, value.Uint()})
		case reflect.Int64:
			list = append(list, Value{&f.Counter, name, uint64(max(value.Int(), 0))})
		case reflect.Slice, reflect.Array:
			for j := range value.Len() {
				list = appendValues(list, name+"_"+strconv.Itoa(j)+"_", value.Index(j))
			}
		default:
			if value.CanAddr() {
				if count, atomic := value.Addr().Interface().(interface{ Load() uint64 }); atomic {
					list = append(list, Value{&f.Counter, name, count.Load()})
					continue
				}
			}
			list = appendValues(list, name+"_", value)
		}
	}
	return list
}
