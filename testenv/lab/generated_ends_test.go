package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/testenv/apiserver"
	"github.com/postern-dev/postern/testenv/pki"
	"github.com/postern-dev/postern/testenv/simnet"
)

// side is one of the two gateways.
type side struct {
	name string
	of   func(*Lab) *Site
}

func sides() []side {
	return []side{{"cloud", func(l *Lab) *Site { return l.Cloud }}, {"edge", func(l *Lab) *Site { return l.Edge }}}
}

// finds returns a fault that only this side finds, about itself.
func (s side) finds(e endFault, c catalogue.Code) endFault {
	e.name = s.name + " " + e.name
	if s.name == "cloud" {
		e.cloud = codes(c)
	} else {
		e.edge = codes(c)
	}
	return e
}

// failOver replaces cloud's process by another with the same state, like a standby, and waits
// until all is well.
func (l *Lab) failOver(ctx context.Context) error {
	if err := l.Cloud.restart(ctx); err != nil {
		return err
	}
	_, err := l.awaitClean(ctx, l.patient())
	return err
}

// relayFaults are faults of the relay. The two meet without it.
func relayFaults() []endFault {
	out := []endFault{{
		name: "TURN server, down", relay: true, cloud: codes(catalogue.TurnUnreachable), edge: codes(catalogue.TurnUnreachable),
		says: "start it",
		do: func(_ context.Context, l *Lab) error {
			defer func() { l.relay = nil }()
			return l.relay.Close()
		},
		fix: func(_ context.Context, l *Lab) error {
			if l.relay != nil { // both sides report it
				return nil
			}
			return l.serveRelay()
		},
	}}
	for _, s := range sides() {
		for _, e := range s.relayFaults() {
			out = append(out, s.finds(e, catalogue.TurnUnreachable))
		}
	}
	return out
}

// relayFaults are one side's faults with the relay.
func (s side) relayFaults() []endFault {
	filter := func(l *Lab, f simnet.Firewall) error {
		s.of(l).Host.Link().SetFirewall(f)
		return nil
	}
	ofRelay := func(d simnet.Datagram, _ bool) bool { return d.Src.Addr() == relayAddr || d.Dst.Addr() == relayAddr }
	return []endFault{
		{
			name: "TURN server, mute", relay: true, says: "let UDP and TCP to it out",
			do:  func(_ context.Context, l *Lab) error { return filter(l, simnet.Firewall{Drop: ofRelay}) },
			fix: func(_ context.Context, l *Lab) error { return filter(l, simnet.Firewall{}) },
		},
		{
			name: "TURN server, wrong password", relay: true, says: "correct username and passwordFile",
			do:  func(ctx context.Context, l *Lab) error { return s.of(l).password(ctx, "wrong") },
			fix: func(ctx context.Context, l *Lab) error { return s.of(l).password(ctx, relayPassword(s.name)) },
		},
		{
			name: "TURN server, certificate expired", relay: true, says: "renew the server's certificate",
			do: func(ctx context.Context, l *Lab) error { return relayExpired(ctx, l, s.of(l)) },
		},
	}
}

// password changes a site's password for the relay.
func (s *Site) password(ctx context.Context, word string) error {
	if err := os.WriteFile(s.Spec().Discovery.TURNServers[0].PasswordFile, []byte(word), 0o600); err != nil {
		return err
	}
	return s.reload(ctx)
}

// relayExpired makes a site use a relay over TLS whose certificate expired an hour ago.
func relayExpired(ctx context.Context, l *Lab, site *Site) error {
	const name = "turn.example.net"
	ca, err := pki.NewCA("relay-ca")
	if err != nil {
		return err
	}
	pair, err := ca.ServerBetween(time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour), name)
	if err != nil {
		return err
	}
	cert, err := pair.TLS()
	if err != nil {
		return err
	}
	server, err := apiserver.Start(ctx, ca, ca.Pool()) // only TLS is spoken to it
	if err != nil {
		return err
	}
	l.fault.servers = append(l.fault.servers, server)
	server.Present(cert)
	file := filepath.Join(filepath.Dir(site.File), "relay-ca.crt")
	if err := os.WriteFile(file, ca.CertPEM(), 0o600); err != nil {
		return err
	}
	if err := site.Edit(func(spec *api.GatewaySpec) {
		t := &spec.Discovery.TURNServers[0]
		t.Address, t.Transport, t.ServerName, t.CAFile = server.Addr(), "tls", name, file
	}); err != nil {
		return err
	}
	return site.reload(ctx)
}

// diskFaults are faults of a gateway's state directory, and as root also those of a disk.
func diskFaults() (out []endFault) {
	for _, s := range sides() {
		if disksOfTheirOwn() {
			out = append(out, s.finds(endFault{
				name: "disk, full", says: "free some space", disk: s.name,
				do: func(_ context.Context, l *Lab) error { return fill(filepath.Dir(s.of(l).File)) },
				fix: func(_ context.Context, l *Lab) error {
					return os.Remove(filepath.Join(filepath.Dir(s.of(l).File), filler))
				},
			}, catalogue.StateUnwritable), s.finds(endFault{
				name: "disk, read-only", says: "mount it writable", disk: s.name,
				do:  func(_ context.Context, l *Lab) error { return forbidWriting(filepath.Dir(s.of(l).File)) },
				fix: func(_ context.Context, l *Lab) error { return unmount(filepath.Dir(s.of(l).File)) },
			}, catalogue.StateUnwritable))
		}
		dir := func(l *Lab) string { return s.of(l).Spec().StateDir }
		out = append(out, s.finds(endFault{
			name: "disk, the state directory is lost", says: "create it again",
			do:  func(_ context.Context, l *Lab) error { return os.Rename(dir(l), dir(l)+".lost") },
			fix: func(_ context.Context, l *Lab) error { return os.Mkdir(dir(l), 0o700) },
		}, catalogue.StateUnwritable), s.finds(endFault{
			name: "disk, a file is lost", says: ".json",
			do: func(_ context.Context, l *Lab) error {
				files, err := filepath.Glob(filepath.Join(dir(l), "*.json"))
				if err != nil || len(files) == 0 {
					return fmt.Errorf("there is no file to lose: %w", err)
				}
				return os.Remove(files[0])
			},
		}, catalogue.StateDeleted))
	}
	return out
}

// clockFaults are faults of the clock that an API server shows, which its gateway and its peer
// both see.
func clockFaults() (out []endFault) {
	for _, s := range sides() {
		for by, says := range map[time.Duration]string{10 * time.Minute: "ahead", -10 * time.Minute: "behind"} {
			both := codes(catalogue.ClockSkew)
			out = append(out, endFault{name: fmt.Sprintf("clock of %s's API server, %s", s.name, says), cloud: both, edge: both, says: says,
				do: func(_ context.Context, l *Lab) error { s.of(l).API.Ahead(by); return nil }})
		}
	}
	slices.SortFunc(out, func(a, b endFault) int { return strings.Compare(a.name, b.name) })
	return out
}

// objects stores a gateway's state in memory instead of a cluster's Secrets.
type objects struct {
	mu    sync.Mutex
	files map[string][]byte
	err   error
}

// Load returns the saved files.
func (o *objects) Load(context.Context) (map[string][]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.files), o.err
}

// Save saves one file.
func (o *objects) Save(_ context.Context, name string, data []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return o.err
	}
	o.files[name] = slices.Clone(data)
	return nil
}

// objectFaults are faults of a gateway's stored state in its cluster. They are found on the next
// write.
func objectFaults() (out []endFault) {
	for _, s := range sides() {
		for name, cause := range map[string]error{
			"Role, lost":      fmt.Errorf("secrets is forbidden: %w", fs.ErrPermission),
			"quota, exceeded": errors.New("exceeded quota: object-counts"),
		} {
			kept := &objects{files: map[string][]byte{}}
			out = append(out, s.finds(endFault{name: name, says: cause.Error()[:9],
				adjust: func(site string, o *gateway.Options) {
					if site == s.name {
						o.State = kept
					}
				},
				do: func(ctx context.Context, l *Lab) error {
					kept.mu.Lock()
					kept.err = cause
					kept.mu.Unlock()
					if _, err := s.of(l).Gateway.Invite(ctx, api.InviteRequest{Allow: []string{api.ServiceAuth}}); err == nil {
						return errors.New("a ticket was made, though nothing can be kept")
					}
					return nil
				}}, catalogue.StateNotKept))
		}
	}
	slices.SortFunc(out, func(a, b endFault) int { return strings.Compare(a.name, b.name) })
	return out
}
