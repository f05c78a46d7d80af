package check

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// clean makes every text in p safe to show, whatever fields there are. A key that is none
// is dropped: it is offered to be pasted.
func (p Params) clean() Params {
	cleanTexts(reflect.ValueOf(&p).Elem())
	if raw, err := base64.StdEncoding.DecodeString(p.Key); err != nil || len(raw) != keySize || base64.StdEncoding.EncodeToString(raw) != p.Key {
		p.Key = ""
	}
	return p
}

// keySize is that of a WireGuard public key in bytes.
const keySize = 32

// cleanTexts cleans the texts in a value. Lists are copied first, since they have other
// owners.
func cleanTexts(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(cleanText(v.String()))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			cleanTexts(v.Field(i))
		}
	case reflect.Slice:
		if v.Len() == 0 {
			return
		}
		list := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(list, v)
		v.Set(list)
		for i := range list.Len() {
			cleanTexts(list.Index(i))
		}
	}
}

// cleanText is a text that may be of others, fit for a sentence.
func cleanText(s string) string { return foreign.Of(s).String() }

// or gives s, or the other text when there is none.
func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// detail appends an error's text to a sentence.
func detail(sentence string, p Params) string {
	if p.Detail == "" {
		return sentence
	}
	return sentence + ": " + p.Detail
}

// seconds writes a duration as people read it: whole seconds, or milliseconds below.
func seconds(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// list joins at most four values.
func list(v []string) string {
	const most = 4
	if len(v) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(v[:most], ", "), len(v)-most)
	}
	return strings.Join(v, ", ")
}

// day writes a time for a sentence, in UTC because the two sides may differ.
func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
