package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/report"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// reportPace is how often a peer is told of changes at most.
	reportPace = 5 * time.Second
	// turnPace is how often all peers are looked at, at most. Each report that one of them
	// sends asks for it.
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
	g    *Gateway
	mail *mail[struct{}] // a report is written when it is handed over
	wake chan struct{}   // holds at most one wish to look for changes

	mu    sync.Mutex
	heard map[peer.PublicKey]heardReport
	told  map[peer.PublicKey]toldReport
}

// heardReport is the last report of a peer.
type heardReport struct {
	report.Report
	at time.Time
}

// toldReport is what a peer was told last.
type toldReport struct {
	said report.Report
	// at is when it took it, next when it may be told more.
	at, next time.Time
}

// newReports makes an exchange that tells nothing before run. What it needs of the gateway
// need not be there yet.
func newReports(g *Gateway) *reports {
	r := &reports{
		g: g, wake: make(chan struct{}, 1), heard: map[peer.PublicKey]heardReport{}, told: map[peer.PublicKey]toldReport{},
	}
	r.mail = newMail(mailOptions[struct{}]{ctx: g.ctx, hand: r.hand, failed: r.failed, room: 1})
	return r
}

// run tells peers what changes until ctx ends. It looks every few seconds by itself:
// changed makes it look soon.
func (r *reports) run(ctx context.Context) { turns(ctx, r.wake, r.turn) }

// turns calls turn every reportPace and after each wake, but not more often than turnPace.
func turns(ctx context.Context, wake <-chan struct{}, turn func(now time.Time)) {
	t := time.NewTicker(reportPace)
	defer t.Stop()
	for {
		turn(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-time.After(turnPace):
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-wake:
		}
	}
}

// changed asks for a look at the verdicts soon. It does not block.
func (r *reports) changed() {
	select {
	case r.wake <- struct{}{}:
	default: // asked for already
	}
}

// turn posts to the peers that do not know yet what is known here.
func (r *reports) turn(now time.Time) {
	k := r.known()
	for _, m := range r.g.roster.Load().members {
		if !r.takes(m) || !r.g.way(m, k.stats[m.key]).connected(now) {
			continue
		}
		if said, ok := r.compose(m, k, now); ok && r.due(m.key, said, now) {
			r.mail.post(m.key, struct{}{})
		}
	}
}

// takes reports whether a peer is one that understands reports.
func (r *reports) takes(m *member) bool {
	h, ok := r.g.hellos.get(m.key)
	return ok && !m.stock && !m.pending && h.Can(auth.CapabilityReport)
}

// due reports whether a peer is to be told now, and then counts on it.
func (r *reports) due(k peer.PublicKey, said report.Report, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.told[k]
	if r.g.roster.Load().byKey[k] == nil || now.Before(t.next) || said.Same(t.said) && now.Sub(t.at) < reportRenewal {
		return false
	}
	t.next = now.Add(reportPace)
	r.told[k] = t
	return true
}

// known is what the gateway knows of all its peers at one moment.
type known struct {
	stats   map[peer.PublicKey]tunnel.PeerStats
	results map[string][]check.Result
}

func (r *reports) known() known {
	k := known{r.g.recent.tunnel(r.g.plane.engine).Peers, map[string][]check.Result{}}
	for _, p := range r.g.checks.Snapshot() {
		k.results[p.Peer] = p.Results
	}
	return k
}

// compose writes down what is known about reaching a peer; false when that is nothing.
func (r *reports) compose(m *member, k known, now time.Time) (report.Report, bool) {
	out := report.Report{
		At: now, Gateway: r.g.running.Load().cfg.Name,
		Verdicts: reported(k.results[m.name], now), Hears: report.Hears{Report: report.Never},
		Offers: r.g.auth.offersMark(m), Identity: r.g.auth.identityMark(m),
	}
	nat := r.g.agent.Load().NAT()
	out.NAT = report.NAT{Mapping: nat.Mapping, Filtering: nat.Filtering}
	t := k.stats[m.key]
	out.Hears.Handshake, out.Hears.Probe = ago(t.LastHandshake, now), ago(r.g.way(m, t).path.Heard, now)
	if h, ok := r.last(m.key); ok {
		out.Hears.Report = ago(h.at, now)
	}
	return out, len(out.Verdicts) > 0
}

func ago(at, now time.Time) time.Duration {
	if at.IsZero() {
		return report.Never
	}
	return max(now.Sub(at), 0)
}

// reported are the verdicts on the three targets: of a target that is checked in several
// ways, the check that is named after it.
func reported(results []check.Result, now time.Time) []report.Verdict {
	var out []report.Verdict
	for _, target := range []string{api.ServiceGateway, api.ServiceAuth, api.ServiceAPIServer} {
		for _, res := range results {
			if res.Name == target {
				out = append(out, report.VerdictOf(target, res.Verdict, res.Params, now))
				break
			}
		}
	}
	return out
}

// hand makes one try to hand a peer the report as it is by then.
func (r *reports) hand(ctx context.Context, to peer.PublicKey, _ struct{}) error {
	m := r.g.roster.Load().byKey[to]
	if m == nil {
		return nil // removed meanwhile
	}
	now := time.Now()
	said, ok := r.compose(m, r.known(), now)
	if !ok {
		return nil
	}
	body, err := said.Encode()
	if err != nil {
		return err
	}
	if err := auth.NewClient(peer.OverlayAddr(to), r.g.plane.stack.DialContext).Report(ctx, body); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.g.roster.Load().byKey[to] != nil {
		r.told[to] = toldReport{said: said, at: now, next: now.Add(reportPace)}
	}
	return nil
}

// failed puts the next try off.
func (r *reports) failed(to peer.PublicKey, err error) {
	r.mu.Lock()
	if t, ok := r.told[to]; ok {
		t.next = time.Now().Add(reportAgain)
		r.told[to] = t
	}
	r.mu.Unlock()
	r.g.log.Debug("a report was not delivered", "peer", r.g.nameOf(to), "error", err)
}

// forHello is the report that goes with the answer to a peer's hello; nil when there is
// nothing to tell. The parts of the gateway are there by the time that a peer can ask.
func (r *reports) forHello(to peer.PublicKey) []byte {
	m := r.g.roster.Load().byKey[to]
	if m == nil || m.pending {
		return nil
	}
	now := time.Now()
	said, ok := r.compose(m, r.known(), now)
	if !ok {
		return nil
	}
	body, err := said.Encode()
	if err != nil {
		r.g.log.Warn("the report to a peer cannot be written", "peer", m.name, "error", err)
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
			t.said = report.Report{}
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
		r.g.heed(from, is, was)
	}
	return err
}

// take keeps a report that a peer sent, or that came with its hello, and gives the one before.
func (r *reports) take(from peer.PublicKey, body []byte) (rep, was report.Report, err error) {
	if rep, err = report.Parse(body); err != nil {
		return rep, was, err
	}
	r.mu.Lock()
	if r.g.roster.Load().byKey[from] == nil {
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
		t.said = report.Report{}
	}
	if soon := time.Now().Add(reportPace); t.next.After(soon) { // it is there again
		t.next = soon
	}
	r.told[from] = t
	r.mu.Unlock()
	r.mail.spoke(from)
	r.changed()
	return rep, was, nil
}

// last is the last report of a peer.
func (r *reports) last(k peer.PublicKey) (heardReport, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, ok := r.heard[k]
	return h, ok
}

// inbound is what a peer found when it tried to reach us, and when it told. Without a
// report, ok is false and the verdicts are unknown and say why.
func (r *reports) inbound(k peer.PublicKey) (targets api.Targets, at time.Time, ok bool) {
	name := r.g.nameOf(k)
	if h, found := r.last(k); found {
		return h.Targets(r.reader(k), h.at, time.Now()), h.at, true
	}
	m := r.g.roster.Load().byKey[k]
	h, answered := r.g.hellos.get(k)
	switch {
	case m != nil && m.stock:
		return report.Unknown(fmt.Sprintf("%s is a plain WireGuard peer, which sends no reports", name),
			fmt.Sprintf("try at %s by hand", name)), time.Time{}, false
	case answered && !h.Can(auth.CapabilityReport):
		return report.Unknown("the peer's version sends no reports",
			fmt.Sprintf("upgrade the gateway of %s, or run `postern status` there", name)), time.Time{}, false
	}
	return report.Unknown(fmt.Sprintf("only %s can see this, and it has not reported it", name),
		fmt.Sprintf("run `postern check` at %s", name)), time.Time{}, false
}

// reader is this gateway as the reader of a peer's report.
func (r *reports) reader(k peer.PublicKey) report.Reader {
	out := report.Reader{Peer: r.g.nameOf(k), Own: func() check.Own {
		return r.g.shown(r.g.running.Load().cfg, r.g.agent.Load().Snapshot())
	}}
	if c, ok := r.g.auth.Caller(peer.OverlayAddr(k)); ok {
		out.Offers = r.g.auth.offers(c)
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
	r.mail.forget(k)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.heard, k)
	delete(r.told, k)
}

// close waits for what is under way; the gateway's context has ended by then.
func (r *reports) close() { r.mail.close() }
