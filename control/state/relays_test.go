package state

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestAllocationsAreRememberedAcrossRestarts(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	if got := s.Relays(); len(got) != 0 {
		t.Fatalf("a new directory has %v", got)
	}
	list := []RelayGrant{{
		Server: "turn.example.net", Username: "edge", Address: netip.MustParseAddrPort("192.0.2.3:3478"), Port: 51820,
		Relayed: netip.MustParseAddrPort("192.0.2.3:50000"), Mapped: netip.MustParseAddrPort("198.51.100.7:40000"),
		Expires: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}}
	if err := s.SetRelays(list); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir)
	if got := s.Relays(); !slices.Equal(got, list) {
		t.Errorf("got %+v, want %+v", got, list)
	}
	var many []RelayGrant
	for i := range 100 {
		many = append(many, RelayGrant{Server: fmt.Sprint(i)})
	}
	if err := s.SetRelays(many); err != nil {
		t.Fatal(err)
	}
	if got := s.Relays(); !slices.Equal(got, many[:maxRelays]) {
		t.Errorf("%d are remembered, want the first %d", len(got), maxRelays)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// It is not worth refusing to start for.
	for _, name := range []string{"relays.json", "relays.json.previous"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("broken"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := mustOpen(t, dir).Relays(); len(got) != 0 {
		t.Errorf("after damage: got %v, want none", got)
	}
}
