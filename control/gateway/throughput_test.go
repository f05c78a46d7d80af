package gateway_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/simnet"
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

// What connections have shown of a path is in the status, in a check, and in the metrics.
func TestAPathThatLosesIsToldByWhatConnectionsShow(t *testing.T) {
	w := newWorld(t)
	w.namedEcho(w.Cloud, "registry", 5000, echoServer(t))
	// A round trip of which a busy machine's delays are a small part, or they look like a queue, and a
	// loss of which hardly any burst does: neither counts as loss that is always there.
	const delay, loss = 300 * time.Millisecond, 0.03
	for _, way := range []simnet.Direction{simnet.Up, simnet.Down} {
		if err := w.Edge.Host.Link().SetConditions(way, simnet.Conditions{Delay: delay, Loss: loss}); err != nil {
			t.Fatal(err)
		}
	}
	w.join(w.Edge, w.invite(w.Cloud, api.InviteRequest{Allow: []string{"registry"}}), api.JoinRequest{Local: map[string]string{"registry": "127.0.0.1:0"}})
	w.connected(w.Cloud, w.Edge)
	s := w.open(w.localAddress(w.Edge, "cloud", "registry"))
	var running sync.WaitGroup
	running.Go(func() {
		for block := make([]byte, 8<<10); ; time.Sleep(10 * time.Millisecond) { // less than fills a queue, or keeps this machine busy
			if _, err := s.Write(block); err != nil {
				return
			}
		}
	})
	running.Go(func() { _, _ = io.Copy(io.Discard, s) })
	defer running.Wait()
	defer s.Close()
	var traffic *api.Traffic
	w.await("enough was sent to know", func() string {
		p, _ := w.status(w.Edge, "cloud")
		traffic = p.Path.Traffic
		i := slices.IndexFunc(p.Flows, func(f api.Flow) bool { return f.Service == "registry" })
		if traffic == nil || i < 0 || traffic.LossSample < 1000 || traffic.LossRatio < loss/2 || p.Flows[i].WaitingBytes == 0 || p.Flows[i].InFlightBytes == 0 {
			return fmt.Sprintf("what is known: %+v, %+v", traffic, p.Flows)
		}
		return ""
	})
	if traffic.LossRatio > 2*loss || traffic.BaseRTTSeconds < 2*delay.Seconds() || traffic.BytesPerSecond <= 0 || traffic.LimitedBy == "" {
		t.Errorf("got %+v, want a loss of %g and a round trip of %s", traffic, loss, 2*delay)
	}
	// By chance a burst of losses is taken for a queue that overflowed, and then all is counted again.
	w.await("the check and the metric say so", func() string {
		report, err := w.Edge.Gateway.Check(w.ctx, api.CheckRequest{Peer: "cloud"})
		if err != nil {
			return err.Error()
		}
		i := slices.IndexFunc(report.Checks, func(c api.Check) bool { return c.Name == "path" })
		if i < 0 {
			return fmt.Sprintf("there is no check of the path: %+v", report.Checks)
		}
		// Echoes show the loss as well, and then this one depends on theirs.
		if c := report.Checks[i]; c.Code != "PST0112" && c.DependsOn != api.ServiceGateway || !strings.Contains(c.Stages[0].Detail, "% lost") {
			return fmt.Sprintf("got %+v", c)
		}
		if ratio := w.metric(w.Edge, "postern_peer_path_loss_ratio", `cause="ambient",peer="cloud"`); !(loss/2 <= ratio && ratio <= 2*loss) {
			return fmt.Sprintf("the metric says %g", ratio)
		}
		return ""
	})
}
