package screen

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/control/api"
)

// fleetOf opens the table of gateways: one in trouble, a healthy one, one that has never answered,
// and some that nothing is known about yet.
func fleetOf(t *testing.T, width, height int, color bool) (s *stage, gateways []*fake) {
	t.Helper()
	s = &stage{T: t, clock: noon}
	tasks := newTasks(context.Background())
	t.Cleanup(tasks.close)
	o := Options{Fleet: true, Color: color, Out: &s.written, Now: func() time.Time { return s.clock }}
	for i, name := range []string{"site-10", "site-2", "gone", "edge"} {
		f := busy()
		switch name {
		case "edge":
			f.status.Gateway.Name, f.status.Gateway.Version = "edge\x1b[2J", "0.2.0"
		case "gone":
			f = &fake{err: errors.New("no gateway answers on /run/gone.sock\x1b[2J")}
		default:
			f.status.Gateway.Name, f.status.Problems = name, nil
			f.status.Peers = []api.PeerStatus{{Name: fmt.Sprint("peer-", i), PublicKey: "a key", State: api.StateConnected, RxBytesPerSecond: 2e6}}
		}
		gateways = append(gateways, f)
		o.Sources = append(o.Sources, NamedSource{Name: name, Source: f, Operator: f})
	}
	s.gateway = gateways[0]
	s.model = newModel(o, tasks)
	s.Update(tea.WindowSizeMsg{Width: width, Height: height})
	s.do(s.poll())
	return s, gateways
}

func TestTheFleetShowsTheWorstFirst(t *testing.T) {
	s, gateways := fleetOf(t, 120, 40, false)
	s.want("4 gateways: ✗ 1 lost ! 1 trouble ✓ 2 well", "▸ gone", "no gateway answers on /run/gone.sock", "never")
	s.press("j").want("▸ edge", "✗ failed PST0101 site", "0.2.0", "fix: ")
	s.press("j").want("▸ site-2", "2.0 MB/s")
	s.press("j").want("▸ site-10")
	// One appears, another disappears.
	gateways[2].err, gateways[2].status = nil, gateways[0].status
	gateways[1].err = errors.New("refused")
	s.pass(2*fleetInterval).want("✗ 1 lost ! 1 trouble ✓ 2 well", "▸ site-10")
	if got := s.row("site-2"); got == "" || !s.shows("10s ago") {
		t.Errorf("want when it was seen last: %q", got)
	}
	s.press("/").typed("well").press("enter").want("▸ site-10", "gone").wantNot("edge  ")
}

func TestEnterGoesIntoAGatewayAndEscBack(t *testing.T) {
	s, gateways := fleetOf(t, 120, 40, false)
	s.press("/").typed("edge").press("enter", "enter").want("[1 Overview]", "4 peers", "▸ site")
	s.press("j", "esc").want("[9 Fleet]", "gone")
	s.press("/").typed("edge").press("enter", "enter").want("[1 Overview]", "▸ hub")
	asked := gateways[0].statuses
	s.pass(fleetInterval).pass(fleetInterval)
	if gateways[0].statuses != asked {
		t.Error("gateways are asked that nobody looks at")
	}
	s.press("n", "9").want("4 gateways")
	s.pass(fleetInterval)
	if gateways[0].statuses == asked {
		t.Error("the fleet is looked at, and one of it is not asked")
	}
}
