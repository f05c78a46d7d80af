package state

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// addEntry puts an entry into a list of a state file.
func addEntry(t *testing.T, file, list string, entry any) {
	t.Helper()
	rewrite(t, file, "1.0", func(body []byte) []byte {
		var doc map[string]any
		if err := json.Unmarshal(body, &doc); err != nil {
			t.Fatal(err)
		}
		entries, _ := doc[list].([]any)
		doc[list] = append(entries, entry)
		b, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
}

func names(s *Store) []string {
	var out []string
	for _, p := range s.Peers().All() {
		out = append(out, p.Name)
	}
	return out
}

// One bad entry costs that entry: the others count, the file keeps it, and the log says so.
func TestAPeerThatContradictsOthersStandsAside(t *testing.T) {
	free := peer.PublicKey{7}.String()
	for what, c := range map[string]struct {
		entry  any
		name   string
		reason string
	}{
		"a name twice":              {map[string]any{"name": "berlin", "publicKey": free}, "berlin", "duplicate peer"},
		"a key twice":               {map[string]any{"name": "again", "publicKey": peer.PublicKey{9}.String()}, "again", "already that of peer berlin"},
		"no key":                    {map[string]any{"name": "bare"}, "bare", "key"},
		"no name":                   {map[string]any{"publicKey": free}, "", "name"},
		"a name that is none":       {map[string]any{"name": "Not A Name", "publicKey": free}, "Not A Name", "name"},
		"a key that is none":        {map[string]any{"name": "short", "publicKey": "abc"}, "short", "key"},
		"a preshared key like that": {map[string]any{"name": "odd", "publicKey": free, "presharedKey": "x"}, "odd", "preshared key"},
		"an address that is none":   {map[string]any{"name": "odd", "publicKey": free, "allowedIPs": []string{"x"}}, "odd", ""},
		"of another type":           {"what?", "", "cannot unmarshal"},
		"null":                      {nil, "", "name"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := two(t)
			file := filepath.Join(dir, "peers.json")
			addEntry(t, file, "peers", c.entry)
			var out bytes.Buffer
			s, err := Open(dir, slog.New(slog.NewTextHandler(&out, nil)))
			if err != nil {
				t.Fatal(err)
			}
			if got := names(s); !slices.Equal(got, []string{"berlin", "edge"}) {
				t.Errorf("the peers are %v, want berlin and edge", got)
			}
			aside := s.Aside()
			if len(aside) != 1 || aside[0].File != "peers.json" || aside[0].Name != c.name || aside[0].Announced || !strings.Contains(aside[0].Reason, c.reason) {
				t.Fatalf("aside: %+v, want %q because of %q", aside, c.name, c.reason)
			}
			if !strings.Contains(out.String(), CodeAside) {
				t.Errorf("the log does not say so: %s", out.String())
			}
			// It is kept by whatever is written, and does not come back with what it contradicted.
			kept := s.peers.load().aside
			if err := s.Update(func(p *Peers) error { p.Remove("berlin"); return nil }); err != nil {
				t.Fatal(err)
			}
			mustClose(t, s)
			s = mustOpen(t, dir)
			if got := names(s); !slices.Equal(got, []string{"edge"}) {
				t.Errorf("after berlin was removed the peers are %v, want edge", got)
			}
			if diff := cmp.Diff(aside, s.Aside()); diff != "" {
				t.Errorf("aside after a change (-want +got):\n%s", diff)
			}
			var was, is bytes.Buffer
			if err := json.Compact(&was, kept[0].Entry); err != nil {
				t.Fatal(err)
			}
			if err := json.Compact(&is, s.peers.load().aside[0].Entry); err != nil || was.String() != is.String() {
				t.Errorf("the entry is %s (%v), was %s", is.String(), err, was.String())
			}
			if err := s.Update(func(p *Peers) error { p.DropAside(c.name); return nil }); err != nil || len(s.Aside()) != 0 {
				t.Errorf("it cannot be dropped: %v, %v", err, s.Aside())
			}
		})
	}
}

func TestAnAnnouncedKeyThatAnotherHasStandsAside(t *testing.T) {
	dir := two(t)
	// The first by name announces what the last one has.
	addEntry(t, filepath.Join(dir, "peers.json"), "peers", map[string]any{
		"name": "aachen", "publicKey": peer.PublicKey{7}.String(), "nextKey": peer.PublicKey{9}.String(),
	})
	s := mustOpen(t, dir)
	if got := names(s); !slices.Equal(got, []string{"aachen", "berlin", "edge"}) {
		t.Errorf("the peers are %v, want all three", got)
	}
	if p, _ := s.Peers().Get("aachen"); !p.NextKey.IsZero() {
		t.Error("the announcement counts")
	}
	if a := s.Aside(); len(a) != 1 || a[0].Name != "aachen" || !a[0].Announced {
		t.Errorf("aside: %+v, want aachen's announcement", a)
	}
	mustClose(t, s)
	s = mustOpen(t, dir)
	if err := s.Update(func(p *Peers) error { p.DropAnnounced("aachen"); return nil }); err != nil || len(s.Aside()) > 0 || s.Peers().Len() != 3 {
		t.Errorf("dropped without the peer: %v, aside %+v, peers %v", err, s.Aside(), names(s))
	}
}

func TestATicketOrObservationThatCannotBeReadStandsAside(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	used := records()
	if err := s.SaveTickets(used); err != nil {
		t.Fatal(err)
	}
	if err := s.FoundAt(map[peer.PublicKey][]string{{1}: {"edge.example.com"}}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	file := filepath.Join(dir, "tickets.json")
	addEntry(t, file, "tickets", map[string]any{"id": "xyz"})
	again := map[string]any{}
	rewrite(t, file, "1.0", func(b []byte) []byte {
		var doc struct{ Tickets []map[string]any }
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}
		again = doc.Tickets[0]
		return b
	})
	again["state"] = string(ticket.Closed)
	addEntry(t, file, "tickets", again)
	rewrite(t, filepath.Join(dir, "observed.json"), "1.0", func(b []byte) []byte {
		return bytes.Replace(b, []byte(`"peers": {`), []byte(`"peers": {"bad": {"endpoints": ["nowhere"]},`), 1)
	})
	s = mustOpen(t, dir)
	if got := s.Tickets().List; len(got) != len(used.List) || used.List[0].State == ticket.Open && got[0].State != ticket.Closed {
		t.Errorf("%d tickets, the first of them %s; want %d, and of two entries the one that was used", len(got), got[0].State, len(used.List))
	}
	if len(s.Observed(peer.PublicKey{1}).Records) != 1 {
		t.Error("what can be read of what was learned is lost")
	}
	if a := s.Aside(); len(a) != 3 || a[2].Name != "bad" {
		t.Errorf("aside: %+v, want two tickets and an observation", a)
	}
}

func FuzzPeersStandAside(f *testing.F) {
	f.Add([]byte(`[{"name":"edge","publicKey":"hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="},{"name":"edge"},7,null]`))
	f.Fuzz(func(t *testing.T, list []byte) {
		var entries []json.RawMessage
		if json.Unmarshal(list, &entries) != nil {
			return
		}
		p, err := decodePeers(slices.Concat([]byte(`{"peers":`), list, []byte(`}`)))
		if err != nil {
			t.Fatalf("a list is refused as a whole: %v", err)
		}
		if p.Len()+len(p.aside) < len(entries) {
			t.Fatalf("%d peers and %d aside of %d entries", p.Len(), len(p.aside), len(entries))
		}
		enc, err := encodePeers(p)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(enc)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decodePeers(b); err != nil || again.Len() != p.Len() || len(again.aside) != len(p.aside) {
			t.Fatalf("written and read again: %d peers and %d aside (%v), want %d and %d", again.Len(), len(again.aside), err, p.Len(), len(p.aside))
		}
	})
}
