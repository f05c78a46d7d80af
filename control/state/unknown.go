package state

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Unknown are the fields of an object that this version does not know. A newer minor version wrote
// them, and they are written back with the object. It is immutable.
type Unknown map[string]json.RawMessage

// unknownOf returns the fields of the object raw that the struct known does not have. Names are
// compared like encoding/json does, ignoring case.
func unknownOf(raw json.RawMessage, known any) Unknown {
	var all Unknown
	if json.Unmarshal(raw, &all) != nil {
		return nil
	}
	t := reflect.TypeOf(known)
	names := make([]string, t.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
	})
	if len(all) == 0 {
		return nil
	}
	return all
}

// marshal is [json.Marshal] of the struct known, with the unknown fields appended.
func (u Unknown) marshal(known any) ([]byte, error) {
	b, err := json.Marshal(known)
	if err != nil || len(u) == 0 {
		return b, err
	}
	more, err := json.Marshal(map[string]json.RawMessage(u))
	if err != nil {
		return nil, err
	}
	if bytes.Equal(b, []byte("{}")) {
		return more, nil
	}
	return append(append(b[:len(b)-1], ','), more[1:]...), nil
}
