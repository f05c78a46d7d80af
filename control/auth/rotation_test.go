package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tunnel/peer"
)

func TestANextKeyIsTakenFromPeersAlone(t *testing.T) {
	type announced struct {
		next peer.PublicKey
		psk  string
	}
	got := map[peer.PublicKey]announced{}
	configured := peer.PublicKey{7}
	s := serve(t, func(o *ServerOptions) {
		o.OnRotation = func(_ context.Context, a Announcement) error {
			from, next, psk := a.From, a.Next, a.PSK
			if string(a.Proof) != "proof" {
				t.Errorf("the proof arrives as %q", a.Proof)
			}
			switch from {
			case configured:
				return fmt.Errorf("%w: spec.peers of cloud names it", ErrConfigured)
			case peer.PublicKey{8}:
				return errors.New("the disk is full, and its name is secret")
			case next:
				return fmt.Errorf("%w: this is the present key", ErrRequest)
			}
			got[from] = announced{next, psk.Hex()}
			return nil
		}
	})
	pending := peer.PublicKey{5}
	s.dir.set(Caller{Name: "new", PublicKey: pending, Pending: true})
	s.dir.set(Caller{PublicKey: ticketKey, Kind: KindOneTime})
	s.dir.set(Caller{Name: "filed", PublicKey: configured})
	s.dir.set(Caller{Name: "unlucky", PublicKey: peer.PublicKey{8}})
	next, psk := peer.PublicKey{42}, peer.PresharedKeyFromBytes([32]byte{1, 2, 3})
	for _, c := range []struct {
		name string
		key  peer.PublicKey
		next peer.PublicKey
		want error
	}{
		{"a peer", edgeKey, next, nil},
		{"its present key", edgeKey, edgeKey, ErrRequest},
		{"a peer of the configuration", configured, next, ErrConfigured},
		{"when it cannot be stored", peer.PublicKey{8}, next, ErrServer},
		{"one that waits for approval", pending, next, ErrPending},
		{"a one-time peer", ticketKey, next, ErrDenied},
		{"a stranger", peer.PublicKey{99}, next, ErrDenied},
	} {
		err := s.client(c.key).Rotate(t.Context(), Announcement{Next: c.next, PSK: psk, Proof: []byte("proof")})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the gateway's own trouble is told: %v", c.name, err)
		}
	}
	if len(got) != 1 || got[edgeKey] != (announced{next, psk.Hex()}) {
		t.Errorf("taken: %v", got)
	}
}

func TestANextKeyThatIsNoneIsRefused(t *testing.T) {
	s := serve(t, func(o *ServerOptions) {
		o.OnRotation = func(context.Context, Announcement) error {
			t.Error("it was taken")
			return nil
		}
	})
	good := peer.PublicKey{1}.String()
	for name, q := range map[string]rotationRequest{
		"no key":           {spoken: speaks, PublicKey: "x", PresharedKey: good},
		"no preshared key": {spoken: speaks, PublicKey: good, PresharedKey: "none"},
		"version 2":        {spoken: spoken{"2.0"}, PublicKey: good, PresharedKey: good},
	} {
		var out taken
		err := s.client(edgeKey).do(t.Context(), http.MethodPost, pathRotation, q, &out)
		if !errors.Is(err, ErrRequest) && !errors.Is(err, ErrIncompatible) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Both sides compute the same proof, which requires one of the two private keys.
func TestTheProofIsOfTheNextKey(t *testing.T) {
	keys := make([]peer.PrivateKey, 3) // of the peer's next key, of the gateway, and an unrelated one
	for i := range keys {
		var err error
		if keys[i], err = peer.NewPrivateKey(); err != nil {
			t.Fatal(err)
		}
	}
	present, next, gateway := peer.PublicKey{1}, keys[0].Public(), keys[1].Public()
	psk := peer.PresharedKeyFromBytes([32]byte{2})
	proof := func(private peer.PrivateKey, public, present, next peer.PublicKey, psk peer.PresharedKey) string {
		p, err := RotationProof(private, public, present, next, psk)
		if err != nil {
			t.Fatal(err)
		}
		return string(p)
	}
	made := proof(keys[0], gateway, present, next, psk)
	if made != proof(keys[1], next, present, next, psk) {
		t.Error("the gateway computes another proof than the peer")
	}
	for what, other := range map[string]string{
		"without the next private key": proof(keys[2], gateway, present, next, psk),
		"for another gateway":          proof(keys[0], keys[2].Public(), present, next, psk),
		"of another present key":       proof(keys[0], gateway, peer.PublicKey{9}, next, psk),
		"of another preshared key":     proof(keys[0], gateway, present, next, peer.PresharedKey{}),
	} {
		if other == made {
			t.Errorf("the proof is the same %s", what)
		}
	}
	if _, err := RotationProof(keys[0], peer.PublicKey{}, present, next, psk); err == nil {
		t.Error("there is a proof for a key of low order")
	}
}
