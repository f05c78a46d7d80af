// Package bounded parses untrusted JSON. It accepts one document in UTF-8 with limited size,
// depth and number of values, and without duplicate keys. Each field of the destination type must
// be within the bounds in its tag. Unknown fields are ignored, subject to the same limits.
//
// # Bounds of a field
//
// The tag max has the bounds: of a text the number of bytes, of a number the maximum (the minimum
// is 0). Of a list it is the number of elements, followed by x and the bound of each. Of a map it
// is the number of entries, followed by the bound of each key and value.
//
//	Name  string            `json:"name" max:"40"`
//	Wants []string          `json:"wants" max:"32x40"`
//	Ports map[string]uint16 `json:"ports" max:"256x40"`
//
// A bool and an unsigned number are bounded by their types. A field without a bound is an error;
// tests can find such fields with [Unbounded].
//
// Errors name fields of the type, and never repeat input.
package bounded

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of every document. The messages of this version are at most 5 deep and have a few hundred
// values; the rest is reserved for newer versions.
const (
	maxDepth  = 16
	maxValues = 8192
	maxKey    = 256
)

// ErrMalformed: the text is not JSON within the bounds.
var ErrMalformed = errors.New("not the JSON that is wanted here")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// Unmarshal parses a document of at most max bytes into v, a pointer to a struct whose fields
// have bounds or to a [json.RawMessage]. Errors are an [ErrMalformed], and v is then undefined.
func Unmarshal(data []byte, max int, v any) error {
	if err := Check(data, max); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
			return malformed("%s has another type or is out of range", wrong.Field)
		}
		return malformed("a value is not what it should be")
	}
	if _, raw := v.(*json.RawMessage); raw {
		return nil
	}
	return within(reflect.ValueOf(v), "", nil)
}

// object is an open JSON object or array.
type object struct {
	keys  map[string]bool // nil: an array
	value bool            // a key was read, and its value follows
}

// Check returns an error if a text is not a single document within the common bounds.
func Check(data []byte, max int) error {
	if len(data) > max {
		return malformed("it is longer than %d bytes", max)
	}
	if !utf8.Valid(data) {
		return malformed("it is not in UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var open []object
	for values := 0; ; values++ {
		t, err := d.Token()
		switch {
		case errors.Is(err, io.EOF) && len(open) == 0 && values > 0:
			return nil
		case err != nil:
			return malformed("it is none, or breaks off")
		case values > 0 && len(open) == 0:
			return malformed("there is more than one document")
		case values >= maxValues:
			return malformed("it has more than %d values", maxValues)
		}
		if n := len(open); n > 0 && open[n-1].keys != nil {
			key, isKey := t.(string)
			if o := &open[n-1]; isKey && !o.value {
				if err := o.add(key); err != nil {
					return err
				}
				continue
			}
			open[n-1].value = false
		}
		switch t {
		case json.Delim('{'):
			open = append(open, object{keys: map[string]bool{}})
		case json.Delim('['):
			open = append(open, object{})
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
		if len(open) > maxDepth {
			return malformed("it is more than %d deep", maxDepth)
		}
	}
}

// add records a key. Keys are compared as encoding/json matches fields.
func (o *object) add(key string) error {
	if len(key) > maxKey {
		return malformed("a key is longer than %d bytes", maxKey)
	}
	folded := strings.ToLower(strings.ToUpper(key))
	if o.keys[folded] {
		return malformed("a key is there twice")
	}
	o.keys[folded], o.value = true, true
	return nil
}

// within checks a value against its bounds.
func within(v reflect.Value, field string, bounds []uint64) error {
	over := func(n int) error {
		switch {
		case len(bounds) == 0:
			return malformed("%s has no bound", field)
		case uint64(n) > bounds[0]:
			return malformed("%s is more than %d", field, bounds[0])
		}
		return nil
	}
	if v.CanInterface() && v.Kind() != reflect.Pointer {
		if text, ok := v.Interface().(encoding.TextMarshaler); ok {
			b, err := text.MarshalText()
			if err != nil {
				return malformed("%s is out of range", field)
			}
			return over(len(b))
		}
	}
	switch v.Kind() {
	case reflect.Bool, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if v.Int() < 0 {
			return malformed("%s is below 0", field)
		}
		return over(int(min(v.Int(), int64(^uint(0)>>1))))
	case reflect.Float32, reflect.Float64:
		if f := v.Float(); len(bounds) == 0 || !(f >= 0 && f <= float64(bounds[0])) {
			return malformed("%s is out of range", field)
		}
		return nil
	case reflect.String:
		return over(v.Len())
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return within(v.Elem(), field, bounds)
	case reflect.Slice, reflect.Map:
		if err := over(v.Len()); err != nil || v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
			return err
		}
		bounds = bounds[1:]
		for k, e := range v.Seq2() {
			if v.Kind() == reflect.Map {
				if err := within(k, field, bounds); err != nil {
					return err
				}
			}
			if err := within(e, field, bounds); err != nil {
				return err
			}
		}
		return nil
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if err := within(v.Field(i), path(field, f), boundsOf(f)); err != nil {
				return err
			}
		}
		return nil
	}
	return malformed("%s has no bound", field)
}

// path returns a field's name in errors.
func path(parent string, f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case name == "" && f.Anonymous:
		return parent
	case name == "":
		name = f.Name
	}
	if parent == "" {
		return name
	}
	return parent + "." + name
}

// boundsOf returns the bounds in a field's tag; nil if it has none or an invalid one.
func boundsOf(f reflect.StructField) []uint64 {
	var out []uint64
	for s := range strings.SplitSeq(f.Tag.Get("max"), "x") {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return nil
		}
		out = append(out, n)
	}
	return out
}

// Unbounded returns the fields of a message that have no bounds.
func Unbounded(message reflect.Type) []string {
	if message == reflect.TypeFor[json.RawMessage]() {
		return nil // its own parser checks the bounds
	}
	return unbounded(message, "", nil)
}

func unbounded(t reflect.Type, field string, bounds []uint64) (out []string) {
	if len(bounds) == 0 && t.Kind() != reflect.Struct && t.Kind() != reflect.Pointer || t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		switch {
		case len(bounds) > 0:
			return nil
		case t.Kind() == reflect.Bool, t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64:
			return nil
		}
		return []string{field}
	}
	switch t.Kind() {
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 {
			return unbounded(t.Elem(), field, bounds[1:])
		}
	case reflect.Map:
		return append(unbounded(t.Key(), field, bounds[1:]), unbounded(t.Elem(), field, bounds[1:])...)
	case reflect.Pointer:
		return unbounded(t.Elem(), field, bounds)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			out = append(out, unbounded(f.Type, path(field, f), boundsOf(f))...)
		}
	}
	return out
}
