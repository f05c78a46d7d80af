package ticket

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestRedeemGrantsWhatTheTicketSays(t *testing.T) {
	d := newDesk(t, noon)
	k, keys := d.invite(noon, standard())
	if got, want := k.Expires, noon.Add(DefaultTTL); !got.Equal(want) {
		t.Errorf("expires at %v, want %v", got, want)
	}
	if got := d.OneTimePeers(noon); len(got) != 1 || got[0].PublicKey != keys.OneTime.Public() || !got[0].PresharedKey.Equal(keys.Tunnel) {
		t.Fatalf("one-time peers: %v, want the ticket's", got)
	}
	q := Request{
		PublicKey: key(1), Name: "edge", Grants: []string{api.ServiceAuth},
		Candidates: []Candidate{{Addr: netip.MustParseAddrPort("192.0.2.1:51820"), Source: api.SourceHost}},
	}
	g := d.mustRedeem(noon, keys, q)
	if g.PresharedKey.IsZero() {
		t.Error("no preshared key was granted")
	}
	want := Grant{
		Ticket: keys.ID, Name: "edge", PublicKey: key(1), PresharedKey: g.PresharedKey,
		Allow: k.Allow, Offers: q.Grants, Candidates: q.Candidates,
	}
	if diff := cmp.Diff(want, g, same, cmp.AllowUnexported(peer.PresharedKey{})); diff != "" {
		t.Errorf("grant (-want +got):\n%s", diff)
	}
	if got := d.log.events(); !slices.Equal(got, []string{"invite", "redeem"}) {
		t.Errorf("audit: got %v, want invite, redeem", got)
	}
}

func TestTheSameKeyGetsTheSameAnswer(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	first := d.mustRedeem(noon, keys, ask(1, "edge"))
	again := d.mustRedeem(noon, keys, ask(1, "edge"))
	d.reopen(noon)
	restarted := d.mustRedeem(noon, keys, ask(1, "another-name-now"))
	for i, g := range []Grant{again, restarted} {
		if !g.PresharedKey.Equal(first.PresharedKey) || g.Name != "edge" || !slices.Equal(g.Allow, first.Allow) {
			t.Errorf("try %d: got %+v, want the first answer %+v", i+2, g, first)
		}
	}
	if n := count(d.log.events(), audit.Redeem); n != 1 {
		t.Errorf("%d redemptions were recorded, want 1", n)
	}
}

func TestASecondKeyIsRefusedAndAlarms(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	d.mustRedeem(noon, keys, ask(1, "edge"))
	for range MaxFailures + 1 { // refusals after the redemption must not undo it
		if _, err := d.redeem(noon, keys, ask(2, "thief")); !errors.Is(err, ErrAlreadyUsed) {
			t.Fatalf("second key: got %v, want %v", err, ErrAlreadyUsed)
		}
	}
	if _, err := d.Accept(noon, d.reply(keys, ask(3, "other"))); !errors.Is(err, ErrAlreadyUsed) {
		t.Errorf("a reply of another key: got %v, want %v", err, ErrAlreadyUsed)
	}
	if at, joined := d.LastAlarm(); !at.Equal(noon) || joined != ask(1, "edge").PublicKey {
		t.Errorf("the last alarm was at %s, of the ticket of %s", at, joined)
	}
	if got, want := d.Alarms(), uint64(MaxFailures+2); got != want {
		t.Errorf("%d alarms were counted, want %d", got, want)
	}
	d.mustRedeem(noon, keys, ask(1, "edge"))
	if n := count(d.log.events(), audit.Alarm); n != MaxFailures+2 {
		t.Errorf("%d alarms were recorded, want %d", n, MaxFailures+2)
	}
}

func TestAHundredAtOnceHaveOneWinner(t *testing.T) {
	const n = 100
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	errs := make([]error, n)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			_, errs[i] = d.redeem(noon, keys, ask(byte(i+1), "racer"))
		})
	}
	close(start)
	wg.Wait()
	winners, refused := 0, 0
	for i, err := range errs {
		switch {
		case err == nil:
			winners++
		case errors.Is(err, ErrAlreadyUsed):
			refused++
		default:
			t.Errorf("redemption %d: %v", i, err)
		}
	}
	if winners != 1 || refused != n-1 {
		t.Errorf("%d winners and %d already used, want 1 and %d", winners, refused, n-1)
	}
	if got := d.Alarms(); got != n-1 {
		t.Errorf("%d alarms, want %d", got, n-1)
	}
}

func TestRedeemRefuses(t *testing.T) {
	other := key(9)
	for _, c := range []struct {
		name   string
		invite Invitation
		q      Request
		want   error
	}{
		{"more than was granted", standard(), Request{PublicKey: key(1), Name: "edge", Wants: []string{"auth", "registry"}}, ErrNotGranted},
		{"another key than it is bound to", Invitation{For: other}, ask(1, "edge"), ErrWrongKey},
		{"a name that is none", standard(), ask(1, "Not A Name"), ErrName},
		{"no name", standard(), ask(1, ""), ErrName},
		{"a name of 41 characters", standard(), ask(1, strings.Repeat("n", 41)), ErrName},
		{"another peer's name", standard(), ask(1, "taken"), ErrName},
		{"no key", standard(), Request{Name: "edge"}, ErrRequest},
		{"a candidate without port", standard(), Request{PublicKey: key(1), Name: "edge", Candidates: []Candidate{{Addr: netip.MustParseAddrPort("192.0.2.1:0")}}}, ErrRequest},
		{"a service that is none", standard(), Request{PublicKey: key(1), Name: "edge", Grants: []string{"../etc"}}, ErrRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t, noon)
			d.names["taken"] = other
			_, keys := d.invite(noon, c.invite)
			for i := range MaxFailures {
				if g, err := d.redeem(noon, keys, c.q); !errors.Is(err, c.want) {
					t.Fatalf("try %d: got %v, %v; want error %q", i+1, g, err, c.want)
				}
			}
			if _, err := d.redeem(noon, keys, ask(9, "edge")); !errors.Is(err, ErrBurned) {
				t.Errorf("after %d failures: got %v, want %v", MaxFailures, err, ErrBurned)
			}
			if len(d.OneTimePeers(noon)) != 0 {
				t.Error("the burned ticket still has a one-time peer")
			}
			if drop, err := d.Expire(noon); err != nil || !slices.Equal(drop, []peer.PublicKey{keys.OneTime.Public()}) {
				t.Errorf("Expire: got %v, %v; want the burned ticket's key", drop, err)
			}
			events := d.log.events()
			if count(events, audit.Refuse) != MaxFailures+1 || count(events, audit.Burn) != 1 {
				t.Errorf("audit: %v; want %d refusals and 1 burn", events, MaxFailures+1)
			}
		})
	}
}

// The name that the inviter chose may be taken by now. The joiner cannot change that, so the
// ticket is not burned.
func TestATakenNameThatTheInviterGaveBurnsNothing(t *testing.T) {
	d := newDesk(t, noon)
	d.names["edge"] = key(9)
	_, keys := d.invite(noon, Invitation{Name: "edge"})
	for range MaxFailures + 1 {
		var taken *NameTakenError
		if _, err := d.redeem(noon, keys, ask(1, "berlin")); !errors.As(err, &taken) || !taken.Fixed {
			t.Fatalf("got %v, want a %T of a fixed name", err, taken)
		}
	}
	delete(d.names, "edge")
	d.mustRedeem(noon, keys, ask(1, "berlin"))
}

// The name in an open ticket is reserved for that ticket's joiner.
func TestNobodyTakesTheNameOfAnOpenTicket(t *testing.T) {
	d := newDesk(t, noon)
	_, named := d.invite(noon, Invitation{Name: "edge"})
	_, unnamed := d.invite(noon, standard())
	if _, err := d.redeem(noon, unnamed, ask(2, "edge")); !errors.Is(err, ErrName) {
		t.Errorf("who calls itself by the name of another's ticket: got %v, want %v", err, ErrName)
	}
	d.mustRedeem(noon, named, ask(1, "berlin"))
	d.mustRedeem(noon, unnamed, ask(2, "paris"))
}

func TestFailuresSurviveARestart(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, Invitation{For: key(9)})
	for range MaxFailures {
		d.reopen(noon)
		if _, err := d.redeem(noon, keys, ask(1, "edge")); !errors.Is(err, ErrWrongKey) {
			t.Fatalf("got %v, want %v", err, ErrWrongKey)
		}
	}
	d.reopen(noon)
	if _, err := d.redeem(noon, keys, ask(9, "edge")); !errors.Is(err, ErrBurned) {
		t.Errorf("got %v, want %v", err, ErrBurned)
	}
}

func TestNameConflictSaysWhatToDo(t *testing.T) {
	d := newDesk(t, noon)
	d.names["edge"] = key(9)
	_, keys := d.invite(noon, standard())
	if _, err := d.redeem(noon, keys, ask(1, "edge")); err == nil || !strings.Contains(err.Error(), "--name") {
		t.Errorf("got %v, want a hint to --name", err)
	}
	d.mustRedeem(noon, keys, ask(1, "edge-2"))
	// The name is reserved before the gateway has stored the peer.
	_, second := d.invite(noon, standard())
	if _, err := d.redeem(noon, second, ask(2, "edge-2")); !errors.Is(err, ErrName) {
		t.Errorf("the same name by another ticket: got %v, want %v", err, ErrName)
	}
	_, fixed := d.invite(noon, Invitation{Name: "edge"})
	if _, err := d.redeem(noon, fixed, ask(2, "x")); err == nil || !strings.Contains(err.Error(), "postern peer remove edge") {
		t.Errorf("got %v, want a hint to the inviter", err)
	}
}

func TestWantsNarrowTheGrant(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, Invitation{Allow: []string{"auth", "apiServer", "registry"}})
	g := d.mustRedeem(noon, keys, Request{PublicKey: key(1), Name: "edge", Wants: []string{"registry"}})
	if !slices.Equal(g.Allow, []string{"registry"}) {
		t.Errorf("granted %v, want only registry", g.Allow)
	}
}

func TestTheInvitersNameCounts(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, Invitation{Name: "berlin", For: key(1)})
	if g := d.mustRedeem(noon, keys, ask(1, "edge")); g.Name != "berlin" {
		t.Errorf("called %q, want berlin", g.Name)
	}
}

func TestApproval(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, Invitation{Approve: true})
	if g := d.mustRedeem(noon, keys, ask(1, "edge")); !g.Pending {
		t.Error("the peer counts before it was approved")
	}
	d.reopen(noon)
	if ok, err := d.Approve(noon, key(2)); ok || err != nil {
		t.Errorf("approving a stranger: got %v, %v", ok, err)
	}
	if ok, err := d.Approve(noon, key(1)); !ok || err != nil {
		t.Errorf("approve: got %v, %v", ok, err)
	}
	if g := d.mustRedeem(noon, keys, ask(1, "edge")); g.Pending {
		t.Error("the peer is still pending after its approval")
	}
	if n := count(d.log.events(), audit.Approve); n != 1 {
		t.Errorf("%d approvals were recorded, want 1", n)
	}
}

func TestAFinishedTicketAnswersUntilItsDeadline(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	redeemed := d.mustRedeem(noon, keys, ask(1, "edge"))
	saves := d.store.saves
	if err := d.Finish(noon, key(7)); err != nil || d.store.saves != saves {
		t.Errorf("a stranger's handshake: got %v, %d writes", err, d.store.saves-saves)
	}
	if err := d.Finish(noon, key(1)); err != nil {
		t.Errorf("Finish: %v", err)
	}
	d.reopen(noon)
	if len(d.OneTimePeers(noon)) != 1 {
		t.Error("the one-time peer is gone, so a thief gets no answer and causes no alarm")
	}
	if _, err := d.redeem(noon, keys, ask(2, "thief")); !errors.Is(err, ErrAlreadyUsed) || d.Alarms() != 1 {
		t.Errorf("another key: got %v and %d alarms, want %v and 1", err, d.Alarms(), ErrAlreadyUsed)
	}
	// A preshared key in use is never sent, even to the right name.
	if g, err := d.redeem(noon, keys, ask(1, "edge")); !errors.Is(err, ErrJoined) || !g.PresharedKey.IsZero() || d.Alarms() != 1 {
		t.Errorf("the same key: got %v and %d alarms, want %v and still 1", err, d.Alarms(), ErrJoined)
	}
	if at, ok := d.NextDeadline(); !ok || !at.Equal(noon.Add(DefaultTTL)) {
		t.Errorf("next deadline: got %v, %v", at, ok)
	}
	drop, err := d.Expire(noon.Add(DefaultTTL))
	if err != nil || !slices.Equal(drop, []peer.PublicKey{keys.OneTime.Public()}) || len(d.OneTimePeers(noon)) != 0 {
		t.Errorf("at the deadline: got %v, %v and %d one-time peers", drop, err, len(d.OneTimePeers(noon)))
	}
	// An operator may repeat accept, or a second reply arrive.
	g, err := d.Accept(noon, d.reply(keys, ask(1, "edge")))
	if err != nil || g.Name != "edge" {
		t.Errorf("the same joiner's reply: got %v, %v", g, err)
	}
	if !g.PresharedKey.Equal(redeemed.PresharedKey) {
		t.Error("the reply changes the preshared key of a session that is up")
	}
	if _, err := d.Accept(noon, d.reply(keys, ask(2, "thief"))); !errors.Is(err, ErrAlreadyUsed) {
		t.Errorf("another's reply: got %v, want %v", err, ErrAlreadyUsed)
	}
}

func TestARemovedPeerDoesNotComeBackByItsTicket(t *testing.T) {
	for _, finish := range []bool{false, true} {
		for what, leaver := range map[string]func(Keys) Leaver{
			"name":       func(Keys) Leaver { return Leaver{Name: "edge"} },
			"ticket":     func(k Keys) Leaver { return Leaver{Ticket: k.ID.String()} },
			"former key": func(Keys) Leaver { return Leaver{Keys: []peer.PublicKey{key(7), key(1)}} },
		} {
			d := newDesk(t, noon)
			_, keys := d.invite(noon, standard())
			d.mustRedeem(noon, keys, ask(1, "edge"))
			if finish {
				if err := d.Finish(noon, key(1)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := d.Forget(noon, leaver(keys)); err != nil {
				t.Fatal(err)
			}
			d.reopen(noon)
			if _, err := d.redeem(noon, keys, ask(1, "edge")); !errors.Is(err, ErrClosed) {
				t.Errorf("by its %s, finished %v: redeeming again: got %v, want %v", what, finish, err, ErrClosed)
			}
			if _, err := d.Accept(noon, d.reply(keys, ask(1, "edge"))); !errors.Is(err, ErrClosed) {
				t.Errorf("by its %s, finished %v: a reply: got %v, want %v", what, finish, err, ErrClosed)
			}
		}
	}
}

func TestAtMost256AreOpen(t *testing.T) {
	d := newDesk(t, noon)
	var last Keys
	for range MaxOpen {
		_, last = d.invite(noon, standard())
	}
	if _, _, err := d.Invite(noon, standard()); !errors.Is(err, ErrTooMany) {
		t.Errorf("ticket %d: got %v, want %v", MaxOpen+1, err, ErrTooMany)
	}
	d.mustRedeem(noon, last, ask(1, "edge"))
	if err := d.Finish(noon, key(1)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Invite(noon, standard()); err != nil {
		t.Errorf("after one was finished: %v", err)
	}
	if n := len(d.OneTimePeers(noon)); n != MaxOpen {
		t.Errorf("%d one-time peers, want %d: the finished one must give way", n, MaxOpen)
	}
	if _, _, err := d.Invite(noon.Add(2*time.Hour), standard()); err != nil {
		t.Errorf("after all have expired: %v", err)
	}
}

func TestInviteRefuses(t *testing.T) {
	d := newDesk(t, noon)
	for name, v := range map[string]Invitation{
		"a name that is none":    {Name: "Not A Name"},
		"a negative life":        {TTL: -time.Second},
		"a life too short":       {TTL: MinTTL - 1},
		"a life beyond measure":  {TTL: MaxTTL + time.Second},
		"a service that is none": {Allow: []string{"a b"}},
		"a useless candidate":    {Candidates: []Candidate{{Addr: netip.MustParseAddrPort("0.0.0.0:1")}}},
	} {
		if _, _, err := d.Invite(noon, v); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if len(d.store.Tickets().List) != 0 {
		t.Error("a refused invitation was stored")
	}
}

func TestNothingCountsThatCouldNotBeStored(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	full := errors.New("no space left on device")
	d.store.err = full
	if _, _, err := d.Invite(noon, standard()); !errors.Is(err, ErrStorage) || !errors.Is(err, full) {
		t.Errorf("Invite: got %v, want %v with its cause", err, ErrStorage)
	}
	if _, err := d.redeem(noon, keys, ask(1, "edge")); !errors.Is(err, ErrStorage) {
		t.Errorf("Redeem: got %v, want %v", err, ErrStorage)
	}
	d.store.err = nil
	if len(d.OneTimePeers(noon)) != 1 {
		t.Errorf("%d one-time peers, want that of the ticket that was stored", len(d.OneTimePeers(noon)))
	}
	d.mustRedeem(noon, keys, ask(2, "other")) // the first one's redemption did not count
}

// A gateway is started again on a full disk, long after its tickets have expired.
func TestABookOpensThoughItCannotBeStored(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	d.store.err = errors.New("no space left on device")
	later := noon.Add(2 * DefaultTTL)
	d.reopen(later)
	if _, err := d.redeem(later, keys, ask(1, "edge")); err == nil || errors.Is(err, ErrStorage) {
		t.Errorf("Redeem: got %v, want that the ticket has expired", err)
	}
	if !d.Unstored() || len(d.OneTimePeers(later)) != 0 {
		t.Errorf("unstored: %v, %d one-time peers; want true and 0", d.Unstored(), len(d.OneTimePeers(later)))
	}
	d.store.err = nil
	if _, err := d.Expire(later); err != nil || d.Unstored() || d.store.Tickets().List[0].State != Expired {
		t.Errorf("Expire when it can be stored: %v, %v", err, d.store.Tickets().List)
	}
}

func TestARemovedPeerIsForgottenThoughItCannotBeStored(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	d.mustRedeem(noon, keys, ask(1, "edge"))
	full := errors.New("no space left on device")
	d.store.err = full
	drop, err := d.Forget(noon, Leaver{Name: "edge"})
	if !errors.Is(err, ErrStorage) || !errors.Is(err, full) || len(drop) != 1 || drop[0] != keys.OneTime.Public() {
		t.Errorf("Forget: got %v and %v, want the one-time key and %v", drop, err, ErrStorage)
	}
	if !d.Unstored() || len(d.OneTimePeers(noon)) != 0 {
		t.Error("the ticket still answers")
	}
	if _, err := d.redeem(noon, keys, ask(1, "edge")); !errors.Is(err, ErrClosed) {
		t.Errorf("the removed peer's next request: got %v, want %v", err, ErrClosed)
	}
	if _, err := d.Expire(noon); !errors.Is(err, ErrStorage) || !d.Unstored() {
		t.Errorf("Expire while nothing can be stored: got %v, want %v", err, ErrStorage)
	}
	d.store.err = nil
	if _, err := d.Expire(noon); err != nil || d.Unstored() {
		t.Errorf("Expire when it can be stored: %v", err)
	}
	d.reopen(noon)
	if _, err := d.redeem(noon, keys, ask(1, "edge")); !errors.Is(err, ErrClosed) {
		t.Errorf("after a restart: got %v, want %v", err, ErrClosed)
	}
}
