package gateway_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/testenv/patience"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/tunnel/peer"
)

// redeemer comes up on a host with the one-time key of a ticket.
func redeemer(w *world, host *simnet.Host, text string) *stranger {
	w.t.Helper()
	t, err := ticket.Decode(text)
	if err != nil {
		w.t.Fatal(err)
	}
	keys, err := t.Keys()
	if err != nil {
		w.t.Fatal(err)
	}
	inviter := peer.Config{Name: "inviter", PublicKey: t.Inviter, PresharedKey: keys.Tunnel}
	for _, c := range t.Candidates {
		inviter.Endpoints = append(inviter.Endpoints, c.Addr)
	}
	return newStranger(w.t, host, keys.OneTime, inviter)
}

// ticketKeys are what whoever has a ticket knows.
func ticketKeys(t *testing.T, text string) ticket.Keys {
	t.Helper()
	k, err := ticket.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := k.Keys()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// request is one to redeem a ticket by a name with a key.
func (w *world) request(text string, k peer.PrivateKey, name string, wants ...string) ticket.Request {
	w.t.Helper()
	return w.prove(ticket.InBand, text, k, ticket.Request{Name: name, Wants: wants})
}

// prove makes a request one for a key, and has it proven.
func (w *world) prove(way ticket.Way, text string, k peer.PrivateKey, q ticket.Request) ticket.Request {
	w.t.Helper()
	t, err := ticket.Decode(text)
	if err != nil {
		w.t.Fatal(err)
	}
	q.PublicKey = k.Public()
	q, err = q.Prove(way, ticketKeys(w.t, text).ID, t.Inviter, k)
	if err != nil {
		w.t.Fatal(err)
	}
	return q
}

func TestJoiningPeersBothWays(t *testing.T) {
	w := newWorld(t)
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both})
	got := w.join(w.Edge, text, api.JoinRequest{Allow: both})
	if got.Outcome != api.JoinConnected || got.Peer != "cloud" || !slices.Equal(got.Granted, both) {
		t.Errorf("join gave %+v", got)
	}
	w.connected(w.Cloud, w.Edge)
	for _, pair := range [][2]*lab.Site{{w.Cloud, w.Edge}, {w.Edge, w.Cloud}} {
		p := w.awaitPeer(pair[0], pair[1].Name, func(p api.PeerStatus) string {
			if p.Identity == nil {
				return "no identity yet"
			}
			out := p.Reachability.Outbound
			for _, v := range []api.Verdict{out.Gateway, out.Auth, out.APIServer} {
				if v.Verdict != api.OK {
					return string(v.Verdict) + " " + v.Code + " " + v.Cause
				}
			}
			return ""
		})
		if p.Path.Kind != api.PathDirect || p.Path.RTTSeconds < 0.02 || p.Path.RTTSeconds > 5 {
			t.Errorf("%s shows the path %+v, want a direct one of 20 ms, or more where the machine is busy", pair[0].Name, p.Path)
		}
		if !slices.Equal(p.Allow, both) || !slices.Equal(slices.Sorted(slices.Values(p.Offers)), both) {
			t.Errorf("%s allows %v and is offered %v, want both services each way", pair[0].Name, p.Allow, p.Offers)
		}
		// Only the other knows, and it may not have told yet.
		if in := p.Reachability.Inbound.Auth; in.Verdict != api.Unknown && in.Via != "in-band" {
			t.Errorf("%s claims to know how it is reached: %+v", pair[0].Name, p.Reachability.Inbound)
		}
	}
	w.audited(w.Cloud, "issue", map[string]string{"peer": "edge"})
	w.audited(w.Edge, "issue", map[string]string{"peer": "cloud"})
}

// Both operators invite, and both join: each gateway redeems the other's ticket while the other
// redeems its own. Both must then use the preshared key of the same ticket.
func TestTwoThatJoinEachOtherAtOnce(t *testing.T) {
	w := newWorld(t)
	far := w.addSite("far", "203.0.113.66")
	sites := []*lab.Site{w.Cloud, far}
	tickets := []string{w.invite(far, api.InviteRequest{Allow: both}), w.invite(w.Cloud, api.InviteRequest{Allow: both})}
	var joining sync.WaitGroup
	for i, s := range sites {
		joining.Go(func() {
			// One may be refused, as a peer already, if the other was first.
			if _, err := w.tryJoin(s, tickets[i], api.JoinRequest{}); err != nil {
				t.Logf("join at %s: %v", s.Name, err)
			}
		})
	}
	w.connected(w.Cloud, far)
	joining.Wait()
	w.reach(w.Cloud, far)
	for i, s := range sites {
		if p, _ := w.status(s, sites[1-i].Name); !slices.Equal(p.Allow, both) {
			t.Errorf("%s allows %v, want %v", s.Name, p.Allow, both)
		}
	}
}

func TestASecondKeyIsToldThatTheTicketWasUsed(t *testing.T) {
	w := newWorld(t)
	thief := w.addSite("thief", "203.0.113.66")
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both})
	w.join(w.Edge, text, api.JoinRequest{})
	w.connected(w.Cloud, w.Edge)

	_, err := w.tryJoin(thief, text, api.JoinRequest{})
	w.refused("the second join", err, false, "already used")
	w.audited(w.Cloud, "alarm", map[string]string{"code": "PST0210", "peer": "edge", "publicKey": siteKey(thief).String()})
	// One for each request: a thief that gets no answer in time asks again.
	if n, want := w.metric(w.Cloud, "postern_ticket_alarms_total", ""), w.log.count("cloud", "alarm", nil); n != float64(want) {
		t.Errorf("%v alarms are counted, want %d as recorded", n, want)
	}
	if _, there := w.status(w.Cloud, "thief"); there {
		t.Error("the thief became a peer")
	}
	// The owner may repeat its request until it is there with its own key.
	w.await("the owner's repeated join is told that all is done", func() string {
		if _, err = w.tryJoin(w.Edge, text, api.JoinRequest{}); err == nil {
			return "it was granted again"
		}
		return ""
	})
	w.refused("the owner's repeated join", err, false, "already used, with this key")
	w.connected(w.Cloud, w.Edge)
	w.reach(w.Cloud, w.Edge)
}

func TestOfManyAtOnceOneWinsTheTicket(t *testing.T) {
	w := newWorld(t)
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both, Approve: true})
	const joiners = 20
	client := redeemer(w, w.host("crowd", "203.0.113.50"), text).client(w.Cloud)
	errs := make([]error, joiners)
	var wg sync.WaitGroup
	for i := range errs {
		q := w.request(text, newKey(t), "joiner-"+string(rune('a'+i)))
		wg.Go(func() { _, errs[i] = client.Redeem(w.ctx, q) })
	}
	wg.Wait()
	winners := 0
	for i, err := range errs {
		switch {
		case err == nil:
			winners++
		case !errors.Is(err, ticket.ErrAlreadyUsed):
			t.Errorf("joiner %d: %v, want that the ticket was already used", i, err)
		}
	}
	if winners != 1 {
		t.Errorf("%d of %d redeemed one ticket", winners, joiners)
	}
	if n := w.metric(w.Cloud, "postern_ticket_alarms_total", ""); n != joiners-1 {
		t.Errorf("%v alarms are counted, want %d", n, joiners-1)
	}
	st, err := w.Cloud.Gateway.Status(w.ctx)
	if err != nil || len(st.Peers) != 1 {
		t.Errorf("%d peers came of one ticket (%v)", len(st.Peers), err)
	}
}

func TestATicketForAnotherKeyIsRefused(t *testing.T) {
	w := newWorld(t)
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both, For: newKey(t).Public().String()})
	_, err := w.tryJoin(w.Edge, text, api.JoinRequest{})
	w.refused("a join with another's ticket", err, false, "bound to another public key")
	w.audited(w.Cloud, "refuse", map[string]string{"publicKey": siteKey(w.Edge).String(), "reason": "bound to another"})

	mine := w.invite(w.Cloud, api.InviteRequest{Allow: both, For: siteKey(w.Edge).String()})
	w.join(w.Edge, mine, api.JoinRequest{})
	w.connected(w.Cloud, w.Edge)
}

func TestTextsThatAreNoTicketEachSayWhatTheyAre(t *testing.T) {
	w := newWorld(t)
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both})
	reply := w.join(w.Cloud, w.invite(w.Edge, api.InviteRequest{Allow: both}), api.JoinRequest{Wait: api.Duration(time.Millisecond)}).Reply
	damaged := []byte(text)
	damaged[40] ^= 2
	for what, c := range map[string]struct{ ticket, says string }{
		"a foreign text": {"eyJhbGciOiJIUzI1NiJ9", "not a postern ticket"},
		"half a ticket":  {text[:len(text)/2], "ticket is"},
		"a wrong letter": {string(damaged), "damaged"},
		"a reply":        {reply, "postern accept"},
	} {
		_, err := w.tryJoin(w.Edge, c.ticket, api.JoinRequest{})
		w.refused("joining with "+what, err, true, c.says)
	}
	_, err := w.Cloud.Gateway.Accept(w.ctx, api.AcceptRequest{Reply: text})
	w.refused("accepting a ticket", err, true, "postern join")
	_, err = w.tryJoin(w.Cloud, text, api.JoinRequest{})
	w.refused("joining oneself", err, true, "made the ticket itself")
	_, err = w.Cloud.Gateway.Invite(w.ctx, api.InviteRequest{Allow: []string{"registry"}})
	w.refused("granting what there is not", err, true, "registry", "apiServer")
	_, err = w.Cloud.Gateway.Invite(w.ctx, api.InviteRequest{Name: "No Name"})
	w.refused("a name that is none", err, true, "No Name")
	_, err = w.Cloud.Gateway.Invite(w.ctx, api.InviteRequest{TTL: api.Duration(1000 * time.Hour)})
	w.refused("a life too long", err, true, "720h")
	_, err = w.Cloud.Gateway.Invite(w.ctx, api.InviteRequest{For: "edge"})
	w.refused("a key that is none", err, true, "--for")
}

func TestAnInvitationSaysWhenNobodyOutsideCanDial(t *testing.T) {
	w := newWorld(t)
	for site, want := range map[*lab.Site]bool{w.Cloud: false, w.Edge: true} {
		out, err := site.Gateway.Invite(w.ctx, api.InviteRequest{Allow: both})
		if err != nil {
			t.Fatal(err)
		}
		warned := slices.ContainsFunc(out.Warnings, func(s string) bool { return strings.Contains(s, "nobody outside") })
		if warned != want {
			t.Errorf("%s warned: %t, want %t: %q", site.Name, warned, want, out.Warnings)
		}
	}
	for _, want := range []bool{false, true} { // with its API server, and without
		out, err := w.Cloud.Gateway.Invite(w.ctx, api.InviteRequest{Allow: both})
		if err != nil {
			t.Fatal(err)
		}
		warned := slices.ContainsFunc(out.Warnings, func(s string) bool { return strings.Contains(s, "no API server to offer") })
		if warned != want {
			t.Errorf("warned of no API server: %t, want %t: %q", warned, want, out.Warnings)
		}
		w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.Services.APIServer = nil })
	}
}

func TestADeadlineHoldsAcrossARestart(t *testing.T) {
	const ttl = 15 * time.Second // in which a busy machine completes a handshake
	w := newWorld(t)
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both, TTL: api.Duration(ttl)})
	expires := w.Cloud.Gateway.Tickets()[0].ExpiresAt
	late := redeemer(w, w.host("late", "203.0.113.51"), text)
	w.reaches(late, w.Cloud)
	w.stop(w.Cloud)
	w.start(w.Cloud)
	if list := w.Cloud.Gateway.Tickets(); len(list) != 1 || !list[0].ExpiresAt.Equal(expires) {
		t.Errorf("after the restart the tickets are %+v, want one that expires at %s", list, expires)
	}
	w.audited(w.Cloud, "expire", nil)
	_, err := w.tryJoin(w.Edge, text, api.JoinRequest{})
	w.refused("joining with an expired ticket", err, false, "expired at")
	w.gone(late, w.Cloud)
}

// gone waits until a site no longer answers a stranger. An answer takes 20 ms, and may take
// long on a busy machine.
func (w *world) gone(s *stranger, at *lab.Site) {
	w.t.Helper()
	w.await(at.Name+" has dropped the stranger", func() string {
		if s.pinged(w.ctx, at, 2*time.Second) {
			return "it still answers echoes"
		}
		return ""
	})
}

func TestFiveFailuresBurnATicket(t *testing.T) {
	w := newWorld(t)
	text := w.invite(w.Cloud, api.InviteRequest{Allow: []string{api.ServiceAuth}})
	s := redeemer(w, w.host("guesser", "203.0.113.52"), text)
	for i := range ticket.MaxFailures {
		_, err := s.client(w.Cloud).Redeem(w.ctx, w.request(text, newKey(t), "greedy", api.ServiceAPIServer))
		if !errors.Is(err, auth.ErrDenied) || !strings.Contains(err.Error(), "does not grant") {
			t.Fatalf("failure %d: %v, want that the service is not granted", i+1, err)
		}
	}
	w.audited(w.Cloud, "burn", nil)
	w.gone(s, w.Cloud)
	if n := w.log.count("cloud", "refuse", map[string]string{"peer": "greedy", "reason": "does not grant"}); n != ticket.MaxFailures {
		t.Errorf("%d refusals are recorded, want %d", n, ticket.MaxFailures)
	}
	reply := w.join(w.Edge, text, api.JoinRequest{Wait: api.Duration(time.Second)}).Reply
	_, err := w.Cloud.Gateway.Accept(w.ctx, api.AcceptRequest{Reply: reply})
	w.refused("accepting a reply to a burned ticket", err, false, "too many failed redemptions")
}

func TestANameThatIsTaken(t *testing.T) {
	w := newWorld(t)
	if err := w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "edge", PublicKey: newKey(t).Public().String()}}); err != nil {
		t.Fatal(err)
	}
	_, err := w.tryJoin(w.Edge, w.invite(w.Cloud, api.InviteRequest{Allow: both}), api.JoinRequest{})
	w.refused("joining by a name that another has", err, false, `"edge"`, "invite --name")

	// The inviter names the joiner, and the joiner the inviter, as each likes.
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both, Name: "kiosk"})
	got := w.join(w.Edge, text, api.JoinRequest{Name: "hq"})
	if got.Peer != "hq" {
		t.Errorf("the inviter is called %q, want hq", got.Peer)
	}
	w.awaitPeer(w.Edge, "hq", connectedPeer)
	w.awaitPeer(w.Cloud, "kiosk", connectedPeer)

	third := w.addSite("third", "203.0.113.53")
	_, err = w.tryJoin(w.Edge, w.invite(third, api.InviteRequest{}), api.JoinRequest{Name: "hq"})
	w.refused("calling two inviters by one name", err, false, "hq", "--name")
	_, err = w.tryJoin(w.Edge, w.invite(w.Cloud, api.InviteRequest{}), api.JoinRequest{Name: "other"})
	w.refused("joining the same inviter by another name", err, false, "already the peer hq")
}

func connectedPeer(p api.PeerStatus) string {
	if p.State != api.StateConnected {
		return string(p.State) + ": " + p.Reason
	}
	return ""
}

func TestAPeerToBeApprovedGetsNothingBefore(t *testing.T) {
	w := newWorld(t)
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both, Approve: true})
	got := w.join(w.Edge, text, api.JoinRequest{Allow: both})
	fingerprint := peer.Fingerprint(siteKey(w.Edge))
	if got.Outcome != api.JoinPending || got.Fingerprint != fingerprint {
		t.Errorf("join gave %+v, want pending with the fingerprint %s", got, fingerprint)
	}
	p, _ := w.status(w.Cloud, "edge")
	if p.State != api.StatePending || p.ApprovalFingerprint != fingerprint || !strings.Contains(p.Reason, "postern peer approve edge") {
		t.Errorf("cloud shows %+v, want pending with the fingerprint and what to do", p)
	}
	waits := func() string { // what edge stores
		data, err := os.ReadFile(filepath.Join(w.Edge.Spec().StateDir, "peers.json"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), `"awaited"`) {
			return "edge does not know that it waits"
		}
		return ""
	}
	if p, _ := w.status(w.Edge, "cloud"); p.State != api.StateConnecting || !strings.Contains(p.Reason, "cloud has yet to approve this gateway") || waits() != "" {
		t.Errorf("edge shows %+v, want that it waits; %s", p, waits())
	}
	short, cancel := context.WithTimeout(w.ctx, time.Second)
	defer cancel()
	if r, err := w.Edge.Gateway.Ping(short, "cloud", api.PingRequest{Layer: "overlay"}); err != nil || r.Error == "" {
		t.Errorf("a peer that waits for approval is answered: %+v, %v", r, err)
	}
	if _, err := w.Edge.Gateway.Credential(w.ctx, "cloud"); err == nil {
		t.Error("a peer that waits for approval has an identity")
	}
	approve := func(name, fingerprint string) error {
		return w.Cloud.Gateway.PeerApprove(w.ctx, name, api.PeerApproveRequest{Fingerprint: fingerprint})
	}
	w.refused("approving by name alone", approve("edge", ""), true, fingerprint, "--fingerprint")
	w.refused("approving another key", approve("edge", peer.Fingerprint(siteKey(w.Cloud))), false, fingerprint, "postern peer remove edge")
	if p, _ := w.status(w.Cloud, "edge"); p.State != api.StatePending {
		t.Errorf("edge is %s though nobody confirmed its key", p.State)
	}
	if err := approve("edge", siteKey(w.Edge).String()); err != nil {
		t.Fatal(err)
	}
	w.connected(w.Cloud, w.Edge)
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		if p.Identity == nil {
			return "no identity yet"
		}
		return ""
	})
	w.await("edge no longer waits", func() string {
		if waits() == "" {
			return "it does"
		}
		return ""
	})
	w.audited(w.Cloud, "approve", map[string]string{"peer": "edge"})
	w.refused("approving twice", approve("edge", fingerprint), false, "does not wait")
	w.refused("approving nobody", approve("egde", fingerprint), true, `"egde"`, "edge")
}

func TestAReplyMakesTheInviterDial(t *testing.T) {
	w := newWorld(t)
	// The one behind the NAT invites: nobody can dial it.
	w.knows(w.Edge, api.SourceSTUN)
	text := w.invite(w.Edge, api.InviteRequest{Allow: both})
	got := w.join(w.Cloud, text, api.JoinRequest{Allow: both, Wait: api.Duration(time.Second)})
	if got.Outcome != api.JoinReply || got.Peer != "edge" || !strings.Contains(got.Reason, "198.51.100.7:51820") {
		t.Errorf("join gave %s (%s), want a reply and the addresses that were tried", got.Outcome, got.Reason)
	}

	third := w.addSite("third", "203.0.113.54")
	forged := w.join(third, w.invite(w.Edge, api.InviteRequest{}), api.JoinRequest{Wait: api.Duration(time.Millisecond)}).Reply
	_, err := w.Cloud.Gateway.Accept(w.ctx, api.AcceptRequest{Reply: forged})
	w.refused("accepting a reply to another gateway's ticket", err, false, "no such ticket here")
	_, err = w.Edge.Gateway.Accept(w.ctx, api.AcceptRequest{Reply: forge(w, text, siteKey(third))})
	w.refused("accepting a forged reply", err, false, "forged")
	w.audited(w.Edge, "refuse", map[string]string{"publicKey": siteKey(third).String(), "reason": "forged"})

	out, err := w.Edge.Gateway.Accept(w.ctx, api.AcceptRequest{Reply: got.Reply, Wait: api.Duration(patience.Left())})
	if err != nil || !out.Connected || out.Peer != "cloud" {
		t.Fatalf("accept gave %+v, %v", out, err)
	}
	w.connected(w.Cloud, w.Edge)
	w.reach(w.Cloud, w.Edge)
	w.audited(w.Edge, "accept", map[string]string{"peer": "cloud"})

	// Once more changes nothing, nor does a second try of the joiner, once it has noted that edge has
	// connected.
	if _, err := w.Edge.Gateway.Accept(w.ctx, api.AcceptRequest{Reply: got.Reply}); err != nil {
		t.Errorf("accepting the same reply again: %v", err)
	}
	w.await("joining again is refused", func() string {
		if _, err = w.Cloud.Gateway.Join(w.ctx, api.JoinRequest{Ticket: text, Wait: api.Duration(time.Second)}); err == nil {
			return "it is not"
		}
		return ""
	})
	w.refused("joining again", err, false, "is a peer already")
	w.reach(w.Cloud, w.Edge)
}

// Whoever invited may be down for a moment. Nobody has to say join again.
func TestAJoinIsFinishedWhenTheInviterIsBack(t *testing.T) {
	w := newWorld(t)
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both})
	w.stop(w.Cloud)
	got := w.join(w.Edge, text, api.JoinRequest{Allow: both, Wait: api.Duration(time.Second)})
	if got.Outcome != api.JoinReply {
		t.Fatalf("join gave %s, want a reply", got.Outcome)
	}
	// Second thoughts, before the two have met.
	if err := w.Edge.Gateway.PeerAllow(w.ctx, "cloud", api.PeerAllowRequest{Allow: []string{api.ServiceAuth}}); err != nil {
		t.Fatal(err)
	}
	w.start(w.Cloud)
	w.connected(w.Cloud, w.Edge)
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		if p.Reachability.Outbound.APIServer.Verdict != api.OK {
			return "cloud's API server is not reached yet"
		}
		return ""
	})
	if p, _ := w.status(w.Cloud, "edge"); !slices.Equal(p.Allow, both) {
		t.Errorf("edge may reach %v, want what the ticket grants", p.Allow)
	}
	if p, _ := w.status(w.Edge, "cloud"); !slices.Equal(p.Allow, []string{api.ServiceAuth}) {
		t.Errorf("cloud may reach %v, want what it was restricted to", p.Allow)
	}
}

// A join that is finished later may need approval, too. The joiner is told from the beginning, and
// knows later what it waits for.
func TestAJoinThatIsFinishedLaterWaitsForApproval(t *testing.T) {
	w := newWorld(t)
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both, Approve: true})
	w.stop(w.Cloud)
	got := w.join(w.Edge, text, api.JoinRequest{Wait: api.Duration(time.Second)})
	if fingerprint := peer.Fingerprint(siteKey(w.Edge)); got.Outcome != api.JoinReply || got.Fingerprint != fingerprint {
		t.Fatalf("join gave %+v, want a reply and the fingerprint %s", got, fingerprint)
	}
	w.start(w.Cloud)
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		if !strings.Contains(p.Reason, "cloud has yet to approve this gateway") {
			return "it does not know that it waits: " + p.Reason
		}
		return ""
	})
}

// A joiner that the inviter must dial knows that it waits for approval, before its reply is accepted
// and after.
func TestAJoinByReplyWaitsForApproval(t *testing.T) {
	w := newWorld(t)
	w.knows(w.Edge, api.SourceSTUN) // nobody can dial it
	reply := w.join(w.Cloud, w.invite(w.Edge, api.InviteRequest{Allow: both, Approve: true}), api.JoinRequest{Wait: api.Duration(time.Second)}).Reply
	waits := func(when string) {
		t.Helper()
		if p, _ := w.status(w.Cloud, "edge"); p.State != api.StateConnecting || !strings.Contains(p.Reason, "edge has yet to approve this gateway") || !strings.Contains(p.Reason, "accept") {
			t.Errorf("%s cloud shows %s: %s, want that it waits", when, p.State, p.Reason)
		}
	}
	waits("at first")
	if out, err := w.Edge.Gateway.Accept(w.ctx, api.AcceptRequest{Reply: reply}); err != nil || !strings.Contains(out.Reason, "waits for approval") {
		t.Fatalf("accept gave %+v, %v", out, err)
	}
	waits("once it is accepted")
	if err := w.Edge.Gateway.PeerApprove(w.ctx, "cloud", api.PeerApproveRequest{Fingerprint: peer.Fingerprint(siteKey(w.Cloud))}); err != nil {
		t.Fatal(err)
	}
	w.connected(w.Cloud, w.Edge)
}

// forge makes a reply to a ticket, with another ticket's keys.
func forge(w *world, text string, joiner peer.PublicKey) string {
	w.t.Helper()
	keys := ticketKeys(w.t, text)
	other, err := ticket.NewSeed()
	if err != nil {
		w.t.Fatal(err)
	}
	wrong, err := ticket.Ticket{Seed: other}.Keys()
	if err != nil {
		w.t.Fatal(err)
	}
	keys.Reply = wrong.Reply
	reply, err := ticket.EncodeReply(keys, ticket.Request{PublicKey: joiner, Name: "forger"})
	if err != nil {
		w.t.Fatal(err)
	}
	return reply
}

func TestAJoinThatNobodyWaitsForLeavesNothing(t *testing.T) {
	w := newWorld(t)
	text := w.invite(w.Edge, api.InviteRequest{Allow: both}) // cannot be reached
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() {
		_, err := w.Cloud.Gateway.Join(ctx, api.JoinRequest{Ticket: text})
		done <- err
	}()
	w.await("the join is under way", func() string {
		if strings.Contains(w.log.String(), `"peer":"inviter"`) {
			return ""
		}
		return "nothing is dialled"
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a join that was given up ended with %v", err)
	}
	if _, there := w.status(w.Cloud, "edge"); there {
		t.Error("a join that was given up left a peer")
	}
}
