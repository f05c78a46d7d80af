package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestATokenShowsItselfToNobody(t *testing.T) {
	const secret = "eyJ.planted.secret"
	f := Facts{ServiceFacts: ServiceFacts{Token: secret, Direct: DirectFacts{Token: secret}}}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "token", f.Token, "facts", f.ServiceFacts)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "token", f.Token, "facts", f.ServiceFacts)
	doc, err := json.Marshal(f.ServiceFacts)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"%v": fmt.Sprintf("%v", f), "%+v": fmt.Sprintf("%+v", f), "%#v": fmt.Sprintf("%#v", f.ServiceFacts),
		"String": f.Token.String(), "%q": fmt.Sprintf("%q", f.Token), "JSON": string(doc), "the log": log.String()} {
		if strings.Contains(text, "planted") {
			t.Errorf("%s shows the token: %s", what, text)
		}
	}
	if Token("").String() != "" {
		t.Error("no token looks like one")
	}
}

func TestWhenATokenExpires(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for token, want := range map[Token]time.Time{
		jwt(at):            at,
		"opaque":           {},
		"a.b.c":            {},
		"":                 {},
		"e30.e30.sig":      {}, // no exp
		"e30.bm8ganNvbg.x": {}, // not JSON
	} {
		if got := token.expires(); !got.Equal(want) {
			t.Errorf("%q: got %s, want %s", string(token), got, want)
		}
	}
}
