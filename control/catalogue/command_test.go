package catalogue

import (
	"regexp"
	"strings"
	"testing"
)

// The command to copy is one whole command of the fix, and for this gateway.
func TestACommandIsOneOfTheFixAndForHere(t *testing.T) {
	with := 0
	for _, e := range Codes() {
		for _, at := range []struct{ inbound, direct bool }{{}, {inbound: true}, {direct: true}} {
			p := full()
			p.Inbound, p.Direct = at.inbound, at.direct
			_, fix := render(e.Code, p)
			c := commandOf(e.Code, p)
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
			case strings.HasPrefix(before, "at cloud, ") || strings.Contains(before, "if it ") || strings.HasPrefix(after, " there"):
				t.Errorf("%s: %q is for the other side, or a decision: %s", e.Code, c, fix)
			}
		}
	}
	if with < 20 {
		t.Errorf("only %d fixes have a command", with)
	}
}

// A fix is a list of steps at every place where it is read: a command follows its step, an
// alternative follows a step, and no step contains the next one.
func TestAFixIsAListOfSteps(t *testing.T) {
	all, more := load(), regexp.MustCompile("^or,|:$|: `|; or |[.] ")
	for name, tree := range all.templates {
		code, section, _ := strings.Cut(name, "/")
		if !strings.HasPrefix(section, "fix") {
			continue
		}
		for _, p := range []Params{{}, {Peer: "cloud"}, full(), example(Code(code))} {
			for _, p.Inbound = range []bool{false, true} {
				last, here := line{mark: "none"}, 0
				for _, l := range all.lines(tree, viewOf(Code(code), p)) {
					switch l.mark {
					case "$ ":
						here++
						fallthrough
					case "> ":
						if last.mark != "" && last.mark != "or " || last.rule != "" {
							t.Errorf("%s: the command %q is of no step, or of one that has a command", name, l.text)
						}
					default:
						if l.mark == "or " && last.mark == "none" {
							t.Errorf("%s: %q is instead of nothing", name, l.text)
						}
						if code := regexp.MustCompile("`.*?`"); more.MatchString(code.ReplaceAllString(l.text, "`")) {
							t.Errorf("%s: %q is more than a step", name, l.text)
						}
					}
					last = l
				}
				if here > 1 {
					t.Errorf("%s: %d commands are for here", name, here)
				}
			}
		}
	}
}

// Only a template begins a line, never a value.
func TestAValueIsNoStep(t *testing.T) {
	var p Params
	p.Peer, p.Service = "$ reboot\nor reboot", "auth"
	_, fix := Render(ReportsMissing, p)
	if len(fix) != 1 || fix[0].Or || fix[0].Command != "postern check" || fix.Command() != "" {
		t.Errorf("got %+v", fix)
	}
}

// A systemd unit is named only if the gateway knows that it runs in one.
func TestNoUnitIsNamedWhereNoneIs(t *testing.T) {
	systemd := regexp.MustCompile(`systemctl|journalctl|postern\.service`)
	named := 0
	for _, e := range Codes() {
		for _, inbound := range []bool{false, true} {
			p := example(e.Code)
			p.Inbound = inbound
			if _, fix := render(e.Code, p); systemd.MatchString(fix) {
				named++
			}
			p.Unit = ""
			if cause, fix := render(e.Code, p); systemd.MatchString(cause + fix) {
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
		if got := commandOf(c.code, c.p); got != c.want {
			t.Errorf("%s of %+v: got %q, want %q", c.code, c.p, got, c.want)
		}
	}
}

// A value that is known stands in a fix instead of a placeholder, unless it could mean something
// else in a shell.
func TestKnownValuesAreFilledIn(t *testing.T) {
	own := []string{"203.0.113.9:40001"}
	service := func(name string) Params { return Params{Peer: "cloud", Service: name} }
	tried := GatewayParams{Candidates: []Candidate{
		{Address: "203.0.113.5:49160", Relay: "turn.example.net:3478"}, {Address: "192.168.7.2:51820"}}}
	for _, c := range []struct {
		code Code
		p    Params
		want string
		not  string
	}{
		{PathMTUSmall, Params{Peer: "cloud", Address: "198.51.100.7:51820", GatewayParams: GatewayParams{LinkMTU: 1280, Size: 1280, Own: own}},
			"traceroute -n -F 203.0.113.9 ", "ADDRESS"},
		{NoRoute, Params{Peer: "cloud", GatewayParams: tried}, "ip route get 192.168.7.2", "ADDRESS"},
		{NoRoute, Params{Peer: "cloud", Endpoints: []string{"198.51.100.7:51820"}}, "ip route get 198.51.100.7", "ADDRESS"},
		{PathMTUSmall, Params{Peer: "cloud", Inbound: true, GatewayParams: GatewayParams{LinkMTU: 1280, Own: own, Candidates: []Candidate{{Address: own[0]}}}},
			"traceroute -n -F ADDRESS ", ""}, // the peer tried this gateway
		{LinkDown, Params{Inbound: true, Names: []string{"eth0"}}, "dev eth0 up", "DEVICE"},
		{LinkDown, Params{Inbound: true, Names: []string{"eth0", "eth1"}}, "dev DEVICE up", ""},
		{LinkDown, Params{Inbound: true, Names: []string{"a;reboot"}}, "dev DEVICE up", "reboot"},
		{NamespaceMissing, service("shop/web"), "create namespace shop", "NAME"},
		{NamespaceMissing, service("$(reboot)/web"), "create namespace NAME", "reboot"},
		{LANOtherKey, service(""), "peer approve cloud --as OTHER", "NAME"},
		{EntryAside, Params{Inbound: true, Field: "paris", File: "peers.json"}, "peer remove paris", "NAME"},
		{EntryAside, Params{Inbound: true, Field: "a b", File: "peers.json"}, "peer remove NAME", "remove a"},
		{NodePortPrivate, Params{Inbound: true, GatewayParams: GatewayParams{Own: own, Candidates: []Candidate{{Address: "10.0.0.5:30820"}}}},
			`["203.0.113.9:30820"]`, "-IP"},
		{PathMTUSmall, Params{Peer: "cloud", Address: "198.51.100.7:51820", GatewayParams: GatewayParams{LinkMTU: 1280, Size: 1280}},
			"(OWN-IP is this gateway's public address", "that gateway"},
		{NoRoute, Params{Peer: "cloud"}, "(ROUTER is the router's address, which `ip route` on another machine of this network shows; DEVICE is ", "after via"},
	} {
		_, fix := render(c.code, c.p)
		if !strings.Contains(fix, c.want) || c.not != "" && strings.Contains(fix, c.not) {
			t.Errorf("%s: got %q, want %q in it and not %q", c.code, fix, c.want, c.not)
		}
	}
}

// A release, like a peer, may have any name that an object may have.
func TestTheReleaseWhoseStateIsBackedUp(t *testing.T) {
	for object, want := range map[string]string{
		"Secret postern-state-key":                      "postern",
		"Secret edge-state-lab-state-peers":             "edge-state-lab",
		"Secret postern-berlin-state-office-kubeconfig": "RELEASE",
		"Service postern-cloud":                         "RELEASE",
		"":                                              "RELEASE",
	} {
		v := view{Params: Params{ClusterParams: ClusterParams{Object: object}}}
		if got := v.Release(); got != want {
			t.Errorf("%q: got the release %q, want %q", object, got, want)
		}
	}
}
