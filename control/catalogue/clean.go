package catalogue

import (
	"encoding/base64"
	"reflect"
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
		v.SetString(foreign.Of(v.String()).String())
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
