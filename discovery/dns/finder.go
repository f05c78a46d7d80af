package dnssd

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/postern-dev/postern/tunnel/wake"
)

// maxAsking limits the concurrent questions of all domains together.
const maxAsking = 8

// Options configure a [Finder]. Domains are required.
type Options struct {
	// Domains are browsed independently.
	Domains []string
	// Servers are queried; nil = those of resolv.conf, read again for every question.
	Servers []netip.AddrPort
	// Seed makes the order of records of one priority specific to this gateway; nil = a random
	// seed, which changes the order at every start.
	Seed []byte
	// Refuse says why an address may not be dialled; empty if it may. nil = all may.
	Refuse func(netip.AddrPort) string
	// Dial opens a connection to a server, "udp" or "tcp"; nil = the system's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Changed is called when the result of [Finder.Domains] has changed. It is called without
	// locks, possibly by several goroutines at a time, and must not block for long. It may be
	// nil.
	Changed func()
	// Logger logs changes; nil = discard.
	Logger *slog.Logger
}

func (o *Options) setDefaults() {
	if o.Seed == nil {
		o.Seed = make([]byte, 32)
		_, _ = rand.Read(o.Seed) // never fails
	}
	if o.Refuse == nil {
		o.Refuse = func(netip.AddrPort) string { return "" }
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Finder browses domains while [Finder.Run] runs, and sends nothing before. Its methods are safe
// for concurrent use.
type Finder struct {
	o      Options
	client *client
	slots  chan struct{}

	running atomic.Bool

	mu      sync.Mutex // guards the following
	domains []Domain   // in the order of the options
	wakes   []wake.Signal
}

// CheckDomain says why a name cannot be browsed.
func CheckDomain(name string) error {
	labels, ok := dns.IsDomainName(name)
	switch full := service + dns.Fqdn(name); {
	case !ok || labels == 0 || strings.Trim(name, ".") == "" || len(full) > 200:
		// 255 bytes in total (RFC 1035 §2.3.4), with room for an instance's label.
		return fmt.Errorf("%q is not a domain name", name)
	case strings.HasPrefix(fold(name), "_"):
		return fmt.Errorf("%q is the name of a service, and the domain that it is in is wanted, as example.com", name)
	case fold(name) == "local." || strings.HasSuffix(fold(name), ".local."):
		return fmt.Errorf("%q is not in DNS: names in .local are asked for on the local network (RFC 6762 §3; spec.discovery.lan)", name)
	}
	return nil
}

// New returns a finder that does nothing yet.
func New(o Options) (*Finder, error) {
	o.setDefaults()
	f := &Finder{o: o, slots: make(chan struct{}, maxAsking)}
	for _, d := range o.Domains {
		if err := CheckDomain(d); err != nil {
			return nil, err
		}
		f.domains = append(f.domains, Domain{Name: shown(fold(d))})
		f.wakes = append(f.wakes, wake.New())
	}
	servers := func() ([]netip.AddrPort, error) { return systemServers(resolvConf) }
	if len(o.Servers) > 0 {
		servers = func() ([]netip.AddrPort, error) { return o.Servers, nil }
	}
	f.client = &client{servers: servers, dial: o.Dial}
	return f, nil
}

// Domains returns what is known now. A domain that was not completely browsed yet is empty.
func (f *Finder) Domains() []Domain {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.domains)
}

// NetworkChanged queries everything again at once.
func (f *Finder) NetworkChanged() {
	for _, w := range f.wakes {
		w.Set()
	}
}

// Run browses until ctx ends, and returns ctx's cause. It owns its goroutines and waits for them.
// A finder runs once.
func (f *Finder) Run(ctx context.Context) error {
	if f.running.Swap(true) {
		return ErrRunning
	}
	var browsing sync.WaitGroup
	for n := range f.domains {
		browsing.Go(func() { f.browse(ctx, n) })
	}
	browsing.Wait()
	<-ctx.Done()
	return context.Cause(ctx)
}

// outcome is the result of a question.
type outcome struct {
	q   question
	a   answer
	err error
}

// browse drives the machine of one domain.
func (f *Finder) browse(ctx context.Context, n int) {
	m := newMachine(f.o.Domains[n], f.o.Seed, f.o.Refuse)
	var asking sync.WaitGroup
	defer asking.Wait()
	answers := make(chan outcome, maxQuestions) // so that no sender waits for the reader
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		ask, next, d, complete := m.poll(time.Now())
		for _, q := range ask {
			asking.Go(func() { f.ask(ctx, q, answers) })
		}
		if complete {
			f.publish(n, d)
		}
		timer.Reset(time.Until(next))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-f.wakes[n]:
			m.refreshAll(time.Now())
		case o := <-answers:
			m.answered(time.Now(), o.q, o.a, o.err)
		}
	}
}

func (f *Finder) ask(ctx context.Context, q question, answers chan<- outcome) {
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-ctx.Done():
		return
	}
	a, err := f.client.ask(ctx, q)
	if ctx.Err() == nil {
		answers <- outcome{q, a, err}
	}
}

// publish sets the state of a domain, and calls Changed if it changed.
func (f *Finder) publish(n int, d Domain) {
	f.mu.Lock()
	before := f.domains[n]
	f.domains[n] = d
	f.mu.Unlock()
	if before.equal(d) {
		return
	}
	f.logChanges(before, d)
	f.o.Changed()
}

// logChanges logs found gateways and their problems, once each.
func (f *Finder) logChanges(before, now Domain) {
	was := map[string]Instance{}
	for _, i := range before.Instances {
		was[i.Record] = i
	}
	for _, i := range now.Instances {
		old, known := was[i.Record]
		delete(was, i.Record)
		if i.Usable() && (!known || old.Key != i.Key || !slices.Equal(old.Addresses, i.Addresses)) {
			f.o.Logger.Info("found a gateway in DNS", "domain", now.Name, "name", i.Name, "publicKey", i.Key.String(), "addresses", len(i.Addresses))
		}
		f.logProblems(now.Name, old.Problems, i.Problems)
	}
	for _, i := range was {
		f.o.Logger.Info("gateway is no longer in DNS", "domain", now.Name, "name", i.Name)
	}
	f.logProblems(now.Name, before.Problems, now.Problems)
}

func (f *Finder) logProblems(domain string, before, now []Problem) {
	for _, p := range now {
		same := func(o Problem) bool { return o.Kind == p.Kind && o.Record == p.Record }
		if !slices.ContainsFunc(before, same) {
			f.o.Logger.Warn("unusable DNS records", "domain", domain, "problem", p.String())
		}
	}
}
