package catalogue

import (
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tunnel/foreign"
)

// full returns a value for every parameter.
func full() Params {
	p := Params{Peer: "cloud", Service: "apiServer", Address: "[fd12::1]:6443",
		Endpoints: []string{"198.51.100.7:51820"}, Upstream: "10.0.0.5:6443",
		ServerName: "kubernetes.default.svc", Names: []string{"api.example.net"}, Issuer: "other-ca", Authorities: []string{"cluster-ca"},
		Status: 503, Path: "/livez", Age: 95 * time.Second, Timeout: 5 * time.Second,
		NotBefore: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), NotAfter: time.Date(2026, 2, 2, 3, 4, 5, 0, time.UTC),
		Version: "2.0", OwnVersion: "1.0", Limit: 1024, File: "gateway.yaml", Line: 12,
		Field: "spec.peers[0].publicKey", Detail: "connect: connection refused"}
	p.GatewayParams = GatewayParams{From: "198.51.100.7:40582", By: "192.0.2.254", Seen: p.NotBefore, Own: []string{"203.0.113.9:51820"}, Port: 51820,
		Candidates: []Candidate{{Address: "198.51.100.7:51820", Source: api.SourceAdvertised, State: "failed", Reason: "no answer to 12 probes"}},
		Stamp:      p.NotBefore, Newest: p.NotAfter, Was: []string{"198.51.100.7"}, Now: []string{"198.51.100.8"},
		Sent: 200, Lost: 11, Loss: 0.021, Rate: 2.5e6, Jitter: time.Millisecond, MTU: 1216, LinkMTU: 1420, Size: 1340,
		NAT: NAT{"endpoint-independent", "address-dependent"}, PeerNAT: NAT{Mapping: "address-dependent"},
		Relay: "turn.example.net:3478", Server: "stun.example.net:3478", Skew: 3 * time.Minute}
	p.ClusterParams = ClusterParams{Namespace: "postern", Object: "Service postern", Account: "postern:postern", Verbs: "list", Resource: "nodes",
		Manager: "argocd-controller", Reverts: 4, Hold: 20 * time.Second}
	p.DiscoveryParams = DiscoveryParams{PeerName: "cloud", Domain: "example.com", Record: "TXT cloud._postern._udp.example.com", Known: "aaaa-bbbb", Found: "cccc-dddd",
		Router: "192.168.1.1", Mapped: "203.0.113.9:51820"}
	p.RootParams = RootParams{Root: "gateway", RootCode: PeerSilent, RootOutcome: "error"}
	p.ResourceParams = ResourceParams{Used: 65536, Max: 262144, Unit: "postern.service", Drops: 12}
	return p
}

// details are error texts beside the code; most causes read better without.
var details = map[Code]string{
	NoRoute: "network unreachable", SendProhibited: "administratively prohibited",
	RouterRefuses: "administratively prohibited", NextHopSilent: "host unreachable", ResolverSilent: "i/o timeout",
	AuthBroken: "connection reset by peer", APIServerBroken: "connection reset by peer",
	AuthURLUnreachable: "connection refused", APIServerURLUnreachable: "connection refused",
	UpstreamUnreachable: "no route to host", PeerServiceDown: "connection reset by peer",
	TurnUnreachable: "401 Unauthorized", ServicePort: "TCP 51820 (to 51820)",
	LANNotJoined: "address already in use", LANRecord: "it has no public key",
	DomainUnanswered: "192.0.2.53: no answer", RecordUnusable: "it has no public key", RecordForged: "signature expired",
	TLSFailed:     "first record does not look like a TLS handshake",
	LocalListener: "address already in use", ConfigRefused: "it is not a key", ConfigUndone: "nobody confirmed it by 2026-01-02 03:04:05Z",
	NotStored: "no space left on device", StateUnwritable: "no space left on device", StateNotKept: "i/o timeout",
	ClusterSilent: "i/o timeout", ClusterRefuses: `services "postern-cloud" is forbidden: exceeded quota: small`, PeerRefused: "spec.publicKey: it is not a key", SecretUnusable: "it has no such key",
	TicketRefused:  "the ticket has expired",
	ServiceRefused: "a port is listed twice", ExportRefused: "it has 65 ports, more than 64",
	ImportMissing: "shop/web:8080", OverlayNotStored: "no space left on device", NoBackendReady: "connect: connection refused",
	ClustersetSilent: "lookup web.shop.svc.clusterset.local. on 10.96.0.10:53: server misbehaving",
}

// example returns full with likely values for the code.
func example(c Code) Params {
	p := full()
	p.Detail = details[c]
	switch c {
	case NoRoute, SendProhibited, RouterRefuses, NextHopSilent, Unanswered:
		p.Address, p.Candidates[0].Reason = "198.51.100.7:51820", p.Detail
		p.Age, p.Seen = 6*time.Second, time.Time{}
	case LinkDown, LANNoInterface, LANNotJoined, LANSilent, LANPod:
		p.Names = []string{"eth0"}
	case LANRecord:
		p.Names = []string{"cloud"}
	case ProxyRefuses:
		p.Server, p.Names = "proxy.example.net:3128", []string{"turn.example.net:443"}
	case NothingListens:
		p.Address = "198.51.100.7:51820"
	case NothingAnswers:
		p.Address = "192.0.2.53:3478"
		p.Candidates = []Candidate{{Address: p.Address, Reason: "no answer in 3s"}}
	case ResolverSilent:
		p.Names, p.Resolvers, p.Failure = []string{"cloud.example.net:51820"}, []string{"10.96.0.10"}, ""
	case UpstreamName:
		p.Upstream = "api.example.net:6443"
	case StunUnreachable:
		p.Address = "192.0.2.53:3478"
	case TurnUnreachable:
		p.Server, p.Address = p.Relay, "192.0.2.54:3478"
	case StunOutvoted:
		p.Address, p.Mapped, p.Own = "192.0.2.53:3478", "192.0.2.77", []string{"203.0.113.9"}
	case AuthDenied:
		p.Status, p.Path = 403, "/v1/hello"
	case AuthHTTP:
		p.Path = "/v1/hello"
	case IdentityMissing:
		p.Status = 401
	case CSRDenied, CSRFailed, CSRUnsigned:
		p.Object = "postern-cloud"
	case CSRForbidden:
		p.Verbs, p.Resource = "create", "certificatesigningrequests.certificates.k8s.io"
	case CRDMissing:
		p.Resource = "peers"
	case ClusterForbidden, ClusterSilent:
		p.Resource = "peers.postern.dev"
	case EndpointOfAnother:
		p.PeerName, p.Address = "berlin", "198.51.100.8:51820"
	case NoBackendReady:
		p.Service, p.Upstream, p.Failure = "shop/web:80", "10.244.0.5:8080", FailureRefused
	case ClusterRefuses:
		p.Object, p.Failure = "Service postern-cloud", FailureQuota
	case PeerRefused, PeerDuplicate, PeerNotInState, GrantWithoutUse:
		p.Object, p.Upstream = "Peer cloud", "Peer edge"
	case MappingInside:
		p.Mapped = "100.64.0.9:51820"
	case StateDamaged, NotStored:
		p.File = "peers.json"
	case StateExposed:
		p.File = "/var/lib/postern"
	case StateDeleted:
		p.Names = []string{"postern-state-key"}
	case ObjectReverted:
		p.Object, p.Names = "Service postern-cloud", []string{"Service postern-cloud"}
	case SecretUnusable:
		p.Object, p.File, p.Field = "Peer cloud", "cloud-psk", "presharedKey"
	case TicketRefused:
		p.Object, p.Field = "Ticket cloud", "cloud"
	case PeerHalfOpenLimit:
		p.Limit = 128
	case TotalFlowLimit:
		p.Limit = 4096
	case PeerRateLimit:
		p.Limit = 50
	case ClientLimit:
		p.From = "10.0.0.9"
	case MemoryNear:
		p.Used, p.Max = 240<<20, 256<<20
	case CPUThrottled:
		p.Used, p.Max = 420, 950
	case UnknownKey:
		p.Limit = 3
	case PacketsLost:
		p.Size = 0 // few large ones are sent
	case PathMTUSmall:
		p.Sent, p.Lost = 4, 4
	case Intermittent:
		p = example(APIServerTimeout)
		p.RootCode, p.RecentParams = APIServerTimeout, RecentParams{Checks: 20, Failures: 4, LastFailure: 40 * time.Second}
	case PathInterrupted:
		p.Interruptions, p.Period, p.Longest, p.Age = 9, 25*time.Second, 8*time.Second, 4*time.Minute
	case PeerRestarts:
		p.Starts = 5
	case SocketsUsedUp:
		p.Detail = "too many open files"
	case ProcessStarved:
		p.Took = 800 * time.Millisecond
	}
	if strings.HasPrefix(string(c), "PST09") {
		p.Service, p.Limit, p.Record, p.Now = "shop/web", 2000, "web.shop.svc.clusterset.local.", []string{"10.96.0.8"}
		if strings.HasPrefix(string(c), "PST092") {
			p.Server, p.Address = "", ""
		}
	}
	return p
}

// render returns the texts of a code with the fix as text, and commandOf its command.
func render(c Code, p Params) (cause, fix string) {
	cause, steps := Render(c, p)
	return cause, steps.String()
}

func commandOf(c Code, p Params) string {
	_, steps := Render(c, p)
	return steps.Command()
}

func TestEveryCodeIsInItsRangeOnceAndInOrder(t *testing.T) {
	form := regexp.MustCompile(`^PST0[1-9][0-9]{2}$`)
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
	// What a fix may say: run a command, change a setting, let packets through, upgrade or restart
	// something.
	actionable := regexp.MustCompile("`|spec\\.|let (TCP|UDP)|upgrade|log of (the|this) gateway")
	for _, e := range Codes() {
		cause, fix := render(e.Code, full())
		if !strings.Contains(cause, "cloud") && !strings.Contains(cause, "10.0.0.5:6443") &&
			!strings.Contains(cause, "gateway.yaml") && !strings.Contains(cause, "stun.example.net:3478") &&
			!strings.Contains(cause, thisGateway) && e.Code != TicketAlarm {
			t.Errorf("%s: the cause names neither the peer nor an address: %s", e.Code, cause)
		}
		if !actionable.MatchString(fix) {
			t.Errorf("%s: the fix names no command, rule or setting: %s", e.Code, fix)
		}
		for what, text := range map[string]string{"cause": cause, "fix": fix} {
			if text == "" || strings.Contains(text, "gateway of this gateway") || strings.Contains(text, "%!") || strings.Contains(text, "  ") || strings.HasSuffix(text, ".") {
				t.Errorf("%s: badly formed %s: %q", e.Code, what, text)
			}
		}
		if bare, _ := render(e.Code, Params{}); strings.Contains(bare, "%!") {
			t.Errorf("%s: cause without parameters: %q", e.Code, bare)
		}
	}
}

// The reader of a verdict finds steps for his own end by "here", and is never sent to the other end
// for them. Every sentence describes the same fault from both ends.
func TestEveryEntryReadsRightAtBothEnds(t *testing.T) {
	elsewhere := regexp.MustCompile(`(^|, |; )at cloud |(^|, |; )see that the gateway of cloud`)
	// Faults that a service's user finds and its owner reads about in a report.
	ofService := regexp.MustCompile(`^PST0(20[1-8]|30[1-8]|50[1-7])$`)
	for _, e := range Codes() {
		p := full()
		if ofService.MatchString(string(e.Code)) {
			p.Upstream = ""
		}
		cause, fix := render(e.Code, p)
		p.Inbound = true
		inCause, inFix := render(e.Code, p)
		for what, text := range map[string]string{"cause": inCause, "fix": inFix} {
			if text == "" || strings.Contains(text, "%!") || strings.Contains(text, "  ") || strings.HasSuffix(text, ".") {
				t.Errorf("%s: badly formed inbound %s: %q", e.Code, what, text)
			}
		}
		if elsewhere.MatchString(inFix) || strings.Contains(inFix, "NAME is") {
			t.Errorf("%s: the inbound fix sends its reader away: %s", e.Code, inFix)
		}
		if !ofService.MatchString(string(e.Code)) {
			continue
		}
		if inCause == cause {
			t.Errorf("%s: the cause does not say whose service it is: %s", e.Code, cause)
		}
		if !strings.Contains(cause, "cloud") || !strings.Contains(inCause, "cloud") && !strings.Contains(inFix, "cloud") {
			t.Errorf("%s: the other gateway is not named: %q, inbound %q (%q)", e.Code, cause, inCause, inFix)
		}
		if strings.Contains(inCause, "of cloud at") || !strings.Contains(inCause, thisGateway) {
			t.Errorf("%s: inbound it is this gateway's service: %s", e.Code, inCause)
		}
		if strings.Contains(fix, " here run") || strings.HasPrefix(fix, "here run") {
			t.Errorf("%s: outbound, what is to be run at the peer reads as if it were here: %s", e.Code, fix)
		}
	}
}

// A user without a right reads what to ask the other end to run. The owner reads that another wants
// it, and gets no command that grants it.
func TestNobodyIsHandedACommandThatGrants(t *testing.T) {
	grants := regexp.MustCompile("postern peer allow|create clusterrolebinding")
	for _, c := range []Code{AuthDenied, AuthOff, APIServerOff, APIServerForbidden, IdentityMissing} {
		if _, fix := render(c, Params{Peer: "cloud", Inbound: true}); grants.MatchString(fix) || !strings.Contains(fix, "cloud") {
			t.Errorf("%s: got the inbound fix %q, want one of cloud that grants nothing", c, fix)
		}
		if _, fix := render(c, Params{Peer: "cloud"}); !strings.Contains(fix, "NAME is this gateway's name there") || !strings.Contains(fix, "at cloud") {
			t.Errorf("%s: got the outbound fix %q, want one for cloud", c, fix)
		}
	}
	for _, e := range Codes() {
		p := full()
		p.Inbound = true
		if _, fix := render(e.Code, p); grants.MatchString(fix) && e.Code != NotGranted {
			t.Errorf("%s: the inbound fix grants something: %s", e.Code, fix)
		}
	}
}

// The fix names the user to bind roles to, unless the given user is not a valid one: the
// certificate with it is the peer's.
func TestTheFixOfAForbiddenIdentityNamesItsUser(t *testing.T) {
	const user = "postern:peer:cloud:edge-f364e60ec9e5a82de608"
	for said, want := range map[string]string{
		user: "--user=" + user + "`", "system:serviceaccount:postern-peers:postern-peer-edge": "--user=system:serviceaccount:postern-peers:postern-peer-edge`",
		"": "--user=USER`", "postern:peer:$(reboot)": "--user=USER`", "postern:peer:a`x`": "--user=USER`", "kubernetes-admin": "--user=USER`",
	} {
		p := Params{Peer: "cloud"}
		p.User = said
		if _, fix := render(APIServerForbidden, p); !strings.Contains(fix, want) {
			t.Errorf("%q: got %q, want %q in it", said, fix, want)
		}
		p.Inbound = true
		if _, fix := render(APIServerForbidden, p); strings.Contains(want, "USER") != strings.Contains(fix, "`postern peer show cloud`") {
			t.Errorf("%q: got %q here", said, fix)
		}
	}
}

// A name in a foreign certificate is offered to be pasted only if it is a plain host name and the
// right authority signed the certificate.
func TestOnlyPlainSignedNamesOfACertificateAreOfferedAsASetting(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{"a.example", DefaultServerName}, "serverName: " + DefaultServerName},
		{[]string{"$(reboot).example", "api.example.net"}, "serverName: api.example.net"},
		{[]string{"10.0.0.5"}, "serverName: 10.0.0.5"},
		{[]string{"*.example.net", "a b", "-rf", "`x`"}, "serverName to a name in the certificate"},
		{nil, "a common name does not count"},
	} {
		p := Params{Peer: "cloud", Names: c.names}
		p.Signed = true
		if _, fix := render(TLSWrongName, p); !strings.HasSuffix(fix, c.want) {
			t.Errorf("%q: got %q, want %q at its end", c.names, fix, c.want)
		}
		for _, bare := range []Params{
			{Peer: "cloud", Names: c.names}, {Peer: "cloud", Names: c.names, Direct: true}, {Peer: "cloud", Names: c.names, Inbound: true},
		} {
			_, fix := render(TLSWrongName, bare)
			for _, name := range c.names {
				if strings.Contains(fix, name) {
					t.Errorf("%q of nobody knows whom is offered: %s", name, fix)
				}
			}
		}
	}
}

func TestForeignTextCannotDrawOnTheScreen(t *testing.T) {
	p := full()
	p.Detail = "bad\x1b[2J\x1b]0;title\x07 \u202eesrever\u202c line\nnext\x00" + strings.Repeat("x", 1000)
	p.Names = []string{"a\x1b[31m.example"}
	for _, e := range Codes() {
		cause, fix := render(e.Code, p)
		for _, text := range []string{cause, fix} {
			if strings.ContainsAny(text, "\x1b\x07\x00\n\u202e\u202c") {
				t.Errorf("%s: control characters in %q", e.Code, text)
			}
			if len(text) > 4*foreign.MaxShown {
				t.Errorf("%s: %d bytes of text", e.Code, len(text))
			}
		}
	}
	if got, want := show("a\tb\nc\x1b[0m\u200bd"), "a\ufffdb\ufffdc\ufffd[0m\ufffdd"; got != want {
		t.Errorf("show: got %q, want %q", got, want)
	}
}

func TestAnUnknownCodeIsNamed(t *testing.T) {
	cause, fix := render("PST0999", Params{})
	if !strings.Contains(cause, "PST0999") || fix == "" {
		t.Errorf("got %q, %q", cause, fix)
	}
}

// Every section of every code is a template that can be executed with each parameter present or
// missing, at every place where it may be read.
func TestEverySectionCanBeExecuted(t *testing.T) {
	all := load()
	var cases []Params
	for i := range reflect.TypeFor[Params]().NumField() {
		without, alone := full(), Params{}
		reflect.ValueOf(&without).Elem().Field(i).SetZero()
		reflect.ValueOf(&alone).Elem().Field(i).Set(reflect.ValueOf(full()).Field(i))
		cases = append(cases, without, alone)
	}
	for name, tree := range all.templates {
		code, _, _ := strings.Cut(name, "/")
		for _, p := range append(cases, full(), Params{}) {
			for _, p.Inbound = range []bool{false, true} {
				if _, err := all.execute(tree, viewOf(Code(code), p)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// A fault that comes and goes is told with the cause and the fix of the code that it quotes. What
// such a fault is like at the moment is not told of one that is over.
func TestAFaultThatComesAndGoesIsTheOneThatItQuotes(t *testing.T) {
	for _, e := range Codes() {
		if e.Code == Intermittent {
			continue
		}
		now := example(e.Code)
		now.RootCode, now.RecentParams = "", RecentParams{}
		p := now
		p.RootCode, p.RecentParams = e.Code, RecentParams{Checks: 20, Failures: 4, LastFailure: 40 * time.Second}
		cause, fix := render(e.Code, now)
		said, todo := render(Intermittent, p)
		const begin = "it works now, but 4 of the last 20 checks failed, the last 40s ago with "
		if e.Code == Unanswered { // nobody is to wait
			if strings.Contains(said, "too early") || !strings.Contains(todo, "at cloud, see") || strings.Contains(todo, "wait") {
				t.Errorf("%s: got %q, %q", e.Code, said, todo)
			}
		} else if said != begin+string(e.Code)+": "+cause || todo != fix && !strings.Contains(fix, "wait 10 s") {
			t.Errorf("%s: got  %q, %q\nwant %q, %q", e.Code, said, todo, begin+string(e.Code)+": "+cause, fix)
		}
		p.RootCode = ""
		if again, same := render(e.Code, p); again != cause+"; it comes and goes (4 of the last 20 checks failed)" || same != fix {
			t.Errorf("%s while it fails: got %q, %q", e.Code, again, same)
		}
		p.RootCode = TicketAlarm
		if e.Code == TicketAlarm {
			continue
		}
		if besides, same := render(e.Code, p); besides != cause+"; besides, 4 of the last 20 checks failed, the last 40s ago with PST0210" || same != fix {
			t.Errorf("%s while another one comes and goes: got %q, %q", e.Code, besides, same)
		}
	}
	for _, bad := range []Code{"", Intermittent, NotTried, "PST0999"} {
		p := Params{Peer: "cloud"}
		p.RootCode = bad
		if _, fix := render(Intermittent, p); fix != "see when it failed: `postern history cloud`" {
			t.Errorf("%q quoted: got the fix %q", bad, fix)
		}
	}
}

// Names in templates exist, even where no test's parameters lead.
func TestTemplatesNameWhatThereIs(t *testing.T) {
	all, action := load(), regexp.MustCompile(`\{\{.*?\}\}`)
	member, part := regexp.MustCompile(`\.([A-Z]\w*)`), regexp.MustCompile(`template "(.*?)"`)
	for name, tree := range all.templates {
		for _, a := range action.FindAllString(tree.Root.String(), -1) {
			for _, m := range member.FindAllStringSubmatch(a, -1) {
				if _, field := reflect.TypeFor[view]().FieldByName(m[1]); !field && methods[m[1]] == nil {
					t.Errorf("%s: %s has no .%s", name, a, m[1])
				}
			}
			for _, m := range part.FindAllStringSubmatch(a, -1) {
				if all.templates[m[1]] == nil {
					t.Errorf("%s: %s has no part %q", name, a, m[1])
				}
			}
		}
	}
}

// Every code in the source has texts, and all texts belong to a code.
func TestEveryCodeHasItsTexts(t *testing.T) {
	source, err := os.ReadFile("codes.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range Codes() {
		if n := strings.Count(string(source), strconv.Quote(string(e.Code))); n != 1 {
			t.Errorf("%s is %d times in codes.go", e.Code, n)
		}
		if e.Title == "" || e.Found == "" || e.Consider == "" {
			t.Errorf("%s lacks a title, how it is found, or what to consider", e.Code)
		}
	}
	if n := strings.Count(string(source), "\"PST0"); n != len(Codes()) {
		t.Errorf("codes.go has %d codes, and the texts have %d", n, len(Codes()))
	}
}

// A note says why there is no verdict, and is not shown as a code.
func TestEveryNoteHasItsTexts(t *testing.T) {
	for _, c := range []Code{NotChecked, NotFinished, NotTried, ReportsStopped, ReportsNever, ReportsUnsupported, ReportsMissing,
		ReportIncomplete, ReportOvertaken, ReportStale, ReportBare, ReportAstray, ReportUnsure} {
		cause, fix := render(c, full())
		if cause == "" || fix == "" && c != NotChecked || strings.Contains(cause+fix, "  ") || c.Fault() != "" {
			t.Errorf("%s: got the cause %q and the fix %q", c, cause, fix)
		}
	}
	for _, e := range Codes() {
		if e.Code.Fault() != e.Code {
			t.Errorf("%s is listed as a code", e.Code)
		}
	}
}

// A code has a place if it knows more than the path on which the fault was found.
func TestCodesThatKnowThePlaceTellIt(t *testing.T) {
	router, forged := Params{Peer: "cloud"}, Params{Peer: "cloud"}
	router.Address, router.By, forged.Key = "198.51.100.7:51820", "192.0.2.254", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	host, open := router, Params{Peer: "cloud"}
	host.By, open.Seen = "198.51.100.7", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		code Code
		p    Params
		want string
	}{
		{RouterRefuses, router, "at the router 192.0.2.254"},
		{RouterRefuses, host, "at the host of cloud, 198.51.100.7"},
		{RouterRefuses, Params{Peer: "cloud"}, ""},
		{WrongPeerKey, forged, "in the configuration here (spec.peers[name=cloud].publicKey), unless an impostor is at the address of cloud"},
		{WrongPeerKey, Params{Peer: "cloud"}, "in the configuration of cloud: its key for this gateway"},
		{PeerSilent, open, "at the clock of this gateway, or at something on the way that drops handshakes but not probes"},
		{PeerSilent, Params{Peer: "cloud"}, ""},
		{PacketsLost, full(), ""},
	} {
		if got := Place(c.code, c.p); got != c.want {
			t.Errorf("%s: got %q, want %q", c.code, got, c.want)
		}
	}
}

// A line is called full only if connections were seen to fill it.
func TestAFullLineIsSaidAndNotAsked(t *testing.T) {
	idle, busy := full(), full()
	idle.Full, busy.Full = false, true
	_, ask := render(PacketsLost, idle)
	if _, say := render(PacketsLost, busy); !strings.HasPrefix(say, "limit what fills the line, as 20 Mbit/s") || strings.Contains(ask, "limit what") {
		t.Errorf("full: %s\notherwise: %s", say, ask)
	}
}

// Sections that no place uses would never be seen.
func TestSectionsHaveKnownNames(t *testing.T) {
	form := regexp.MustCompile(`^((PST\d{4}|report(s)? [a-z]+|not [a-z]+)/(cause|fix|place)( (direct|own|inbound|outbound))?|[a-zA-Z ]+)$`)
	for name := range load().templates {
		if !form.MatchString(name) {
			t.Errorf("%q is no section", name)
		}
	}
}
