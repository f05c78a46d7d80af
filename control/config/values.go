package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
)

// Value is one field of the effective configuration. Secrets are in separate files, so every value
// may be shown.
type Value struct {
	Path  string `json:"path"`
	Value string `json:"value"`
	// Origin is a flag, a variable, file:line or "default".
	Origin string `json:"origin"`
}

// Values lists every field that is set, in file order, and those that a flag could set even if they
// are empty.
func (r *Resolved) Values() []Value {
	always := map[string]bool{}
	for _, s := range Settings() {
		always[s.Path] = true
	}
	var out []Value
	walk(reflect.ValueOf(r.Document), "", func(path, value string) {
		o, set := r.origins[path]
		switch {
		case set:
		case o.Source == "" && (value == "" || value == "0") && !always[path]:
			return
		default:
			o = r.elementOrigin(path)
		}
		if path == "spec.privateKeyFile" && value == "" {
			value = r.PrivateKeyFile
		}
		out = append(out, Value{Path: path, Value: value, Origin: o.String()})
	})
	return out
}

// elementOrigin is the origin of a list's element: the list's, if a flag or variable set that;
// otherwise nobody set the field.
func (r *Resolved) elementOrigin(path string) Origin {
	if i := strings.LastIndexByte(path, '['); i > 0 && strings.HasSuffix(path, "]") {
		if o, ok := r.origins[path[:i]]; ok {
			return o
		}
	}
	return Origin{Source: FromDefault}
}

// walk calls f for every leaf. Lists and maps without elements are leaves too.
func walk(v reflect.Value, path string, f func(path, value string)) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		if text, err := m.MarshalText(); err == nil {
			f(path, string(text))
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		if v.NumField() == 0 {
			f(path, "{}")
		}
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
			walk(v.Field(i), join(path, name), f)
		}
	case reflect.Slice:
		if v.Len() == 0 {
			f(path, "")
		}
		for i := range v.Len() {
			walk(v.Index(i), fmt.Sprintf("%s[%d]", path, i), f)
		}
	case reflect.Map:
		for _, key := range mapKeys(v) {
			walk(v.MapIndex(reflect.ValueOf(key)), join(path, key), f)
		}
	default:
		f(path, leaf(v))
	}
}

// leaf prints a scalar; a false or zero default is printed as nothing, and so left out.
func leaf(v reflect.Value) string {
	if v.Kind() != reflect.String && v.IsZero() && v.Kind() == reflect.Bool {
		return ""
	}
	return fmt.Sprint(v.Interface())
}

func mapKeys(v reflect.Value) []string {
	m := make(map[string]bool, v.Len())
	for _, k := range v.MapKeys() {
		m[k.String()] = true
	}
	return sortedKeys(m)
}
