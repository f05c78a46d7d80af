package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

// Documents say what they are, first; what they say themselves counts, and lists stay lists.
func TestDocumentsBeginWithTheirHeader(t *testing.T) {
	const version = `{"apiVersion":"` + api.Version + `",`
	for _, c := range []struct {
		document any
		want     string
	}{
		{struct{ A int }{1}, version + `"kind":"Thing","A":1}`},
		{struct{}{}, version + `"kind":"Thing"}`},
		{struct {
			Kind string `json:"kind"`
			A    int
		}{"Own", 1}, version + `"kind":"Own","A":1}`},
		{map[string]any{"apiVersion": "v1", "kind": "Config"}, `{"apiVersion":"v1","kind":"Config"}`},
		{[]string{"a"}, `["a"]`},
		{[]string(nil), `null`},
	} {
		var out bytes.Buffer
		a := newApp(nil, &out, io.Discard, func(string) string { return "" })
		if err := a.printLine("Thing", c.document); err != nil || out.String() != c.want+"\n" {
			t.Errorf("got %q, %v; want %q", out.String(), err, c.want)
		}
	}
}
