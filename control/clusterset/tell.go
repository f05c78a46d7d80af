package clusterset

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// pace is the least time from a message until further changes are sent, so that changes that
	// come together are sent together.
	pace = 250 * time.Millisecond
	// firstRetry and lastRetry bound the delay after a failed message.
	firstRetry, lastRetry = time.Second, 30 * time.Second
	// tellRate and tellBurst limit the messages to a peer, per second and in a burst: 2,000 small
	// services at once, but never all requests that it accepts (see auth), since other requests
	// need some.
	tellRate, tellBurst = rate.Limit(4), 48
	// changeRate and changeBurst limit how many services of a peer may change here, per second and
	// at once: each causes several objects to be written, and changes of other peers wait for them.
	// Each further listener of a service that changes, which is one for each of its backends, counts
	// as much, against changes that come later, unless the peer did not cause it.
	// Further changes take effect together, with the then latest state, once the limit allows as
	// many as a catalogue has services.
	changeRate, changeBurst = rate.Limit(20), 2 * mcs.MaxServices
)

var (
	errDisagree = errors.New("the peer has another catalogue than it was told")
	errNotAPeer = errors.New("no longer a peer of this gateway")
)

// notify passes the changed exports to the writers of the peers, and all of them for peers whose
// grants may have changed.
func (c *Clusterset) notify(r *roster.Roster, changed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exports == nil {
		return
	}
	for _, s := range c.peers {
		names := changed
		if !slices.Equal(s.was.Export, s.member.Export) {
			s.was.Export = s.member.Export
			names = append(s.writer.Names(), slices.Sorted(maps.Keys(c.exported))...)
		}
		full := len(names) > 0 && len(s.unsent) > 0 // there may be room now
		for _, name := range names {
			full = !s.writer.Set(name, c.entryFor(r, s, name)) || full
		}
		if full {
			c.fillLocked(r, s)
		}
		c.postLocked(s)
	}
}

// entryFor returns an export's entry for a peer; nil if there is none.
func (c *Clusterset) entryFor(r *roster.Roster, s *site, name string) *mcs.Entry {
	if e := c.entry(name); e != nil && r.Exports(s.member, mcs.NameOfPort(name).Namespace) {
		return e
	}
	return nil
}

// fillLocked offers a peer as many exports as there is room for, when that is not all.
func (c *Clusterset) fillLocked(r *roster.Roster, s *site) {
	entries := map[string]*mcs.Entry{}
	for name := range c.exported {
		if e := c.entryFor(r, s, name); e != nil {
			entries[name] = e
		}
	}
	s.unsent = map[string]bool{}
	for _, name := range s.writer.Fill(entries) {
		s.unsent[name] = true
	}
}

// postLocked sends a peer what is due, if it can receive it.
func (c *Clusterset) postLocked(s *site) {
	if s.writer.Due() && c.exports != nil && !time.Now().Before(s.retry) && c.capable(s.member.Key) {
		c.mail.Post(s.member.Key, struct{}{})
	}
}

// HeardHello sends a peer what it does not know yet, because it has just answered. A peer without
// support exports nothing.
func (c *Clusterset) HeardHello(name string, h auth.Hello) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.peers[name]
	if s == nil {
		return
	}
	was := s.unable
	if s.unable = ""; !h.Can(auth.CapabilityServices) {
		s.unable = "it runs " + cmp.Or(h.Software, "what has no name")
	}
	if s.unable != was {
		c.noteLocked(nil)
	}
	switch {
	case s.unable == "":
		s.retry, s.wait = time.Time{}, 0
		c.postLocked(s)
	case !s.reader.Complete() || s.reader.Has() != mcs.Nothing:
		c.changedLocked(s, s.reader.Clear())
	}
}

// changedLocked schedules a look at a peer's changed services, as soon as the limit allows.
func (c *Clusterset) changedLocked(s *site, names []mcs.Name) {
	if s.behind = s.behind || !s.changes.AllowN(time.Now(), len(names)); s.behind {
		names = nil
	} else {
		c.causedLocked(s)
	}
	c.noteLocked(names)
}

// causedLocked records that a peer is the cause of what reconcile has to look at.
func (c *Clusterset) causedLocked(s *site) {
	if !slices.Contains(c.due.sites, s) {
		c.due.sites = append(c.due.sites, s)
	}
}

// catchUpLocked schedules a look at all services if a peer is behind and the limit allows. Which
// those are, reconcile knows: one that the peer no longer has may be in an import that is being made
// and is not published yet.
func (c *Clusterset) catchUpLocked(s *site) {
	if s.behind && s.changes.AllowN(time.Now(), mcs.MaxServices) {
		s.behind, c.due.all = false, true
		c.causedLocked(s)
		c.wake.Set()
	}
}

// noteLocked schedules a look at services.
func (c *Clusterset) noteLocked(names []mcs.Name) {
	for _, n := range names {
		c.due.names[n] = true
	}
	c.wake.Set()
}

// Tick does what depends on time alone. One goroutine calls it every second or two.
func (c *Clusterset) Tick(time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.peers {
		c.catchUpLocked(s)
		answers := c.o.Connected(s.member)
		if s.silent == answers {
			c.wake.Set()
		}
		if !s.writer.Due() {
			continue
		}
		if answers && !s.answered {
			s.retry, s.wait = time.Time{}, 0
		}
		if s.answered = answers; answers {
			c.postLocked(s)
		}
	}
	if c.due.opening || c.due.exports {
		c.wake.Set()
	}
}

// silenceLocked records which peers answer now, and schedules a look at the services that one of
// those that changed and another cluster export. It is called with Clusterset.reconciling held, so
// that no import is being made from an earlier answer.
func (c *Clusterset) silenceLocked() {
	for peer, s := range c.peers {
		answers := c.o.Connected(s.member)
		if s.silent != answers {
			continue
		}
		s.silent = !answers
		var names []mcs.Name
		for n, i := range c.imports {
			if (i.Own || len(i.Clusters) > 1) && slices.ContainsFunc(i.Clusters, func(x mcs.Cluster) bool { return x.ID == peer }) {
				names = append(names, n)
			}
		}
		if len(names) > 0 {
			c.changedLocked(s, names)
		}
	}
}

// send sends a peer what is due, within its limit. The rest follows with a [Clusterset.Tick].
func (c *Clusterset) send(ctx context.Context, to peer.PublicKey, _ struct{}) error {
	client := auth.NewClient(peer.OverlayAddr(to), c.o.Stack.DialContext)
	select {
	case <-time.After(c.delay(to)):
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		s, m := c.next(to)
		if s == nil {
			return nil
		}
		has, err := client.Services(ctx, m)
		if errors.Is(err, auth.ErrRequest) { // it would be refused again
			c.mu.Lock()
			s.writer.Recheck()
			c.mu.Unlock()
		}
		if err != nil {
			return err
		}
		if !c.answered(s, has) {
			return errDisagree
		}
	}
}

// delay returns how long a peer must not get a message.
func (c *Clusterset) delay(to peer.PublicKey) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.siteLocked(to); s != nil {
		return max(pace-time.Since(s.sent), 0)
	}
	return 0
}

// next returns the next message to a peer; none if nothing is due or may be sent now.
func (c *Clusterset) next(to peer.PublicKey) (*site, mcs.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.siteLocked(to)
	if s == nil || !s.writer.Due() || !s.tells.Allow() {
		return nil, mcs.Message{}
	}
	s.sent = time.Now()
	m := s.writer.Next()
	m.Has = s.reader.Has()
	return s, m
}

func (c *Clusterset) siteLocked(k peer.PublicKey) *site {
	for _, s := range c.peers {
		if s.member.Key == k {
			return s
		}
	}
	return nil
}

func (c *Clusterset) answered(s *site, has string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.writer.Answered(has) {
		return false
	}
	s.retry, s.wait = time.Time{}, 0
	if s.recheck && !s.writer.Due() { // Otherwise it would be asked before everything was sent; each answer has its version.
		s.recheck = false
		s.writer.Recheck()
	}
	return true
}

// failed delays the next try.
func (c *Clusterset) failed(to peer.PublicKey, err error) {
	c.mu.Lock()
	if s := c.siteLocked(to); s != nil {
		s.wait = min(max(2*s.wait, firstRetry), lastRetry)
		s.retry = time.Now().Add(s.wait)
	}
	c.mu.Unlock()
	c.o.Logger.Debug("a peer could not be told the services of this cluster", "peer", c.o.Peers.NameOf(to), "error", err)
}

// compare records the version that a peer reports, and returns whether to ask it now. While
// something is due it is asked afterwards: the version may be from before.
func (s *site) compare(has string) bool {
	if s.writer.Expects(has) {
		return false
	}
	if s.recheck = s.writer.Due(); s.recheck {
		return false
	}
	s.writer.Recheck()
	return true
}

// Receive applies a part of a peer's catalogue, and returns the resulting version. An error may be
// sent to the peer.
func (c *Clusterset) Receive(from peer.PublicKey, body []byte) (has string, err error) {
	m, err := mcs.ParseMessage(body)
	if err != nil {
		return "", err
	}
	member := c.o.Peers.Load().ByKey(from)
	if member == nil {
		return "", errNotAPeer
	}
	c.mail.Spoke(from)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.peers[member.Name]
	if s == nil || s.member.Key != from { // it became a peer just now, and nothing was reconciled since
		s = c.siteOf(member, c.o.Peers.Load())
	}
	heard, tooMany := s.reader.Complete(), s.reader.TooMany()
	names, err := s.reader.Take(m, func(bytes int) bool { return c.roomLocked(s, bytes) })
	switch {
	case heard != s.reader.Complete(): // once received, the catalogue determines the imports
		c.noteLocked(names)
	case len(names) > 0 || tooMany != s.reader.TooMany():
		c.changedLocked(s, names)
	}
	if c.exports != nil && s.compare(m.Has) {
		c.postLocked(s)
	}
	return s.reader.Has(), err
}
