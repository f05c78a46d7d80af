package check

import (
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// NamePath is the check of a path by the connections on it. It costs nothing, and exists while
// something is known.
const NamePath = "path"

const (
	// trafficKept is how long what connections showed is used.
	trafficKept = 5 * time.Minute
	// lossNoticed is the loss that is worth a warning: plain TCP carries 12 Mbit/s over 100 ms with
	// 0.01 % loss, and 1.2 Mbit/s with 1 % (Mathis et al., 1997).
	lossNoticed = 0.01
)

// pathOf returns the finding about a path; false if nothing is known about it.
func pathOf(f Facts) (verdict.Finding, bool) {
	t := f.Path.Traffic
	if t == nil || t.BytesPerSecond == 0 || t.IdleSeconds > trafficKept.Seconds() {
		return verdict.Finding{}, false
	}
	r := begin(NamePath, api.ServiceGateway, f)
	r.Rests = []string{verdict.Own(NameSending), verdict.Own(NameResources), api.ServiceGateway, NameMTU}
	p := catalogue.Params{Detail: catalogue.Seen(t)}
	p.Address, p.Relay = f.Path.Remote, f.Path.Relay
	switch {
	case t.LossKnown() && t.LossRatio >= lossNoticed:
		p.Loss = t.LossRatio
		p.Full, p.Rate = fills(t)
		return r.fail(api.Warning, StageTraffic, catalogue.PacketsLost, p), true
	case t.PolicedBytesPerSecond > 0:
		p.Rate = t.PolicedBytesPerSecond
		return r.fail(api.Warning, StageTraffic, catalogue.RateLimited, p), true
	}
	r.passed(StageTraffic, p.Detail)
	return r.ok(time.Duration(t.RTTSeconds * float64(time.Second))), true
}

// fills reports whether connections send as much as the line carries, and how much that is.
func fills(t *api.Traffic) (full bool, bytesPerSecond float64) {
	if t == nil || t.LimitedBy != api.LimitBandwidth && t.LimitedBy != api.LimitCongestion {
		return false, 0
	}
	return true, t.BytesPerSecond
}
