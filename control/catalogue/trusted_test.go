package catalogue

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// plantAll sets every field, however deeply it is nested.
func plantAll(t *testing.T, v reflect.Value, text string) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint16, reflect.Uint64:
		v.SetUint(7)
	case reflect.Float64:
		v.SetFloat(0.07)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		plantAll(t, v.Index(0), text)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(noon))
			return
		}
		for i := range v.NumField() {
			plantAll(t, v.Field(i), text)
		}
	default:
		t.Fatalf("a field of kind %s: say in trusted and here what becomes of it", v.Kind())
	}
}

// fields returns the fields of parameters, without the embedded structs.
func fields(v reflect.Value) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.Anonymous {
			out[f.Name] = v.Field(i)
			continue
		}
		for name, inner := range fields(v.Field(i)) {
			out[name] = inner
		}
	}
	return out
}

// The marked fields that contain text are listed here, each with the reason why the text is not the
// peer's.
func TestOnlyMarkedFieldsReachAFix(t *testing.T) {
	texts := map[string]string{
		"Peer": "the reader's name of the peer", "Service": "the target, a fixed word", "Own": "the reader's own addresses", "Set": "those of them that it configured",
		"Reached":   "where the reader reaches the writer",
		"Endpoints": "those of the reader's own", "Candidates": "those of the reader's own",
		"NAT": "the reader's, fixed words", "PeerNAT": "fixed words", "Failure": "a fixed word", "Beside": "a fixed word",
		"User": "whom the reader issues to", "RootCode": "a code of the catalogue",
	}
	var p Params
	plantAll(t, reflect.ValueOf(&p).Elem(), "planted")
	p.Own, p.Set = nil, nil
	if got := p.trusted(); got.From != elsewhere {
		t.Errorf("From is %q, want %q", got.From, elsewhere)
	}
	p.Own = []string{"planted"}
	got := p.trusted()
	if got.From != p.Own[0] {
		t.Errorf("From is %q, want an address of the reader's: %q", got.From, p.Own[0])
	}
	got.From = ""
	kept := 0
	for name, v := range fields(reflect.ValueOf(got)) {
		if v.IsZero() {
			delete(texts, name)
			continue
		}
		kept++
		if planted := slices.Contains(append(deepTexts(v), ""), "planted"); planted && texts[name] == "" {
			t.Errorf("%s is marked as fit for a fix, and holds a text of the writer's", name)
		}
	}
	if kept < 20 {
		t.Errorf("only %d fields are kept: fixes would have no numbers", kept)
	}
}

func deepTexts(v reflect.Value) (out []string) {
	switch v.Kind() {
	case reflect.String:
		return []string{v.String()}
	case reflect.Slice:
		for i := range v.Len() {
			out = append(out, deepTexts(v.Index(i))...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type() != reflect.TypeFor[time.Time]() {
				out = append(out, deepTexts(v.Field(i))...)
			}
		}
	}
	return out
}

// An unmarked field, such as a new one, is the peer's.
func TestAnUnmarkedFieldIsCleared(t *testing.T) {
	p := struct {
		Next   string
		Number int
		Name   string `report:"fix"`
		Inner
	}{"planted", 1, "edge", Inner{"planted", 2}}
	keepTagged(reflect.ValueOf(&p).Elem())
	if p.Next != "" || p.Number != 0 || p.Server != "" || p.Name != "edge" || p.Sent != 2 {
		t.Errorf("got %+v", p)
	}
}

// Inner is embedded in the parameters of a test.
type Inner struct {
	Server string
	Sent   int `report:"fix"`
}

// No text in any field of a report reaches a fix or a command.
func TestNoTextOfAReportReachesAFix(t *testing.T) {
	for _, e := range Codes() {
		var p Params
		plantAll(t, reflect.ValueOf(&p).Elem(), "192.0.2.66:666")
		p.Peer, p.Service, p.Inbound, p.Own, p.Set, p.Endpoints, p.Candidates, p.User = "edge", "auth", true, nil, nil, nil, nil, ""
		p.Reached, p.Failure, p.Beside, p.NAT, p.PeerNAT = "", FailureTimeout, BesideWorks, NAT{}, NAT{}
		_, fix := render(e.Code, p)
		if command := commandOf(e.Code, p); strings.Contains(fix+command, "192.0.2.66") || strings.Contains(fix+command, "666") {
			t.Errorf("%s: %q", e.Code, fix)
		}
	}
}
