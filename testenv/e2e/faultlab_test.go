//go:build linux && e2e

package e2e

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/testenv/pki"
	"github.com/postern-dev/postern/tunnel/peer"
)

// faultLab is two gateways with each other in their files, each with its own API server and an
// issuer of identities: everything that `check` looks at, in the internet of the path tests.
type faultLab struct {
	*sites
	left, right *ward
	copied      *ward // nil: none
}

// ward is one side of a fault lab.
type ward struct {
	*site
	key peer.PrivateKey
	api *apiStandIn
	// other is the other side in the file; without a name it is left out.
	other api.Peer
	// more are further peers.
	more  []api.Peer
	names *resolver // nil: this machine's
}

// setting is what a fault changes before the gateways start: the network and each side's file.
type setting struct {
	left, right access
	ways        ways
	edit        func(*faultLab)
}

// newFaultLab builds everything without starting it.
func newFaultLab(t *testing.T, s setting) *faultLab {
	t.Helper()
	f := &faultLab{sites: newSites(t, s.left, s.right, s.ways)}
	f.left, f.right = &ward{site: f.sites.left, key: newKey(t)}, &ward{site: f.sites.right, key: newKey(t)}
	for _, w := range f.wards() {
		f.furnish(w)
	}
	if s.edit != nil {
		s.edit(f)
	}
	for _, w := range f.wards() {
		w.write()
	}
	return f
}

func (f *faultLab) wards() []*ward { return []*ward{f.left, f.right} }

func (f *faultLab) across(w *ward) *ward {
	if w == f.left {
		return f.right
	}
	return f.left
}

// furnish gives a side its key, API server, issuer and peer.
func (f *faultLab) furnish(w *ward) {
	f.t.Helper()
	w.api = newAPIStandIn(f.t, w)
	w.issueBy(w.clientCA(24 * time.Hour))
	keyFile, caFile := filepath.Join(w.dir, "private.key"), filepath.Join(w.dir, "api-ca.crt")
	writeFile(f.t, keyFile, w.key.Base64()+"\n", 0o600)
	writeFile(f.t, caFile, string(w.api.ca.CertPEM()), 0o644)
	spec := &w.doc.Spec
	spec.PrivateKeyFile = keyFile
	spec.Services.APIServer = &api.APIServerService{Address: apiUpstream, ServerName: apiName, CAFile: caFile}
	spec.Services.Auth = &api.AuthService{Issuer: &api.Issuer{LocalCA: &api.LocalCA{CertFile: filepath.Join(w.dir, "issuer.crt"), KeyFile: filepath.Join(w.dir, "issuer.key")}}}
	o := f.across(w)
	w.other = api.Peer{Name: o.name, PublicKey: o.key.Public().String(), Allow: []string{api.ServiceAuth, api.ServiceAPIServer}}
	if o.access.public {
		w.other.Endpoints = []string{netip.AddrPortFrom(o.outer, gatewayPort).String()}
	}
}

// clientCA creates an authority for the identities of a side's peers, which expires.
func (w *ward) clientCA(lasts time.Duration) *pki.CA {
	w.t.Helper()
	ca, err := pki.NewCABetween(time.Now().Add(-time.Hour), time.Now().Add(lasts), "peers of "+w.name)
	if err != nil {
		w.t.Fatal(err)
	}
	return ca
}

// issueBy puts an authority where the side's issuer reads it.
func (w *ward) issueBy(ca *pki.CA) {
	w.t.Helper()
	pair, err := ca.Pair()
	if err != nil {
		w.t.Fatal(err)
	}
	if _, _, err := pair.Write(w.dir, "issuer"); err != nil {
		w.t.Fatal(err)
	}
}

// write writes the peers to the file.
func (w *ward) write() {
	w.t.Helper()
	w.doc.Spec.Peers = nil
	for _, p := range append([]api.Peer{w.other}, w.more...) {
		if p.Name != "" {
			w.doc.Spec.Peers = append(w.doc.Spec.Peers, p)
		}
	}
	w.writeConfig()
}

// presharedKey creates a file with a preshared key.
func (w *ward) presharedKey() string {
	w.t.Helper()
	name := filepath.Join(w.dir, "psk")
	var key [32]byte
	if _, err := rand.Read(key[:]); err != nil {
		w.t.Fatal(err)
	}
	writeFile(w.t, name, base64.StdEncoding.EncodeToString(key[:])+"\n", 0o600)
	return name
}

// run starts both gateways; if they are healthy it waits until they are connected.
func (f *faultLab) run(healthy bool) {
	f.t.Helper()
	f.left.launch()
	f.right.launch()
	f.left.waitReady()
	f.right.waitReady()
	if healthy {
		f.left.waitConnected(f.right.name)
		f.right.waitConnected(f.left.name)
	}
}

// check runs the command, which must end within 10 s, and returns its report.
func (w *ward) check() api.CheckReport {
	w.t.Helper()
	start := time.Now()
	r := w.postern(within(w.t, patience), "check", "-o", "json")
	if took := time.Since(start); took > slow()*checkBy {
		w.t.Errorf("check at %s took %s, want at most %s", w.name, took, slow()*checkBy)
	}
	var report api.CheckReport
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		w.t.Fatalf("check at %s: %v\n%s%s", w.name, err, r.stdout, r.stderr)
	}
	if want := min(report.Summary.Error, 1); r.code != want {
		w.t.Errorf("check at %s: exit code %d with %d errors", w.name, r.code, report.Summary.Error)
	}
	return report
}

// checkBy is how long a check may take, from the command to its exit.
const checkBy = 10 * time.Second

// roots returns the checks that name a root cause, in the order of the report. A test causes one
// fault after another, so it is right to say of an earlier one that it comes and goes.
func roots(r api.CheckReport) []api.Check {
	return slices.DeleteFunc(slices.Clone(r.Checks), func(c api.Check) bool {
		return c.Verdict.Verdict != api.Error && c.Verdict.Verdict != api.Warning || c.Code == string(catalogue.Intermittent)
	})
}

// diagnosis is what one side should find.
type diagnosis struct {
	code      string
	name      string // of the check
	direction string
	cause     []string
	fix       []string
}

// fits says why a check does not match the diagnosis; empty if it does.
func (d diagnosis) fits(c api.Check) string {
	switch {
	case c.Code != d.code:
		return "code " + c.Code + ", want " + d.code
	case c.Name != d.name:
		return "check " + c.Name + ", want " + d.name
	case c.Direction != d.direction:
		return "direction " + c.Direction + ", want " + d.direction
	case !containsAll(c.Cause, d.cause...):
		return fmt.Sprintf("cause %q lacks one of %q", c.Cause, d.cause)
	case !containsAll(c.Fix, d.fix...):
		return fmt.Sprintf("fix %q lacks one of %q", c.Fix, d.fix)
	}
	return ""
}

// finds runs check until it finds exactly the wanted diagnoses. Those that depend on time, such
// as an expired identity, may need more than one run. It returns the checks.
func (w *ward) finds(want ...diagnosis) []api.Check {
	w.t.Helper()
	var found []api.Check
	eventually(within(w.t, 2*patience), w.t, fmt.Sprintf("%s finds %v", w.name, want), func() (bool, string) {
		found = roots(w.check())
		if len(found) != len(want) {
			return false, fmt.Sprintf("%d faults: %s", len(found), describeChecks(found))
		}
		for i, d := range want {
			if wrong := d.fits(found[i]); wrong != "" {
				return false, wrong + " in " + describeChecks(found)
			}
		}
		return true, ""
	})
	return found
}

func describeChecks(checks []api.Check) string {
	var b strings.Builder
	for _, c := range checks {
		fmt.Fprintf(&b, "\n    %s %s %s %s %s/%s: %s\n      fix: %s", c.Verdict.Verdict, c.Code, c.Peer, c.Direction, c.Name, c.Stage, c.Cause, c.Fix)
	}
	return b.String()
}

// command returns the first text in backquotes with the prefix in a fix: what the operator should
// type.
func command(t *testing.T, fix, prefix string) string {
	t.Helper()
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(fix, -1) {
		if strings.HasPrefix(m[1], prefix) {
			return m[1]
		}
	}
	t.Fatalf("the fix has no command %q: %s", prefix, fix)
	return ""
}

// value returns the value that a fix sets, after the setting's name and up to the next blank or
// punctuation mark.
func value(t *testing.T, fix, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(fix, name)
	if !found {
		t.Fatalf("the fix does not set %q: %s", name, fix)
	}
	return rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.:-+/="))]
}

// healed waits until neither side finds a fault or leaves anything unknown. It runs check on both
// sides in turn, since each shows what the other found last. As in roots, faults may come and go.
func (f *faultLab) healed() {
	f.t.Helper()
	eventually(within(f.t, 2*patience), f.t, "neither finds a fault", func() (bool, string) {
		text := ""
		for _, w := range f.wards() {
			left := slices.DeleteFunc(ailing(w.check()), func(c api.Check) bool { return c.Code == string(catalogue.Intermittent) })
			if len(left) > 0 {
				text += w.name + ":" + describeChecks(left) + "\n"
			}
		}
		return text == "", text
	})
}

// ailing returns the checks that are not ok.
func ailing(r api.CheckReport) []api.Check {
	return slices.DeleteFunc(slices.Clone(r.Checks), func(c api.Check) bool {
		return c.Verdict.Verdict == api.OK || c.Verdict.Verdict == api.Off
	})
}
