package exchange

import (
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel/peer"
)

// hellos are the latest hellos of peers, by key.
type hellos struct{ m sync.Map }

// Heard is a hello and when it arrived.
type Heard struct {
	auth.Hello
	At time.Time
}

func (h *hellos) get(k peer.PublicKey) (Heard, bool) {
	v, ok := h.m.Load(k)
	if !ok {
		return Heard{}, false
	}
	return v.(Heard), true
}

func (h *hellos) set(k peer.PublicKey, v auth.Hello) { h.m.Store(k, Heard{v, time.Now()}) }
func (h *hellos) drop(k peer.PublicKey)              { h.m.Delete(k) }

// APIServerOf returns what a hello says about the peer's API server; zero if it says nothing.
func APIServerOf(h auth.Hello) auth.APIServer {
	if h.APIServer == nil {
		return auth.APIServer{}
	}
	return *h.APIServer
}

// HeardHello stores what a peer says about itself. Its offers are shown and remembered; its
// addresses and names are never dialled because of a hello.
func (x *Exchange) HeardHello(name string, h auth.Hello) {
	m := x.o.Peers.Load().ByName(name)
	if m == nil {
		return
	}
	x.o.Peers.Learn(m.Key, func(m *roster.Member) {
		was, _ := x.hellos.get(m.Key)
		x.hellos.set(m.Key, h)
		same := slices.Equal(was.Offers, h.Offers) && APIServerOf(was.Hello) == APIServerOf(h)
		if !same && x.o.Peers.MayStore(m, time.Now()) { // otherwise it is stored with those of all peers, a little later
			x.rememberHellos([]*roster.Member{m})
		}
		x.keepers.setPeer(m)
		x.keepers.wake(name)
		x.follow(m, h)
	})
	x.o.Paths.HearsOfBoot(m.Key, h.HeardBoot)
	if h.Report == nil {
		return
	}
	is, was, err := x.reports.take(m.Key, h.Report)
	if err != nil {
		x.log.Debug("ignoring a malformed report from a peer", "peer", name, "error", err)
		return
	}
	was.Offers = is.Offers // which have just been received
	x.applyReportChanges(m.Key, is, was)
}

// rememberHellos stores the latest hellos of members in one write, unless they are stored already.
// The caller holds the registry's lock.
func (x *Exchange) rememberHellos(members []*roster.Member) {
	news := map[peer.PublicKey]func(*state.Observation){}
	for _, m := range members {
		if h, ok := x.hellos.get(m.Key); ok {
			news[m.Key] = func(o *state.Observation) {
				a := APIServerOf(h.Hello)
				o.Offers, o.ServerName, o.CAData = h.Offers, a.ServerName, a.CAData
			}
		}
	}
	if err := x.o.Store.ObserveAll(news); err != nil {
		x.log.Warn("failed to store the services that peers offer", "peers", len(news), "error", err)
	}
}

// Offers returns what the peer grants us, by its latest hello of this run or the last one.
func (x *Exchange) Offers(m *roster.Member) []string {
	if h, ok := x.hellos.get(m.Key); ok {
		return h.Offers
	}
	return x.o.Store.Observed(m.Key).Offers
}

// Hello returns the latest hello of a peer in this run.
func (x *Exchange) Hello(k peer.PublicKey) (Heard, bool) { return x.hellos.get(k) }
