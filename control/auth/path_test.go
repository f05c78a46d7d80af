package auth

import (
	"errors"
	"testing"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Path messages are accepted from every peer, regardless of grants, and from no one else.
func TestPathMessagesAreTakenFromPeersAlone(t *testing.T) {
	got := map[peer.PublicKey]string{}
	bad := errors.New("not\x1b[31m a message")
	s := serve(t, func(o *ServerOptions) {
		o.OnPath = func(from peer.PublicKey, message []byte) error {
			got[from] = string(message)
			if string(message) == `"bad"` {
				return bad
			}
			return nil
		}
	})
	nothing, pending := peer.PublicKey{4}, peer.PublicKey{5}
	s.dir.set(Caller{Name: "berlin", PublicKey: nothing})
	s.dir.set(Caller{Name: "new", PublicKey: pending, Pending: true})
	s.dir.set(Caller{PublicKey: ticketKey, Kind: KindOneTime})
	for _, c := range []struct {
		name    string
		key     peer.PublicKey
		message string
		want    error
	}{
		{"a peer without a grant", nothing, `{"seq":1}`, nil},
		{"one that waits for approval", pending, `{}`, ErrPending},
		{"a one-time peer", ticketKey, `{}`, ErrDenied},
		{"a stranger", peer.PublicKey{99}, `{}`, ErrDenied},
		{"what the path finder refuses", nothing, `"bad"`, ErrRequest},
		{"no JSON", nothing, `{`, nil},
	} {
		delete(got, c.key)
		err := s.client(c.key).Path(t.Context(), []byte(c.message))
		if c.name == "no JSON" {
			if err == nil {
				t.Errorf("%s: was sent", c.name)
			}
			continue
		}
		if !errors.Is(err, c.want) || c.want == nil && got[c.key] != c.message {
			t.Errorf("%s: got %v and message %q, want %v and %q", c.name, err, got[c.key], c.want, c.message)
		}
	}
}

func TestAGatewayWithoutPathFinderSaysSo(t *testing.T) {
	s := serve(t, nil)
	if err := s.client(edgeKey).Path(t.Context(), []byte(`{}`)); !errors.Is(err, ErrRequest) {
		t.Errorf("got %v, want %v", err, ErrRequest)
	}
}
