package exchange

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/mail"
	"github.com/postern-dev/postern/control/report"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/wake"
)

const (
	// reportPace is the least time between two reports to a peer.
	reportPace = 5 * time.Second
	// turnPace is the least time between two looks at peers with changes.
	turnPace = time.Second
	// reportAgain is how long to leave a peer alone after a failed delivery.
	reportAgain = 30 * time.Second
)

// reports exchanges findings with each peer: it sends ours, and keeps the peer's latest. It is safe
// for concurrent use.
type reports struct {
	x    *Exchange
	mail *mail.Sender[struct{}] // a report is written when it is delivered
	wake wake.Signal            // holds at most one pending wish to look for changes

	mu    sync.Mutex
	heard map[peer.PublicKey]heardReport
	told  map[peer.PublicKey]toldReport
	// about are the peers that something may have changed for since the last turn; all means every
	// peer.
	about map[peer.PublicKey]bool
	all   bool
}

// heardReport is the latest report of a peer.
type heardReport struct {
	report.Report
	at time.Time
}

// toldReport is what was last sent to a peer.
type toldReport struct {
	said report.Report
	// of is the basis of what was sent: see basis.
	of basis
	// at is when the peer accepted it, next when it may be sent more.
	at, next time.Time
}

// newReports returns an exchange of reports that sends nothing before run. The parts of the gateway
// that it needs may be created later.
func newReports(x *Exchange) *reports {
	r := &reports{
		x: x, wake: wake.New(), heard: map[peer.PublicKey]heardReport{}, told: map[peer.PublicKey]toldReport{},
		about: map[peer.PublicKey]bool{},
	}
	r.mail = mail.New(mail.Options[struct{}]{Ctx: x.o.Ctx, Hand: r.hand, Failed: r.failed, Room: 1})
	return r
}

// hand makes one attempt to deliver the current report to a peer.
func (r *reports) hand(ctx context.Context, to peer.PublicKey, _ struct{}) error {
	m := r.x.o.Peers.Load().ByKey(to)
	if m == nil {
		return nil // removed meanwhile
	}
	now := time.Now()
	said, of, body, err := r.write(m, now)
	if err != nil || body == nil {
		return err
	}
	if err := auth.NewClient(peer.OverlayAddr(to), r.x.o.Stack.DialContext).Report(ctx, body); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.x.o.Peers.Load().ByKey(to) != nil {
		r.told[to] = toldReport{said: said, of: of, at: now, next: now.Add(reportPace)}
	}
	return nil
}

// write encodes the current report to a peer; body is nil if there is nothing to say.
func (r *reports) write(m *roster.Member, now time.Time) (said report.Report, of basis, body []byte, err error) {
	results, of := r.basis(m)
	said, ok := r.compose(m, results, of, now)
	if ok {
		body, err = said.Encode()
	}
	return said, of, body, err
}

// failed postpones the next attempt.
func (r *reports) failed(to peer.PublicKey, err error) {
	r.mu.Lock()
	if t, ok := r.told[to]; ok {
		t.next = time.Now().Add(reportAgain)
		r.told[to] = t
	}
	r.mu.Unlock()
	r.x.log.Debug("failed to deliver a report", "peer", r.x.o.Peers.NameOf(to), "error", err)
}

// forHello returns the report to send with the answer to a peer's hello; nil if there is nothing to
// say. The gateway is complete by the time a peer can ask.
func (r *reports) forHello(to peer.PublicKey) []byte {
	m := r.x.o.Peers.Load().ByKey(to)
	if m == nil || m.Pending {
		return nil
	}
	now := time.Now()
	said, _, body, err := r.write(m, now)
	if err != nil {
		r.x.log.Warn("failed to encode a report", "peer", m.Name, "error", err)
	}
	if body == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// It is unknown whether the answer arrives. What it only renews counts as renewed. What is new
	// is sent again with the next report.
	if t, told := r.told[to]; told {
		if said.Same(t.said) {
			t.at = now
		} else {
			t.said, t.of = report.Report{}, basis{}
		}
		r.told[to] = t
	}
	return body
}

// receive handles a report from a peer. Its errors may be sent to the peer.
func (r *reports) receive(from peer.PublicKey, body []byte) error {
	is, was, err := r.take(from, body)
	if err == nil {
		r.x.applyReportChanges(from, is, was)
	}
	return err
}

// take stores a report from a peer, also one that came with a hello, and returns the previous one.
func (r *reports) take(from peer.PublicKey, body []byte) (rep, was report.Report, err error) {
	if rep, err = report.Parse(body); err != nil {
		return rep, was, err
	}
	r.mu.Lock()
	m := r.x.o.Peers.Load().ByKey(from)
	if m == nil {
		r.mu.Unlock()
		return rep, was, errors.New("no longer a peer of this gateway")
	}
	was = r.heard[from].Report
	if rep.Identity == "" && was.Identity != report.NoIdentity {
		rep.Identity = was.Identity // it will send it later
	}
	r.heard[from] = heardReport{rep, time.Now()}
	t := r.told[from]
	if rep.Hears.Report == report.Never { // it has just started and has no report from us
		t.said, t.of = report.Report{}, basis{}
	}
	if soon := time.Now().Add(reportPace); t.next.After(soon) { // it is back
		t.next = soon
	}
	r.told[from] = t
	r.mu.Unlock()
	r.mail.Spoke(from)
	r.changedFor(from)
	r.x.o.Reported(m.Name)
	return rep, was, nil
}

// last returns the latest report of a peer.
func (r *reports) last(k peer.PublicKey) (heardReport, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, ok := r.heard[k]
	return h, ok
}

// tellsOffers reports whether a peer announces changes of its offers.
func (r *reports) tellsOffers(k peer.PublicKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, ok := r.heard[k]
	return ok && h.Offers != "" && time.Since(h.at) < report.StaleAfter
}

// inbound returns what a peer found when it tried to reach us. Without a report the findings are
// unknown and say why.
func (r *reports) inbound(m *roster.Member) []verdict.Finding {
	if h, found := r.last(m.Key); found {
		return h.Findings(r.reader(m), h.at, time.Now())
	}
	why := catalogue.ReportsMissing
	if h, answered := r.x.hellos.get(m.Key); m.Stock {
		why = catalogue.ReportsNever
	} else if answered && !h.Can(auth.CapabilityReport) {
		why = catalogue.ReportsUnsupported
	}
	return r.reader(m).Without(why)
}

// reader returns this gateway as the reader of a peer's report.
func (r *reports) reader(m *roster.Member) report.Reader {
	out := report.Reader{Peer: m.Name, User: r.x.issuer.User(m), Own: func() catalogue.Shown {
		return r.x.o.Shown()
	}, Reached: func() string {
		return r.x.o.Reached(m)
	}}
	if c, ok := r.x.issuer.Caller(peer.OverlayAddr(m.Key)); ok {
		out.Offers = r.x.issuer.Offers(c)
	}
	return out
}

// skew is how far a peer's clock is ahead of ours, by its latest report.
func (r *reports) skew(k peer.PublicKey) (skew time.Duration, ok bool) {
	h, ok := r.last(k)
	return h.Skew(h.at), ok
}

// forget drops the data of a peer that has left the roster.
func (r *reports) forget(k peer.PublicKey) {
	r.mail.Forget(k)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.heard, k)
	delete(r.told, k)
	delete(r.about, k)
}

// close waits for pending work; the gateway's context has ended by then.
func (r *reports) close() { r.mail.Close() }

// applyReportChanges acts on the marks in a report that differ from the previous report's. The peer
// sets the pace where only the peer is queried and nothing is stored or logged: at most a report a
// second, and one with each hello. A new identity is written to the state, so it is requested
// renewAtOnce times in a row, and then once in renewEvery.
func (x *Exchange) applyReportChanges(from peer.PublicKey, is, was report.Report) {
	m := x.o.Peers.Load().ByKey(from)
	if m == nil {
		return
	}
	if is.OffersChanged(was) {
		x.log.Debug("peer's services changed; fetching the new list", "peer", m.Name)
		x.checks.Wake(m.Name)
	}
	if is.IdentityEnded(was) {
		x.keepers.ended(time.Now(), m)
	}
}
