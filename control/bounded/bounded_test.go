package bounded

import (
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

type item struct {
	Address netip.AddrPort `json:"address" max:"60"`
	Source  string         `json:"source" max:"4"`
}

type common struct {
	Version string `json:"version" max:"8"`
}

type message struct {
	common
	Names []string          `json:"names" max:"2x5"`
	Items []item            `json:"items" max:"2"`
	Ports map[string]uint16 `json:"ports" max:"1x3"`
	Proof []byte            `json:"proof" max:"3"`
	Count int               `json:"count" max:"10"`
	Share float64           `json:"share" max:"1"`
	At    time.Time         `json:"at" max:"40"`
	Next  *item             `json:"next"`
	On    bool              `json:"on"`
}

func TestWhatIsWithinTheBoundsIsRead(t *testing.T) {
	for _, text := range []string{
		`{}`, `null`, ` {"version":"1.0"} `,
		`{"names":["a","bcdef"],"items":[{"address":"192.0.2.1:1","source":"host"}],"ports":{"abc":65535},
		  "proof":"AQID","count":10,"share":1,"at":"2026-03-02T12:00:00Z","next":{"source":"x"},"on":true}`,
		`{"later":{"a":[1,{"b":[[[]]]}],"c":null},"and":"` + strings.Repeat("x", 900) + `"}`,
		`{"a":{"x":1},"b":{"x":1},"c":[{"x":1},{"x":1}],"d":["x","x"],"x":"x"}`,
	} {
		var m message
		if err := Unmarshal([]byte(text), 1000, &m); err != nil {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}

func TestWhatIsBeyondTheBoundsIsNot(t *testing.T) {
	for name, c := range map[string]struct{ text, tells string }{
		"nothing":               {``, "none"},
		"no JSON":               {`hello`, "none"},
		"half":                  {`{"version":`, "breaks off"},
		"two documents":         {`{}{}`, "more than one"},
		"two, with a blank":     {`1 2`, "more than one"},
		"too long":              {`{"x":"` + strings.Repeat("x", 1<<16) + `"}`, "longer than 65536 bytes"},
		"too deep":              {strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1), "deep"},
		"far too deep":          {strings.Repeat(`{"a":`, 9000), "deep"},
		"too many values":       {`[` + strings.Repeat("0,", maxValues) + `0]`, "more than 8192 values"},
		"a long key":            {`{"` + strings.Repeat("k", maxKey+1) + `":1}`, "key"},
		"a key twice":           {`{"version":"1","version":"2"}`, "twice"},
		"twice by case":         {`{"version":"1","VERSION":"2"}`, "twice"},
		"twice by an escape":    {`{"version":"1","ver\u0073ion":"2"}`, "twice"},
		"twice by folding":      {`{"version":"1","ver` + "\u017f" + `ion":"2"}`, "twice"},
		"twice in what is new":  {`{"later":[{"a":1,"a":2}]}`, "twice"},
		"not in UTF-8":          {"{\"version\":\"\xff\"}", "UTF-8"},
		"another type":          {`{"version":1}`, "version has another type"},
		"a list for a message":  {`[]`, "not what it should be"},
		"a long text":           {`{"version":"123456789"}`, "version is more than 8"},
		"too many names":        {`{"names":["","",""]}`, "names is more than 2"},
		"a long name":           {`{"names":["123456"]}`, "names is more than 5"},
		"too many items":        {`{"items":[{},{},{}]}`, "items is more than 2"},
		"a long text in one":    {`{"items":[{"source":"12345"}]}`, "items.source is more than 4"},
		"no address":            {`{"items":[{"address":"x"}]}`, "what it should be"},
		"a zone without end":    {`{"items":[{"address":"[fe80::1%` + strings.Repeat("z", 99) + `]:1"}]}`, "items.address"},
		"too many ports":        {`{"ports":{"a":1,"b":2}}`, "ports is more than 1"},
		"a long key of a map":   {`{"ports":{"abcd":1}}`, "ports is more than 3"},
		"a port too high":       {`{"ports":{"a":65536}}`, "out of range"},
		"long bytes":            {`{"proof":"AQIDBA=="}`, "proof is more than 3"},
		"a number too high":     {`{"count":11}`, "count is more than 10"},
		"a number too low":      {`{"count":-1}`, "count is below 0"},
		"no such number":        {`{"count":1e400}`, "count has another type"},
		"a share too high":      {`{"share":1.01}`, "share is out of range"},
		"a share too low":       {`{"share":-0.1}`, "share is out of range"},
		"a time that is none":   {`{"at":"99999-01-01T00:00:00Z"}`, "what it should be"},
		"through a pointer":     {`{"next":{"source":"12345"}}`, "next.source"},
		"hostile text, no type": {`{"count":"\u001b[2J$(reboot)"}`, "count"},
	} {
		var m message
		err := Unmarshal([]byte(c.text), 1<<16, &m)
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.tells) {
			t.Errorf("%s: got %v, want one that says %q", name, err, c.tells)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\x1b$\"") {
			t.Errorf("%s: the error repeats the input: %q", name, err)
		}
	}
}

func TestAFieldWithoutABoundIsReadFromNobody(t *testing.T) {
	type open struct {
		Known string            `json:"known" max:"1"`
		Text  string            `json:"text"`
		List  []string          `json:"list" max:"4"`
		Items []item            `json:"items" max:"1"`
		Map   map[string]string `json:"map" max:"4"`
		Next  *struct{ Number int }
		When  time.Time `json:"when"`
	}
	want := []string{"text", "list", "map", "map", "Next.Number", "when"}
	if got := Unbounded(reflect.TypeFor[open]()); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := Unbounded(reflect.TypeFor[message]()); got != nil {
		t.Errorf("fields of a message with bounds: %v", got)
	}
	for _, text := range []string{`{"text":"x"}`, `{"list":["x"]}`, `{"map":{"x":"y"}}`, `{"Next":{"Number":1}}`} {
		var v open
		if err := Unmarshal([]byte(text), 99, &v); err == nil {
			t.Errorf("%s was read", text)
		}
	}
}

// FuzzUnmarshal checks that every accepted document is within the bounds.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"version":"1.0","names":["a"],"items":[{"address":"192.0.2.1:1","source":"host"}],"ports":{"a":1}}`))
	f.Add([]byte(`{"version":"1","version":"2"}`))
	f.Add([]byte(`[[[[[[[[[[[[[[[[[[`))
	f.Add([]byte(`{"count":1e9,"proof":"AQID"}{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m message
		if err := Unmarshal(data, 4<<10, &m); err != nil {
			if !errors.Is(err, ErrMalformed) || len(err.Error()) > 200 {
				t.Errorf("error %q", err)
			}
			return
		}
		if !json.Valid(data) || len(data) > 4<<10 {
			t.Error("it is no JSON, or too long")
		}
		if len(m.Version) > 8 || len(m.Names) > 2 || len(m.Items) > 2 || len(m.Ports) > 1 || len(m.Proof) > 3 || m.Count < 0 || m.Count > 10 {
			t.Errorf("out of bounds: %+v", m)
		}
	})
}
