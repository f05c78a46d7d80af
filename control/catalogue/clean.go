package catalogue

import (
	"encoding/base64"
	"reflect"
	"time"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// clean makes every text in p safe to show, whatever fields there are. It drops an invalid key,
// because keys are offered to be pasted.
func (p *Params) clean() {
	cleanTexts(reflect.ValueOf(p).Elem())
	if raw, err := base64.StdEncoding.DecodeString(p.Key); p.Key != "" && (err != nil || len(raw) != keySize || base64.StdEncoding.EncodeToString(raw) != p.Key) {
		p.Key = ""
	}
}

// elsewhere replaces an unknown address of the reader in a fix.
const elsewhere = "IP:PORT"

// trusted returns the parameters that may go into a fix. If they come from a peer, those are the
// fields with the tag report:"fix". They contain no address or name chosen by the peer.
func (p Params) trusted() Params {
	if !p.Heard {
		return p
	}
	seen := p.From != ""
	keepTagged(reflect.ValueOf(&p).Elem())
	if seen { // that something was seen matters; the gateway knows its own address
		p.From = or(first(p.Own), elsewhere)
	}
	return p
}

// keepTagged clears the fields without the tag report:"fix", in embedded structs too.
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

// keySize is the size of a WireGuard public key in bytes.
const keySize = 32

// cleanTexts cleans the texts in a value. It copies lists first, since others own them.
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
