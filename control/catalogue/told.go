package catalogue

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"time"
)

// Told are the parameters of a code as one gateway tells another: a JSON object of the fields
// of [Params] that have a tag told, in their order and within their bounds, or nothing. Two
// that say the same are equal.
type Told string

// Bounds of what is told.
const (
	maxList  = 8  // values in a list
	maxText  = 64 // bytes of a text
	maxAge   = 10 * 365 * 24 * time.Hour
	maxWait  = time.Hour
	maxCount = math.MaxInt32 // an int has that many everywhere
	maxSize  = 1<<16 - 1     // of an IP packet, in bytes (RFC 791 §3.1)
)

// Tell gives what may be told of parameters. now is subtracted from what was seen: clocks
// need not agree. What is out of bounds is cut or left out.
func Tell(p Params, now time.Time) Told {
	v := reflect.ValueOf(p)
	return object(func(f field) (any, error) { return f.kind.tell(v.FieldByIndex(f.index), now), nil })
}

// Hear reads what a peer tells. Fields that are not known are passed over, and a value that is
// out of bounds is an error, but for texts and words: those become [foreign.Unfit] or nothing.
// The error repeats nothing that the peer wrote.
func Hear(raw []byte) (Told, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil {
		return "", fmt.Errorf("params %w", errType)
	}
	var first error
	told := object(func(f field) (any, error) {
		value, ok := values[f.name]
		if !ok {
			return nil, nil
		}
		v, err := f.kind.hear(value)
		if err != nil && first == nil {
			first = fmt.Errorf("%s %w", f.name, err)
		}
		return v, err
	})
	return told, first
}

// Params are the parameters told, written at a time.
func (t Told) Params(written time.Time) Params {
	var p Params
	var values map[string]json.RawMessage
	if t == "" || json.Unmarshal([]byte(t), &values) != nil {
		return p
	}
	v := reflect.ValueOf(&p).Elem()
	for _, f := range schema() {
		if raw, ok := values[f.name]; ok {
			f.kind.set(v.FieldByIndex(f.index), raw, written)
		}
	}
	return p
}

// field is a parameter that may be told.
type field struct {
	name  string
	index []int
	kind  kind
}

// schema are the fields with a tag told.
var schema = sync.OnceValue(func() []field {
	var out []field
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Params]()) {
		if k, ok := f.Tag.Lookup("told"); ok {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			out = append(out, field{name, f.Index, kinds()[k]})
		}
	}
	return out
})

// object writes the values of all fields that have one.
func object(value func(field) (any, error)) Told {
	var b strings.Builder
	for _, f := range schema() {
		v, err := value(f)
		if err != nil || v == nil || reflect.ValueOf(v).IsZero() {
			continue
		}
		text, err := json.Marshal(v)
		if err != nil { // no value of a kind is one that JSON has not
			continue
		}
		fmt.Fprintf(&b, ",%q:%s", f.name, text)
	}
	if b.Len() == 0 {
		return ""
	}
	return Told("{" + b.String()[1:] + "}")
}

// kind is how a parameter is told.
type kind struct {
	// tell brings a value of ours into its form and bounds.
	tell func(v reflect.Value, now time.Time) any
	// hear checks one of a peer, and set takes it.
	hear func(raw json.RawMessage) (any, error)
	set  func(v reflect.Value, raw json.RawMessage, written time.Time)
}

// kindOf makes a kind of parameters of type T that are a W in JSON.
func kindOf[T, W any](tell func(T, time.Time) W, hear func(W) (W, error), set func(W, time.Time) T) kind {
	own := reflect.TypeFor[T]()
	return kind{
		tell: func(v reflect.Value, now time.Time) any { return tell(v.Convert(own).Interface().(T), now) },
		hear: func(raw json.RawMessage) (any, error) {
			var w W
			if err := json.Unmarshal(raw, &w); err != nil {
				return nil, errType
			}
			return hear(w)
		},
		set: func(v reflect.Value, raw json.RawMessage, written time.Time) {
			var w W
			if err := json.Unmarshal(raw, &w); err == nil {
				v.Set(reflect.ValueOf(set(w, written)).Convert(v.Type()))
			}
		},
	}
}

// Same reports whether two tell the same but for how long it has lasted.
func (t Told) Same(o Told) bool { return t == o || t.ageless() == o.ageless() }

func (t Told) ageless() Told {
	var values map[string]json.RawMessage
	if t == "" || json.Unmarshal([]byte(t), &values) != nil {
		return t
	}
	return object(func(f field) (any, error) {
		if raw, ok := values[f.name]; ok && f.name != "age" {
			return raw, nil
		}
		return nil, nil
	})
}
