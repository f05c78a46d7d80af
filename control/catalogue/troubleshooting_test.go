package catalogue

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

var update = flag.Bool("update", false, "write docs/troubleshooting.md")

// chapters are the ranges of codes in the order of the page.
var chapters = []struct{ prefix, title string }{
	{"PST01", "Gateway and path"},
	{"PST02", "Auth"},
	{"PST03", "API server and upstreams"},
	{"PST04", "NAT and exposure"},
	{"PST05", "TLS and identity"},
	{"PST06", "MTU"},
	{"PST07", "Configuration and state"},
	{"PST08", "Resources"},
	{"PST09", "Services of clusters"},
}

// docs/troubleshooting.md is the table of codes as a page. After a change of the table:
//
//	go test ./control/catalogue -run TestTroubleshootingPage -update
func TestTroubleshootingPageIsUpToDate(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "troubleshooting.md")
	want := troubleshooting()
	if n := strings.Count(want, "\n### PST"); n != len(Codes()) {
		t.Fatalf("the page has %d codes and the table %d: is a range missing in chapters?", n, len(Codes()))
	}
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is out of date: go test ./control/catalogue -run TestTroubleshootingPage -update", page)
	}
}

// troubleshooting renders the page. All sentences use the same values, since a cause without any is
// hard to recognize.
func troubleshooting() string {
	var b strings.Builder
	b.WriteString(`# Troubleshooting

<!-- Generated from the texts in control/catalogue by its tests. Do not edit. -->

` + "Run `postern check` and look the code up here. `postern check PEER` limits it to one peer, `-o json` is for scripts, and " +
		"`postern bundle` packs everything that somebody else needs to help you, without secrets.\n\n" +
		"A failure has one root: checks that fail because of it are `unknown` and name what they depend on, so start with the " +
		"check that has a code. Causes and fixes below are what a gateway prints, with example values: the peer is `cloud`, it was dialled at " +
		"198.51.100.7:51820, and this gateway is 203.0.113.9:51820. Yours are in the output of `postern check`. " +
		"Below each is how the check finds this fault, and what else to consider.\n")
	for _, c := range chapters {
		fmt.Fprintf(&b, "\n## %s\n", c.title)
		for _, e := range Codes() {
			if !strings.HasPrefix(string(e.Code), c.prefix) {
				continue
			}
			cause, fix := Render(e.Code, example(e.Code))
			fmt.Fprintf(&b, "\n### %s %s\n\n", e.Code, e.Title)
			fmt.Fprintf(&b, "**Cause:** %s.\n\n**Fix:**\n\n%s\n**Found:** %s\n\n**Consider:** %s\n", plain(cause), list(fix), e.Found, e.Consider)
		}
	}
	return b.String()
}

// list numbers the steps; an alternative is indented below its step.
func list(fix api.Steps) string {
	var b strings.Builder
	number := 0
	for _, s := range fix {
		begin := "   - or "
		if !s.Or {
			number++
			begin = fmt.Sprintf("%d. ", number)
		}
		fmt.Fprintf(&b, "%s%s\n", begin, plain(api.Steps{{Text: s.Text, Command: s.Command}}.String()))
	}
	return b.String()
}

// plain escapes brackets, stars and angle brackets outside of code.
func plain(s string) string {
	parts := strings.Split(s, "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = strings.NewReplacer("[", `\[`, "]", `\]`, "*", `\*`, "<", "&lt;", ">", "&gt;", "_", `\_`).Replace(parts[i])
	}
	return strings.Join(parts, "`")
}
