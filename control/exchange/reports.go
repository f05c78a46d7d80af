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
)

const (
	// reportPace is how often a peer is told of changes at most.
	reportPace = 5 * time.Second
	// turnPace is how often peers are looked at whom something has changed for, at most.
	turnPace = time.Second
	// reportRenewal is when a report is posted although nothing has changed. Each answer
	// to a hello renews it for 400 bytes, and a peer asks every 4 to 6 min: a request of its
	// own, of 7 KB, is made only for one that has stopped asking.
	reportRenewal = 7 * time.Minute
	// reportAgain is how long a peer to which a report could not be handed over is left
	// alone.
	reportAgain = 30 * time.Second
)

// reports exchanges with each peer what the two find when they try to reach each other:
// they tell ours, and keep the peer's last. They are safe for concurrent use.
type reports struct {
	x    *Exchange
	mail *mail.Sender[struct{}] // a report is written when it is handed over
	wake chan struct{}          // holds at most one wish to look for changes

	mu    sync.Mutex
	heard map[peer.PublicKey]heardReport
	told  map[peer.PublicKey]toldReport
	// about are the peers whom something may have changed for since the last turn; all
	// says that it may have for each of them.
	about map[peer.PublicKey]bool
	all   bool
}

// heardReport is the last report of a peer.
type heardReport struct {
	report.Report
	at time.Time
}

// toldReport is what a peer was told last.
type toldReport struct {
	said report.Report
	// of is what it was found to say the same as: see basis.
	of basis
	// at is when it took it, next when it may be told more.
	at, next time.Time
}

// newReports makes an exchange that tells nothing before run. What it needs of the gateway
// need not be there yet.
func newReports(x *Exchange) *reports {
	r := &reports{
		x: x, wake: make(chan struct{}, 1), heard: map[peer.PublicKey]heardReport{}, told: map[peer.PublicKey]toldReport{},
		about: map[peer.PublicKey]bool{},
	}
	r.mail = mail.New(mail.Options[struct{}]{Ctx: x.o.Ctx, Hand: r.hand, Failed: r.failed, Room: 1})
	return r
}

// hand makes one try to hand a peer the report as it is by then.
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

// write makes the report to a peer as things are; body is nil when there is nothing to tell.
func (r *reports) write(m *roster.Member, now time.Time) (said report.Report, of basis, body []byte, err error) {
	results, of := r.basis(m)
	said, ok := r.compose(m, results, of, now)
	if ok {
		body, err = said.Encode()
	}
	return said, of, body, err
}

// failed puts the next try off.
func (r *reports) failed(to peer.PublicKey, err error) {
	r.mu.Lock()
	if t, ok := r.told[to]; ok {
		t.next = time.Now().Add(reportAgain)
		r.told[to] = t
	}
	r.mu.Unlock()
	r.x.log.Debug("a report was not delivered", "peer", r.x.o.Peers.NameOf(to), "error", err)
}

// forHello is the report that goes with the answer to a peer's hello; nil when there is
// nothing to tell. The parts of the gateway are there by the time that a peer can ask.
func (r *reports) forHello(to peer.PublicKey) []byte {
	m := r.x.o.Peers.Load().ByKey(to)
	if m == nil || m.Pending {
		return nil
	}
	now := time.Now()
	said, _, body, err := r.write(m, now)
	if err != nil {
		r.x.log.Warn("the report to a peer cannot be written", "peer", m.Name, "error", err)
	}
	if body == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// Whether the answer arrives is not known. What it renews counts as renewed; of what is
	// new the peer is told again, and of what follows in any case, were it as before.
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

// receive takes a report that a peer sent, and does what it asks for; an error is fit to be
// told to the peer.
func (r *reports) receive(from peer.PublicKey, body []byte) error {
	is, was, err := r.take(from, body)
	if err == nil {
		r.x.applyReportChanges(from, is, was)
	}
	return err
}

// take keeps a report that a peer sent, or that came with its hello, and gives the one before.
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
		rep.Identity = was.Identity // it will say so later
	}
	r.heard[from] = heardReport{rep, time.Now()}
	t := r.told[from]
	if rep.Hears.Report == report.Never { // it has just started, and has none of ours
		t.said, t.of = report.Report{}, basis{}
	}
	if soon := time.Now().Add(reportPace); t.next.After(soon) { // it is there again
		t.next = soon
	}
	r.told[from] = t
	r.mu.Unlock()
	r.mail.Spoke(from)
	r.changedFor(from)
	r.x.o.Reported(m.Name)
	return rep, was, nil
}

// last is the last report of a peer.
func (r *reports) last(k peer.PublicKey) (heardReport, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, ok := r.heard[k]
	return h, ok
}

// tellsOffers reports whether a peer tells when it offers something else.
func (r *reports) tellsOffers(k peer.PublicKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, ok := r.heard[k]
	return ok && h.Offers != "" && time.Since(h.at) < report.StaleAfter
}

// inbound is what a peer found when it tried to reach us. Without a report it is unknown, and
// says why.
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

// reader is this gateway as the reader of a peer's report.
func (r *reports) reader(m *roster.Member) report.Reader {
	out := report.Reader{Peer: m.Name, User: r.x.issuer.User(m), Own: func() catalogue.Shown {
		return r.x.o.Shown()
	}}
	if c, ok := r.x.issuer.Caller(peer.OverlayAddr(m.Key)); ok {
		out.Offers = r.x.issuer.Offers(c)
	}
	return out
}

// skew is how much a peer's clock is ahead of ours, by its last report.
func (r *reports) skew(k peer.PublicKey) (skew time.Duration, ok bool) {
	h, ok := r.last(k)
	return h.Skew(h.at), ok
}

// forget drops what is kept of a peer that is gone from the roster.
func (r *reports) forget(k peer.PublicKey) {
	r.mail.Forget(k)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.heard, k)
	delete(r.told, k)
	delete(r.about, k)
}

// close waits for what is under way; the gateway's context has ended by then.
func (r *reports) close() { r.mail.Close() }

// applyReportChanges does what a report asks for that has other marks than the one before. How often is for
// the peer to decide where that is asked of itself and nothing is kept or logged of it: a report
// a second is taken of it, and one with each hello. Another identity is written to the state, so
// it is asked for renewAtOnce times in a row, and then once in renewEvery.
func (x *Exchange) applyReportChanges(from peer.PublicKey, is, was report.Report) {
	m := x.o.Peers.Load().ByKey(from)
	if m == nil {
		return
	}
	if is.OffersChanged(was) {
		x.log.Debug("a peer offers something else than before; it is asked", "peer", m.Name)
		x.checks.Wake(m.Name)
	}
	if is.IdentityEnded(was) {
		x.keepers.ended(time.Now(), m)
	}
}
