//go:build linux && e2e

package tickets

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel/peer"
)

func testJoin(t *testing.T, s *site) {
	text := foreignTicket(t, peer.PublicKey{5}, time.Hour)
	s.gateway.set(func() {
		s.gateway.answer = func(api.JoinRequest) (api.JoinResponse, error) {
			return api.JoinResponse{Outcome: api.JoinConnected, Peer: "paris"}, nil
		}
	})
	s.run()
	s.apply("paris", "{join: {secretRef: {name: handed, key: ticket}, name: paris, allow: [auth]}}")
	if status := s.becomes("paris", v1alpha1.TicketPending); !strings.Contains(status.Conditions[0].Message, "handed") && status.Conditions[0].Reason != "Waits" {
		t.Errorf("without its Secret: %+v", status)
	}
	s.kubectl("", "create", "secret", "generic", "handed", "-n", s.namespace, "--from-literal=ticket="+text+"\n")
	s.eventually("a Secret that is not meant for Tickets is refused", func() (bool, string) {
		message := s.becomes("paris", v1alpha1.TicketPending).Message
		return strings.Contains(message, "PST0725") && strings.Contains(message, "kubectl label secret handed"), message
	})
	if n := len(s.gateway.asked()); n != 0 {
		t.Errorf("the gateway was asked %d times to redeem what is not meant for it", n)
	}
	s.kubectl("", "label", "secret", "handed", "-n", s.namespace, "postern.dev/use=ticket")
	if status := s.becomes("paris", v1alpha1.TicketJoined); status.Peer != "paris" || status.ExpiresAt == nil {
		t.Errorf("the status is %+v", status)
	}
	if got := s.gateway.asked(); len(got) != 1 || got[0].Ticket != text || got[0].Name != "paris" || fmt.Sprint(got[0].Allow) != "[auth]" {
		t.Errorf("the gateway was asked %d times: %+v", len(got), got)
	}
	if s.value("handed", "ticket") == "" {
		t.Error("the operator's Secret is gone")
	}
	s.keptSecret(text)
}

func testReply(t *testing.T, s *site) {
	text := foreignTicket(t, peer.PublicKey{5}, time.Hour)
	s.kubectl("", "create", "secret", "generic", "handed", "-n", s.namespace, "--from-literal=ticket="+text)
	s.kubectl("", "label", "secret", "handed", "-n", s.namespace, "postern.dev/use=ticket")
	s.gateway.set(func() {
		s.gateway.answer = func(api.JoinRequest) (api.JoinResponse, error) {
			return api.JoinResponse{Outcome: api.JoinReply, Peer: "cloud", Reply: "the-reply-text", Reason: "nobody answers"}, nil
		}
	})
	s.run()
	s.apply("cloud", "{join: {secretRef: {name: handed, key: ticket}}}")
	status := s.becomes("cloud", v1alpha1.TicketReply)
	if got := s.value(status.SecretRef.Name, status.SecretRef.Key); got != "the-reply-text" || !strings.Contains(status.Message, "postern accept -") {
		t.Errorf("the reply is %q, the message %q", got, status.Message)
	}
	s.keptSecret("the-reply-text")
	// The inviter dials while this gateway is stopped for a moment.
	s.stop()
	s.gateway.set(func() {
		s.gateway.joined = []state.Peer{{Name: "cloud", PublicKey: peer.PublicKey{5}, Origin: state.OriginJoined}}
	})
	asked := len(s.gateway.asked())
	s.run()
	if status = s.becomes("cloud", v1alpha1.TicketJoined); status.Peer != "cloud" || len(s.gateway.asked()) != asked {
		t.Errorf("the status is %+v after %d tries", status, len(s.gateway.asked()))
	}
	s.eventually("the reply is deleted", func() (bool, string) { v := s.value("postern-ticket-cloud", "reply"); return v == "", v })
}

func testRefused(t *testing.T, s *site) {
	for secret, text := range map[string]string{
		"nonsense": "not a ticket", "late": foreignTicket(t, peer.PublicKey{5}, -time.Minute), "good": foreignTicket(t, peer.PublicKey{6}, time.Hour),
	} {
		s.kubectl("", "create", "secret", "generic", secret, "-n", s.namespace, "--from-literal=ticket="+text)
		s.kubectl("", "label", "secret", secret, "-n", s.namespace, "postern.dev/use=ticket")
	}
	s.gateway.set(func() {
		s.gateway.answer = func(api.JoinRequest) (api.JoinResponse, error) {
			return api.JoinResponse{}, admin.Usage("join: this gateway made the ticket itself", "")
		}
	})
	s.run()
	for name, want := range map[string]string{"nonsense": "not a postern ticket", "late": "expired", "good": "made the ticket itself"} {
		s.apply(name, "{join: {secretRef: {name: "+name+", key: ticket}}}")
		status := s.becomes(name, v1alpha1.TicketFailed)
		if !strings.HasPrefix(status.Message, "PST0726: ") || !strings.Contains(status.Message, want) || strings.Contains(status.Message, "not a ticket") && name != "nonsense" {
			t.Errorf("%s: got %q, want %q in it", name, status.Message, want)
		}
	}
	if got := s.gateway.asked(); len(got) != 1 {
		t.Errorf("the inviters were asked %d times, want once", len(got))
	}
}
