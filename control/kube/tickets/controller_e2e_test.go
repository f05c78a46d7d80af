//go:build linux && e2e

package tickets

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/testenv/kube/kubetest"
	"github.com/postern-dev/postern/tunnel/peer"
)

// patience bounds waits; only a failing test takes that long.
const patience = 90 * time.Second

type world struct {
	cluster kubetest.Cluster
	// token is an administrator's, like a pod's: with a certificate, client-go would watch its
	// files forever.
	token string
}

// site is a namespace with a gateway and its controller.
type site struct {
	*world
	t         *testing.T
	namespace string
	gateway   *fakeGateway
	stop      func()
}

func TestControllerInARealCluster(t *testing.T) {
	c := kubetest.Start(t)
	w := &world{cluster: c}
	c.Define(t)
	w.token = c.Administrator(t)
	for _, x := range []struct {
		name string
		test func(*testing.T, *site)
	}{
		{"an invitation", testInvite},
		{"deleted is revoked", testRevoked},
		{"a gateway that died in between", testDied},
		{"what cannot be made", testCannot},
		{"a join", testJoin},
		{"a join that waits for the inviter's call", testReply},
		{"a join that is refused", testRefused},
	} {
		t.Run(x.name, func(t *testing.T) {
			namespace := strings.NewReplacer(" ", "-", "'", "").Replace(x.name)
			s := &site{world: w, t: t, namespace: namespace, gateway: newFakeGateway(t)}
			s.kubectl("", "create", "namespace", namespace)
			x.test(t, s)
		})
	}
}

func (s *site) kubectl(stdin string, args ...string) string {
	s.t.Helper()
	return s.cluster.Run(s.t, stdin, args...)
}

func (s *site) run() {
	s.t.Helper()
	file := s.cluster.Bearer(s.t, s.namespace, s.token)
	s.t.Setenv("KUBECONFIG", file)
	k, err := kube.Connect("test")
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := New(Options{Cluster: k, Gateway: s.gateway, Name: "edge", Logger: s.gateway.logger()})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	s.stop = sync.OnceFunc(func() { cancel(); <-done })
	s.t.Cleanup(s.stop)
}

func (s *site) apply(name, spec string) {
	s.t.Helper()
	s.kubectl(fmt.Sprintf("apiVersion: postern.dev/v1alpha1\nkind: Ticket\nmetadata: {name: %s, namespace: %s}\nspec: %s\n", name, s.namespace, spec), "apply", "-f", "-")
}

// becomes waits until a Ticket has a phase.
func (s *site) becomes(name, phase string) v1alpha1.TicketStatus {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var last v1alpha1.Ticket
	path := fmt.Sprintf("/apis/postern.dev/v1alpha1/namespaces/%s/tickets?fieldSelector=metadata.name%%3D%s", s.namespace, name)
	if err := s.cluster.WaitFor(ctx, path, func(object []byte) bool {
		last = v1alpha1.Ticket{}
		return json.Unmarshal(object, &last) == nil && last.Status.Phase == phase
	}); err != nil {
		s.t.Fatalf("it does not become %s: %v\n%s", phase, err, s.gateway.log)
	}
	return last.Status
}

// eventually polls for a condition without an event.
func (s *site) eventually(what string, holds func() (bool, string)) {
	s.t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, seen := holds()
		if ok {
			return
		}
		select {
		case <-deadline:
			s.t.Fatalf("%s: it does not; last: %s\n%s", what, seen, s.gateway.log)
		case <-tick.C:
		}
	}
}

// value returns one of a Secret's values; empty if there is none.
func (s *site) value(secret, key string) string {
	s.t.Helper()
	text := s.kubectl("", "get", "secret", "--ignore-not-found", secret, "-n", s.namespace, "-o", "jsonpath={.data."+key+"}")
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// keptSecret fails if a text is readable by others.
func (s *site) keptSecret(text string) {
	s.t.Helper()
	shown := s.kubectl("", "get", "tickets,events", "-n", s.namespace, "-o", "yaml") + s.gateway.log.String()
	if text == "" || strings.Contains(shown, text) || strings.Contains(shown, "postern1") {
		s.t.Errorf("the text %.12q… is shown", text)
	}
}

func testInvite(t *testing.T, s *site) {
	s.run()
	s.apply("cloud", "{invite: {name: cloud, ttl: 2h, allow: [auth]}}")
	status := s.becomes("cloud", v1alpha1.TicketOpen)
	text := s.value(status.SecretRef.Name, status.SecretRef.Key)
	got, err := ticket.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if status.SecretRef.Name != "postern-ticket-cloud" || len(status.ID) == 0 || time.Until(status.ExpiresAt.Time) < time.Hour || !strings.Contains(status.Message, "kubectl get secret") ||
		!strings.Contains(status.Message, "nobody can dial") {
		t.Errorf("the status is %+v", status)
	}
	if owner := s.kubectl("", "get", "secret", "postern-ticket-cloud", "-n", s.namespace, "-o", "jsonpath={.metadata.ownerReferences[0].kind}/{.metadata.ownerReferences[0].name}"); owner != "Ticket/cloud" {
		t.Errorf("the Secret belongs to %q", owner)
	}
	s.keptSecret(text)
	// A restart does not create another.
	s.stop()
	s.run()
	keys, err := got.Keys()
	if err != nil {
		t.Fatal(err)
	}
	s.gateway.set(func() {
		s.gateway.alarms = []api.Alarm{{Code: audit.CodeTicketAlarm, Count: 1, Attrs: []api.LogAttr{
			{Key: audit.KeyTicket, Value: status.ID}, {Key: audit.KeyReason, Value: "a second key"}}}}
	})
	joiner := peer.PrivateKeyFromBytes([32]byte{16: 1})
	q, err := ticket.Request{PublicKey: joiner.Public(), Name: "berlin"}.Prove(ticket.InBand, keys.ID, got.Inviter, joiner)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.gateway.book.Redeem(time.Now(), keys.OneTime.Public(), q); err != nil {
		t.Fatal(err)
	}
	status = s.becomes("cloud", v1alpha1.TicketRedeemed)
	if status.Peer != "cloud" || status.RedeemedBy != joiner.Public().String() || status.SecretRef != nil || len(s.gateway.Tickets()) != 1 {
		t.Errorf("the status is %+v of %d tickets", status, len(s.gateway.Tickets()))
	}
	s.eventually("the text that is of no use any more is deleted", func() (bool, string) {
		v := s.value("postern-ticket-cloud", "ticket")
		return v == "", "it is there"
	})
	s.eventually("events tell of it", func() (bool, string) {
		out := s.kubectl("", "get", "events", "-n", s.namespace, "-o", "jsonpath={.items[*].reason}")
		return strings.Contains(out, "Open") && strings.Contains(out, "Redeemed") && strings.Contains(out, "TicketAlarm"), out
	})
	s.keptSecret(text)
}

// states returns those of the book's tickets.
func (s *site) states() string {
	var out []string
	for _, x := range s.gateway.Tickets() {
		out = append(out, string(x.State))
	}
	return strings.Join(out, " ")
}

func testRevoked(_ *testing.T, s *site) {
	s.run()
	s.apply("one", "{invite: {}}")
	s.apply("two", "{invite: {}}")
	s.becomes("one", v1alpha1.TicketOpen)
	s.becomes("two", v1alpha1.TicketOpen)
	s.kubectl("", "delete", "ticket", "one", "-n", s.namespace)
	s.eventually("the first is revoked", func() (bool, string) {
		got := s.states()
		return strings.Count(got, "expired") == 1 && strings.Count(got, "open") == 1, got
	})
	s.stop()
	s.kubectl("", "delete", "ticket", "two", "-n", s.namespace)
	s.run()
	s.eventually("the second is revoked after a restart", func() (bool, string) { got := s.states(); return got == "expired expired", got })
	// A ticket created by command is unrelated to objects.
	if _, err := s.gateway.InviteFor(s.t.Context(), api.InviteRequest{}, ""); err != nil {
		s.t.Fatal(err)
	}
	s.apply("three", "{invite: {}}")
	s.becomes("three", v1alpha1.TicketOpen)
	if got := s.states(); got != "expired expired open open" {
		s.t.Errorf("the tickets are %s", got)
	}
}

func testDied(t *testing.T, s *site) {
	// The ticket is in the book, but its text is lost.
	s.apply("cloud", "{invite: {}}")
	uid := s.kubectl("", "get", "ticket", "cloud", "-n", s.namespace, "-o", "jsonpath={.metadata.uid}")
	if _, err := s.gateway.InviteFor(t.Context(), api.InviteRequest{}, uid); err != nil {
		t.Fatal(err)
	}
	s.run()
	status := s.becomes("cloud", v1alpha1.TicketOpen)
	if got := s.states(); got != "expired open" || status.ID != s.gateway.Tickets()[1].ID.String() {
		t.Errorf("the tickets are %s, the status %+v", got, status)
	}
	if s.value("postern-ticket-cloud", "ticket") == "" {
		t.Error("there is no text")
	}
}

func testCannot(t *testing.T, s *site) {
	s.kubectl("", "create", "secret", "generic", "postern-ticket-taken", "-n", s.namespace, "--from-literal=a=b")
	s.run()
	s.apply("taken", "{invite: {}}")
	if status := s.becomes("taken", v1alpha1.TicketFailed); !strings.HasPrefix(status.Message, "PST0726: ") || !strings.Contains(status.Message, "belongs to something else") {
		t.Errorf("got %q", status.Message)
	}
	if s.value("postern-ticket-taken", "a") != "b" {
		t.Error("someone else's Secret was changed")
	}
	s.gateway.set(func() { s.gateway.failing = admin.Usage("invite --allow: this gateway has no service \"nothing\"", "") })
	s.apply("wrong", "{invite: {allow: [nothing]}}")
	if status := s.becomes("wrong", v1alpha1.TicketFailed); !strings.Contains(status.Message, "no service") {
		t.Errorf("got %q", status.Message)
	}
	s.gateway.set(func() { s.gateway.failing = admin.Conflict("invite: 256 tickets are open", "") })
	s.apply("full", "{invite: {}}")
	if status := s.becomes("full", v1alpha1.TicketPending); !strings.Contains(status.Message, "256 tickets") {
		t.Errorf("got %q", status.Message)
	}
	s.gateway.set(func() { s.gateway.failing = nil })
	s.becomes("full", v1alpha1.TicketOpen)
}
