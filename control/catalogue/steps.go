package catalogue

import (
	"regexp"
	"slices"
	"strings"
	"text/template/parse"

	"github.com/postern-dev/postern/control/api"
)

// placeholder is a word in a command that the reader has to replace.
var placeholder = regexp.MustCompile(`\b(NAME|FILE|DEVICE|ADDRESS|ROUTER|HOST|PORT|IP)\b`)

// meanings say where to get what a placeholder stands for, where a fix does not say it itself ("NAME is
// …"). PEER is the peer's name.
var meanings = []struct{ word, of string }{
	{"ADDRESS", "an address of PEER, which `postern path PEER` shows"},
	{"PUBLIC-IP", "that gateway's public address, which `postern netcheck` on it shows"},
	{"OWN-IP", "this gateway's public address, which `postern netcheck` here shows"},
	{"IP:PORT", "where that gateway listens, which `postern netcheck` on it shows"},
	{"PORT", "a free port"},
	{"DEVICE", "an interface that `ip -brief link` lists"},
	{"ROUTER", "the router's address, which is after via in `ip route`"},
	{"NAME", "the peer's name in `postern peer list`"},
	{"OTHER", "a name that no peer here has"},
	{"SERVICE", "what the cause names"},
	{"SERVICES", "a list such as auth,apiServer"},
	{"FILE", "the path of that file"},
	{"DOMAIN", "one of spec.discovery.dns.domains"},
	{"HOST", "a name or address that is reached from here"},
	{"RELEASE", "the name in `helm list -A`"},
	{"CHART", "what the release was installed from"},
	{"POD", "the name in `kubectl get pods -A`"},
	{"NAMESPACE", "that of the object"},
	{"ACCOUNT", "the gateway's ServiceAccount"},
	{"RESOURCE", "what the cause names"},
	{"KIND", "what the cause names"},
	{"USER", "shown by `postern peer show`"},
}

// steps returns the steps of a fix, by the marks of its lines.
func (c *catalogue) steps(t *parse.Tree, v *view) api.Steps {
	var out api.Steps
	for _, l := range c.lines(t, v) {
		switch l.mark {
		case "$ ", "> ":
			if last := len(out) - 1; last >= 0 { // a test checks that a step without a command precedes it
				out[last].Command, out[last].Here = l.text, l.mark == "$ " && !placeholder.MatchString(l.text)
			}
		default:
			out = append(out, api.Step{Text: l.text, Command: l.rule, Or: l.mark == "or "})
		}
	}
	explain(out, v)
	return out
}

// explain adds what placeholders mean to the first step with each, in one pair of brackets.
func explain(steps api.Steps, v *view) {
	text := steps.String()
	for _, m := range meanings {
		if !strings.Contains(text, m.word) || strings.Contains(text, m.word+" is ") {
			continue
		}
		word := regexp.MustCompile(`\b` + m.word + `\b`)
		i := slices.IndexFunc(steps, func(s api.Step) bool { return word.MatchString(s.Text + " " + s.Command) })
		if i < 0 {
			continue
		}
		of := strings.ReplaceAll(m.of, "PEER", v.Peer)
		if m.word == "ADDRESS" && v.Peer == "" {
			of = "an address outside, such as 1.1.1.1"
		}
		said := m.word + " is " + of
		if before, bracketed := strings.CutSuffix(steps[i].Text, ")"); bracketed {
			steps[i].Text = before + "; " + said + ")"
		} else {
			steps[i].Text += " (" + said + ")"
		}
		text += said
	}
}
