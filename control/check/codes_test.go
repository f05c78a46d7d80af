package check

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// full has a value for every parameter.
func full() Params {
	return Params{Peer: "cloud", Service: "apiServer", Address: "[fd12::1]:6443",
		Endpoints: []string{"198.51.100.7:51820"}, Upstream: "10.0.0.5:6443",
		ServerName: "kubernetes.default.svc", Names: []string{"api.example.net"}, Issuer: "other-ca",
		Status: 503, Path: "/livez", Age: 95 * time.Second, Timeout: 5 * time.Second,
		NotBefore: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), NotAfter: time.Date(2026, 2, 2, 3, 4, 5, 0, time.UTC),
		Version: "2.0", OwnVersion: "1.0", Limit: 1024, File: "gateway.yaml", Line: 12,
		Field: "spec.peers[0].publicKey", Detail: "connect: connection refused"}
}

func TestEveryCodeIsInItsRangeOnceAndInOrder(t *testing.T) {
	form := regexp.MustCompile(`^PST0[1-8][0-9]{2}$`)
	var last Code
	for _, e := range Codes() {
		if !form.MatchString(string(e.Code)) {
			t.Errorf("%s has not the form of a code", e.Code)
		}
		if e.Code <= last {
			t.Errorf("%s follows %s", e.Code, last)
		}
		last = e.Code
	}
}

func TestEveryCauseAndFixIsASentenceWithValues(t *testing.T) {
	// What a fix may tell somebody to do: run a command, change a setting, let packets
	// through, upgrade or restart something.
	actionable := regexp.MustCompile("`|spec\\.|let (TCP|UDP)|upgrade|log of the gateway")
	for _, e := range Codes() {
		cause, fix := Render(e.Code, full())
		if !strings.Contains(cause, "cloud") && !strings.Contains(cause, "10.0.0.5:6443") &&
			!strings.Contains(cause, "gateway.yaml") && e.Code != TicketAlarm {
			t.Errorf("%s: the cause names neither the peer nor an address: %s", e.Code, cause)
		}
		if !actionable.MatchString(fix) {
			t.Errorf("%s: the fix names no command, rule or setting: %s", e.Code, fix)
		}
		for what, text := range map[string]string{"cause": cause, "fix": fix} {
			if text == "" || strings.Contains(text, "%!") || strings.Contains(text, "  ") || strings.HasSuffix(text, ".") {
				t.Errorf("%s: badly formed %s: %q", e.Code, what, text)
			}
		}
		if bare, _ := Render(e.Code, Params{}); strings.Contains(bare, "%!") {
			t.Errorf("%s: cause without parameters: %q", e.Code, bare)
		}
	}
}

func TestReadmeAndTableOfCodesAreEqual(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	heading := regexp.MustCompile(`(?m)^### (PST\d{4}) (.+)$`)
	sections := heading.FindAllStringSubmatchIndex(string(readme), -1)
	var described []string
	for i, m := range sections {
		code, title := string(readme[m[2]:m[3]]), string(readme[m[4]:m[5]])
		described = append(described, code+" "+title)
		end := len(readme)
		if i+1 < len(sections) {
			end = sections[i+1][0]
		}
		for _, part := range []string{"**Found:**", "**Mend:**"} {
			if !strings.Contains(string(readme[m[1]:end]), part) {
				t.Errorf("README.md: %s has no %s", code, part)
			}
		}
	}
	var table []string
	for _, e := range Codes() {
		table = append(table, string(e.Code)+" "+e.Title)
	}
	for _, line := range table {
		if !slices.Contains(described, line) {
			t.Errorf("README.md lacks the heading %q", "### "+line)
		}
	}
	for _, line := range described {
		if !slices.Contains(table, line) {
			t.Errorf("README.md describes %q, which the table has not", line)
		}
	}
	if !slices.IsSorted(described) {
		t.Error("README.md: the codes are out of order")
	}
}

func TestForeignTextCannotDrawOnTheScreen(t *testing.T) {
	p := full()
	p.Detail = "bad\x1b[2J\x1b]0;title\x07 \u202eesrever\u202c line\nnext\x00" + strings.Repeat("x", 1000)
	p.Names = []string{"a\x1b[31m.example"}
	for _, e := range Codes() {
		cause, fix := Render(e.Code, p)
		for _, text := range []string{cause, fix} {
			if strings.ContainsAny(text, "\x1b\x07\x00\n\u202e\u202c") {
				t.Errorf("%s: control characters in %q", e.Code, text)
			}
			if len(text) > 4*maxText {
				t.Errorf("%s: %d bytes of text", e.Code, len(text))
			}
		}
	}
	if got, want := cleanText("a\tb\nc\x1b[0m\u200bd"), "a b c[0md"; got != want {
		t.Errorf("cleanText: got %q, want %q", got, want)
	}
}

func TestAnUnknownCodeIsNamed(t *testing.T) {
	cause, fix := Render("PST0999", Params{})
	if !strings.Contains(cause, "PST0999") || fix == "" {
		t.Errorf("got %q, %q", cause, fix)
	}
}
