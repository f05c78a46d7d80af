//go:build linux

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/postern-dev/postern/testenv/netlab"
)

// clusterDomain is the suffix of the names of Services.
const clusterDomain = "cluster.local."

// dnsPort is the port of DNS servers.
const dnsPort = 53

// dns is the cluster's name server, as far as tests need one. It has A records of Services with a
// cluster address ("Kubernetes DNS-Based Service Discovery", version 1.1.0) and of the given
// hosts. It does not forward queries. It runs in the test process.
type dns struct {
	conn  *net.UDPConn
	hosts map[string]netip.Addr // by canonical name; fixed
	stop  context.CancelFunc
	tasks sync.WaitGroup

	mu       sync.Mutex
	services map[string]netip.Addr // by canonical name
}

// corefile serves this cluster's Services and the imported ones, and does not forward queries.
const corefile = `.:%d {
	bind %s
	errors
	kubernetes cluster.local clusterset.local {
		kubeconfig %q
		multicluster clusterset.local
		ttl 1
	}
}
`

// startCoreDNS runs CoreDNS on the node's address until Close.
func (c *Cluster) startCoreDNS(program string) error {
	file := filepath.Join(c.options.Dir, "Corefile")
	if err := os.WriteFile(file, fmt.Appendf(nil, corefile, dnsPort, c.options.Address, c.kubeconfig), 0o644); err != nil {
		return fmt.Errorf("serve names: %w", err)
	}
	_, err := c.start("coredns", netlab.Command{Namespace: c.options.Namespace, Args: []string{program, "-conf", file}})
	return err
}

// startDNS serves names on the node's address until Close.
func (c *Cluster) startDNS(hosts map[string]netip.Addr) error {
	d := &dns{hosts: map[string]netip.Addr{}, services: map[string]netip.Addr{}}
	for name, addr := range hosts {
		d.hosts[canonical(name)] = addr
	}
	err := netlab.Do(c.options.Namespace, func() (err error) {
		d.conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(c.options.Address, dnsPort)))
		return err
	})
	if err != nil {
		return fmt.Errorf("serve names: %w", err)
	}
	var ctx context.Context
	ctx, d.stop = context.WithCancel(context.Background())
	d.tasks.Go(func() { c.followServices(ctx, d) })
	d.tasks.Go(d.serve)
	c.node.dns = d
	return nil
}

// close stops the name server and waits for it.
func (d *dns) close() error {
	d.stop()
	err := d.conn.Close()
	d.tasks.Wait()
	return err
}

// canonical returns a name in the form in which queries are compared: in lower case, with a final
// dot.
func canonical(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, ".")) + "."
}

// followServices keeps the names of Services up to date. If a watch ends, for example while the
// API server is away, it starts another.
func (c *Cluster) followServices(ctx context.Context, d *dns) {
	client := c.AdminClient()
	defer client.CloseIdleConnections()
	retry := time.NewTicker(readyPoll)
	defer retry.Stop()
	for {
		// A Service that is deleted while no watch runs keeps its name. Errors are dropped, since
		// even an unreachable API server does not matter here.
		_, _ = watch(ctx, client, c.URL()+"/api/v1/services?watch=true", func(e watchEvent) bool {
			d.learn(e)
			return false
		})
		select {
		case <-retry.C:
		case <-ctx.Done():
			return
		}
	}
}

// learn applies a change of a Service.
func (d *dns) learn(e watchEvent) {
	var service struct {
		Metadata struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
		Spec struct {
			ClusterIP string `json:"clusterIP"`
		} `json:"spec"`
	}
	if json.Unmarshal(e.Object, &service) != nil {
		return
	}
	name := canonical(service.Metadata.Name + "." + service.Metadata.Namespace + ".svc." + clusterDomain)
	addr, err := netip.ParseAddr(service.Spec.ClusterIP)
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.Type == "DELETED" || err != nil { // headless Services have no address
		delete(d.services, name)
		return
	}
	d.services[name] = addr
}

// serve answers queries until the socket is closed.
func (d *dns) serve() {
	b := make([]byte, 64<<10)
	for {
		n, from, err := d.conn.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error about an earlier answer
		}
		if answer, err := d.answer(b[:n]); err == nil {
			// The client repeats the query if the answer is lost.
			_, _ = d.conn.WriteToUDPAddrPort(answer, from)
		}
	}
}

// answer returns the answer to a query (RFC 1035 §4).
func (d *dns) answer(query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	if m.Response || len(m.Questions) != 1 {
		return nil, errors.New("no query of one question")
	}
	q := m.Questions[0]
	addr, known := d.lookUp(canonical(q.Name.String()))
	answer := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionDesired: m.RecursionDesired, RecursionAvailable: true},
		Questions: m.Questions,
	}
	switch {
	case !known:
		answer.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA && addr.Is4():
		answer.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: 5},
			Body:   &dnsmessage.AResource{A: addr.As4()},
		}}
	}
	return answer.Pack()
}

func (d *dns) lookUp(name string) (netip.Addr, bool) {
	if addr, ok := d.hosts[name]; ok {
		return addr, true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	addr, ok := d.services[name]
	return addr, ok
}
