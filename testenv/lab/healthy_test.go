package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/testenv/simnet"
)

// healthyVariable sets how long pairs must stay healthy; see `make test-healthy-real`.
// testenv/e2e runs one pair for a shorter time.
const healthyVariable = "POSTERN_HEALTHY_REAL"

// badLine is the impairment of each direction of edge's line.
var badLine = simnet.Conditions{Delay: wanDelay, Jitter: 100 * time.Millisecond, Loss: 0.02}

// natPairs returns each pair of places once.
func natPairs() (out []Scenario) {
	places := []place{public, fullCone, addrRestricted, portRestricted, poisonable, symmetric}
	for i, cloud := range places {
		for _, edge := range places[i:] {
			s := Scenario{cloud: cloud, edge: edge, relay: true, tested: true}
			s.Name = strings.ReplaceAll(s.Network(), "; one relay", "")
			out = append(out, s)
		}
	}
	return out
}

// Healthy pairs stay so in all checks, those of the gateways and a `postern check` a minute, over
// a line that loses 2 % of the packets each way and delays them by up to 100 ms more. It is
// correct to report lost packets, and that a relay is in use.
func TestHealthyPairsHaveNoFault(t *testing.T) {
	healthyFor, err := time.ParseDuration(os.Getenv(healthyVariable))
	if err != nil {
		t.Skip("set " + healthyVariable + " to a duration")
	}
	for _, s := range natPairs() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			log := &record{}
			l, err := Build(t.Context(), Options{Dir: t.TempDir(), Version: "test", Scenario: s, StepLimit: patience, Logger: slog.New(slog.NewTextHandler(log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}()
			if err := l.meetOnABadLine(t.Context()); err != nil {
				t.Fatal(err)
			}
			looks, starved, wrong := l.watchHealth(t.Context(), healthyFor)
			t.Logf("%d reports, of which %d say that this machine was too busy", looks, starved)
			if len(wrong) > 0 {
				t.Errorf("these are false:\n%s\n%s", strings.Join(wrong, "\n"), log)
			}
		})
	}
}

// meetOnABadLine makes edge join cloud, and waits until all is well.
func (l *Lab) meetOnABadLine(ctx context.Context) error {
	link := l.Edge.Host.Link()
	if l.NAT != nil {
		link = l.NAT.Link()
	}
	for _, way := range []simnet.Direction{simnet.Up, simnet.Down} {
		if err := link.SetConditions(way, badLine); err != nil {
			return err
		}
	}
	if _, err := l.awaitNATs(ctx); err != nil {
		return err
	}
	for _, s := range (&fault{byTicket: true}).peer(l) {
		if _, err := s.do(ctx); err != nil {
			return err
		}
	}
	_, err := l.awaitClean(ctx, l.known, codes(catalogue.PacketsLost, catalogue.RelayInUse, catalogue.ProcessStarved)...)
	return err
}

// watchHealth reads both sides' results each second for the given time, and runs a check each
// minute.
func (l *Lab) watchHealth(ctx context.Context, healthyFor time.Duration) (looks, starved int, wrong []string) {
	var mu sync.Mutex
	var both sync.WaitGroup
	end := time.Now().Add(healthyFor)
	for _, s := range l.pair() {
		both.Go(func() {
			var checked time.Time
			for ; time.Now().Before(end); rest(ctx) {
				d := diagnosis{site: s}
				if time.Since(checked) > time.Minute {
					checked = time.Now()
					d.report, d.err = s.Gateway.Check(ctx, api.CheckRequest{})
				} else {
					d.report, d.err = s.Gateway.Checks(ctx)
				}
				status, err := s.Gateway.Status(ctx)
				mu.Lock()
				looks++
				if slices.Contains(d.codes(), catalogue.ProcessStarved) {
					starved++
				}
				wrong = append(wrong, d.falseAlarms(status, errors.Join(d.err, err))...)
				mu.Unlock()
			}
		})
	}
	both.Wait()
	return looks, starved, wrong
}

// What comes and goes is nothing to fix now, and yet a false alarm about a healthy pair.
func TestWhatComesAndGoesIsNoRoot(t *testing.T) {
	d := diagnosis{site: &Site{}}
	for _, code := range codes(catalogue.Intermittent, catalogue.PeerSilent) {
		c := api.Check{}
		c.Verdict.Verdict, c.Code = api.Warning, string(code)
		d.report.Checks = append(d.report.Checks, c)
	}
	if got := d.codes(); !slices.Equal(got, codes(catalogue.PeerSilent)) {
		t.Errorf("the roots are %v", got)
	}
	if got := d.falseAlarms(api.Status{}, nil); len(got) != 2 {
		t.Errorf("the false alarms are %v", got)
	}
}

// falseAlarms returns false statements about a healthy pair.
func (d diagnosis) falseAlarms(status api.Status, err error) (out []string) {
	if err != nil {
		return []string{err.Error()}
	}
	starved := slices.Contains(d.codes(), catalogue.ProcessStarved)
	for _, p := range status.Peers {
		// With a loss of 2 % each way, it can be true for a moment that nothing was answered.
		moment := p.Shown() == api.StateUnconfirmed && time.Since(*p.UnconfirmedSince) < soon
		if p.Shown() != api.StateConnected && !moment && !starved {
			out = append(out, fmt.Sprintf("%s shows %s as %s", d.site.Name, p.Name, p.Shown()))
		}
	}
	relayed := slices.ContainsFunc(status.Peers, func(p api.PeerStatus) bool { return p.Path.Kind == api.PathRelay })
	for _, c := range d.faulty() { // a healthy pair does not come and go
		switch code := catalogue.Code(c.Code); {
		case code == catalogue.ProcessStarved, code == catalogue.PacketsLost, code == catalogue.RelayInUse && relayed:
		default:
			out = append(out, fmt.Sprintf("%s: %s of %s: %s", d.site.Name, c.Code, c.Name, c.Cause))
		}
	}
	return out
}
