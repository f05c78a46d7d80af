package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tunnel/foreign"
)

func TestWhatChangedOfWhatWasFound(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cloud := api.Discovered{Name: foreign.Of("cloud"), State: api.DiscoveredNew, Fingerprint: "ab-cd", Addresses: []string{"192.168.1.9:51820"}, Source: api.SourceLAN, Domain: "eth0", SeenAt: now}
	older, approved, moved := cloud, cloud, cloud
	older.SeenAt, older.AgeSeconds = now.Add(time.Minute), 60
	approved.State, approved.Peer = api.DiscoveredApproved, "cloud"
	moved.Addresses = []string{"192.168.1.10:51820"}
	for _, c := range []struct {
		name          string
		before, after []api.Discovered
		want          []string
	}{
		{"nothing but an age", []api.Discovered{cloud}, []api.Discovered{older}, nil},
		{"one came", nil, []api.Discovered{cloud}, []string{"+ cloud  unknown"}},
		{"one went", []api.Discovered{cloud}, nil, []string{"- cloud  unknown"}},
		{"one was approved", []api.Discovered{cloud}, []api.Discovered{approved}, []string{"- cloud  unknown", "+ cloud  approved"}},
		{"one has another address", []api.Discovered{cloud}, []api.Discovered{moved}, []string{"- cloud  unknown  ab-cd  192.168.1.9", "+ cloud  unknown  ab-cd  192.168.1.10"}},
	} {
		got := discoveredChanges(api.DiscoveredList{Gateways: c.before}, api.DiscoveredList{Gateways: c.after})
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
