package gateway_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

func TestThroughputIsMeasuredWhenAskedFor(t *testing.T) {
	w := newWorld(t)
	w.peer()
	check := func(r api.CheckRequest) (api.Check, bool) {
		t.Helper()
		report, err := w.Edge.Gateway.Check(w.ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(report.Checks, func(c api.Check) bool { return c.Name == "throughput" })
		if i < 0 {
			return api.Check{}, false
		}
		if n := report.Summary.OK + report.Summary.Warning + report.Summary.Error + report.Summary.Unknown + report.Summary.Off; n != len(report.Checks) {
			t.Errorf("the summary counts %d of %d checks", n, len(report.Checks))
		}
		return report.Checks[i], true
	}
	if c, measured := check(api.CheckRequest{Peer: "cloud"}); measured {
		t.Errorf("nobody asked for it: %+v", c)
	}
	var c api.Check
	w.await("the throughput is measured", func() string {
		c, _ = check(api.CheckRequest{Peer: "cloud", Throughput: true})
		if c.Verdict.Verdict == api.Unknown { // It is to be asked for again, on a busy machine.
			return c.Cause
		}
		return ""
	})
	if c.Verdict.Verdict != api.OK || !strings.Contains(c.Cause, "bit/s to cloud, ") || len(c.Stages) != 2 || c.Stages[0].Stage != "to" || c.Stages[1].Stage != "from" {
		t.Errorf("got %+v", c)
	}
	for _, way := range c.Stages {
		if way.Bytes <= 0 || way.Seconds <= 0 {
			t.Errorf("%s: got %d bytes in %g s, want what was carried", way.Stage, way.Bytes, way.Seconds)
		}
	}
	_, err := w.Edge.Gateway.Check(w.ctx, api.CheckRequest{Throughput: true})
	if err == nil || !strings.Contains(err.Error(), "of which peer") {
		t.Errorf("of all peers: %v", err)
	}
}
