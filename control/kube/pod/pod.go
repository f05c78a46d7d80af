// Package pod has a gateway live in its cluster: it says when this pod's gateway is to run,
// and gives it what the cluster has for it.
//
//	role of this pod (lease) ─▶ state (Secrets) ─▶ gateway ◀─ peers, tickets (objects)
//	                                                  ▲  └──▶ Services and Secrets per peer
//	                                                  └─ addresses (Service, Nodes)
//
// One replica is active and runs the gateway; the others stand by with nothing but
// their probes, which say that they are fine. What a controller cannot do, for want of an
// answer or of a right, it says and tries again: nothing of that ends the gateway.
package pod

import (
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
	// AddressVariable tells the pod its own address (downward API: status.podIP).
	AddressVariable = "POD_IP"
	// AddressesVariable tells it all of them (status.podIPs), and NodeVariable its node's
	// (status.hostIP): one that has the same is on the node's network.
	AddressesVariable = "POD_IPS"
	NodeVariable      = "HOST_IP"

	// ownerTimeout bounds the question whose the pod is, and peersTimeout the first list of
	// the Peers: without an answer the gateway starts with those that its state has.
	ownerTimeout = 10 * time.Second
	// ownerAgain bounds it when it is asked again, before a gateway starts.
	ownerAgain   = 3 * time.Second
	peersTimeout = 5 * time.Second
	// probesGrace is how long probes may go on while the gateway takes over their address.
	probesGrace = time.Second
)

// Options are who the gateway is. All but Logger are required.
type Options struct {
	Cluster *kube.Cluster
	// Config has Kubernetes set.
	Config *config.Resolved
	Logger *slog.Logger
}

// Seams are what the gateway of an active replica is to be started with, and what has to run
// beside it.
type Seams struct {
	State state.Backend
	// Peers are those of a gateway that is about to start.
	Peers      func(context.Context) []config.Peer
	AdmitLocal func(peer string, from netip.AddrPort) error
	LocalHost  netip.Addr
	// Inside are addresses that nobody outside the cluster is known to reach: the pod's own.
	Inside     []netip.Prefix
	Clusterset *gateway.Clusterset
	// OnSuperseded takes what peers say of later starts of this gateway.
	OnSuperseded func(peer string, boot uint64)
	// Attach joins the gateway to the cluster until detach is called, which waits.
	Attach func(g *gateway.Gateway) (detach func(), err error)
}

// inside are the pod's addresses that nobody outside the cluster reaches: private ones, unless it is
// on the node's network. A cluster may route those of its pods to its neighbours, but what leads to
// pods there is the cluster's to say, by a Service, or a STUN server's out there that sees the pod.
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

// onNode reports whether the pod is on its node's network, whose address speaks for everything there.
func onNode(getenv func(string) string) bool { return getenv(AddressVariable) == getenv(NodeVariable) }

// Run stands by until this replica is the active one, and then calls active, as often as that
// happens, until ctx ends. The context of active ends when the role is lost, with
// [lease.ErrLost] as its cause: the gateway is to be closed at once then, without a drain.
func Run(ctx context.Context, o Options, active func(context.Context, Seams) error) error {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
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
	// owner has no UID while it is unknown, and for a pod that belongs to nothing.
	owner metav1.OwnerReference
	// askOwner asks for it; nil once there was an answer.
	askOwner func(context.Context) (metav1.OwnerReference, error)
	// address is the pod's own.
	address netip.Addr
	// before is the gateway that ran last in the current term.
	before atomic.Pointer[gateway.Gateway]
	// probes answer while it stands by.
	probes *metrics.Server
	// names are served whatever the role is; nil if they are not.
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
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// learnOwner asks what the pod belongs to, unless that was answered before.
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

// standBy answers probes: a replica that waits is as alive and as ready as it can be.
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

// leaveStandby gives up the address of the probes.
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

// clusterset is how the gateway takes part in services of clusters; nil if it does not.
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

// serveNames serves the names of imported services, if the configuration says so: in every replica, so
// that they outlast a change of roles, and until quiet is called.
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
	// A pod that ends is asked until the cluster has noticed.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { p.names.Serve(ctx, listener) })
	running.Go(func() {
		mcs.FollowZone(ctx, mcs.ZoneOptions{Cluster: p.o.Cluster, Namespaces: m.Namespaces, Set: p.names.SetZone, Logger: p.o.Logger})
	})
	return func() { cancel(); running.Wait() }, nil
}

// seams are those of the current term.
func (p *pod) seams(ctx context.Context) (Seams, error) {
	k := p.o.Config.Kubernetes
	p.learnOwner(ctx, ownerAgain)
	p.before.Store(nil)
	hadKey, _ := peer.ParsePublicKey(p.lease.PublicKey()) // what is no key says nothing
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
		s.AdmitLocal = guard.Admit
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

// firstPeers are the Peers as they are now. When they cannot be read they are those of the
// term's gateway before, if there was one: without them the gateway still has all that
// joined, and the controller brings the others as soon as it can.
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
