package neighbours

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/discovery"
	dnssd "github.com/postern-dev/postern/discovery/dns"
	"github.com/postern-dev/postern/tunnel/wake"
)

// ownAddrsFor is how long a list of this host's addresses is reused while records are checked, of
// which there may be many.
const ownAddrsFor = 3 * time.Second

// dnsSearch looks for gateways in DNS while domains are configured. Its results are used for peers
// that are known by key; others are shown.
type dnsSearch struct {
	o *Options
	// again holds at most one request to run another finder, changed one to use the new results.
	again, changed wake.Signal

	mu     sync.Mutex // guards the following
	finder *dnssd.Finder
	own    []netip.Addr
	ownErr error
	ownAt  time.Time
}

func openDNSSearch(o *Options) (*dnsSearch, error) {
	s := &dnsSearch{o: o, again: wake.New(), changed: wake.New()}
	finder, err := s.newFinder(o.Peers.Config().Discovery.DNS)
	if err != nil {
		return nil, err
	}
	s.finder = finder
	return s, nil
}

// newFinder returns the finder that the configuration asks for; nil if none.
func (s *dnsSearch) newFinder(cfg config.DNS) (*dnssd.Finder, error) {
	if len(cfg.Domains) == 0 {
		return nil, nil
	}
	return dnssd.New(dnssd.Options{
		Domains: cfg.Domains, Servers: cfg.Servers, Seed: s.seed(), Refuse: s.refuse,
		Changed: s.changed.Set, Logger: s.o.Logger,
	})
}

// seed is specific to this gateway, and stable across restarts.
func (s *dnsSearch) seed() []byte {
	h := hmac.New(sha256.New, []byte(s.o.Key.Base64()))
	h.Write([]byte("postern SRV draw v1"))
	return h.Sum(nil)
}

// refuse says why an address of a record is not dialled.
func (s *dnsSearch) refuse(a netip.AddrPort) string {
	s.mu.Lock()
	stale := time.Since(s.ownAt) > ownAddrsFor
	s.mu.Unlock()
	if stale {
		own, err := s.o.OwnAddrs()
		s.mu.Lock()
		s.own, s.ownErr, s.ownAt = own, err, time.Now()
		s.mu.Unlock()
	}
	s.mu.Lock()
	own, err := s.own, s.ownErr
	s.mu.Unlock()
	if err != nil {
		return "the addresses of this host are not known"
	}
	return discovery.Dialable(a, own, s.o.Peers.Config().Discovery.Exclude)
}

// use switches to another configuration.
func (s *dnsSearch) use(f *dnssd.Finder) {
	s.mu.Lock()
	s.finder = f
	s.mu.Unlock()
	s.again.Set()
}

func (s *dnsSearch) current() *dnssd.Finder {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.finder
}

// domains returns the results; nil without a search.
func (s *dnsSearch) domains() []dnssd.Domain {
	if f := s.current(); f != nil {
		return f.Domains()
	}
	return nil
}

// networkChanged queries everything again.
func (s *dnsSearch) networkChanged() {
	if f := s.current(); f != nil {
		f.NetworkChanged()
	}
}

// run searches until ctx ends.
func (s *dnsSearch) run(ctx context.Context) {
	for ctx.Err() == nil {
		searching, stop := context.WithCancel(ctx)
		var search sync.WaitGroup
		if f := s.current(); f != nil {
			search.Go(func() {
				if err := f.Run(searching); !errors.Is(err, context.Canceled) {
					s.o.Logger.Warn("DNS discovery stopped", "error", err)
				}
			})
		}
		s.follow(ctx)
		stop()
		search.Wait()
		s.o.rematch()
	}
}

// follow uses the results until there is another finder or ctx ends.
func (s *dnsSearch) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.again:
			return
		case <-s.changed:
			s.o.rematch()
		}
	}
}

// rematch matches the results with the peers again.
func (o *Options) rematch() { o.Peers.LearnAll(o.Moved) }
