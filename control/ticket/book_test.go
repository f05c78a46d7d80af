package ticket

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
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

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// memory is a Storage that can be out of order.
type memory struct {
	mu      sync.Mutex
	records Records
	saves   int
	err     error
}

func (m *memory) Tickets() Records {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records.clone()
}

func (m *memory) SaveTickets(r Records) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	m.saves++
	m.records = r.clone()
	return nil
}

// names are the peers that a gateway has besides the book's.
type names map[string]peer.PublicKey

func (n names) Reserve(name string, key peer.PublicKey) error {
	if holder, ok := n[name]; ok && holder != key {
		return &NameTakenError{Name: name}
	}
	return nil
}

// desk is a book with all that it needs.
type desk struct {
	*Book
	t      *testing.T
	store  *memory
	names  names
	log    *lockedBuffer
	alarms *[]Alarm
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// events lists the audit records' events.
func (l *lockedBuffer) events() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, line := range bytes.Split(bytes.TrimSpace(l.b.Bytes()), []byte("\n")) {
		var record struct{ Event string }
		if json.Unmarshal(line, &record) == nil && record.Event != "" {
			out = append(out, record.Event)
		}
	}
	return out
}

func count(list []string, what audit.Event) int {
	n := 0
	for _, s := range list {
		if s == string(what) {
			n++
		}
	}
	return n
}

var self = peer.PublicKey{0xee}

func newDesk(t *testing.T, now time.Time) *desk {
	t.Helper()
	d := &desk{t: t, store: &memory{}, names: names{}, log: &lockedBuffer{}, alarms: new([]Alarm)}
	d.reopen(now)
	return d
}

// reopen is a restart of the gateway.
func (d *desk) reopen(now time.Time) {
	d.t.Helper()
	var mu sync.Mutex
	b, err := OpenBook(now, Options{
		Self: self, Name: "cloud", Storage: d.store, Names: d.names,
		Audit: audit.New(slog.New(slog.NewJSONHandler(d.log, nil))),
		OnAlarm: func(a Alarm) {
			mu.Lock()
			defer mu.Unlock()
			*d.alarms = append(*d.alarms, a)
		},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	d.Book = b
}

// invite makes a ticket and gives its keys.
func (d *desk) invite(now time.Time, v Invitation) (Ticket, Keys) {
	d.t.Helper()
	k, _, err := d.Invite(now, v)
	if err != nil {
		d.t.Fatal(err)
	}
	keys, err := k.Keys()
	if err != nil {
		d.t.Fatal(err)
	}
	return k, keys
}

func ask(key byte, name string) Request {
	return Request{PublicKey: peer.PublicKey{key}, Name: name}
}

func standard() Invitation {
	return Invitation{Allow: []string{api.ServiceAuth, api.ServiceAPIServer}}
}

func (d *desk) redeem(now time.Time, k Keys, q Request) (Grant, error) {
	return d.Redeem(now, k.OneTime.Public(), q)
}

func (d *desk) mustRedeem(now time.Time, k Keys, q Request) Grant {
	d.t.Helper()
	g, err := d.redeem(now, k, q)
	if err != nil {
		d.t.Fatal(err)
	}
	return g
}

func (d *desk) reply(k Keys, q Request) Reply {
	d.t.Helper()
	text, err := EncodeReply(k, q)
	if err != nil {
		d.t.Fatal(err)
	}
	r, err := DecodeReply(text)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

func TestRedeemGrantsWhatTheTicketSays(t *testing.T) {
	d := newDesk(t, noon)
	k, keys := d.invite(noon, standard())
	if got, want := k.Expires, noon.Add(DefaultTTL); !got.Equal(want) {
		t.Errorf("expires at %v, want %v", got, want)
	}
	if got := d.OneTimePeers(noon); len(got) != 1 || got[0].PublicKey != keys.OneTime.Public() || !got[0].PresharedKey.Equal(keys.Tunnel) {
		t.Fatalf("one-time peers: %v, want the ticket's", got)
	}
	info, ok := d.LookupAddr(peer.OverlayAddr(keys.OneTime.Public()))
	if !ok || info.ID != keys.ID {
		t.Errorf("LookupAddr: got %v, %v; want ticket %s", info, ok, keys.ID)
	}
	q := Request{
		PublicKey: peer.PublicKey{1}, Name: "edge", Grants: []string{api.ServiceAuth},
		Candidates: []Candidate{{Addr: netip.MustParseAddrPort("192.0.2.1:51820"), Source: api.SourceHost}},
	}
	g := d.mustRedeem(noon, keys, q)
	if g.PresharedKey.IsZero() {
		t.Error("no preshared key was granted")
	}
	want := Grant{
		Ticket: keys.ID, Name: "edge", PublicKey: peer.PublicKey{1}, PresharedKey: g.PresharedKey,
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
	for range MaxFailures + 1 { // refusals after the redemption must not take it back
		if _, err := d.redeem(noon, keys, ask(2, "thief")); !errors.Is(err, ErrAlreadyUsed) {
			t.Fatalf("second key: got %v, want %v", err, ErrAlreadyUsed)
		}
	}
	if _, err := d.Accept(noon, d.reply(keys, ask(3, "other"))); !errors.Is(err, ErrAlreadyUsed) {
		t.Errorf("a reply of another key: got %v, want %v", err, ErrAlreadyUsed)
	}
	if got, want := d.Alarms(), uint64(MaxFailures+2); got != want || len(*d.alarms) != int(want) {
		t.Errorf("alarms: counted %d, called for %d; want %d", got, len(*d.alarms), want)
	}
	if got, want := (*d.alarms)[0], (Alarm{Ticket: keys.ID, Peer: "edge", PublicKey: peer.PublicKey{1}, Second: peer.PublicKey{2}}); got != want {
		t.Errorf("alarm: got %+v, want %+v", got, want)
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
	if got := d.Alarms(); got != n-1 || len(*d.alarms) != n-1 {
		t.Errorf("%d alarms, %d calls; want %d", got, len(*d.alarms), n-1)
	}
}

func TestRedeemRefuses(t *testing.T) {
	other := peer.PublicKey{9}
	for _, c := range []struct {
		name   string
		invite Invitation
		q      Request
		want   error
	}{
		{"more than was granted", standard(), Request{PublicKey: peer.PublicKey{1}, Name: "edge", Wants: []string{"auth", "registry"}}, ErrNotGranted},
		{"another key than it is bound to", Invitation{For: other}, ask(1, "edge"), ErrWrongKey},
		{"a name that is none", standard(), ask(1, "Not A Name"), ErrName},
		{"no name", standard(), ask(1, ""), ErrName},
		{"a name of 41 characters", standard(), ask(1, strings.Repeat("n", 41)), ErrName},
		{"another peer's name", standard(), ask(1, "taken"), ErrName},
		{"another peer's name, given by the inviter", Invitation{Name: "taken"}, ask(1, "edge"), ErrName},
		{"no key", standard(), Request{Name: "edge"}, ErrRequest},
		{"our own key", standard(), Request{PublicKey: self, Name: "edge"}, ErrRequest},
		{"a candidate without port", standard(), Request{PublicKey: peer.PublicKey{1}, Name: "edge", Candidates: []Candidate{{Addr: netip.MustParseAddrPort("192.0.2.1:0")}}}, ErrRequest},
		{"a service that is none", standard(), Request{PublicKey: peer.PublicKey{1}, Name: "edge", Grants: []string{"../etc"}}, ErrRequest},
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

func TestFailuresSurviveARestart(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, Invitation{For: peer.PublicKey{9}})
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
	d.names["edge"] = peer.PublicKey{9}
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
	g := d.mustRedeem(noon, keys, Request{PublicKey: peer.PublicKey{1}, Name: "edge", Wants: []string{"registry"}})
	if !slices.Equal(g.Allow, []string{"registry"}) {
		t.Errorf("granted %v, want registry alone", g.Allow)
	}
}

func TestTheInvitersNameCounts(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, Invitation{Name: "berlin", For: peer.PublicKey{1}})
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
	if ok, err := d.Approve(noon, peer.PublicKey{2}); ok || err != nil {
		t.Errorf("approving a stranger: got %v, %v", ok, err)
	}
	if ok, err := d.Approve(noon, peer.PublicKey{1}); !ok || err != nil {
		t.Errorf("approve: got %v, %v", ok, err)
	}
	if g := d.mustRedeem(noon, keys, ask(1, "edge")); g.Pending {
		t.Error("the peer is still pending after its approval")
	}
	if n := count(d.log.events(), audit.Approve); n != 1 {
		t.Errorf("%d approvals were recorded, want 1", n)
	}
}

func TestFinishRemovesTheOneTimePeer(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	d.mustRedeem(noon, keys, ask(1, "edge"))
	saves := d.store.saves
	if drop, err := d.Finish(noon, peer.PublicKey{7}); drop != nil || err != nil || d.store.saves != saves {
		t.Errorf("a stranger's handshake: got %v, %v, %d writes", drop, err, d.store.saves-saves)
	}
	drop, err := d.Finish(noon, peer.PublicKey{1})
	if err != nil || !slices.Equal(drop, []peer.PublicKey{keys.OneTime.Public()}) {
		t.Errorf("Finish: got %v, %v; want the one-time key", drop, err)
	}
	if _, ok := d.Lookup(keys.OneTime.Public()); ok || len(d.OneTimePeers(noon)) != 0 {
		t.Error("the one-time peer is still there")
	}
	// An operator may repeat accept, or a second reply arrive.
	g, err := d.Accept(noon, d.reply(keys, ask(1, "edge")))
	if err != nil || g.Name != "edge" {
		t.Errorf("the same joiner's reply: got %v, %v", g, err)
	}
	if _, err := d.Accept(noon, d.reply(keys, ask(2, "thief"))); !errors.Is(err, ErrAlreadyUsed) {
		t.Errorf("another's reply: got %v, want %v", err, ErrAlreadyUsed)
	}
}

func TestARemovedPeerDoesNotComeBackByItsTicket(t *testing.T) {
	for _, finish := range []bool{false, true} {
		d := newDesk(t, noon)
		_, keys := d.invite(noon, standard())
		d.mustRedeem(noon, keys, ask(1, "edge"))
		if finish {
			if _, err := d.Finish(noon, peer.PublicKey{1}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.Forget(noon, peer.PublicKey{1}); err != nil {
			t.Fatal(err)
		}
		d.reopen(noon)
		if _, err := d.redeem(noon, keys, ask(1, "edge")); !errors.Is(err, ErrClosed) {
			t.Errorf("finished %v: redeeming again: got %v, want %v", finish, err, ErrClosed)
		}
		if _, err := d.Accept(noon, d.reply(keys, ask(1, "edge"))); !errors.Is(err, ErrClosed) {
			t.Errorf("finished %v: a reply: got %v, want %v", finish, err, ErrClosed)
		}
	}
}

func TestAccept(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	want, err := keys.Peer.PeerKey(self, peer.PublicKey{1})
	if err != nil {
		t.Fatal(err)
	}
	g, err := d.Accept(noon, d.reply(keys, ask(1, "edge")))
	if err != nil {
		t.Fatal(err)
	}
	if !g.PresharedKey.Equal(want) {
		t.Error("the preshared key is not the one that the joiner derives")
	}
	if again := d.mustRedeem(noon, keys, ask(1, "edge")); !again.PresharedKey.Equal(want) {
		t.Error("redeeming after all gives another preshared key than the reply")
	}
	if got := d.log.events(); !slices.Equal(got, []string{"invite", "accept"}) {
		t.Errorf("audit: got %v", got)
	}
}

func TestAReplyReplacesAnAnswerThatWasLost(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	d.mustRedeem(noon, keys, ask(1, "edge")) // the joiner never sees this
	want, err := keys.Peer.PeerKey(self, peer.PublicKey{1})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		g, err := d.Accept(noon, d.reply(keys, ask(1, "edge")))
		if err != nil || !g.PresharedKey.Equal(want) {
			t.Errorf("got %v, %v; want the key that follows from the ticket", g, err)
		}
	}
}

func TestAForgedReplyIsRefused(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	forged := keys
	forged.Reply = Key{b: [32]byte{1}}
	for range MaxFailures + 1 { // knowing an id must not be enough to burn a ticket
		if _, err := d.Accept(noon, d.reply(forged, ask(2, "thief"))); !errors.Is(err, ErrForged) {
			t.Fatalf("got %v, want %v", err, ErrForged)
		}
	}
	foreign := keys
	foreign.ID = ID{1}
	if _, err := d.Accept(noon, d.reply(foreign, ask(2, "thief"))); !errors.Is(err, ErrUnknown) {
		t.Errorf("another gateway's ticket: got %v, want %v", err, ErrUnknown)
	}
	if n := count(d.log.events(), audit.Refuse); n != MaxFailures+2 {
		t.Errorf("%d refusals were recorded, want %d", n, MaxFailures+2)
	}
	if _, err := d.Accept(noon, d.reply(keys, ask(1, "edge"))); err != nil {
		t.Errorf("the real reply: %v", err)
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
	if _, err := d.Finish(noon, peer.PublicKey{1}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Invite(noon, standard()); err != nil {
		t.Errorf("after one was finished: %v", err)
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
