package catalogue

import (
	"encoding/base64"
	"reflect"
	"time"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// clean makes every text in p safe to show, whatever fields there are. A key that is none
// is dropped: it is offered to be pasted.
func (p *Params) clean() {
	cleanTexts(reflect.ValueOf(p).Elem())
	if raw, err := base64.StdEncoding.DecodeString(p.Key); p.Key != "" && (err != nil || len(raw) != keySize || base64.StdEncoding.EncodeToString(raw) != p.Key) {
		p.Key = ""
	}
}

// elsewhere stands in a fix for an address of the reader's that is not known.
const elsewhere = "IP:PORT"

// trusted are the parameters that may go into a fix: of a peer's word those whose field says
// so. No address or name that the peer chose is among them.
func (p Params) trusted() Params {
	if !p.Heard {
		return p
	}
	seen := p.From != ""
	keepTagged(reflect.ValueOf(&p).Elem())
	if seen { // that something was seen matters; where this gateway is, it knows itself
		p.From = or(first(p.Own), elsewhere)
	}
	return p
}

// keepTagged clears the fields of parameters that have no tag report:"fix", in the structures
// that are embedded as well.
func keepTagged(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Type().Field(i); {
		case f.Anonymous:
			keepTagged(v.Field(i))
		case f.Tag.Get("report") != "fix":
			v.Field(i).SetZero()
		}
	}
}

// keySize is that of a WireGuard public key in bytes.
const keySize = 32

// cleanTexts cleans the texts in a value. Lists are copied first, since they have other
// owners.
func cleanTexts(v reflect.Value) {
	if v.IsZero() { // as most are
		return
	}
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
