package screen

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/testenv/qrscan"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestPicturesOfATicket(t *testing.T) {
	var keys []string
	for _, r := range ":invite site-3" {
		keys = append(keys, string(r))
	}
	pictures(t, "invite", busy, append(keys, "enter", "y"))
}

// A ticket of a usual length can be scanned if there is room for its code. Otherwise the screen
// says what room it needs.
func TestTheCodeOfATicketScans(t *testing.T) {
	gateway := busy()
	gateway.ticket = "postern1"
	for random := rand.New(rand.NewPCG(7, 7)); len(gateway.ticket) < 224; {
		gateway.ticket += string("abcdefghijklmnopqrstuvwxyz234567"[random.IntN(32)])
	}
	invited := func(width, height int, color bool) *stage {
		return play(t, gateway, width, height, color).press(":").typed("invite site-3").press("enter", "y")
	}
	for _, size := range [][2]int{{120, 40}, {200, 60}, {70, 60}} {
		s := invited(size[0], size[1], size[0] == 120).want("postern1", "this ticket", "copy the ticket")
		fits(t, s.View(), size[0], size[1])
		if got, err := qrscan.Scan(s.View()); err != nil || got != strings.ToUpper(gateway.ticket) {
			t.Errorf("on %v it is read as %q: %v\n%s", size, got, err, s.View())
		}
	}
	invited(80, 24, false).want("no room for its QR code, which takes 53 × 27 characters: enlarge the terminal")
	s := play(t, gateway, 120, 40, false).press(":").typed("graph ascii").press("enter").press(":").typed("invite").press("enter", "y")
	s.want("no QR code without Unicode")
	gateway.ticket = "postern1" + strings.Repeat("a", 5000)
	invited(200, 60, false).want("no QR code holds 5008 characters")
}

func TestInviteMakesATicketToCopy(t *testing.T) {
	s := play(t, busy(), 200, 24, false)
	s.typed(":invite site-3").press("enter").want("$ postern invite --ttl 1h --allow auth,apiServer --name site-3", "as site-3", "a password", "y do it")
	s.wantChanges()
	s.gateway.warnings = []string{"no address is public\x1b[2J"}
	s.press("y").want("✓ at the other gateway, before 2026-05-04T13:00:00Z", "postern1ticket", "no address is public�[2J", "c copy the ticket")
	s.wantChanges("invite site-3 [auth apiServer] 1h0m0s")
	s.press("c").want("copied the ticket")
	if !strings.Contains(s.written.String(), "cG9zdGVybjF0aWNrZXQ=") {
		t.Errorf("the clipboard got %q", s.written.String())
	}
	s.press("esc").wantNot("postern1ticket")
	s.typed(":invite site-3 apiServer").press("enter", "y", "esc")
	s.typed(":invite").press("enter").want("by its own name").press("esc")
	s.typed(":invite a/b").press("enter").want("no gateway can be called a/b")
	s.typed(":invite site-3 no/service").press("enter").want("no service is called")
	s.wantChanges("invite site-3 [auth apiServer] 1h0m0s", "invite site-3 [apiServer] 1h0m0s")
}

// aTicket is a ticket of site.
func aTicket(t *testing.T) string {
	t.Helper()
	k, err := peer.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	text, err := ticket.Ticket{Name: "site", Inviter: k.Public(), Allow: []string{"auth"}, Expires: noon.Add(time.Hour)}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestJoinRedeemsATicket(t *testing.T) {
	text := aTicket(t)
	s := play(t, busy(), 200, 24, false)
	s.gateway.joined = api.JoinResponse{Outcome: api.JoinConnected, Peer: "site", Granted: []string{"auth"}}
	s.typed(":join postern join '"+text+"' apiServer").press("enter").want("─ join site", "$ postern join - --allow apiServer", "grants: auth.", "It may reach here: apiServer")
	s.wantNot(text)
	s.press("y").want("✓ joined site; may reach there: auth")
	s.wantChanges("join " + text + " [apiServer]")
	s.press("esc")
	for want, answer := range map[string]api.JoinResponse{
		"compare there the fingerprint fcb4": {Outcome: api.JoinPending, Peer: "site", Fingerprint: "fcb4"},
		"postern accept postern1reply":       {Outcome: api.JoinReply, Peer: "site", Reply: "postern1reply", Reason: "nobody answers"},
	} {
		s.gateway.joined = answer
		s.typed(":join "+text).press("enter", "y").want(want).press("esc")
	}
	s.typed(":join something").press("enter").want("join: ")
	s.typed(":accept something").press("enter").want("accept: ")
	s.gateway.refusal = errors.New("the ticket is used up")
	s.typed(":join "+text).press("enter", "y").want("✗ not done: the ticket is used up")
}

func TestRotateSaysWhoIsNotTold(t *testing.T) {
	s := play(t, busy(), 80, 24, false)
	s.gateway.rotated = api.KeyRotateResponse{PublicKey: "bmV4dA==", Untold: []api.UnnotifiedPeer{{Peer: "hub", Reason: "it does not answer"}}}
	s.typed(":rotate").press("enter").want("$ postern key rotate", "the peers (4)", "ends open connections")
	s.press("y").want("✗ not done: the old key stays in force", "not known to hub (it").press("esc")
	s.gateway.rotated = api.KeyRotateResponse{PublicKey: "bmV4dA==", Rotated: true}
	s.typed(":rotate").press("enter", "y").want("✓ the key is now bmV4dA==")
}

func TestPing(t *testing.T) {
	s := play(t, busy(), 80, 24, false)
	s.typed(":ping cloud").press("enter").want("ping cloud: 12 ms · direct 198.51.100.7:51820�[2J")
	s.press("j", "a").want("4  ping it")
	s.press("4").want("ping hub: 12 ms")
	s.typed(":ping nobody").press("enter").want(`no peer is called "nobody"`)
	if want := "cloud overlay, hub overlay"; strings.Join(s.gateway.pinged, ", ") != want {
		t.Errorf("pinged %q, want %q", s.gateway.pinged, want)
	}
}

// A read-only screen creates no tickets either.
func TestReadOnlyMakesNoTicket(t *testing.T) {
	s := play(t, busy(), 80, 24, false)
	s.sources[0].Operator = nil
	for _, command := range []string{"invite", "rotate", "join " + aTicket(t)} {
		s.typed(":"+command).press("enter", "y").want("read-only").press("esc")
	}
	s.wantChanges()
}

// The throughput of the path is measured after confirmation, and the reason is shown if it is not.
func TestMeasure(t *testing.T) {
	s := play(t, busy(), 80, 24, false).press("G", "a").want("measure what the path to it carries")
	s.press("6").want("─ measure the path to cloud", "$ postern check cloud --throughput", "64 MB at most")
	if len(s.gateway.checked) > 0 {
		t.Error("it is measured before that was agreed to")
	}
	s.press("y").want("✗ not done: the gateway does not measure throughput").press("esc")
	measured := func(v api.Verdict) {
		s.gateway.report.Checks = []api.Check{{Name: throughputCheck, Peer: "cloud", Verdict: v}}
		s.typed(":measure cloud").press("enter", "y")
	}
	measured(api.Verdict{Verdict: api.OK, Cause: "812 Mbit/s to cloud, 640 Mbit/s from it"})
	s.want("✓ 812 Mbit/s to cloud, 640 Mbit/s from it").press("esc")
	measured(api.Verdict{Verdict: api.Unknown, Cause: "cloud measures once in 10 s", Fix: "try again in 8s"})
	s.want("✗ not done: cloud measures once in 10 s").want("try again in 8s").press("esc")
	s.typed(":measure nobody").press("enter").want("no peer is called")
}
