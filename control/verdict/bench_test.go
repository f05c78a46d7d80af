package verdict

import (
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// The cost of a status for a peer that does not answer. With a thousand such peers it is computed
// for each scrape of the metrics, and every second for each screen.
func BenchmarkStatusOfASilentPeer(b *testing.B) {
	silent := found("gateway", api.Error, catalogue.PeerSilent).With(func(p *catalogue.Params) { p.Endpoints = []string{"198.51.100.7:51820"} })
	out, _ := Correlate(noon, nil, []Finding{silent, found("auth", api.Unknown, catalogue.NotTried, "gateway"),
		found("apiServer", api.Unknown, catalogue.NotTried, "gateway")}, nil)
	in := []Finding{found("inbound-gateway", api.OK, ""), found("inbound-auth", api.OK, ""), found("inbound-apiServer", api.OK, "")}
	b.ReportAllocs()
	for b.Loop() {
		o, i := Correlate(noon, nil, out, in)
		Targets(o, Inside)
		Targets(i, Inbound)
	}
}
