// Package pod runs a gateway in its cluster: it decides when this pod's gateway runs, and
// connects it to the cluster.
//
//	role of this pod (lease) ─▶ state (Secrets) ─▶ gateway ◀─ peers, tickets (objects)
//	                                                  ▲  └──▶ Services and Secrets per peer
//	                                                  └─ addresses (Service, Nodes)
//
// One replica is active and runs the gateway. The others are standbys: they serve probes that
// report them as healthy, and DNS if it is configured. If a controller fails, for lack of an answer
// or a permission, it reports that and retries, without ending the gateway.
package pod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/clusterdns"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/access"
	"github.com/postern-dev/postern/control/kube/lease"
	"github.com/postern-dev/postern/control/kube/mcs"
	"github.com/postern-dev/postern/control/kube/peers"
	"github.com/postern-dev/postern/control/kube/role"
	"github.com/postern-dev/postern/control/kube/secrets"
	"github.com/postern-dev/postern/control/metrics"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/discovery/special"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// AddressVariable is the pod's own address (downward API: status.podIP).
	AddressVariable = "POD_IP"
	// AddressesVariable are all its addresses (status.podIPs), NodeVariable is its node's
	// (status.hostIP). A pod with its node's address is on the node's network.
	AddressesVariable = "POD_IPS"
	NodeVariable      = "HOST_IP"

	// ownerTimeout bounds the request for the pod's owner, and peersTimeout the first list of the
	// Peers. Without an answer the gateway starts with the peers in its state.
	ownerTimeout = 10 * time.Second
	// ownerAgain bounds a repeated request, before a gateway starts.
	ownerAgain   = 3 * time.Second
	peersTimeout = 5 * time.Second
	// probesGrace is how long running probes may take when the gateway takes over their address.
	probesGrace = time.Second
)

// Options configure the gateway. All except Logger are required.
type Options struct {
	Cluster *kube.Cluster
	// Config has Kubernetes set.
	Config *config.Resolved
	Logger *slog.Logger
}

// Seams connect the gateway of an active replica to the cluster.
type Seams struct {
	State state.Backend
	// Peers returns the initial peers of a gateway.
	Peers      func(context.Context) []config.Peer
	AdmitLocal func(peer string, by api.Protocol, from netip.AddrPort) error
	KnownLocal func(peer string, from netip.AddrPort) bool
	LocalHost  netip.Addr
	// Inside are addresses that are not known to be reachable from outside the cluster: the pod's
	// own.
	Inside     []netip.Prefix
	Clusterset *gateway.Clusterset
	// OnSuperseded is called when peers report later starts of this gateway.
	OnSuperseded func(peer string, boot uint64)
	// Attach attaches the gateway to the cluster until detach is called, which waits.
	Attach func(g *gateway.Gateway) (detach func(), err error)
}

// inside returns the pod's addresses that are not reachable from outside the cluster: private
// ones, unless the pod is on its node's network. A cluster may route its pods' addresses to its
// neighbours. But then a Service, or a STUN server outside that sees the pod, must show that they
// are reachable.
func inside(getenv func(string) string) (out []netip.Prefix) {
	if onNode(getenv) {
		return nil
	}
	for text := range strings.SplitSeq(getenv(AddressVariable)+","+getenv(AddressesVariable), ",") {
		if a, err := netip.ParseAddr(text); err == nil && special.Scope(text) != "" {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// onNode reports whether the pod is on its node's network, and so has the node's address.
func onNode(getenv func(string) string) bool { return getenv(AddressVariable) == getenv(NodeVariable) }

// Run calls active whenever this replica becomes the active one, until ctx ends; at other times the
// replica is a standby. If the role is lost, active's context ends with [lease.ErrLost] as its
// cause, and the gateway must be closed at once, without draining.
func Run(ctx context.Context, o Options, active func(context.Context, Seams) error) error {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	p, err := newPod(ctx, o)
	if err != nil {
		return err
	}
	quiet, err := p.serveNames(ctx)
	if err != nil {
		return err
	}
	defer quiet()
	if err := p.standBy(ctx); err != nil {
		return err
	}
	defer p.leaveStandby()
	return p.lease.Run(ctx, func(ctx context.Context) error {
		p.leaveStandby()
		seams, err := p.seams(ctx)
		if err == nil {
			err = active(ctx, seams)
		}
		if errors.Is(context.Cause(ctx), lease.ErrLost) {
			return errors.Join(err, p.standBy(context.WithoutCancel(ctx)))
		}
		return err
	})
}

// pod is this replica.
type pod struct {
	o     Options
	name  string
	lease *lease.Lease
	// owner has no UID if it is unknown, or if the pod has no owner.
	owner metav1.OwnerReference
	// askOwner requests it; nil once there was an answer.
	askOwner func(context.Context) (metav1.OwnerReference, error)
	// address is the pod's own.
	address netip.Addr
	// before is the previous gateway of the current term.
	before atomic.Pointer[gateway.Gateway]
	label  label
	// probes are served on a standby.
	probes *metrics.Server
	// names are served in either role; nil if they are not.
	names *clusterdns.Server
}

func newPod(ctx context.Context, o Options) (*pod, error) {
	self, err := role.Self(o.Cluster)
	if err != nil {
		return nil, err
	}
	p := &pod{o: o, name: self.Name(), askOwner: self.Owner}
	if p.address, err = netip.ParseAddr(os.Getenv(AddressVariable)); err != nil {
		return nil, fmt.Errorf("this pod's address is not known: %s is %q (give the container the field status.podIP in it, as the chart does)",
			AddressVariable, os.Getenv(AddressVariable))
	}
	p.learnOwner(ctx, ownerTimeout)
	p.lease, err = lease.New(lease.Options{
		Cluster: o.Cluster, Name: o.Config.Kubernetes.Release, Identity: self.Identity(),
		Duration: o.Config.Kubernetes.Lease, Owner: p.owner, Pods: self, Logger: o.Logger,
		OnLabelRefused: func(err error) { p.label.refused(labelProblem(err, p.name, o.Cluster.Namespace())) },
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// learnOwner requests the pod's owner, unless it is known.
func (p *pod) learnOwner(ctx context.Context, limit time.Duration) {
	if p.askOwner == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	owner, err := p.askOwner(ctx)
	if err != nil {
		p.o.Logger.Warn("cannot find this pod's owner; objects that the gateway creates will not be deleted with it",
			"error", err)
		return
	}
	p.owner, p.askOwner = owner, nil
	if p.lease != nil {
		p.lease.Own(owner)
	}
}

// standBy serves probes that report this standby as alive and ready.
func (p *pod) standBy(ctx context.Context) error {
	if p.o.Config.HTTPAddress == "" || p.probes != nil {
		return nil
	}
	fine := func() error { return nil }
	registry := prometheus.NewRegistry()
	if p.names != nil {
		if err := registry.Register(metrics.NewDNSCollector(p.names.Queries)); err != nil {
			return err
		}
	}
	var err error
	p.probes, err = metrics.Serve(ctx, metrics.ServerOptions{
		Address: p.o.Config.HTTPAddress, Gatherer: registry, Live: fine, Ready: fine, Logger: p.o.Logger,
	})
	if err != nil {
		return p.o.Config.ProblemAt("spec.http.address", err.Error())
	}
	return nil
}

// leaveStandby releases the address of the probes.
func (p *pod) leaveStandby() {
	if p.probes == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), probesGrace)
	defer cancel()
	if err := p.probes.Shutdown(ctx); err != nil {
		p.o.Logger.Debug("health server did not shut down cleanly", "error", err)
	}
	p.probes = nil
}

// clusterset configures how the gateway takes part in cluster services; nil if it does not.
func (p *pod) clusterset() *gateway.Clusterset {
	if p.o.Config.Kubernetes.MCS == nil {
		return nil
	}
	out := &gateway.Clusterset{Namespace: p.o.Cluster.Namespace()}
	if p.names != nil {
		out.DNSQueries = p.names.Queries
	}
	return out
}

// serveNames serves the names of imported services until quiet is called, if configured. All
// replicas do so, so that it survives a change of roles.
func (p *pod) serveNames(ctx context.Context) (quiet func(), err error) {
	m := p.o.Config.Kubernetes.MCS
	if m == nil || m.DNS == "" {
		return func() {}, nil
	}
	listener, err := clusterdns.Listen(ctx, m.DNS)
	if err != nil {
		return nil, p.o.Config.ProblemAt("spec.kubernetes.mcs.dns.listen", err.Error())
	}
	p.names = clusterdns.New(p.address, p.o.Logger)
	// A terminating pod gets requests until the cluster has noticed.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { p.names.Serve(ctx, listener) })
	running.Go(func() {
		mcs.FollowZone(ctx, mcs.ZoneOptions{Cluster: p.o.Cluster, Namespaces: m.Namespaces, Set: p.names.SetZone, Logger: p.o.Logger})
	})
	return func() { cancel(); running.Wait() }, nil
}

// seams returns those of the current term.
func (p *pod) seams(ctx context.Context) (Seams, error) {
	k := p.o.Config.Kubernetes
	p.learnOwner(ctx, ownerAgain)
	p.before.Store(nil)
	hadKey, _ := peer.ParsePublicKey(p.lease.PublicKey()) // ignore an invalid key
	backend, err := secrets.New(p.o.Cluster, secrets.Options{
		Release: k.Release, Term: p.lease.Term(), Owner: p.owner, HadKey: hadKey, Logger: p.o.Logger,
		OnFenced: func() { p.lease.Supersede("another replica writes the state") },
	})
	if err != nil {
		return Seams{}, err
	}
	s := Seams{State: backend, LocalHost: p.address, Inside: inside(os.Getenv), Clusterset: p.clusterset(), OnSuperseded: p.lease.PeerSawNewer, Attach: func(g *gateway.Gateway) (func(), error) { return p.attach(ctx, g, backend) }}
	if k.PeerServices {
		own := p.address
		if onNode(os.Getenv) {
			own = netip.Addr{}
		}
		guard, err := access.NewGuard(access.GuardOptions{
			Cluster: p.o.Cluster, Namespaces: k.PeerServicesFrom, Own: own, Account: p.o.Cluster.Namespace() + ":" + k.Release, Logger: p.o.Logger,
		})
		if err != nil {
			return Seams{}, err
		}
		s.AdmitLocal, s.KnownLocal = guard.Admit, guard.Known
		attach := s.Attach
		s.Attach = func(g *gateway.Gateway) (func(), error) {
			guard.Notify(func(list []check.OwnProblem) { g.SetProblems(sourceGuard, list) })
			return attach(g)
		}
	}
	reader, err := peers.New(peers.Options{Cluster: p.o.Cluster, Name: p.o.Config.Name, Logger: p.o.Logger})
	if err != nil {
		return Seams{}, err
	}
	s.Peers = func(ctx context.Context) []config.Peer { return p.firstPeers(ctx, reader) }
	return s, nil
}

// firstPeers returns the current Peers. If they cannot be read, it returns those of the term's
// previous gateway, if any. Otherwise the gateway starts with the joined peers in its state, and
// the controller adds the others later.
func (p *pod) firstPeers(ctx context.Context, reader *peers.Controller) []config.Peer {
	ctx, cancel := context.WithTimeout(ctx, peersTimeout)
	defer cancel()
	list, err := reader.Initial(ctx)
	if err != nil {
		p.o.Logger.Warn("failed to read the cluster's Peers; starting with those from the stored state", "error", err)
		if before := p.before.Load(); before != nil {
			return before.ClusterPeers()
		}
	}
	return list
}
