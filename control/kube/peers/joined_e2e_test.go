//go:build linux && e2e

package peers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel/peer"
)

// noted waits until the gateway has stored a peer's object.
func (s *site) noted(name string, key peer.PublicKey) {
	s.t.Helper()
	s.eventually("the object of "+name+" is remembered", func() (bool, string) {
		for _, p := range s.gateway.Joined() {
			if p.Name == name {
				return p.ObjectKey == key, p.ObjectKey.String()
			}
		}
		return false, "no such peer"
	})
}

// forgotten waits until a joined peer is removed.
func (s *site) forgotten(name string) {
	s.t.Helper()
	s.eventually(name+" is removed", func() (bool, string) {
		joined := s.gateway.Joined()
		return !slices.ContainsFunc(joined, func(p state.Peer) bool { return p.Name == name }), fmt.Sprint(len(joined))
	})
}

func testJoined(t *testing.T, w *world) {
	s := w.site(t, "joined").run()
	names := []string{"berlin", "paris", "rome", "oslo"}
	s.gateway.change(func() {
		for i, name := range names {
			s.gateway.joined[name] = invited(name, keyOf(i+1))
		}
	})
	for i, name := range names {
		o := s.peer(name, "it has an object", isConnected)
		if o.Labels[v1alpha1.LabelOrigin] != "invited" || o.Spec.PublicKey != keyOf(i+1).String() || !slices.Equal(o.Spec.Allow, []string{"auth"}) || len(o.Finalizers) > 0 {
			t.Errorf("the object of %s is %+v", name, o)
		}
		s.noted(name, keyOf(i+1))
	}
	s.eventually("the gateway has their options", func() (bool, string) {
		byName, _ := s.gateway.has()
		return byName["berlin"].Joined && len(byName) == len(names), fmt.Sprintf("%+v", byName)
	})
	s.kubectl("", "patch", "peer", "berlin", "-n", s.namespace, "--type=merge", `-p={"spec":{"allow":[]}}`)
	s.peer("berlin", "its rights are what the object says", func(o *v1alpha1.Peer) bool {
		byName, _ := s.gateway.has()
		return o.Status.ObservedGeneration == 2 && len(byName["berlin"].Allow) == 0
	})
	s.kubectl("", "delete", "peer", "berlin", "-n", s.namespace)
	s.forgotten("berlin")
	s.gateway.change(func() { delete(s.gateway.joined, "paris") })
	s.eventually("the object of a peer that was removed by command is deleted", func() (bool, string) {
		out, err := s.try("", "get", "peer", "paris", "-n", s.namespace)
		return err != nil && strings.Contains(err.Error(), "NotFound"), out
	})
	s.stop()
	s.kubectl("", "delete", "peer", "rome", "-n", s.namespace)
	s.run()
	s.forgotten("rome")
	// A peer that announces another key keeps its object, which then has that key.
	s.gateway.change(func() {
		p := s.gateway.joined["oslo"]
		p.PublicKey = keyOf(44)
		s.gateway.joined["oslo"] = p
	})
	s.peer("oslo", "its object has the key that it announced", func(o *v1alpha1.Peer) bool {
		return isConnected(o) && o.Spec.PublicKey == keyOf(44).String()
	})
	s.noted("oslo", keyOf(44))
	// An object with another key contradicts the agreement, but its grants count.
	s.kubectl("", "patch", "peer", "oslo", "-n", s.namespace, "--type=merge", `-p={"spec":{"publicKey":"`+keyOf(77).String()+`"}}`)
	s.peer("oslo", "its key was agreed", refusedFor("PeerRefused"))
	if byName, _ := s.gateway.has(); byName["oslo"].PublicKey != keyOf(44) || len(byName["oslo"].Allow) > 0 {
		t.Errorf("the gateway has %+v", byName["oslo"])
	}
	// If the state is lost, the objects stay.
	s.stop()
	s.gateway.change(func() { clear(s.gateway.joined) })
	s.run()
	o := s.peer("oslo", "it is told that the gateway knows nothing of it", refusedFor("PeerNotInState"))
	if !strings.Contains(condition(o, v1alpha1.TunnelReady).Message, "PST0727") {
		t.Errorf("got %+v", o.Status)
	}
}

func testApproval(t *testing.T, w *world) {
	s := w.site(t, "approval").run()
	pending := func(name string, n int) {
		p := invited(name, keyOf(n))
		p.Pending = true
		s.gateway.joined[name] = p
	}
	s.gateway.change(func() { pending("berlin", 1); pending("paris", 2) })
	waits := func(o *v1alpha1.Peer) bool {
		x := condition(o, v1alpha1.TunnelReady)
		return o.Spec.Pending && o.Status.State == string(api.StatePending) && strings.Contains(x.Message, peer.Fingerprint(keyOf(1)))
	}
	o := s.peer("berlin", "it waits", waits)
	// The command in the condition approves the peer.
	_, command, _ := strings.Cut(condition(o, v1alpha1.TunnelReady).Message, "`kubectl patch ")
	command, _, _ = strings.Cut(command, "`")
	patch := fmt.Sprintf(`{"spec":{"publicKey":"%s","pending":false}}`, keyOf(1))
	s.kubectl("", "patch", "peers.postern.dev", "berlin", "-n", s.namespace, "--type=merge", "-p="+patch)
	if want := fmt.Sprintf(`peers.postern.dev berlin -n %s --type=merge -p '%s'`, s.namespace, patch); command != want {
		t.Errorf("the condition says kubectl patch %s, want %s", command, want)
	}
	s.peer("berlin", "its object lets it in", isConnected)
	s.gateway.change(func() { s.gateway.joined["paris"] = invited("paris", keyOf(2)) })
	s.peer("paris", "a command lets it in, and the object says so", func(o *v1alpha1.Peer) bool { return isConnected(o) && !o.Spec.Pending })
	// A pending object by itself does not add a peer.
	s.apply(manifest("rome", keyOf(3), "pending: true"))
	s.peer("rome", "it waits", func(o *v1alpha1.Peer) bool { return o.Status.State == string(api.StatePending) })
	if byName, _ := s.gateway.has(); byName["rome"].Name != "" {
		t.Error("a peer that waits is one")
	}
}
