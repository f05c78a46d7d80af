package catalogue

import (
	"regexp"
	"strings"
	"testing"
)

// What is copied is one command of the fix, whole and for here.
func TestACommandIsOneOfTheFixAndForHere(t *testing.T) {
	with := 0
	for _, e := range Codes() {
		for _, at := range []struct{ inbound, direct bool }{{}, {inbound: true}, {direct: true}} {
			p := full()
			p.Inbound, p.Direct = at.inbound, at.direct
			_, fix := Render(e.Code, p)
			c := Command(e.Code, p)
			if c == "" {
				continue
			}
			with++
			before, after, found := strings.Cut(fix, "`"+c+"`")
			switch {
			case !found || strings.Contains(before+after, "`"):
				t.Errorf("%s: %q is not the one command of %q", e.Code, c, fix)
			case placeholder.MatchString(c):
				t.Errorf("%s: %q has to be completed first", e.Code, c)
			case strings.HasPrefix(before, "at cloud ") || strings.Contains(before, "if it ") || strings.HasPrefix(after, " there"):
				t.Errorf("%s: %q is for the other side, or a decision: %s", e.Code, c, fix)
			}
		}
	}
	if with < 20 {
		t.Errorf("only %d fixes have a command", with)
	}
}

// A unit of systemd is named only where the gateway knows that it runs in one.
func TestNoUnitIsNamedWhereNoneIs(t *testing.T) {
	systemd := regexp.MustCompile(`systemctl|journalctl|postern\.service`)
	named := 0
	for _, e := range Codes() {
		for _, inbound := range []bool{false, true} {
			p := example(e.Code)
			p.Inbound = inbound
			if _, fix := Render(e.Code, p); systemd.MatchString(fix) {
				named++
			}
			p.Unit = ""
			if cause, fix := Render(e.Code, p); systemd.MatchString(cause + fix) {
				t.Errorf("%s, inbound %v: %s; %s", e.Code, inbound, cause, fix)
			}
		}
	}
	if named == 0 {
		t.Error("no fix names the unit that there is")
	}
}

func TestCommandsByPerspective(t *testing.T) {
	inbound, keyed := Params{Peer: "cloud", Inbound: true}, Params{Peer: "cloud"}
	inbound.Port, keyed.Key = 51999, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	for _, c := range []struct {
		code Code
		p    Params
		want string
	}{
		{NotHeardByPeer, inbound, "nft insert rule inet filter input udp dport 51999 accept"},
		{NotHeardByPeer, Params{Peer: "cloud"}, ""},
		{APIServerHTTP, inbound, "kubectl get --raw '/livez?verbose'"},
		{APIServerHTTP, Params{Peer: "cloud"}, ""},
		{WrongPeerKey, Params{Peer: "cloud"}, "postern key pub"},
		{WrongPeerKey, keyed, ""},
		{AuthDenied, Params{Peer: "cloud"}, ""},
		{NotGranted, inbound, ""},
		{TicketAlarm, inbound, ""},
		{ConfigRefused, Params{File: "gateway.yaml"}, "postern config validate gateway.yaml"},
		{ConfigRefused, Params{}, ""},
		{PeerSilent, Params{Peer: "cloud", Endpoints: []string{"198.51.100.7:51820"}}, ""},
		{CPUThrottled, Params{Inbound: true, ResourceParams: ResourceParams{Unit: "edge.service"}}, "systemctl set-property edge.service CPUQuota=200%"},
		{CPUThrottled, Params{Inbound: true}, ""},
		{"PST0999", inbound, ""},
	} {
		if got := Command(c.code, c.p); got != c.want {
			t.Errorf("%s of %+v: got %q, want %q", c.code, c.p, got, c.want)
		}
	}
}
