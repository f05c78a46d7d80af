package auth

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHelloTellsEachCallerItsOwn(t *testing.T) {
	api := &APIServer{ServerName: "kubernetes", CAData: block("CERTIFICATE", 40)}
	s := serve(t, func(o *ServerOptions) {
		o.APIServer = func() *APIServer { return api }
		o.Redeemer = redeemer(nil)
		o.Offers = func(c Caller) []string {
			if c.may("registry") {
				return []string{"registry"}
			}
			return c.Grants
		}
		o.HeardBoot = func(k peer.PublicKey) uint64 { return map[peer.PublicKey]uint64{berlinKey: 7, ticketKey: 8, {4}: 9}[k] }
	})
	s.dir.set(Caller{Name: "berlin", PublicKey: berlinKey, Grants: []string{"registry", "gone"}})
	s.dir.set(Caller{PublicKey: ticketKey, Kind: KindOneTime, Grants: []string{"auth", "apiServer"}})
	s.dir.set(Caller{Name: "new", PublicKey: peer.PublicKey{4}, Grants: []string{"auth", "apiServer"}, Pending: true})
	for _, c := range []struct {
		name string
		key  peer.PublicKey
		want Hello
	}{
		{"a peer that may reach all", edgeKey, Hello{Offers: []string{"auth", "apiServer"}, APIServer: api}},
		{"a peer with one service", berlinKey, Hello{Offers: []string{"registry"}, HeardBoot: 7}},
		{"a one-time peer", ticketKey, Hello{Offers: []string{}}},
		{"a peer that waits for approval", peer.PublicKey{4}, Hello{Offers: []string{}, Pending: true}},
	} {
		c.want.Version, c.want.Name, c.want.Software = "1.0", "cloud", "postern test"
		c.want.Capabilities = []string{CapabilityRedeem, CapabilityThroughput}
		got, err := s.client(c.key).Hello(t.Context())
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestStrangersAreDenied(t *testing.T) {
	s := serve(t, nil)
	c := s.client(peer.PublicKey{99})
	if _, err := c.Hello(t.Context()); !errors.Is(err, ErrDenied) || errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v, want %v", err, ErrDenied)
	}
	if n := len(s.log.events(audit.Refuse)); n != 1 {
		t.Errorf("%d refusals were recorded, want 1", n)
	}
	if n := s.srv.Decisions()[codeUnknownPeer]; n != 1 {
		t.Errorf("%d decisions were counted, want 1", n)
	}
}

func TestRedeemPassesRequestAndGrant(t *testing.T) {
	q := ticket.Request{
		PublicKey: edgeKey, Name: "edge", Wants: []string{"auth"}, Grants: []string{"apiServer"}, Proof: []byte("a proof of any length"),
		Candidates: []ticket.Candidate{{Addr: netip.MustParseAddrPort("192.0.2.1:51820"), Source: "host"}},
	}
	psk := peer.PresharedKeyFromBytes([32]byte{7})
	addrs := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	s := serve(t, func(o *ServerOptions) {
		o.APIServer = func() *APIServer { return &APIServer{ServerName: "kubernetes"} }
		o.Redeemer = redeemer(func(k peer.PublicKey, got ticket.Request) (ticket.Grant, error) {
			if k != ticketKey {
				t.Errorf("one-time key: got %v, want %v", k, ticketKey)
			}
			if diff := cmp.Diff(q, got, addrs); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			return ticket.Grant{Name: "berlin", PublicKey: edgeKey, PresharedKey: psk, Allow: []string{"auth", "apiServer"}}, nil
		})
	})
	s.dir.set(Caller{PublicKey: ticketKey, Kind: KindOneTime})
	got, err := s.client(ticketKey).Redeem(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if !got.PresharedKey.Equal(psk) {
		t.Error("another preshared key arrived")
	}
	got.PresharedKey = peer.PresharedKey{}
	want := Redemption{Name: "cloud", As: "berlin", Granted: []string{"auth", "apiServer"}, APIServer: &APIServer{ServerName: "kubernetes"}}
	if diff := cmp.Diff(want, got, cmp.Comparer(peer.PresharedKey.Equal)); diff != "" {
		t.Errorf("redemption (-want +got):\n%s", diff)
	}
	if strings.Contains(s.log.String(), psk.Base64()) {
		t.Error("the preshared key was logged")
	}
}

func TestRedeemingNeedsATicketsTunnel(t *testing.T) {
	s := serve(t, func(o *ServerOptions) {
		o.Redeemer = redeemer(func(peer.PublicKey, ticket.Request) (ticket.Grant, error) {
			t.Error("the redeemer was asked")
			return ticket.Grant{}, nil
		})
	})
	if _, err := s.client(edgeKey).Redeem(t.Context(), ticket.Request{PublicKey: edgeKey, Name: "edge"}); !errors.Is(err, ErrDenied) {
		t.Errorf("got %v, want %v", err, ErrDenied)
	}
	if n := len(s.log.events(audit.Refuse)); n != 1 {
		t.Errorf("%d refusals were recorded, want 1", n)
	}
}

func TestRefusalsKeepTheirKindOnTheWay(t *testing.T) {
	sentinels := []error{
		ErrDenied, ErrRateLimited, ErrIncompatible, ErrNoIssuer, ErrRequest, ErrAnswer, ErrServer, ErrUnreachable,
		ticket.ErrAlreadyUsed, ticket.ErrExpired, ticket.ErrBurned, ticket.ErrClosed, ticket.ErrName, ticket.ErrKeyTaken, ticket.ErrStorage,
	}
	for _, c := range []struct {
		cause, want error
		tells       string
	}{
		{ticket.ErrAlreadyUsed, ticket.ErrAlreadyUsed, "already used"},
		{ticket.ErrJoined, ticket.ErrAlreadyUsed, "postern status"},
		{&ticket.ExpiredError{At: time.Unix(0, 0)}, ticket.ErrExpired, "1970-01-01T00:00:00Z"},
		{ticket.ErrBurned, ticket.ErrBurned, "given up"},
		{ticket.ErrClosed, ticket.ErrClosed, "removed"},
		{ticket.ErrWrongKey, ErrDenied, "bound to another"},
		{ticket.ErrNoProof, ErrDenied, "upgrade it, then join again"},
		{fmt.Errorf("%w: %q", ticket.ErrNotGranted, "registry"), ErrDenied, "registry"},
		{&ticket.NameTakenError{Name: "edge"}, ticket.ErrName, "--name"},
		{&ticket.KeyTakenError{Peer: true, Holder: "secret detail"}, ticket.ErrKeyTaken, "peer allow"},
		{&ticket.KeyTakenError{Peer: true, Replaced: true, Holder: "secret detail"}, ticket.ErrKeyTaken, "have that peer removed there first"},
		{ticket.ErrUnknown, ErrDenied, "no such ticket"},
		{ticket.ErrRequest, ErrRequest, "malformed"},
		{errors.Join(ticket.ErrNotGranted, ticket.ErrStorage), ErrServer, "its log has the cause"},
		{errors.New("secret detail"), ErrServer, "its log has the cause"},
	} {
		s := serve(t, func(o *ServerOptions) {
			o.Redeemer = redeemer(func(peer.PublicKey, ticket.Request) (ticket.Grant, error) { return ticket.Grant{}, c.cause })
		})
		s.dir.set(Caller{PublicKey: ticketKey, Kind: KindOneTime})
		_, err := s.client(ticketKey).Redeem(t.Context(), ticket.Request{PublicKey: edgeKey, Name: "edge"})
		for _, x := range sentinels {
			if errors.Is(err, x) != errors.Is(c.want, x) {
				t.Errorf("%v: arrives as %v; is %q: %v", c.cause, err, x, errors.Is(err, x))
			}
		}
		if err != nil && (!strings.Contains(err.Error(), c.tells) || strings.Contains(err.Error(), "secret detail")) {
			t.Errorf("%v: the message is %q, want %q in it", c.cause, err, c.tells)
		}
		if errors.Is(c.want, ErrServer) && !strings.Contains(s.log.String(), `"level":"ERROR"`) {
			t.Errorf("%v: the cause was not logged", c.cause)
		}
		s.stop()
	}
}

// bookStore is the storage of a real ticket book.
type bookStore struct {
	mu sync.Mutex
	r  ticket.Records
}

func (b *bookStore) Tickets() ticket.Records { return b.r }

func (b *bookStore) SaveTickets(r ticket.Records) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.r = r
	return nil
}

func (*bookStore) Reserve(string, peer.PublicKey, bool) error { return nil }

func TestAThiefRacesTheOwnerInBand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		store := &bookStore{}
		s := serve(t, nil)
		inviter := peer.PrivateKeyFromBytes([32]byte{16: 0xee})
		book, err := ticket.OpenBook(time.Now(), ticket.Options{Key: inviter, Name: "cloud", Storage: store, Names: store, Audit: s.srv.o.Audit})
		if err != nil {
			t.Fatal(err)
		}
		s.srv.o.Redeemer = redeemer(func(k peer.PublicKey, q ticket.Request) (ticket.Grant, error) {
			return book.Redeem(time.Now(), k, q)
		})
		_, info, err := book.Invite(time.Now(), ticket.Invitation{Allow: []string{"auth"}})
		if err != nil {
			t.Fatal(err)
		}
		s.dir.set(Caller{PublicKey: info.OneTime, Kind: KindOneTime})
		errs := make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				joiner := peer.PrivateKeyFromBytes([32]byte{16: byte(i + 1)})
				q, err := ticket.Request{PublicKey: joiner.Public(), Name: "racer"}.Prove(ticket.InBand, info.ID, inviter.Public(), joiner)
				if err != nil {
					t.Error(err)
				}
				_, errs[i] = s.client(info.OneTime).Redeem(ctx, q)
			})
		}
		wg.Wait()
		winners, late := 0, 0
		for i, err := range errs {
			switch {
			case err == nil:
				winners++
			case errors.Is(err, ticket.ErrAlreadyUsed):
				late++
			case !errors.Is(err, ErrRateLimited): // all hold the ticket, and so share an allowance
				t.Errorf("racer %d: %v", i, err)
			}
		}
		if want := paces[costWrite].burst - 1; winners != 1 || late != want || book.Alarms() != uint64(want) {
			t.Errorf("%d winners, %d late ones and %d alarms, want 1, %d and as many", winners, late, book.Alarms(), want)
		}
		if got := len(s.log.events(audit.Alarm)); got != late {
			t.Errorf("%d alarms were recorded, want %d", got, late)
		}
		s.stop()
	})
}

// raw sends bytes and returns the answer's status, headers and body.
func (s *site) raw(from peer.PublicKey, request string) (int, http.Header, errorBody) {
	s.t.Helper()
	c, err := s.net.dialFrom(peer.OverlayAddr(from))(s.t.Context(), "tcp", "")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	go func() { _, _ = io.WriteString(c, request) }() // ends with the connection
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		s.t.Fatalf("%.60q: %v", request, err)
	}
	defer func() { _ = resp.Body.Close() }()
	var body errorBody
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		s.t.Fatalf("%.60q: status %d, no JSON: %v", request, resp.StatusCode, err)
	}
	return resp.StatusCode, resp.Header, body
}

func post(path, body string, headers ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n%s", path, len(body), strings.Join(headers, ""), body)
}

func TestBadRequestsGetOneFormOfAnswer(t *testing.T) {
	s := serve(t, func(o *ServerOptions) {
		o.Redeemer = redeemer(func(peer.PublicKey, ticket.Request) (ticket.Grant, error) { return ticket.Grant{}, nil })
	})
	s.dir.set(Caller{PublicKey: ticketKey, Kind: KindOneTime})
	good := fmt.Sprintf(`"version":"1.0","publicKey":%q,"name":"edge"`, edgeKey)
	for _, c := range []struct {
		name, request string
		status        int
		code          string
	}{
		{"another path", "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 404, codeNotFound},
		{"a path that looks like one", "GET /v1/hello/../../etc HTTP/1.1\r\nHost: x\r\n\r\n", 404, codeNotFound},
		{"another method", "DELETE /v1/hello HTTP/1.1\r\nHost: x\r\n\r\n", 405, codeMethod},
		{"reading what is written", "GET /v1/redeem HTTP/1.1\r\nHost: x\r\n\r\n", 405, codeMethod},
		{"no body", post(pathRedeem, ""), 400, codeBadRequest},
		{"no JSON", post(pathRedeem, "hello"), 400, codeBadRequest},
		{"two documents", post(pathRedeem, "{"+good+"}{}"), 400, codeBadRequest},
		{"another type", post(pathRedeem, `{"version":1}`), 400, codeBadRequest},
		{"no version", post(pathRedeem, `{"name":"edge"}`), 400, codeBadRequest},
		{"the next version in the body", post(pathRedeem, `{"version":"2.0"}`), 400, codeIncompatible},
		{"the next version in the header", post(pathRedeem, "{"+good+"}", "Postern-Version: 2.0\r\n"), 400, codeIncompatible},
		{"no key", post(pathRedeem, `{"version":"1.0","name":"edge"}`), 400, codeBadRequest},
		{"a candidate that is none", post(pathRedeem, "{"+good+`,"candidates":[{"address":"localhost:1"}]}`), 400, codeBadRequest},
		{"too many candidates", post(pathRedeem, "{"+good+`,"candidates":[`+strings.Repeat(`{"address":"192.0.2.1:1"},`, 16)+`{"address":"192.0.2.1:1"}]}`), 400, codeBadRequest},
		{"too much", post(pathRedeem, "{"+good+`,"x":"`+strings.Repeat("x", pemBody)+`"}`), 413, codeTooLarge},
	} {
		status, headers, body := s.raw(ticketKey, c.request)
		if status != c.status || body.Code != c.code || body.Version != ProtocolVersion || body.Message == "" {
			t.Errorf("%s: got %d %+v, want %d %s", c.name, status, body, c.status, c.code)
		}
		if headers.Get(VersionHeader) != ProtocolVersion || headers.Get("Content-Type") != "application/json" {
			t.Errorf("%s: headers %v", c.name, headers)
		}
	}
	// A newer minor version has unknown fields.
	newer := post(pathRedeem, "{"+strings.Replace(good, "1.0", "1.9", 1)+`,"later":true}`, "Postern-Version: 1.9\r\n")
	if status, _, _ := s.raw(ticketKey, newer); status != http.StatusOK {
		t.Errorf("a newer minor version: got status %d, want 200", status)
	}
}

func TestServerOptionsAreChecked(t *testing.T) {
	if _, err := NewServer(ServerOptions{Name: "cloud"}); err == nil {
		t.Error("no directory: no error")
	}
	if _, err := NewServer(ServerOptions{Name: "Not A Name", Directory: &directory{}}); err == nil {
		t.Error("an invalid name: no error")
	}
}
