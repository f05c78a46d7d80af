package gateway_test

import (
	"bytes"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/tunnel/peer"
)

// written counts the writes to a site's state directory: each makes a generation of a file.
func written(w *world, s *lab.Site) (n uint64) {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(s.File), "state", "*.json"))
	if err != nil || len(files) == 0 {
		w.t.Fatalf("%d state files (%v)", len(files), err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			w.t.Fatal(err)
		}
		line, _, _ := bytes.Cut(b, []byte("\n"))
		var h struct{ Generation uint64 }
		if err := json.Unmarshal(line, &h); err != nil {
			w.t.Fatal(err)
		}
		n += h.Generation
	}
	return n
}

// said counts the lines of a site's log with a message.
func (r *record) said(site, message string) (n int) {
	for line := range strings.Lines(r.String()) {
		var e struct{ Gateway, Msg string }
		if json.Unmarshal([]byte(line), &e) == nil && e.Gateway == site && e.Msg == message {
			n++
		}
	}
	return n
}

// A ticket's holder that says the same again has nothing written and nothing applied; one
// that says something else each time is held to a rate.
func TestARedemptionThatIsRepeatedCostsNothing(t *testing.T) {
	w := newWorld(t)
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both})
	client := redeemer(w, w.host("guest", "203.0.113.67"), text).client(w.Cloud)
	key := newKey(t)
	at := func(port int) ticket.Request {
		addr := netip.AddrPortFrom(netip.MustParseAddr("203.0.113.67"), uint16(port))
		return w.prove(ticket.InBand, text, key, ticket.Request{Name: "guest", Candidates: []ticket.Candidate{{Addr: addr, Source: "host"}}})
	}
	q := at(51820)
	if _, err := client.Redeem(w.ctx, q); err != nil {
		t.Fatal(err)
	}
	joined := func() int { return w.log.said("cloud", "peer joined by ticket") }
	before, applied, start := written(w, w.Cloud), joined(), time.Now()
	for range 20 {
		if _, err := client.Redeem(w.ctx, q); err != nil && !errors.Is(err, auth.ErrRateLimited) {
			t.Fatal(err)
		}
	}
	if n, most := written(w, w.Cloud)-before, 1+uint64(time.Since(start)/time.Second); n > most { // what else the gateway has to remember
		t.Errorf("the same 20 times was written %d times, at most %d are due", n, most)
	}
	if n := joined() - applied; n != 0 {
		t.Errorf("the same 20 times was applied %d times", n)
	}
	before, applied, start = written(w, w.Cloud), joined(), time.Now()
	for i := range 60 {
		if _, err := client.Redeem(w.ctx, at(1000+i)); err != nil && !errors.Is(err, auth.ErrRateLimited) {
			t.Fatal(err)
		}
	}
	most := 28 + uint64(time.Since(start)/time.Second) // the burst, and what else there is to remember
	if n := written(w, w.Cloud) - before; n > most {
		t.Errorf("something else 60 times was written %d times, at most %d are due", n, most)
	}
	if n := joined() - applied; n > int(most) {
		t.Errorf("something else 60 times was applied %d times, at most %d are due", n, most)
	}
}

// A peer that does all that it can to have things stored, inside of its rates: it changes what it
// offers and says so in each report, announces other candidates and other keys, and has
// identities issued.
func TestAHostilePeerCausesFewWrites(t *testing.T) {
	const lasts = 12 * time.Second
	w := newWorld(t)
	key := newKey(t)
	if err := w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{
		Peer: api.Peer{Name: "mallory", PublicKey: key.Public().String(), Allow: both},
	}); err != nil {
		t.Fatal(err)
	}
	listener := forward.NewListener(&net.TCPAddr{Port: int(api.PortAuth)})
	var asked atomic.Int64
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set(auth.VersionHeader, auth.ProtocolVersion)
		fmt.Fprintf(rw, `{"version":"1.0","name":"mallory","capabilities":["report"],"offers":["auth","s%d"]}`, asked.Add(1))
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close(); _ = listener.Close(); <-served })
	m := newStrangerWith(t, w.host("mallory", "203.0.113.66"), key, netstack.Options{
		Addresses: []netip.Addr{peer.OverlayAddr(key.Public())},
		OnTCP: func(in *netstack.Incoming) {
			if c, err := in.Accept(w.ctx); err == nil {
				go listener.ServeConn(w.ctx, c)
			}
		},
	}, peer.Config{Name: "cloud", PublicKey: siteKey(w.Cloud), Endpoints: []netip.AddrPort{endpoint(w.Cloud)}})
	w.await("cloud has asked mallory", func() string {
		m.pinged(w.ctx, w.Cloud, time.Second)
		if asked.Load() == 0 {
			return "no hello"
		}
		return ""
	})
	client := m.client(w.Cloud)
	i, identities, rotations := 0, 0, 0
	turn := func() {
		i++
		_ = client.Report(w.ctx, fmt.Appendf(nil, `{"version":"1.1","at":%q,"gateway":"mallory","offers":"%x","identity":"%x"}`,
			time.Now().UTC().Format(time.RFC3339), i%256, i%256))
		_ = client.Path(w.ctx, fmt.Appendf(nil, `{"version":"1.0","boot":1,"seq":%d,"candidates":[{"address":"203.0.113.66:%d","source":"host"}]}`, i, 1000+i))
		next := newKey(t)
		if proof, err := auth.RotationProof(next, siteKey(w.Cloud), key.Public(), next.Public(), peer.PresharedKey{}); err == nil {
			if client.Rotate(w.ctx, auth.Announcement{Next: next.Public(), Proof: proof}) == nil {
				rotations++
			}
		}
		if _, err := client.Identity(w.ctx, signingRequest(t, pkix.Name{})); err == nil {
			identities++
		}
	}
	for asked.Load() < 6 || identities < 5 || rotations < 4 { // one more than each burst
		turn()
		if w.ctx.Err() != nil {
			t.Fatalf("%d hellos, %d identities, %d rotations", asked.Load(), identities, rotations)
		}
	}
	before, start := written(w, w.Cloud), time.Now()
	for time.Since(start) < lasts {
		turn()
	}
	// From then on there is an identity and a rotation in 10 s, and in 30 s what it announces
	// and what it offers, each once or twice; what had nearly come when the count began is more.
	took := time.Since(start)
	n, most := written(w, w.Cloud)-before, 2*(1+uint64(took/(10*time.Second)))+4*(1+uint64(took/(30*time.Second)))
	if n > most {
		t.Errorf("%d writes in %s, at most %d are due", n, took.Round(time.Second), most)
	}
}

// A gateway of before tells all of its addresses, however many. The first of them count.
func TestALongListOfCandidatesIsReadFromItsBeginning(t *testing.T) {
	w := newWorld(t)
	key := newKey(t)
	if err := w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "old", PublicKey: key.Public().String()}}); err != nil {
		t.Fatal(err)
	}
	m := newStranger(t, w.host("old", "203.0.113.66"), key,
		peer.Config{Name: "cloud", PublicKey: siteKey(w.Cloud), Endpoints: []netip.AddrPort{endpoint(w.Cloud)}})
	var list []string
	for i := range 500 {
		list = append(list, fmt.Sprintf(`{"address":"203.0.113.66:%d","source":"host"}`, 1000+i))
	}
	if err := m.client(w.Cloud).Path(w.ctx, []byte(`{"version":"1.0","boot":1,"seq":1,"candidates":[`+strings.Join(list, ",")+`]}`)); err != nil {
		t.Fatal(err)
	}
	w.await("the first is a candidate", func() string {
		p, _ := w.status(w.Cloud, "old")
		for _, c := range p.Candidates {
			if c.Address == "203.0.113.66:1000" {
				return ""
			}
		}
		return fmt.Sprintf("candidates: %+v", p.Candidates)
	})
}
