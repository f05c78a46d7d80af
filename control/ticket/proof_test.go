package ticket

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/tunnel/peer"
)

// full returns a request with a value in every field.
func full() Request {
	return Request{
		PublicKey: key(1), Name: "edge", Wants: []string{"auth"}, Grants: []string{"registry"},
		Candidates: []Candidate{{Addr: netip.MustParseAddrPort("192.0.2.1:51820"), Source: api.SourceHost}},
	}
}

func TestAProofGoesForOneRequestAlone(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, Invitation{Allow: []string{"auth", "apiServer"}})
	_, other := d.invite(noon, standard())
	good := d.proven(InBand, keys, full())
	proveBy := func(id ID, inviter peer.PublicKey, by peer.PrivateKey) []byte {
		q, err := full().Prove(InBand, id, inviter, by)
		if err != nil {
			t.Fatal(err)
		}
		return q.Proof
	}
	for name, change := range map[string]func(*Request){
		"another key":                func(q *Request) { q.PublicKey = key(2) },
		"another name":               func(q *Request) { q.Name = "edg" },
		"other wants":                func(q *Request) { q.Wants = []string{"apiServer"} },
		"no wants":                   func(q *Request) { q.Wants = nil },
		"other grants":               func(q *Request) { q.Grants = []string{"registry", "auth"} },
		"a want that is a grant":     func(q *Request) { q.Wants, q.Grants = []string{"auth", "registry"}, nil },
		"another address":            func(q *Request) { q.Candidates[0].Addr = netip.MustParseAddrPort("192.0.2.2:51820") },
		"another port":               func(q *Request) { q.Candidates[0].Addr = netip.MustParseAddrPort("192.0.2.1:51821") },
		"another source":             func(q *Request) { q.Candidates[0].Source = api.SourceAdvertised },
		"no candidate":               func(q *Request) { q.Candidates = nil },
		"a proof for another ticket": func(q *Request) { q.Proof = proveBy(other.ID, self, private(1)) },
		"a proof by another key":     func(q *Request) { q.Proof = proveBy(keys.ID, self, private(2)) },
		"one for another inviter":    func(q *Request) { q.Proof = proveBy(keys.ID, key(3), private(1)) },
		"the proof of a reply":       func(q *Request) { q.Proof = d.proven(ByReply, keys, full()).Proof },
		"a key of low order":         func(q *Request) { q.PublicKey = peer.PublicKey{1} },
	} {
		q := full()
		q.Proof = bytes.Clone(good.Proof)
		change(&q)
		if err := q.checkProof(InBand, keys.ID, selfKey); !errors.Is(err, ErrProof) || errors.Is(err, ErrNoProof) {
			t.Errorf("%s: got %v, want %v", name, err, ErrProof)
		}
	}
	if err := good.checkProof(InBand, keys.ID, selfKey); err != nil {
		t.Errorf("unchanged: %v", err)
	}
}

// The proof is checked first: without it no name, grant or key is disclosed.
func TestATicketIsRedeemedWithAProofOnly(t *testing.T) {
	for name, c := range map[string]struct {
		proof []byte
		want  error
		burns bool
	}{
		"none":        {[]byte{}, ErrNoProof, false}, // an older joiner returns after its upgrade
		"a false one": {make([]byte, proofSize), ErrProof, true},
		"a short one": {make([]byte, proofSize-1), ErrRequest, true},
		"a long one":  {make([]byte, proofSize+1), ErrRequest, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, noon)
			d.names["taken"] = key(9)
			_, keys := d.invite(noon, Invitation{For: key(2)})
			for range MaxFailures { // only ticket holders get here
				_, err := d.redeem(noon, keys, Request{PublicKey: key(1), Name: "taken", Wants: []string{"auth"}, Proof: c.proof})
				if !errors.Is(err, c.want) {
					t.Fatalf("got %v, want %v", err, c.want)
				}
			}
			if _, err := d.redeem(noon, keys, ask(2, "edge")); errors.Is(err, ErrBurned) != c.burns {
				t.Errorf("after %d failures: got %v, want it burned: %t", MaxFailures, err, c.burns)
			}
		})
	}
}

func TestAReplyIsAcceptedWithAProofOnly(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	for _, c := range []struct {
		proof []byte
		want  error
	}{{[]byte{}, ErrNoProof}, {make([]byte, proofSize), ErrProof}} {
		q := ask(1, "edge")
		q.Proof = c.proof
		if _, err := d.Accept(noon, d.reply(keys, q)); !errors.Is(err, c.want) {
			t.Errorf("a proof of %d bytes: got %v, want %v", len(c.proof), err, c.want)
		}
	}
	if g, err := d.Accept(noon, d.reply(keys, ask(1, "edge"))); err != nil || g.PublicKey != key(1) {
		t.Errorf("with the proof: got %v, %v", g, err)
	}
}

// A joiner with a used ticket that claims its redeemer's key is a thief.
func TestAFalseProofToAUsedTicketAlarms(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	d.mustRedeem(noon, keys, ask(1, "edge"))
	q := ask(1, "edge")
	q.Proof = []byte{} // an older joiner whose answer was lost
	if _, err := d.redeem(noon, keys, q); !errors.Is(err, ErrNoProof) || d.Alarms() != 0 {
		t.Errorf("no proof: got %v and %d alarms, want %v and none", err, d.Alarms(), ErrNoProof)
	}
	q.Proof = make([]byte, proofSize)
	if _, err := d.redeem(noon, keys, q); !errors.Is(err, ErrProof) || d.Alarms() != 1 || count(d.log.events(), audit.Alarm) != 1 {
		t.Errorf("a false proof: got %v and %d alarms, want %v and 1", err, d.Alarms(), ErrProof)
	}
	d.mustRedeem(noon, keys, ask(1, "edge"))
}

func TestATicketOfAFormerKeyIsRefusedInSoManyWords(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	reply := d.reply(keys, ask(1, "edge"))
	b, err := OpenBook(noon, Options{Key: private(0xdd), Name: "cloud", Storage: d.store, Names: d.names})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Accept(noon, reply); !errors.Is(err, ErrRekeyed) {
		t.Errorf("got %v, want %v", err, ErrRekeyed)
	}
}

func FuzzProof(f *testing.F) {
	q := full()
	good, err := q.Prove(InBand, ID{1}, self, private(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good.PublicKey[:], good.Name, "auth", "registry", good.Proof)
	f.Add(make([]byte, 32), "", "", "", []byte(nil))
	f.Fuzz(func(t *testing.T, k []byte, name, want, grant string, proof []byte) {
		r := Request{Name: name, Wants: []string{want}, Grants: []string{grant}, Candidates: q.Candidates, Proof: proof}
		copy(r.PublicKey[:], k)
		same := r.PublicKey == q.PublicKey && name == q.Name && want == q.Wants[0] && grant == q.Grants[0] && bytes.Equal(proof, good.Proof)
		if err := r.checkProof(InBand, ID{1}, selfKey); (err == nil) != same {
			t.Errorf("%+v: %v", r, err)
		}
	})
}
