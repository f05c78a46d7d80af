package clusterset

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// pace is how soon after another a peer is told of changes, so that those that come together are
	// told together.
	pace = 250 * time.Millisecond
	// firstRetry and lastRetry bound how long a peer is left alone that could not be told.
	firstRetry, lastRetry = time.Second, 30 * time.Second
	// tellRate and tellBurst are how many messages a peer is told, in a second and in a row: 2,000 small
	// services at once, and never all that it may be asked (see auth), of which others want their part.
	tellRate, tellBurst = rate.Limit(4), 48
	// changeRate and changeBurst are how many services of a peer may change here, in a second and at
	// once: each is some objects that are written, and other peers' changes wait for these. What changes
	// sooner takes effect when as many may as a peer has, as it is by then.
	changeRate, changeBurst = rate.Limit(20), 2 * mcs.MaxServices
)

var (
	errDisagree = errors.New("the peer has another catalogue than it was told")
	errNotAPeer = errors.New("no longer a peer of this gateway")
)

// tell has the peers told what changed of the exports, by names, and one that may have others than
// before told of all of them.
func (c *Clusterset) tell(r *roster.Roster, changed []string) {
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
		more := s.untold // there may be room for by then
		s.untold = map[string]bool{}
		for _, name := range slices.Concat(names, slices.Sorted(maps.Keys(more))) {
			e := c.entry(name)
			namespace, _, _ := strings.Cut(name, "/")
			if e != nil && !r.Exports(s.member, namespace) {
				e = nil
			}
			if !s.writer.Set(name, e) {
				s.untold[name] = true
			}
		}
		c.postLocked(s)
	}
}

// postLocked sends a peer what is due, if it can hear it.
func (c *Clusterset) postLocked(s *site) {
	if s.writer.Due() && c.exports != nil && !time.Now().Before(s.retry) && c.capable(s.member.Key) {
		c.mail.Post(s.member.Key, struct{}{})
	}
}

// HeardHello has a peer told what it does not know: it has just answered. One that takes no part
// exports nothing.
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
	case !s.reader.Heard() || s.reader.Has() != mcs.Nothing:
		c.changedLocked(s, s.reader.Clear())
	}
}

// changedLocked has a turn look at services of a peer that have changed, as soon as they may.
func (c *Clusterset) changedLocked(s *site, names []mcs.Name) {
	if s.behind = s.behind || !s.changes.AllowN(time.Now(), len(names)); s.behind {
		names = nil
	}
	c.noteLocked(names)
}

// catchUpLocked has a turn look at all services of a peer that is behind, if they may change.
func (c *Clusterset) catchUpLocked(s *site) {
	if !s.behind || !s.changes.AllowN(time.Now(), mcs.MaxServices) {
		return
	}
	s.behind = false
	names := s.reader.Names()
	for _, i := range c.state.Imports {
		names = append(names, i.Name)
	}
	c.noteLocked(names)
}

// noteLocked has a turn look at services.
func (c *Clusterset) noteLocked(names []mcs.Name) {
	for _, n := range names {
		c.due.names[n] = true
	}
	c.wakeLocked()
}

func (c *Clusterset) wakeLocked() {
	select {
	case c.wake <- struct{}{}:
	default: // there is a turn to come
	}
}

// Tick does what depends on time alone. It is called every second or two, by one goroutine.
func (c *Clusterset) Tick(time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.peers {
		c.catchUpLocked(s)
		if !s.writer.Due() {
			continue
		}
		answers := c.o.Connected(s.member)
		if answers && !s.answered {
			s.retry, s.wait = time.Time{}, 0
		}
		if s.answered = answers; answers {
			c.postLocked(s)
		}
	}
	if c.due.opening || c.due.exports {
		c.wakeLocked()
	}
}

// hand tells a peer what is due, as much as it may be told now. The rest follows with a [Clusterset.Tick].
func (c *Clusterset) hand(ctx context.Context, to peer.PublicKey, _ struct{}) error {
	client := auth.NewClient(peer.OverlayAddr(to), c.o.Stack.DialContext)
	select {
	case <-time.After(c.rest(to)):
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
			s.writer.Doubt()
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

// rest is how long a peer is to be told nothing.
func (c *Clusterset) rest(to peer.PublicKey) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.siteLocked(to); s != nil {
		return max(pace-time.Since(s.sent), 0)
	}
	return 0
}

// next is what a peer is told next; nothing when nothing is due, or is to be told now.
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
	if s.doubted && !s.writer.Due() { // Else it would be asked before it was told all; each answer has its version.
		s.doubted = false
		s.writer.Doubt()
	}
	return true
}

// failed puts the next try off.
func (c *Clusterset) failed(to peer.PublicKey, err error) {
	c.mu.Lock()
	if s := c.siteLocked(to); s != nil {
		s.wait = min(max(2*s.wait, firstRetry), lastRetry)
		s.retry = time.Now().Add(s.wait)
	}
	c.mu.Unlock()
	c.o.Logger.Debug("a peer could not be told the services of this cluster", "peer", c.o.Peers.NameOf(to), "error", err)
}

// compare takes in which version a peer says that it has, and reports whether to ask it at once. While
// it is being told something it is asked afterwards: the answer to that may be from before.
func (s *site) compare(has string) bool {
	if s.writer.Expects(has) {
		return false
	}
	if s.doubted = s.writer.Due(); s.doubted {
		return false
	}
	s.writer.Doubt()
	return true
}

// Receive takes a part of a peer's catalogue, and gives the version that is there by then. An error is
// fit to be told to the peer.
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
	if s == nil || s.member.Key != from { // it became one a moment ago: there was no turn since
		s = c.siteOf(member, c.o.Peers.Load())
	}
	heard, tooMany := s.reader.Heard(), s.reader.TooMany()
	names, err := s.reader.Take(m, c.roomLocked())
	switch {
	case heard != s.reader.Heard(): // whoever is heard exports what is imported, and nothing else
		c.noteLocked(names)
	case len(names) > 0 || tooMany != s.reader.TooMany():
		c.changedLocked(s, names)
	}
	if c.exports != nil && s.compare(m.Has) {
		c.postLocked(s)
	}
	return s.reader.Has(), err
}
