//go:build linux && e2e

package e2e

import (
	"net/netip"
	"os"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/pki"
)

// serviceIllnesses are faults of right's services.
func serviceIllnesses() []illness {
	return []illness{
		{
			name: "right's API server is down", setting: plain(),
			harm:  func(f *faultLab) { f.right.api.stop() },
			left:  []diagnosis{outbound("PST0301", apiServerCheck).because("right").until("right")},
			right: []diagnosis{own("PST0310", "upstream-apiServer").because(apiUpstream).until("spec.services.apiServer.address")},
			fix:   func(f *faultLab, _, _ []api.Check) { f.right.api.start() },
		},
		{
			name: "right's API server is slow", setting: plain(),
			harm:  func(f *faultLab) { f.right.api.lag(1500 * time.Millisecond) },
			left:  []diagnosis{outbound("PST0308", apiServerCheck).because("right")},
			right: []diagnosis{own("PST0308", "upstream-apiServer").because(apiUpstream)},
			fix:   func(f *faultLab, _, _ []api.Check) { f.right.api.lag(0) },
		},
		{
			name: "right's API server answers 401", setting: plain(),
			harm:  func(f *faultLab) { f.right.api.trusts(f.right.clientCA(time.Hour).CertPEM()) },
			left:  []diagnosis{outbound("PST0305", apiServerCheck).because("right", "401").until("--client-ca-file")},
			right: []diagnosis{inbound("PST0305", "inbound-apiServer").because("left", "401").until("--client-ca-file")},
			fix:   func(f *faultLab, _, _ []api.Check) { f.right.trustIssuer() },
		},
		{
			name: "right's API server answers 403", setting: plain(),
			harm:  func(f *faultLab) { f.right.api.binds() },
			left:  []diagnosis{outbound("PST0306", apiServerCheck).because("right", "403").until("kubectl create clusterrolebinding")},
			right: []diagnosis{inbound("PST0306", "inbound-apiServer").because("left", "403").until("its user in the cluster is postern:peer:left", "is decided here")},
			// Right's owner decides, and gets no command based on left's claim.
			fix: func(f *faultLab, _, _ []api.Check) { f.right.api.binds("postern:peer:left") },
		},
		{
			// The issuer's CA expires, and with it what it has issued.
			name:    "left's identity has expired",
			lasts:   2 * time.Minute,
			setting: plain(func(f *faultLab) { f.right.issueBy(f.right.clientCA(shortTTL)) }),
			harm:    func(f *faultLab) { f.right.trustIssuer() },
			left:    []diagnosis{outbound("PST0506", apiServerCheck).because("right", "valid until").until("postern log", "spec.services.auth.issuer")},
			right:   []diagnosis{inbound("PST0506", "inbound-apiServer").because("left", "valid until").until("spec.services.auth.issuer", "localCA", "expired")},
			fix: func(f *faultLab, _, _ []api.Check) {
				f.right.issueBy(f.right.clientCA(24 * time.Hour))
				f.right.trustIssuer()
				f.right.reload()
			},
		},
		{
			name: "nothing listens at right's auth URL",
			setting: plain(func(f *faultLab) {
				f.left.other.OutOfBand = &api.PeerOutOfBand{AuthURL: authURL}
			}),
			sick:  true,
			left:  []diagnosis{outbound("PST0221", "auth-direct").because(authURL, "nothing listens").until("spec.peers[name=right].outOfBand.authURL")},
			right: nil,
			fix: func(f *faultLab, _, _ []api.Check) {
				f.left.other.OutOfBand = nil
				f.left.reload()
			},
		},
		{
			name: "a ticket is used twice", setting: plain(),
			harm:  func(f *faultLab) { f.useTwice() },
			left:  []diagnosis{own("PST0210", "tickets").because("another key").until("postern peer remove")},
			right: nil,
		},
	}
}

const (
	// shortTTL is the lifetime of identities that should expire, but only after everything was
	// healthy.
	shortTTL = 100 * time.Second
	authURL  = "https://" + rightPublic + ":8443"
)

// trustIssuer gives a side's API server the certificate of the side's issuer, like
// --client-ca-file.
func (w *ward) trustIssuer() {
	w.t.Helper()
	certificate, err := os.ReadFile(w.doc.Spec.Services.Auth.Issuer.LocalCA.CertFile)
	if err != nil {
		w.t.Fatal(err)
	}
	w.api.trusts(certificate)
}

// useTwice makes one gateway join with a ticket of left's, and another try the same ticket.
func (f *faultLab) useTwice() {
	f.t.Helper()
	ticket := f.left.invite()
	var guests []*gateway
	for i, name := range []string{"guest", "thief"} {
		host := f.lab.Host(name)
		host.Attach("eth0", f.servers, netip.AddrFrom4([4]byte{192, 0, 2, byte(50 + i)}))
		host.DefaultRoute(gatewayAddr(netip.MustParsePrefix("192.0.2.0/24")))
		guests = append(guests, newGateway(f.t, host, name).start())
	}
	guests[0].must("join", ticket)
	f.left.waitConnected("guest")
	r := guests[1].postern(within(f.t, patience), "join", ticket)
	checkRefusal(f.t, "join", lastLine(r), 1, "already used")
}

// certificateIllnesses are faults of the API server certificate at right.
func certificateIllnesses() []illness {
	show := func(ca func(*faultLab) *pki.CA, name string, notAfter time.Duration) func(*faultLab) {
		return func(f *faultLab) {
			pair, err := ca(f).ServerBetween(time.Now().Add(-48*time.Hour), time.Now().Add(notAfter), name)
			if err != nil {
				f.t.Fatal(err)
			}
			f.right.api.present(pair)
		}
	}
	same := func(f *faultLab) *pki.CA { return f.right.api.ca }
	other := func(f *faultLab) *pki.CA {
		ca, err := pki.NewCA("somebody-else")
		if err != nil {
			f.t.Fatal(err)
		}
		return ca
	}
	renew := func(f *faultLab, _, _ []api.Check) { show(same, apiName, 24*time.Hour)(f) }
	return []illness{
		{
			name: "right's API server shows a certificate for another name", setting: plain(),
			harm:  show(same, "api.example.net", 24*time.Hour),
			left:  []diagnosis{outbound("PST0502", apiServerCheck).because("api.example.net", apiName).until("spec.services.apiServer.serverName")},
			right: []diagnosis{own("PST0502", "upstream-apiServer").because("api.example.net", apiName).until("spec.services.apiServer.serverName")},
			fix: func(f *faultLab, _, right []api.Check) {
				f.right.doc.Spec.Services.APIServer.ServerName = value(f.t, right[0].Fix, "spec.services.apiServer.serverName: ")
				f.right.reload()
			},
		},
		{
			name: "right's API server has an unknown authority", setting: plain(),
			harm:  show(other, apiName, 24*time.Hour),
			left:  []diagnosis{outbound("PST0501", apiServerCheck).because("somebody-else").until("spec.services.apiServer.caFile")},
			right: []diagnosis{own("PST0501", "upstream-apiServer").because("somebody-else").until("spec.services.apiServer.caFile")},
			fix:   renew,
		},
		{
			name: "the certificate of right's API server has expired", setting: plain(),
			harm:  show(same, apiName, -time.Hour),
			left:  []diagnosis{outbound("PST0503", apiServerCheck).because("valid").until("renew")},
			right: []diagnosis{own("PST0503", "upstream-apiServer").because("valid").until("renew")},
			fix:   renew,
		},
	}
}
