package ticket

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/postern-dev/postern/tunnel/peer"
)

// vector is an entry of testdata/vectors.json. The file was computed from the format in the
// package comment by an independent program (Python's hashlib and hmac, and RFC 7748's ladder).
type vector struct {
	Seed       string            `json:"seed"`
	Inviter    peer.PublicKey    `json:"inviter"`
	Name       string            `json:"name"`
	Expires    int64             `json:"expires"`
	Approve    bool              `json:"approve"`
	Allow      []string          `json:"allow"`
	Candidates []vectorCandidate `json:"candidates"`
	Ticket     string            `json:"ticket"`
	Keys       struct {
		ID             ID             `json:"id"`
		OneTimePrivate string         `json:"oneTimePrivate"`
		OneTimePublic  peer.PublicKey `json:"oneTimePublic"`
		Tunnel         string         `json:"tunnelPresharedKey"`
		Reply          string         `json:"replyMAC"`
		Peer           string         `json:"peer"`
	} `json:"keys"`
	Reply struct {
		Private    string            `json:"joinerPrivate"`
		Joiner     peer.PublicKey    `json:"joiner"`
		Name       string            `json:"name"`
		Wants      []string          `json:"wants"`
		Grants     []string          `json:"grants"`
		Candidates []vectorCandidate `json:"candidates"`
		Proof      []byte            `json:"proof"`
		Text       string            `json:"text"`
		Former     string            `json:"textWithoutProof"` // of version 1.0
		PSK        string            `json:"peerPresharedKey"`
	} `json:"reply"`
}

type vectorCandidate struct {
	Address netip.AddrPort `json:"address"`
	Source  string         `json:"source"`
}

func candidates(list []vectorCandidate) []Candidate {
	var out []Candidate
	for _, c := range list {
		out = append(out, Candidate{Addr: c.Address, Source: c.Source})
	}
	return out
}

func (v vector) ticket(t *testing.T) Ticket {
	t.Helper()
	seed, err := hex.DecodeString(v.Seed)
	if err != nil {
		t.Fatal(err)
	}
	return Ticket{
		Seed: SeedFromBytes([32]byte(seed)), Inviter: v.Inviter, Name: v.Name, Expires: time.Unix(v.Expires, 0),
		Approve: v.Approve, Allow: v.Allow, Candidates: candidates(v.Candidates),
	}
}

func (v vector) request() Request {
	return Request{PublicKey: v.Reply.Joiner, Name: v.Reply.Name, Wants: v.Reply.Wants, Grants: v.Reply.Grants, Candidates: candidates(v.Reply.Candidates), Proof: v.Reply.Proof}
}

func vectors(t testing.TB) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []vector
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// same compares tickets and requests with their secrets.
var same = cmp.Options{
	cmp.AllowUnexported(Seed{}), cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.AddrPort{}),
	cmpopts.IgnoreUnexported(Reply{}),
}

func TestTextMatchesTheVectors(t *testing.T) {
	for _, v := range vectors(t) {
		want := v.ticket(t)
		if got, err := want.Encode(); err != nil || got != v.Ticket {
			t.Errorf("Encode(%s): got %s, %v\nwant %s", v.Name, got, err, v.Ticket)
		}
		got, err := Decode(v.Ticket)
		if err != nil {
			t.Errorf("Decode(%s): %v", v.Name, err)
		}
		if diff := cmp.Diff(want, got, same); diff != "" {
			t.Errorf("Decode(%s) (-want +got):\n%s", v.Name, diff)
		}
	}
}

func TestKeysMatchTheVectors(t *testing.T) {
	for _, v := range vectors(t) {
		k, err := v.ticket(t).Keys()
		if err != nil {
			t.Fatal(err)
		}
		psk, err := k.Peer.PeerKey(v.Inviter, v.Reply.Joiner)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ what, got, want string }{
			{"id", k.ID.String(), v.Keys.ID.String()},
			{"one-time private key", k.OneTime.Base64(), v.Keys.OneTimePrivate},
			{"one-time public key", k.OneTime.Public().String(), v.Keys.OneTimePublic.String()},
			{"tunnel preshared key", k.Tunnel.Base64(), v.Keys.Tunnel},
			{"reply mac key", k.Reply.Base64(), v.Keys.Reply},
			{"peer key", k.Peer.Base64(), v.Keys.Peer},
			{"lasting preshared key", psk.Base64(), v.Reply.PSK},
		} {
			if c.got != c.want {
				t.Errorf("%s, %s: got %s, want %s", v.Name, c.what, c.got, c.want)
			}
		}
	}
}

func TestReplyMatchesTheVectors(t *testing.T) {
	for _, v := range vectors(t) {
		k, err := v.ticket(t).Keys()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := EncodeReply(k, v.request()); err != nil || got != v.Reply.Text {
			t.Errorf("EncodeReply(%s): got %s, %v\nwant %s", v.Name, got, err, v.Reply.Text)
		}
		got, err := DecodeReply(v.Reply.Text)
		if err != nil {
			t.Errorf("DecodeReply(%s): %v", v.Name, err)
		}
		if diff := cmp.Diff(Reply{Ticket: v.Keys.ID, Request: v.request()}, got, same); diff != "" {
			t.Errorf("DecodeReply(%s) (-want +got):\n%s", v.Name, diff)
		}
		if !got.authentic(k.Reply) {
			t.Errorf("the reply of %s is not taken for authentic", v.Reply.Name)
		}
		if other := (Key{b: [32]byte{1}}); got.authentic(other) {
			t.Errorf("the reply of %s is authentic under another ticket's key", v.Reply.Name)
		}
		joiner, err := peer.ParsePrivateKey(v.Reply.Private)
		if err != nil {
			t.Fatal(err)
		}
		former := v.request()
		former.Proof = nil
		if q, err := former.Prove(ByReply, k.ID, v.Inviter, joiner); err != nil || !bytes.Equal(q.Proof, v.Reply.Proof) {
			t.Errorf("Prove(%s): got %x, %v; want %x", v.Reply.Name, q.Proof, err, v.Reply.Proof)
		}
		if got, err := EncodeReply(k, former); err != nil || got != v.Reply.Former {
			t.Errorf("EncodeReply(%s) without a proof: got %s, %v\nwant %s", v.Reply.Name, got, err, v.Reply.Former)
		}
		if got, err := DecodeReply(v.Reply.Former); err != nil || got.Proof != nil || !got.authentic(k.Reply) {
			t.Errorf("DecodeReply(%s) of version 1.0: got %v, %v", v.Reply.Name, got, err)
		}
	}
}

func TestKeysOfOneTicketAreBoundToTheTwoGateways(t *testing.T) {
	var k Key
	a, b := peer.PublicKey{1}, peer.PublicKey{2}
	ab, err := k.PeerKey(a, b)
	if err != nil {
		t.Fatal(err)
	}
	ba, err := k.PeerKey(b, a)
	if err != nil {
		t.Fatal(err)
	}
	if ab.Equal(ba) {
		t.Error("the preshared key does not depend on who invited whom")
	}
}
