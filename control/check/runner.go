package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

const (
	// defaultInterval is the time between rounds.
	defaultInterval = 30 * time.Second
	// fullRounds is how many intervals pass between full rounds, which check auth and the API
	// server, while all is well: 5 min. A full round costs some 7 KB on the wire and an entry in
	// the API server's audit log, a ping 0.3 KB: 2 MB per day and peer instead of 20 MB.
	fullRounds = 10
	// defaultRetry is the time to the next round after a failure; it doubles up to the interval
	// while the failure lasts.
	defaultRetry = 5 * time.Second
	// A round that finds something tentative is followed by another after lookAgain, lookAgains
	// times until nothing fails: a path that is lost has been given up by then.
	lookAgain  = time.Second
	lookAgains = 4
	// jitter spreads rounds by a fifth each way, so that gateways that started together drift
	// apart.
	jitter = 0.2
	// beats is how many moments per interval a round may begin at: one a second, in half a minute.
	// The rounds of many peers then wake the process together, and waking up costs more than a
	// round while all is well.
	beats = 30
)

// Options configure a Runner.
type Options struct {
	// Dial and Ping work inside the tunnel. Required.
	Dial DialFunc
	Ping PingFunc
	// Facts returns what is known about a peer now; false if there is no such peer. Required;
	// called at the start of each check.
	Facts func(peer string) (Facts, bool)
	// Brief returns the part of Facts that decides whether a peer needs checking at all while all
	// is well: Stock, TellsOffers, Probed and Path. It is called for each peer in each interval.
	// nil means Facts.
	Brief func(peer string) (Facts, bool)
	// OnHello is called with the answer of a peer's auth service, on the goroutine of the peer's
	// checks; it must not block. It may be nil.
	OnHello func(peer string, h auth.Hello)
	// Ask queries the servers again that show whether anything outside is reachable. It is called
	// when a peer does not answer, at most once in askEvery, and must not block. It may be nil.
	Ask func()
	// Doubt probes the path to a peer that does not answer; it must not block. It may be nil.
	Doubt func(peer string)
	// Reprobe probes the paths to a peer that answers in the tunnel and no probes; it must not
	// block. It may be nil.
	Reprobe func(peer string)
	// Own returns what is known about this gateway; without it there are no own checks. It is
	// called from several goroutines, at the start of each check.
	Own func() Own
	// State tries whether the gateway's state can be kept, and returns the files of it that were
	// missing and have been restored. It may be nil.
	State func() (restored []string, err error)
	// Network is the network outside the tunnel, for checks of services outside and of the servers
	// behind our own.
	Network Network
	// Root is the file system whose /proc and /sys/fs/cgroup show this process's limits
	// (os.DirFS("/")); nil looks at none.
	Root fs.FS
	// Changed is called when a verdict on a peer may have changed; it must not block. It may be
	// nil.
	Changed func(peer string)
	// Interval, FullInterval and Retry replace the defaults above unless 0.
	Interval, FullInterval, Retry time.Duration
	// Logger gets a warning when a check begins to fail, and an info record when it recovers.
	Logger *slog.Logger
}

// Round is the result of one round of a peer's checks.
type Round struct {
	Peer string
	// Findings are those of gateway, mtu, auth and apiServer, in this order, each followed by what
	// belongs to it.
	Findings []verdict.Finding
	// skew is the peer's clock against ours at the time, and heard roughly when the peer was last
	// heard.
	skew  time.Duration
	heard time.Time
	// delay is how long this process waited meanwhile, if findings rest on that.
	delay delay
	// started is when the peer's gateway last started; zero if unknown.
	started time.Time
	// remote is the address to which the path led, empty over a relay.
	remote string
}

// Runner checks peers on a schedule and on demand, and keeps their latest results. It is safe for
// concurrent use.
type Runner struct {
	opts Options
	wg   sync.WaitGroup

	// epoch is the start of the beats.
	epoch time.Time
	// bursts bounds the peers whose loss is measured at once.
	bursts chan struct{}

	// asked is when Ask was last called.
	asked atomic.Pointer[time.Time]

	present presence

	ownOnce   sync.Once
	cancelOwn context.CancelFunc
	own       ownState

	mu     sync.Mutex
	closed bool
	peers  map[string]*watched
}

// NewRunner returns a Runner without peers.
func NewRunner(o Options) *Runner {
	if o.Interval <= 0 {
		o.Interval = defaultInterval
	}
	if o.FullInterval <= 0 {
		o.FullInterval = fullRounds * o.Interval
	}
	if o.Retry <= 0 {
		o.Retry = min(defaultRetry, o.Interval)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Runner{opts: o, peers: make(map[string]*watched), bursts: make(chan struct{}, maxBursts), epoch: time.Now()}
	return r
}

// SetPeers sets the peers to check. A new one is checked at once, one that stays is not disturbed,
// one that is gone is forgotten.
func (r *Runner) SetPeers(names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.startOwn()
	gone := maps.Clone(r.peers)
	for _, n := range names {
		delete(gone, n)
		if r.peers[n] == nil {
			r.peers[n] = r.watch(n)
		}
	}
	for n, w := range gone {
		w.cancel()
		delete(r.peers, n)
	}
}

// watch starts a peer's goroutine.
func (r *Runner) watch(name string) *watched {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watched{name: name, cancel: cancel, done: make(chan struct{}), demand: make(chan demand), wake: make(chan struct{}, 1),
		found: Round{Peer: name}, last: Round{Peer: name}}
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		defer close(w.done)
		defer cancel()
		r.run(ctx, w)
	}()
	return w
}

// ErrNoPeer is returned for a name of no checked peer.
var ErrNoPeer = errors.New("no such peer")

// Check runs a round for a peer now and returns its result. Loss and sizes are not measured: that
// takes 2 s, and someone who dials a service waits for this.
func (r *Runner) Check(ctx context.Context, peer string) (Round, error) {
	return r.check(ctx, peer, false)
}

// check is Check, which measures loss and sizes if measured is set.
func (r *Runner) check(ctx context.Context, peer string, measured bool) (Round, error) {
	r.mu.Lock()
	w := r.peers[peer]
	r.mu.Unlock()
	if w == nil {
		return Round{}, fmt.Errorf("check %s: %w", cleanText(peer), ErrNoPeer)
	}
	w.wanted(1)
	defer w.wanted(-1)
	answer := make(chan Round, 1)
	select {
	case w.demand <- demand{answer, measured}:
	case <-w.done:
		return Round{}, fmt.Errorf("check %s: the peer was removed", peer)
	case <-ctx.Done():
		return Round{}, fmt.Errorf("check %s: %w", peer, context.Cause(ctx))
	}
	select {
	case rep := <-answer:
		return rep, nil
	case <-w.done:
		return Round{}, fmt.Errorf("check %s: the peer was removed", peer)
	case <-ctx.Done():
		return Round{}, fmt.Errorf("check %s: %w", peer, context.Cause(ctx))
	}
}

// Wake requests a round for a peer soon, without waiting for it, because something changed that the
// verdicts depend on, such as a first handshake or a new identity. Peers can cause it, so after
// wakeBurst rounds in a row there is one every wakeEvery.
func (r *Runner) Wake(peer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.peers[peer]; w != nil {
		select {
		case w.wake <- struct{}{}:
		default: // already requested
		}
	}
}

// Close stops all checks and waits for them.
func (r *Runner) Close() {
	r.mu.Lock()
	r.closed = true
	if r.cancelOwn != nil {
		r.cancelOwn()
	}
	for n, w := range r.peers {
		w.cancel()
		delete(r.peers, n)
	}
	r.mu.Unlock()
	r.wg.Wait()
}

const (
	// See [Runner.Wake].
	wakeBurst = 8
	wakeEvery = 5 * time.Second
)

// run checks a peer until ctx ends. Each turn has its own goroutine: a round's calls are deep, and
// a stack keeps its size until some collections have passed, 16 KB for each of the waiting peers.
func (r *Runner) run(ctx context.Context, w *watched) {
	wait := time.NewTimer(0) // the first round is at once
	defer wait.Stop()
	p := pace{retry: r.opts.Retry}
	pauses := make(chan time.Duration)
	woken := rate.NewLimiter(rate.Every(wakeEvery), wakeBurst)
	var due time.Time // when wait fires
	soon := false     // a full round is wanted then
	for {
		var asked demand
		var e effort
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
			e.full, e.scheduled, soon = soon, !soon, false
		case <-w.wake:
			if !woken.Allow() {
				soon = true
				wait.Reset(max(0, min(wakeEvery, time.Until(due))))
				continue
			}
			e.full = true
		case asked = <-w.demand:
			e = effort{full: true, measured: asked.measured}
		}
		go func() { pauses <- r.turn(ctx, w, &p, asked.answer, e) }()
		pause := <-pauses
		if ctx.Err() != nil {
			return
		}
		due = time.Now().Add(pause)
		wait.Reset(pause)
	}
}

// pace is what one turn of a peer's checks passes to the next.
type pace struct {
	retry  time.Duration // the pause after the next failure
	looks  int           // how often one followed at once since something fails
	fullAt time.Time     // when the next full round is due while all is well
}

// turn runs a round of a peer's checks if there is a reason, sends it to the requester, if any
// (answer may be nil), and returns the pause until the next turn.
func (r *Runner) turn(ctx context.Context, w *watched, p *pace, answer chan<- Round, e effort) time.Duration {
	inRound, end, before, begun := w.begin(ctx, answer != nil)
	brief := sync.OnceValues(func() (Facts, bool) { return r.brief(w.name) })
	suspect, services := w.suspects(time.Now())
	e.full = e.full || services || !time.Now().Before(p.fullAt) || !well(before, brief)
	if !begun || !e.full && !suspect && r.probed(before, brief) {
		end()
		if !suspect {
			r.forgotten(w)
		}
		return r.pause(r.opts.Interval)
	}
	rep, full := r.round(inRound, w, before, e)
	cut := inRound.Err() != nil
	end()
	if ctx.Err() != nil || cut {
		return r.opts.Retry // an interrupted round is no verdict
	}
	if full {
		p.fullAt = time.Now().Add(spread(r.opts.FullInterval))
	}
	shown := r.keep(w, rep, e.scheduled)
	if answer != nil {
		answer <- shown
	}
	next := r.opts.Interval
	if !tentative(rep) {
		p.looks = 0
	}
	switch {
	case tentative(rep) && p.looks < lookAgains:
		next = min(lookAgain, p.retry)
		p.looks++
	case failing(rep) || rep.delay > 0:
		next, p.retry = p.retry, min(2*p.retry, r.opts.Interval)
	default:
		p.retry = r.opts.Retry
	}
	return r.pause(next)
}

// probed reports whether the path finder has just shown that a peer is there, while all is well. A
// ping would show no more, and would keep WireGuard's session alive for itself alone, at 3 MB a
// day. What there is to say about the path must be unchanged.
func (r *Runner) probed(before Round, brief func() (Facts, bool)) bool {
	f, ok := brief()
	if !ok || f.Probed.IsZero() || time.Since(f.Probed) >= r.opts.Interval {
		return false
	}
	gateway, _ := verdict.Find(before.Findings, api.ServiceGateway)
	_, apart := verdict.Find(before.Findings, NameRelay)
	mtu, _ := verdict.Find(before.Findings, NameMTU)
	narrow := mtu.Code == catalogue.PathMTUSmall
	return f.relayed(time.Now()) == (apart || gateway.Code == catalogue.RelayInUse) &&
		gateway.Code != catalogue.PathSlow && f.Path.RTT < slowTrip && gateway.Code != catalogue.ProbesDropped &&
		(narrow && mtu.Params().Sent > 0 || narrow == (f.probedSizes().lost > 0))
}

// brief returns enough facts to decide whether a peer needs checking.
func (r *Runner) brief(peer string) (Facts, bool) {
	if r.opts.Brief == nil {
		return r.opts.Facts(peer)
	}
	return r.opts.Brief(peer)
}

// pause returns the time until the last beat within the duration, which varies by the jitter.
func (r *Runner) pause(d time.Duration) time.Duration {
	d = max(d, beats) // so that the beats are at least 1 ns apart
	since := time.Since(r.epoch)
	next := since + spread(d)
	return next - next%(d/beats) - since
}

// spread varies a duration by the jitter.
func spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - jitter + 2*jitter*rand.Float64()))
}

// tentative reports whether a second look may show more.
func tentative(rep Round) bool {
	return slices.ContainsFunc(rep.Findings, func(f verdict.Finding) bool { return f.Failed() && f.Sure == api.Tentative })
}

func failing(rep Round) bool {
	for _, res := range rep.Findings {
		if res.Outcome == api.Error {
			return true
		}
	}
	return false
}

// well reports whether everything works. It is fine if a peer does not offer something and
// announces changes of its offers: asking each round would be 5 MB a day. A peer that does not
// announce them is asked, except for a plain WireGuard peer, which never offers anything. A warning
// about the tunnel says nothing about the services.
func well(rep Round, brief func() (Facts, bool)) bool {
	off := false
	for _, res := range rep.Findings {
		v := res.Outcome
		off = off || v == api.Off
		if v != api.OK && v != api.Off && (v != api.Warning || res.Target != api.ServiceGateway) {
			return false
		}
	}
	if off {
		if f, ok := brief(); !ok || !f.TellsOffers && !f.Stock {
			return false
		}
	}
	return len(rep.Findings) > 0
}

// keep stores a round, logs the changes, and returns the round as it is shown.
func (r *Runner) keep(w *watched, rep Round, scheduled bool) Round {
	before, now := w.round().Findings, time.Now()
	shown := w.put(rep, now)
	if rep.delay == 0 {
		rooted := rep.Findings
		if slices.ContainsFunc(rooted, verdict.Finding.Faulty) {
			rooted, _ = verdict.Correlate(now, r.Own(), rooted, nil) // after put: own findings depend on it
		}
		if w.count(rooted, rep.started, scheduled, now) {
			shown = w.put(rep, now)
		}
	}
	r.changed(w.name, before, shown.Findings)
	return shown
}

// forgotten shows a peer's last round again, without the failures before it that are not remembered
// any more.
func (r *Runner) forgotten(w *watched) {
	before := w.round().Findings
	if slices.ContainsFunc(before, func(f verdict.Finding) bool { return f.Params().Failures > 0 }) {
		r.changed(w.name, before, w.again(time.Now()).Findings)
	}
}

// changed logs the changes of a peer's findings, and says that there may be some.
func (r *Runner) changed(peer string, before, now []verdict.Finding) {
	r.logChanges(peer, before, now)
	if r.opts.Changed != nil {
		r.opts.Changed(peer)
	}
}

// Forget forgets which faults came and went. It is called when the configuration has changed, which
// may have fixed them.
func (r *Runner) Forget() {
	r.own.mu.Lock()
	r.own.recent = recent{}
	r.own.mu.Unlock()
	for _, w := range r.watchedPeers() {
		r.forget(w)
	}
}

// ForgetPeer is Forget for what changed about one peer.
func (r *Runner) ForgetPeer(peer string) {
	r.mu.Lock()
	w := r.peers[peer]
	r.mu.Unlock()
	if w != nil {
		r.forget(w)
	}
}

func (r *Runner) forget(w *watched) {
	w.mu.Lock()
	w.recent = recent{}
	w.mu.Unlock()
	r.forgotten(w)
}

// logChanges logs failures as warnings and other changes as info.
func (r *Runner) logChanges(peer string, before, now []verdict.Finding) {
	for _, f := range now {
		was, _ := verdict.Find(before, f.Ref())
		if f.Outcome == was.Outcome && f.Fault() == was.Fault() {
			continue
		}
		log := r.opts.Logger
		if peer != "" {
			log = log.With("peer", peer)
		}
		switch {
		case f.Faulty():
			v := f.Verdict()
			log.Warn("check failed", "code", v.Code, "target", f.Name, "stage", v.Stage, "cause", v.Cause, "fix", v.Fix)
		case peer == "" && was.Outcome == "": // of this gateway itself, that all is well is no news
		default:
			log.Info("check changed", "target", f.Name, "verdict", string(f.Outcome), "before", string(was.Outcome))
		}
	}
}
