package catalogue

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// Shared contains the parameters of a code that one gateway shares with another: a JSON object of
// the fields of [Params] with a tag told, in order and within their bounds, or "". Equal parameters
// have equal strings.
type Shared string

// Bounds of shared parameters.
const (
	maxList  = 8  // values in a list
	maxText  = 64 // bytes of a text
	maxAge   = 10 * 365 * 24 * time.Hour
	maxWait  = time.Hour
	maxCount = math.MaxInt32 // fits an int everywhere
	maxSize  = 1<<16 - 1     // of an IP packet, in bytes (RFC 791 §3.1)
)

// Share returns the parameters that may be shared. When something was last seen becomes how long
// before now that was, because clocks need not agree. Values that are out of bounds are cut or left
// out.
func Share(p Params, now time.Time) Shared {
	v := reflect.ValueOf(p)
	return object(func(f field) (any, error) { return f.kind.encode(v.FieldByIndex(f.index), now), nil })
}

// ParseShared parses a peer's parameters. It ignores unknown fields. A value that is out of bounds
// is an error, except for texts and words, which become [foreign.Unfit] or "". The error repeats
// nothing that the peer wrote.
func ParseShared(raw []byte) (Shared, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil {
		return "", fmt.Errorf("params %w", errType)
	}
	var first error
	shared := object(func(f field) (any, error) {
		value, ok := values[f.name]
		if !ok {
			return nil, nil
		}
		v, err := f.kind.decode(value)
		if err != nil && first == nil {
			first = fmt.Errorf("%s %w", f.name, err)
		}
		return v, err
	})
	return shared, first
}

// Params returns the parameters, which were written at a time.
func (t Shared) Params(written time.Time) Params {
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

// field is a parameter that may be shared.
type field struct {
	name  string
	index []int
	kind  kind
}

// schema lists the fields with a tag told.
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
func object(value func(field) (any, error)) Shared {
	var b strings.Builder
	for _, f := range schema() {
		v, err := value(f)
		if err != nil || v == nil || reflect.ValueOf(v).IsZero() {
			continue
		}
		text, err := json.Marshal(v)
		if err != nil { // cannot happen: JSON can represent every kind
			continue
		}
		fmt.Fprintf(&b, ",%q:%s", f.name, text)
	}
	if b.Len() == 0 {
		return ""
	}
	return Shared("{" + b.String()[1:] + "}")
}

// kind is the encoding of a parameter.
type kind struct {
	// encode brings an own value into its form and bounds.
	encode func(v reflect.Value, now time.Time) any
	// decode checks a peer's value, and set stores it.
	decode func(raw json.RawMessage) (any, error)
	set    func(v reflect.Value, raw json.RawMessage, written time.Time)
}

// kindOf returns a kind for parameters of type T that are a W in JSON.
func kindOf[T, W any](encode func(T, time.Time) W, decode func(W) (W, error), set func(W, time.Time) T) kind {
	own := reflect.TypeFor[T]()
	return kind{
		encode: func(v reflect.Value, now time.Time) any { return encode(v.Convert(own).Interface().(T), now) },
		decode: func(raw json.RawMessage) (any, error) {
			var w W
			if err := json.Unmarshal(raw, &w); err != nil {
				return nil, errType
			}
			return decode(w)
		},
		set: func(v reflect.Value, raw json.RawMessage, written time.Time) {
			var w W
			if err := json.Unmarshal(raw, &w); err == nil {
				v.Set(reflect.ValueOf(set(w, written)).Convert(v.Type()))
			}
		},
	}
}

// Same reports whether two are equal apart from how long the fault has lasted, and how often it has
// occurred lately.
func (t Shared) Same(o Shared) bool { return t == o || t.ageless() == o.ageless() }

// passing are the parameters that change with time alone.
var passing = []string{"age", "checks", "failures", "lastFailure"}

func (t Shared) ageless() Shared {
	var values map[string]json.RawMessage
	if t == "" || json.Unmarshal([]byte(t), &values) != nil {
		return t
	}
	return object(func(f field) (any, error) {
		if raw, ok := values[f.name]; ok && !slices.Contains(passing, f.name) {
			return raw, nil
		}
		return nil, nil
	})
}
