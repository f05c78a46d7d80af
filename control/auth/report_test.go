package auth

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Reports are accepted from every peer, regardless of grants, and from no one else.
func TestReportsAreTakenFromPeersAlone(t *testing.T) {
	got := map[peer.PublicKey]string{}
	s := serve(t, func(o *ServerOptions) {
		o.OnReport = func(from peer.PublicKey, report []byte) error {
			got[from] = string(report)
			if string(report) == `"bad"` {
				return errors.New("not\x1b[31m a report")
			}
			return nil
		}
	})
	nothing, pending := peer.PublicKey{4}, peer.PublicKey{5}
	s.dir.set(Caller{Name: "berlin", PublicKey: nothing})
	s.dir.set(Caller{Name: "new", PublicKey: pending, Pending: true})
	s.dir.set(Caller{PublicKey: ticketKey, Kind: KindOneTime})
	for _, c := range []struct {
		name   string
		key    peer.PublicKey
		report string
		want   error
	}{
		{"what the gateway refuses", edgeKey, `"bad"`, ErrRequest},
		{"a peer without a grant", nothing, `{"version":"1.0"}`, nil},
		{"one that waits for approval", pending, `{}`, ErrPending},
		{"a one-time peer", ticketKey, `{}`, ErrDenied},
		{"a stranger", peer.PublicKey{99}, `{}`, ErrDenied},
	} {
		err := s.client(c.key).Report(t.Context(), []byte(c.report))
		if !errors.Is(err, c.want) || c.want == nil && got[c.key] != c.report {
			t.Errorf("%s: got %v and report %q, want %v and %q", c.name, err, got[c.key], c.want, c.report)
		}
		if err != nil && strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: the message carries an escape: %q", c.name, err)
		}
	}
	for _, k := range []peer.PublicKey{pending, ticketKey, {99}} {
		if _, taken := got[k]; taken {
			t.Errorf("a report of %v was taken", k)
		}
	}
}

func TestOneReportASecondIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := 0
		s := serve(t, func(o *ServerOptions) {
			o.OnReport = func(peer.PublicKey, []byte) error { taken++; return nil }
		})
		client := s.client(edgeKey)
		if err := client.Report(t.Context(), []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		err := client.Report(t.Context(), []byte(`{}`))
		var answer *Error
		if !errors.Is(err, ErrRateLimited) || !errors.As(err, &answer) || answer.RetryAfter <= 0 || answer.RetryAfter > time.Second {
			t.Errorf("the second at once: got %#v, want %v within a second", err, ErrRateLimited)
		}
		time.Sleep(time.Second) // virtual
		if err := client.Report(t.Context(), []byte(`{}`)); err != nil {
			t.Errorf("a second later: %v", err)
		}
		if taken != 2 {
			t.Errorf("%d reports were taken, want 2", taken)
		}
		s.stop()
	})
}

func TestALargeReportIsRefused(t *testing.T) {
	for _, size := range []int{MaxReport + 1, pemBody + 1, 10 << 20} {
		taken := false
		s := serve(t, func(o *ServerOptions) {
			o.OnReport = func(peer.PublicKey, []byte) error { taken = true; return nil }
		})
		err := s.client(edgeKey).Report(t.Context(), []byte(`"`+strings.Repeat("x", size-2)+`"`))
		// A server that has read enough may reset the connection while the caller still writes.
		if taken || !errors.Is(err, ErrRequest) && !errors.Is(err, ErrUnreachable) {
			t.Errorf("%d bytes: taken is %v, error %v, want %v", size, taken, err, ErrRequest)
		}
	}
}

func TestHelloCarriesTheReport(t *testing.T) {
	const report = `{"version":"1.0","gateway":"cloud"}`
	for _, c := range []struct{ name, report, want string }{
		{"one", report, report},
		{"none", "", ""},
		{"no JSON", "{", ""},
		{"too long", `"` + strings.Repeat("x", MaxReport) + `"`, ""},
	} {
		s := serve(t, func(o *ServerOptions) {
			o.OnReport = func(peer.PublicKey, []byte) error { return nil }
			o.Report = func(to peer.PublicKey) []byte {
				if to != edgeKey {
					t.Errorf("asked for the report to %v", to)
				}
				return []byte(c.report)
			}
		})
		s.dir.set(Caller{PublicKey: ticketKey, Kind: KindOneTime})
		h, err := s.client(edgeKey).Hello(t.Context())
		if err != nil || string(h.Report) != c.want || !h.Can(CapabilityReport) {
			t.Errorf("%s: got report %q, capabilities %v, error %v; want %q", c.name, h.Report, h.Capabilities, err, c.want)
		}
		if h, err := s.client(ticketKey).Hello(t.Context()); err != nil || h.Report != nil {
			t.Errorf("%s: a one-time peer got %q, %v", c.name, h.Report, err)
		}
	}
}

func TestAGatewayThatTakesNoReportsSaysSo(t *testing.T) {
	s := serve(t, nil)
	if err := s.client(edgeKey).Report(t.Context(), []byte(`{}`)); !errors.Is(err, ErrRequest) {
		t.Errorf("got %v, want %v", err, ErrRequest)
	}
	h, err := s.client(edgeKey).Hello(t.Context())
	if err != nil || slices.Contains(h.Capabilities, CapabilityReport) {
		t.Errorf("capabilities are %v (%v), want none for reports", h.Capabilities, err)
	}
}
