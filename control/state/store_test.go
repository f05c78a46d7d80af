package state

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// same compares peers with their secrets.
var same = cmp.Options{
	cmpopts.EquateComparable(netip.AddrPort{}, netip.Prefix{}, peer.PresharedKey{}, ticket.Key{}, ticket.Record{}.ID),
	cmpopts.EquateEmpty(),
}

func mustOpen(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func mustClose(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, s *Store, p Peer) {
	t.Helper()
	if err := s.Update(func(set *Peers) error { return set.Put(p) }); err != nil {
		t.Fatal(err)
	}
}

func edge() Peer {
	return Peer{
		Name: "edge", PublicKey: peer.PublicKey{1}, PresharedKey: peer.PresharedKeyFromBytes([32]byte{0x5e, 2}), Mode: "InBand",
		Endpoints:  []string{"gw.example.net:51820"},
		Candidates: []ticket.Candidate{{Addr: netip.MustParseAddrPort("192.0.2.1:51820"), Source: "host"}},
		Allow:      []string{"auth", "apiServer"}, Offers: []string{"auth"},
		Local: map[string]string{"apiServer": "127.0.0.1:7443"}, AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Pending: true, Origin: OriginInvited, Ticket: "0011223344556677", JoinedAt: time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC),
		ObjectKey: peer.PublicKey{1},
	}
}

func records() ticket.Records {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	key, err := ticket.ParseKey(peer.PresharedKeyFromBytes([32]byte{0x5e, 7}).Base64())
	if err != nil {
		panic(err)
	}
	return ticket.Records{Seen: at, List: []ticket.Record{
		{
			ID: ticket.ID{1}, OneTime: peer.PublicKey{2}, Tunnel: peer.PresharedKeyFromBytes([32]byte{0x5e, 3}), Reply: key, Peer: key,
			Name: "edge", For: peer.PublicKey{4}, Allow: []string{"auth"}, Approve: true, Object: "0f0e", CreatedAt: at, ExpiresAt: at.Add(time.Hour),
			State: ticket.Redeemed, Failures: 3,
			By: ticket.Redeemer{PublicKey: peer.PublicKey{4}, Name: "edge", PresharedKey: peer.PresharedKeyFromBytes([32]byte{0x5e, 5}), Allow: []string{"auth"}, Approved: true, At: at},
		},
		{ID: ticket.ID{2}, OneTime: peer.PublicKey{3}, Reply: key, Peer: key, CreatedAt: at, ExpiresAt: at, State: ticket.Expired, EndedAt: at},
	}}
}

func TestWhatIsStoredComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	s := mustOpen(t, dir)
	key, err := s.PrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, edge())
	put(t, s, Peer{Name: "berlin", PublicKey: peer.PublicKey{9}})
	endpoint := netip.MustParseAddrPort("198.51.100.7:40582")
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, err := range []error{
		s.SaveTickets(records()),
		s.SetIdentity(peer.PublicKey{1}, []byte("certificate"), []byte("key")),
		s.Proven(peer.PublicKey{1}, endpoint, now),
		s.RecordIssued(peer.PublicKey{1}, "edge", "0a", now, now.Add(time.Hour)),
		s.RecordIssued(peer.PublicKey{1}, "edge", "0b", now, now.Add(2*time.Hour)),
		s.SetListenerPorts(map[Listener]uint16{{Peer: "edge", Service: "apiServer"}: 7443}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, s)

	s = mustOpen(t, dir)
	if again, err := s.PrivateKey(); err != nil || !again.Equal(key) {
		t.Errorf("the private key changed (%v)", err)
	}
	want := []Peer{{Name: "berlin", PublicKey: peer.PublicKey{9}}, edge()}
	if diff := cmp.Diff(want, s.Peers().All(), same); diff != "" {
		t.Errorf("peers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(records(), s.Tickets(), same); diff != "" {
		t.Errorf("tickets (-want +got):\n%s", diff)
	}
	if cert, key, ok := s.Identity(peer.PublicKey{1}); !ok || string(cert) != "certificate" || string(key) != "key" {
		t.Errorf("identity: got %q, %q, %v", cert, key, ok)
	}
	if got := s.Observed(peer.PublicKey{1}).Endpoints; len(got) != 1 || got[0] != endpoint {
		t.Errorf("endpoints: got %v, want %v", got, endpoint)
	}
	if n, until := s.LastIssued(peer.PublicKey{1}, now.Add(90*time.Minute)); n != 1 || !until.Equal(now.Add(2*time.Hour)) {
		t.Errorf("identities that are valid: got %d until %v, want 1 until %v", n, until, now.Add(2*time.Hour))
	}
	if port := s.ListenerPort("edge", "apiServer"); port != 7443 {
		t.Errorf("listener port: got %d, want 7443", port)
	}
}

func TestEverythingIsForTheOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := mustOpen(t, dir)
	if _, err := s.PrivateKey(); err != nil {
		t.Fatal(err)
	}
	put(t, s, edge())
	put(t, s, Peer{Name: "berlin", PublicKey: peer.PublicKey{9}})
	if err := s.SaveTickets(records()); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			t.Errorf("%s has mode %04o", path, mode)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestUpdateIsAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	put(t, s, edge())
	refusal := errors.New("no")
	err := s.Update(func(p *Peers) error {
		p.Remove("edge")
		return refusal
	})
	if !errors.Is(err, refusal) {
		t.Errorf("got %v, want the caller's error", err)
	}
	if s.Peers().Len() != 1 {
		t.Error("a refused change is visible")
	}
}

func TestSnapshotsAreOnesOwn(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	put(t, s, edge())
	mine := s.Peers()
	mine.All()[0].Allow[0] = "everything"
	mine.All()[0].Local["apiServer"] = "0.0.0.0:1"
	mine.Remove("edge")
	kept := edge()
	put(t, s, kept)
	kept.Allow[0] = "everything"
	if diff := cmp.Diff([]Peer{edge()}, s.Peers().All(), same); diff != "" {
		t.Errorf("the store changed with a caller's copy (-want +got):\n%s", diff)
	}
}

func TestAnUpdateThatChangesNothingIsNotWritten(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	put(t, s, edge())
	before, err := os.ReadFile(filepath.Join(dir, "peers.json"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, edge())
	after, err := os.ReadFile(filepath.Join(dir, "peers.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("the file was written again")
	}
}

func TestPutKeepsNamesAndKeysApart(t *testing.T) {
	for _, c := range []struct {
		name string
		p    Peer
		want error
		text string
	}{
		{"another key under the name", Peer{Name: "edge", PublicKey: peer.PublicKey{2}}, ErrDuplicate, "postern peer remove edge"},
		{"another name for the key", Peer{Name: "berlin", PublicKey: peer.PublicKey{1}}, ErrDuplicate, "edge"},
		{"no key", Peer{Name: "berlin"}, peer.ErrKey, "berlin"},
		{"a name that is none", Peer{Name: "../etc", PublicKey: peer.PublicKey{2}}, nil, "DNS label"},
	} {
		var set Peers
		if err := set.Put(edge()); err != nil {
			t.Fatal(err)
		}
		err := set.Put(c.p)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v, want %v with %q", c.name, err, c.want, c.text)
		}
		if set.Len() != 1 {
			t.Errorf("%s: the set has %d peers, want 1", c.name, set.Len())
		}
	}
}

func TestUpdatesAtOnceAreAllKept(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			err := s.Update(func(p *Peers) error {
				return p.Put(Peer{Name: "p" + strconv.Itoa(i), PublicKey: peer.PublicKey{byte(i + 1)}})
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	mustClose(t, s)
	if n := mustOpen(t, dir).Peers().Len(); n != 40 {
		t.Errorf("%d peers came back, want 40", n)
	}
}

func TestASecondGatewayIsTold(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	_, err := Open(dir, nil)
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "pid "+strconv.Itoa(os.Getpid())) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want %v with directory and pid", err, ErrInUse)
	}
	mustClose(t, s)
	mustOpen(t, dir)
}

func TestAClosedStoreWritesNothing(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	mustClose(t, s)
	if err := s.Update(func(p *Peers) error { return p.Put(edge()) }); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want %v", err, ErrClosed)
	}
}

func TestProvenEndpoints(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	k := peer.PublicKey{1}
	at := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 51820)
	}
	for _, i := range []int{1, 2, 3, 4, 5, 3, 3} {
		if err := s.Proven(k, at(i), time.Unix(int64(i), 0)); err != nil {
			t.Fatal(err)
		}
	}
	want := []netip.AddrPort{at(3), at(5), at(4), at(2)}
	if diff := cmp.Diff(want, s.Observed(k).Endpoints, same); diff != "" {
		t.Errorf("endpoints, newest first (-want +got):\n%s", diff)
	}
}

// Each hello of a peer repeats what it offers, and the file contains all peers.
func TestWhatWasObservedBeforeCostsNoCopyOfAllPeers(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	err := s.observed.update(func(o *observed) error {
		for i := range 500 {
			o.Peers[peer.PublicKey{byte(i), byte(i >> 8)}.String()] = Observation{Offers: []string{"auth"}}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	hello := func(offers ...string) {
		if err := s.Observe(peer.PublicKey{1}, func(o *Observation) { o.Offers = offers }); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(5, func() { hello("auth") }); n > 100 {
		t.Errorf("a known observation costs %v allocations", n)
	}
	hello("auth", "blob")
	if got := s.Observed(peer.PublicKey{1}).Offers; len(got) != 2 {
		t.Errorf("a new observation is not stored: %v", got)
	}
}

func TestAnnouncedCandidatesAreKeptAndBounded(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	k := peer.PublicKey{1}
	var many []Announced
	for i := range 40 {
		many = append(many, Announced{netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 51820), "stun"})
	}
	for _, list := range [][]Announced{many[:2], many} {
		if err := s.Announce(k, list); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir)
	if diff := cmp.Diff(many[:maxAnnounced], s.Observed(k).Announced, same); diff != "" {
		t.Errorf("announced candidates (-want +got):\n%s", diff)
	}
	if err := s.Forget("edge", k); err != nil {
		t.Fatal(err)
	}
	if got := s.Observed(k).Announced; got != nil {
		t.Errorf("a removed peer's candidates are still there: %v", got)
	}
}

func TestForgetLeavesWhatWasIssued(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	k, now := peer.PublicKey{1}, time.Unix(1000, 0)
	for _, err := range []error{
		s.SetIdentity(k, []byte("c"), []byte("k")),
		s.Proven(k, netip.MustParseAddrPort("192.0.2.1:1"), now),
		s.SetListenerPorts(map[Listener]uint16{{Peer: "edge", Service: "apiServer"}: 1}),
		s.RecordIssued(k, "edge", "0a", now, now.Add(time.Hour)),
		s.Forget("edge", k),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, _, ok := s.Identity(k); ok {
		t.Error("the identity is still there")
	}
	if got := s.Observed(k).Endpoints; got != nil {
		t.Errorf("endpoints are still there: %v", got)
	}
	if s.ListenerPort("edge", "apiServer") != 0 {
		t.Error("the port is still there")
	}
	if n, _ := s.LastIssued(k, now); n != 1 {
		t.Errorf("%d identities are outstanding, want 1", n)
	}
}

func TestSecretsAreNotLogged(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	log.Info("x", "peer", edge(), "records", records())
	for _, secret := range []string{edge().PresharedKey.Base64(), records().List[0].Reply.Base64()} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("a secret was logged: %s", out.String())
		}
	}
}
