package clusterset

import (
	"bytes"
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/mcs"
)

// Ports are leased for what is announced, and for nothing else, however often it is looked at.
func TestPortsAreLeasedForWhatIsTold(t *testing.T) {
	exported := func(name string, kind mcs.Type, ports, backends int) mcs.Export {
		x := mcs.Export{Name: mcs.Name{Namespace: "shop", Name: name}, UID: name, Created: time.Unix(1_700_000_000, 0), Spec: mcs.Spec{Type: kind}}
		for i := range ports {
			x.Spec.Ports = append(x.Spec.Ports, mcs.Port{Name: fmt.Sprint("p-", i), Protocol: api.TCP, Port: uint16(i + 1)})
		}
		for i := range backends {
			b := mcs.Backend{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), Ready: i > 0}
			if kind == mcs.Headless {
				b.Hostname = fmt.Sprint("b-", i)
			}
			x.Backends = append(x.Backends, b)
		}
		return x
	}
	c := &Clusterset{exporter: newExporter(nil)}
	now, cfg := time.Now(), &config.Resolved{}
	for _, step := range []struct {
		what    string
		x       mcs.Export
		granted bool
		leases  int
		places  bool
		code    catalogue.Code
	}{
		{"one that no peer has", exported("web", mcs.ClusterSetIP, 2, 1), false, 0, false, ""},
		{"too many ports", exported("web", mcs.ClusterSetIP, 65, 1), true, 0, false, catalogue.ExportRefused},
		{"too many ports of backends", exported("db", mcs.Headless, 65, 2), true, 0, false, catalogue.ExportRefused},
		{"one that is told", exported("web", mcs.ClusterSetIP, 2, 1), true, 2, true, ""},
		{"backends", exported("db", mcs.Headless, 2, 3), true, 6, true, ""},
	} {
		c.overlay = mcs.NewOverlay(nil)
		for range 2 {
			e := &export{Export: step.x, granted: step.granted}
			c.offer(e, cfg, now)
			got := catalogue.Code("")
			if e.problem != nil {
				got = e.problem.Code
			}
			if n := len(c.overlay.Leases(now)); n != step.leases || len(e.keys) != n || len(e.services) != n || got != step.code || (e.entry == nil) != (step.code != "") {
				t.Errorf("%s: %d leases, %d services, problem %q", step.what, n, len(e.services), got)
			}
			keys := map[string]bool{}
			for _, k := range e.keys {
				keys[k] = true
			}
			if step.leases == 0 && c.overlay.Retain(keys, now) {
				t.Errorf("%s: there is something to store", step.what)
			}
			c.exported = map[string]*export{"x": e}
			if told := c.entry("x") != nil; told != step.places {
				t.Errorf("%s: it is told: %v", step.what, told)
			}
		}
	}
	// An export for which there are not enough ports leases none.
	cfg.Services.Named = []config.NamedService{{Name: "all", Ports: api.Ports{Protocol: api.TCP, First: mcs.FirstPort + 3, Last: mcs.LastPort}}}
	c.overlay = mcs.NewOverlay(nil)
	for range 2 {
		e := &export{Export: exported("web", mcs.ClusterSetIP, 5, 1), granted: true}
		c.offer(e, cfg, now)
		if e.problem == nil || e.problem.Code != catalogue.OverlayPortsUsed || len(c.overlay.Leases(now)) > 0 || c.overlay.Retain(nil, now) {
			t.Errorf("the problem is %+v, and there are %v", e.problem, c.overlay.Leases(now))
		}
	}
}

// A headless service that grows beyond what can be announced, or beyond the ports that there are,
// keeps the backends that it has.
func TestABackendThatIsToldStays(t *testing.T) {
	db := func(hostnames ...int) mcs.Export {
		x := mcs.Export{Name: mcs.Name{Namespace: "shop", Name: "db"}, UID: "db", Created: time.Unix(1_700_000_000, 0), Spec: mcs.Spec{Type: mcs.Headless, Ports: []mcs.Port{{Protocol: api.TCP, Port: 5432}}}}
		for _, i := range hostnames {
			x.Backends = append(x.Backends, mcs.Backend{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), Ready: true, Hostname: fmt.Sprintf("b-%03d", i)})
		}
		return x
	}
	many := make([]int, mcs.MaxPlaces)
	for i := range many {
		many[i] = 100 + i
	}
	var cfg config.Resolved
	few := cfg
	few.Services.Named = []config.NamedService{{Name: "all", Ports: api.Ports{Protocol: api.TCP, First: mcs.FirstPort + 2, Last: mcs.LastPort}}}
	for what, c := range map[string]struct {
		cfg  *config.Resolved
		have []int
		code catalogue.Code
	}{
		"too many backends":   {&cfg, many, catalogue.ExportRefused},
		"too many for a time": {&few, []int{100, 101}, catalogue.OverlayPortsUsed},
	} {
		set := &Clusterset{exporter: newExporter(nil)}
		offer := func(hostnames []int) *export {
			e := &export{Export: db(hostnames...), granted: true}
			set.offer(e, c.cfg, time.Now())
			return e
		}
		was := offer(c.have)
		now := offer(append([]int{0, 1}, c.have...)) // by name the first
		if was.problem != nil || now.entry == nil || !bytes.Equal(now.entry.Text, was.entry.Text) || !reflect.DeepEqual(now.services, was.services) {
			t.Errorf("%s: others are told than before: %+v, %+v", what, was.problem, now.problem)
		}
		if now.problem == nil || now.problem.Code != c.code || now.problem.Detail == "" {
			t.Errorf("%s: the problem is %+v", what, now.problem)
		}
	}
}

// The backends of many ports are looked at once for each port, whatever the type, and are those of its
// name and hostname.
func TestBackendsOfManyPorts(t *testing.T) {
	for _, c := range []struct {
		kind            mcs.Type
		ports, backends int
	}{{mcs.ClusterSetIP, mcs.MaxPorts, 500}, {mcs.Headless, 4, mcs.MaxPlaces}} {
		x := mcs.Export{Name: mcs.Name{Namespace: "shop", Name: "db"}, UID: "db", Created: time.Unix(1_700_000_000, 0), Spec: mcs.Spec{Type: c.kind}}
		at := map[string]uint16{}
		for i := range c.ports {
			x.Spec.Ports = append(x.Spec.Ports, mcs.Port{Name: fmt.Sprint("p-", i), Protocol: api.TCP, Port: uint16(i + 1)})
			at[fmt.Sprint("p-", i)] = uint16(1000 + i)
		}
		for i := range c.backends {
			b := mcs.Backend{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), Ready: i != 3, Ports: at}
			if c.kind == mcs.Headless {
				b.Hostname = fmt.Sprint("b-", i)
			}
			x.Backends = append(x.Backends, b)
		}
		set := &Clusterset{exporter: newExporter(nil)}
		e := &export{Export: x, granted: true}
		set.offer(e, &config.Resolved{}, time.Now())
		all, ready := 0, 0
		for i, got := range e.targets() {
			for _, to := range got.all {
				for nth, p := range x.Spec.Ports {
					hostname := x.Backends[int(to.Addr().As4()[2])<<8|int(to.Addr().As4()[3])].Hostname
					if is := mcs.PortName(x.Name, p, hostname) == e.services[i].Name; is != (int(to.Port()) == 1000+nth) {
						t.Fatalf("%s: %s leads to %s", c.kind, e.services[i].Name, to)
					}
				}
			}
			all, ready = all+len(got.all), ready+len(got.ready)
		}
		if all != c.ports*c.backends || ready != all-c.ports {
			t.Errorf("%s: of %d backends %d are ready", c.kind, all, ready)
		}
		if n := testing.AllocsPerRun(1, func() { e.targets() }); int(n) > 50*len(e.services) {
			t.Errorf("%s: %.0f allocations for %d ports with %d backends", c.kind, n, len(e.services), all)
		}
	}
}
