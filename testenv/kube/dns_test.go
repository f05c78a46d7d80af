//go:build linux

package kube

import (
	"encoding/json"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// question returns a query for one name.
func question(t testing.TB, name string, kind dnsmessage.Type) []byte {
	t.Helper()
	n, err := dnsmessage.NewName(name)
	if err != nil {
		t.Fatal(err)
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: kind, Class: dnsmessage.ClassINET}}}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newDNS returns a server that knows one host and the Services from a watch.
func newDNS() *dns {
	d := &dns{hosts: map[string]netip.Addr{"cloud.example.": netip.MustParseAddr("198.51.100.10")}, services: map[string]netip.Addr{}}
	for _, e := range []watchEvent{
		{"ADDED", json.RawMessage(`{"metadata": {"name": "web", "namespace": "lab"}, "spec": {"clusterIP": "10.96.0.9"}}`)},
		{"ADDED", json.RawMessage(`{"metadata": {"name": "gone", "namespace": "lab"}, "spec": {"clusterIP": "10.96.0.8"}}`)},
		{"DELETED", json.RawMessage(`{"metadata": {"name": "gone", "namespace": "lab"}, "spec": {"clusterIP": "10.96.0.8"}}`)},
		{"ADDED", json.RawMessage(`{"metadata": {"name": "headless", "namespace": "lab"}, "spec": {"clusterIP": "None"}}`)},
	} {
		d.learn(e)
	}
	return d
}

func TestNames(t *testing.T) {
	d := newDNS()
	for _, c := range []struct {
		name string
		kind dnsmessage.Type
		code dnsmessage.RCode
		want string // address; "" means none
	}{
		{"web.lab.svc.cluster.local.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, "10.96.0.9"},
		{"WEB.lab.svc.Cluster.local.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, "10.96.0.9"},
		{"web.lab.svc.cluster.local.", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, ""}, // the name exists: A is next
		{"gone.lab.svc.cluster.local.", dnsmessage.TypeA, dnsmessage.RCodeNameError, ""},
		{"headless.lab.svc.cluster.local.", dnsmessage.TypeA, dnsmessage.RCodeNameError, ""},
		{"web.", dnsmessage.TypeA, dnsmessage.RCodeNameError, ""},
		{"cloud.example.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, "198.51.100.10"},
	} {
		b, err := d.answer(question(t, c.name, c.kind))
		if err != nil {
			t.Fatal(err)
		}
		var m dnsmessage.Message
		if err := m.Unpack(b); err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(m.Answers) == 1 {
			if a, ok := m.Answers[0].Body.(*dnsmessage.AResource); ok {
				got = netip.AddrFrom4(a.A).String()
			}
		}
		if m.ID != 7 || !m.Response || m.RCode != c.code || got != c.want {
			t.Errorf("%s %v: got %v %q of query %d, want %v %q", c.name, c.kind, m.RCode, got, m.ID, c.code, c.want)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(question(f, "web.lab.svc.cluster.local.", dnsmessage.TypeA))
	f.Add(question(f, "none.", dnsmessage.TypeAAAA))
	f.Add([]byte{})
	d := newDNS()
	f.Fuzz(func(t *testing.T, query []byte) {
		b, err := d.answer(query)
		if err != nil {
			return
		}
		var asked, answered dnsmessage.Message
		if err := asked.Unpack(query); err != nil {
			t.Fatalf("no message was answered: %v", err)
		}
		if err := answered.Unpack(b); err != nil {
			t.Fatalf("the answer is no message: %v", err)
		}
		if !answered.Response || answered.ID != asked.ID {
			t.Errorf("got %+v as the answer to %+v", answered.Header, asked.Header)
		}
	})
}
