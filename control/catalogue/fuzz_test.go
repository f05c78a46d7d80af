package catalogue

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tunnel/foreign"
)

func FuzzRender(f *testing.F) {
	for _, e := range Codes() {
		p, err := json.Marshal(full())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(e.Code), p)
	}
	f.Add("PST0110", []byte(`{"peer":"\u001b]52;c;eA==\u0007","key":"$(curl x|sh)","from":"x\u202e","candidates":[{"address":"\n","reason":"\u0000"}]}`))
	f.Add("PST0106", []byte(`{"endpoints":["::","[::1]:x",":1","1.2.3.4:99999"],"own":["%","1"],"inbound":true,"peer":"cloud"}`))
	f.Fuzz(func(t *testing.T, code string, raw []byte) {
		var p Params
		if json.Unmarshal(raw, &p) != nil {
			return
		}
		p.Peer = show(p.Peer)
		cause, fix := render(Code(code), p)
		for _, text := range []string{cause, fix} {
			if text != cleanAllOf(text) {
				t.Errorf("%s: %q has characters that a terminal acts on", code, text)
			}
			if len(text) > 64<<10 {
				t.Errorf("%s: %d bytes", code, len(text))
			}
		}
	})
}

// cleanAllOf returns what is shown of a text of any length.
func cleanAllOf(s string) string {
	var b strings.Builder
	for part := range slices.Chunk([]rune(s), foreign.MaxShown) {
		b.WriteString(show(string(part)))
	}
	return b.String()
}

func show(s string) string { return foreign.Of(s).String() }
