package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/tunnel/wake"
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
	// Root is the file system whose /proc and /sys/fs/cgroup show this process's limits, and whose
	// /etc/resolv.conf its name servers (os.DirFS("/")); nil looks at none.
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
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
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
	w := &watched{name: name, cancel: cancel, done: make(chan struct{}), demand: make(chan demand), wake: wake.New(),
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
		w.wake.Set()
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
