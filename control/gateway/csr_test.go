package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
)

// issuer: csr is another issuer in the cluster: it is told what it needs, and what keeps it
// from issuing is a check of this gateway for as long as it is the issuer.
func TestCertificatesFromTheCluster(t *testing.T) {
	w, r := newTokenWorld(t)
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) {
		g.Services.Auth.Issuer = &api.Issuer{CSR: &api.CSRIssuer{TTL: api.Duration(2 * time.Hour)}}
	})
	report := func([]check.OwnProblem) {}
	w.await("one issuer runs, the second", func() (missing string) {
		r.look(func() {
			if r.running != 1 || len(r.opened) != 2 {
				missing = fmt.Sprintf("%d run, %d were made", r.running, len(r.opened))
			}
		})
		return missing
	})
	r.look(func() {
		o := r.opened[1]
		if !o.CSR || o.TTL != 2*time.Hour || o.Namespace != "" || o.Gateway != "cloud" || o.Ledger == nil || o.Report == nil {
			t.Fatalf("it was made of %+v", o)
		}
		report = o.Report
	})
	shown := func() string {
		t.Helper()
		report, err := w.Cloud.Gateway.Check(w.ctx, api.CheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range report.Checks {
			if c.Peer == "" && c.Code == string(catalogue.CSRUnguarded) {
				return c.Cause + ": " + c.Fix
			}
		}
		return ""
	}
	report([]check.OwnProblem{{Name: "issuer", Code: catalogue.CSRUnguarded}})
	if text := shown(); !strings.Contains(text, "not its peers") || !strings.Contains(text, "csr-policy.yaml") {
		t.Errorf("our own checks have %q", text)
	}
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { // the same again is the same issuer
		g.Services.Auth.Issuer = &api.Issuer{CSR: &api.CSRIssuer{TTL: api.Duration(2 * time.Hour)}}
	})
	r.look(func() {
		if len(r.opened) != 2 {
			t.Errorf("%d issuers were made, want no third", len(r.opened))
		}
	})
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.Services.Auth.Issuer = nil })
	if text := shown(); text != "" {
		t.Errorf("without the issuer there is still %q", text)
	}
	w.await("no issuer runs", func() (missing string) {
		r.look(func() {
			if r.running != 0 {
				missing = fmt.Sprintf("%d do", r.running)
			}
		})
		return missing
	})
}
