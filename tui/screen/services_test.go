package screen

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// uses increases the counters of a service.
func (f *fake) uses(service string, more api.ServiceUse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.services.Services {
		if x := &f.services.Services[i]; x.Service == service {
			x.Used = &api.ServiceUse{Connections: x.Used.Connections + more.Connections, RxBytes: x.Used.RxBytes + more.RxBytes, TxBytes: x.Used.TxBytes + more.TxBytes, Failures: more.Failures}
		}
	}
}

// row returns the line of the frame that begins with a text, after the sign of the selection.
func (s *stage) row(text string) string {
	for line := range strings.SplitSeq(s.View(), "\n") {
		if strings.HasPrefix(strings.TrimLeft(line, "▸ "), text) {
			return line
		}
	}
	return ""
}

func TestServicesTellWhatPassesNow(t *testing.T) {
	s := play(t, busy(), 120, 40, false).press("8")
	if got := s.row("shop/web"); !strings.Contains(got, "✓ ok") || strings.Contains(got, "/s") {
		t.Errorf("rates are told before there are two lists: %q", got)
	}
	s.gateway.uses("shop/web", api.ServiceUse{Connections: 9, RxBytes: 40_000, TxBytes: 3_000_000, Failures: map[string]uint64{"none_ready": 3}})
	s.pass(servicesEvery)
	for _, want := range []string{"✓ ok", " 3 ", " 12 ", "4.5", "20.0 kB/s", "1.5 MB/s"} {
		if got := s.row("shop/web"); !strings.Contains(got, want) {
			t.Errorf("want %q: %q", want, got)
		}
	}
	s.press(":").typed("sort rate").press("enter", "/").typed("shop/web").press("enter").want("▸ shop/web")
	s.gateway.uses("shop/web", api.ServiceUse{Failures: map[string]uint64{"none_ready": 5}})
	s.pass(servicesEvery).want("! 1 failing", "5 none ready")
	// Decreased counters are another process's.
	for i := range s.gateway.services.Services {
		s.gateway.services.Services[i].Used = &api.ServiceUse{}
	}
	s.pass(servicesEvery)
	if got := s.row("shop/web"); strings.Contains(got, "/s") {
		t.Errorf("rates of counters that went back: %q", got)
	}
}

func TestServicesAreAskedForWhileTheyAreLookedAt(t *testing.T) {
	s := play(t, busy(), 80, 24, false)
	s.pass(servicesEvery).pass(servicesEvery)
	if !s.data.offered.at.IsZero() {
		t.Error("they were asked for before anybody looked")
	}
	s.press("8").want("▸ team/web", "✗ refused", "PST0904")
	was := s.data.offered.at
	s.press("1").pass(servicesEvery).pass(servicesEvery)
	if at := s.data.offered.at; at.Sub(was) > servicesEvery { // the request before counts once
		t.Errorf("they were asked for %v after the last look", at.Sub(was))
	}
	s.press("8")
	s.pass(servicesEvery)
	if at := s.data.offered.at; !at.Equal(s.clock) {
		t.Error("they are not asked for again")
	}
}

// The path to the selected peer shows the services imported from it. They are requested for no
// other peer, and seldom.
func TestTheWayHasImportedServices(t *testing.T) {
	f := busy()
	for i := range f.services.Services {
		if x := &f.services.Services[i]; x.State == api.ServiceRefused {
			x.Peer = "cloud"
		}
	}
	s := play(t, f, 120, 60, false).press("/").typed("cloud").press("enter", "2")
	s.pass(interval).want("! team/web ", "PST0904 a peer exports", "✓ shop/db ", "10.0.0.9:20001")
	f.services.Services = nil
	s.pass(importedEvery - interval).want("! team/web ")
	s.pass(interval)
	if picture := s.View(); strings.Contains(picture, "team/web") || strings.Contains(picture, "shop/db") {
		t.Errorf("services that are gone are drawn:\n%s", picture)
	}
	want := []string{"cloud", "cloud"}
	if got := f.askedServices[len(f.askedServices)-2:]; !slices.Equal(got, want) || len(f.askedServices) > 3 { // the first is for the peer selected first
		t.Errorf("services were asked for of %q, want the last ones of %q", f.askedServices, want)
	}
}

func TestKeysOfServices(t *testing.T) {
	s := play(t, busy(), 120, 24, false).press("8").want("▸ team/web", "fix: kubectl create namespace team")
	s.press("c").want("copied the fix for team/web")
	s.press("r")
	s.press("enter").want("[2 Peer]", "hub")
	s.press("esc", "/").typed("exported").press("enter").want("4 of 6 services", "▸ shop/queue", "endpointslices -n shop -l kubernetes.io/service-name=queue")
	s.wantNot("shop/db")
	s.press("esc").want("▸ team/web")
	if len(s.gateway.checked) != 1 || s.gateway.checked[0] != "hub" {
		t.Errorf("r checks %q, want hub", s.gateway.checked)
	}
	s.press("/").typed("nothing of that").want("the filter picks no service")
	s.press("enter", "c", "enter", "r").want("[8 Services]")
}

func TestServicesThatThereAreNot(t *testing.T) {
	for want, change := range map[string]func(f *fake){
		"services across clusters are off": func(f *fake) { f.services = api.ClusterServices{} },
		"no service is exported":           func(f *fake) { f.services.Services = nil },
	} {
		f := busy()
		change(f)
		play(t, f, 80, 24, false).press("8").want(want).press("enter", "c", "j", "r")
	}
	s := play(t, busy(), 80, 24, false)
	s.gateway.err = errors.New("the gateway is older")
	s.press("8").want("the gateway is older")
}

// There may be thousands. Those in trouble come first.
func TestThousandsOfServices(t *testing.T) {
	f := busy()
	f.services.Services = nil
	for i := range 5000 {
		x := api.ClusterService{Service: fmt.Sprintf("shop/web-%d", i), Direction: api.ServiceImported, Peer: "cloud", State: api.ServiceInUse}
		if i%1000 == 999 {
			x.State, x.Code, x.Cause = api.ServiceRefused, "PST0904", strings.Repeat("門\x1b[2J", 5000)
		}
		f.services.Services = append(f.services.Services, x)
	}
	s := play(t, f, 120, 40, false).press("8").want("5000 services", "✗ 5 refused", "▸ shop/web-999")
	fits(t, s.View(), 120, 40)
	s.press("down", "down", "down", "down", "down").want("▸ shop/web-0 ")
	s.press("/").typed("web-4999").want("1 of 5000 services", "▸ shop/web-4999")
	s.pass(time.Second)
}

// A gateway may send a service without a name, and any direction: it has no effect on the terminal.
func TestADirectionOfAServiceIsSanitised(t *testing.T) {
	f := busy()
	f.services.Services = []api.ClusterService{{Peer: "cloud", Direction: "\u009b31mred"}}
	s := play(t, f, 120, 40, false).press("8")
	s.want("red")
	if strings.Contains(s.View(), "\u009b") {
		t.Error("a control sequence that the gateway sent is on the screen")
	}
}
