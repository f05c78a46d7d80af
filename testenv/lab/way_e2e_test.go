//go:build e2e

package lab

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/way"
)

// The drawn path breaks where the fault is, at both sides.
func TestTheWayBreaksWhereTheFaultIs(t *testing.T) {
	for _, tc := range []struct{ scenario, edge, cloud string }{
		{"blocked-outbound", "between this gateway and cloud, including its firewall", "somewhere between this gateway and "},
		{"psk-mismatch", "in the configuration of this gateway or of cloud", "in the configuration of this gateway or of edge"},
		{"name-unknown", "at the name clout.example.net", "somewhere between this gateway and "},
		{"wrong-port", "at cloud", "somewhere between this gateway and "},
		{"loss", "between this gateway and cloud", "between this gateway and "},
		{"relay-in-use", "at the relay 192.0.2.60:", "at the relay 192.0.2.60:"}, // of either side
		{"api-down", "at apiServer of cloud", "at apiServer of this gateway"},
	} {
		t.Run(tc.scenario, func(t *testing.T) {
			t.Parallel()
			s, ok := FindScenario(tc.scenario)
			if !ok {
				t.Fatal("no such scenario")
			}
			l, err := Build(t.Context(), Options{Scenario: s, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
			for _, phase := range []Phase{Prepare, Harm} {
				if err := l.Play(t.Context(), phase, Progress{}); err != nil {
					t.Fatal(err)
				}
			}
			for site, want := range map[*Site]string{l.Edge: tc.edge, l.Cloud: tc.cloud} {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				for { // the gateways' own checks continue, and may see less for a moment
					status, err := site.Gateway.Status(ctx)
					if err != nil {
						t.Fatal(err)
					}
					report, err := site.Gateway.Checks(ctx)
					if err != nil {
						t.Fatal(err)
					}
					w := way.Of(&status, &status.Peers[0], report.Checks, nil)
					if w.Break != nil && strings.HasPrefix(w.Break.Place, want) {
						break
					}
					if rest(ctx); ctx.Err() != nil {
						t.Fatalf("at %s: the break is %+v, want it %q", site.Name, w.Break, want)
					}
				}
			}
		})
	}
}
