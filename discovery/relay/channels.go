package relay

import (
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/tunnel/wake"
)

const (
	// Channel numbers are 0x4000 to 0x4fff (RFC 8656 §12).
	firstChannel = 0x4000
	allChannels  = 0x1000
	// A channel lasts 10 minutes, and its number must not be used for another address for 5 minutes
	// after that (RFC 8656 §12).
	channelRefresh  = 5 * time.Minute
	channelLifetime = 10 * time.Minute
	channelRest     = 15 * time.Minute
	// channelAfter is how many datagrams go to an address before it gets a channel: a candidate
	// that never answers is not worth one.
	channelAfter = 2
	// channelRetry is when a rejected channel is requested again. After no answer it is
	// permissionRetry, doubling up to channelRetry.
	channelRetry = time.Minute
	// maxAddrs bounds the stored addresses, bindAtOnce the concurrent requests.
	maxAddrs   = 1024
	bindAtOnce = 8
	// maxStrange bounds the unknown channels that are looked into.
	maxStrange = 32
)

// channel is an address that datagrams are sent to. The number is zero if there is none yet, or the
// requested one until the server has granted it.
type channel struct {
	addr    netip.AddrPort
	number  uint16
	sent    int           // datagrams, up to channelAfter
	boundAt time.Time     // when the server last confirmed it; zero = never
	retryAt time.Time     // after a rejection, or no answer
	pause   time.Duration // before retryAt, after no answer
	used    atomic.Bool   // since boundAt
}

// table is what the data path consults. It is immutable, except for the channels' used.
type table struct {
	out map[netip.AddrPort]*channel
	in  map[uint16]netip.AddrPort
}

// channels are the channels of an allocation: numbers that stand for addresses, so that a datagram
// costs 4 more bytes instead of 36. It is safe for concurrent use.
type channels struct {
	bound atomic.Pointer[table]
	wake  wake.Signal
	// adopted says that the server may have channels from an earlier process.
	adopted bool
	// beside is the server's relayed address, invalid if adopted. While its ports are probed for a
	// peer's allocation nearly all of them are wrong, so they get a channel only after they were
	// heard. On an adopted allocation the peer may use a channel that nobody knows to be the
	// peer's; but an earlier allocation is never used for such a search.
	beside netip.Addr

	mu      sync.Mutex // guards the following
	all     map[netip.AddrPort]*channel
	next    uint16          // offset of the next number
	strange map[uint16]bool // unknown channels that data came on; true = requested
}

func newChannels(adopted bool, relayed netip.Addr) *channels {
	c := &channels{
		wake: wake.New(), adopted: adopted, all: make(map[netip.AddrPort]*channel),
		// Not from the first on: an earlier process has used those numbers.
		next: uint16(rand.N(allChannels)), strange: make(map[uint16]bool),
	}
	if !adopted {
		c.beside = relayed.Unmap()
	}
	c.bound.Store(&table{})
	return c
}

// frame builds the packet to the server for a datagram, which is in b after room for a channel
// header. It changes b.
func (c *channels) frame(b []byte, to netip.AddrPort, stream bool) []byte {
	ch := c.bound.Load().out[to]
	if ch == nil {
		c.want(to)
		return sendIndication(b[channelHeader:], to)
	}
	if !ch.used.Load() {
		ch.used.Store(true)
	}
	binary.BigEndian.PutUint16(b, ch.number)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-channelHeader))
	for stream && len(b)%4 != 0 {
		b = append(b, 0) // (RFC 8656 §12.5)
	}
	return b
}

// want notes a datagram for an address without a channel.
func (c *channels) want(to netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.all[to]
	if ch == nil {
		if to.Addr() == c.beside {
			return // until it is heard
		}
		if ch = c.addLocked(to); ch == nil {
			return
		}
	}
	if ch.sent++; ch.sent == channelAfter {
		c.wake.Set()
	}
}

// heard notes a datagram from an address without a channel.
func (c *channels) heard(from netip.AddrPort) {
	if from.Addr() != c.beside || c.bound.Load().out[from] != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[from] == nil {
		c.addLocked(from)
	}
}

// addLocked adds an address; nil = no room.
func (c *channels) addLocked(addr netip.AddrPort) *channel {
	if len(c.all) >= maxAddrs {
		maps.DeleteFunc(c.all, func(_ netip.AddrPort, o *channel) bool { return o.boundAt.IsZero() })
	}
	if len(c.all) >= maxAddrs {
		return nil
	}
	ch := &channel{addr: addr}
	c.all[addr] = ch
	for n := range c.strange {
		c.strange[n] = false // it may belong to this one
		c.wake.Set()
	}
	return ch
}

// source returns whose data a channel carries.
func (c *channels) source(number uint16) (netip.AddrPort, bool) {
	if from, ok := c.bound.Load().in[number]; ok {
		return from, true
	}
	if c.adopted {
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, known := c.strange[number]; !known && len(c.strange) < maxStrange {
			c.strange[number] = false
			c.wake.Set()
		}
	}
	return netip.AddrPort{}, false
}

// bind is a channel to request.
type bind struct {
	number uint16
	addr   netip.AddrPort
}

// due lists the channels to request now, and returns when to look again.
func (c *channels) due(now time.Time) (ask []bind, next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next = farAway(now)
	at := func(t time.Time) bool {
		if t.After(now) {
			next = earliest(next, t)
			return false
		}
		return true
	}
	changed := false
	for addr, ch := range c.all {
		switch {
		case ch.boundAt.IsZero():
			if ch.sent >= channelAfter && at(ch.retryAt) {
				if ch.number == 0 {
					ch.number = c.numberLocked()
					changed = true
				}
				ask = append(ask, bind{ch.number, addr})
			}
		case now.Sub(ch.boundAt) >= channelRest:
			delete(c.all, addr)
			changed = true
		case at(ch.boundAt.Add(channelLifetime)):
			changed = true
			at(ch.boundAt.Add(channelRest))
		case at(ch.boundAt.Add(channelRefresh)) && ch.used.Load() && at(ch.retryAt):
			ask = append(ask, bind{ch.number, addr})
		}
	}
	if changed {
		c.publishLocked(now)
	}
	for n, asked := range c.strange {
		if asked {
			continue
		}
		c.strange[n] = true
		for addr, ch := range c.all {
			if ch.boundAt.IsZero() {
				ask = append(ask, bind{n, addr})
			}
		}
	}
	return ask, next
}

// numberLocked returns an unused number.
func (c *channels) numberLocked() uint16 {
	for {
		n := firstChannel + c.next%allChannels
		c.next++
		taken := false
		for _, ch := range c.all { // at most maxAddrs, fewer than there are numbers
			taken = taken || ch.number == n
		}
		if _, is := c.strange[n]; !taken && !is {
			return n
		}
	}
}

// answered handles the server's answer.
func (c *channels) answered(now time.Time, b bind, granted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.all[b.addr]
	switch {
	case ch == nil:
	case granted:
		// The data path may be reading the old one.
		c.all[b.addr] = &channel{addr: b.addr, number: b.number, sent: channelAfter, boundAt: now}
		delete(c.strange, b.number)
		c.publishLocked(now)
	case !ch.boundAt.IsZero():
		ch.retryAt = now.Add(permissionRetry)
	default:
		ch.retryAt = now.Add(channelRetry)
		if ch.number == b.number {
			ch.number = 0
			c.publishLocked(now)
		}
	}
}

// unanswered notes that no answer came. The number stays: the server may have granted it, and then
// grants the address no other (RFC 8656 §12.2).
func (c *channels) unanswered(now time.Time, b bind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.all[b.addr]
	switch {
	case ch == nil:
	case !ch.boundAt.IsZero():
		ch.retryAt = now.Add(permissionRetry)
	default:
		ch.pause = min(max(2*ch.pause, permissionRetry), channelRetry)
		ch.retryAt = now.Add(ch.pause)
	}
}

// publishLocked rebuilds the table. Data may arrive on a channel before we have seen the
// confirmation, so a requested one is already accepted. On an adopted allocation it is not: the
// number may be from an earlier process, and its data another peer's.
func (c *channels) publishLocked(now time.Time) {
	t := &table{out: make(map[netip.AddrPort]*channel), in: make(map[uint16]netip.AddrPort)}
	for addr, ch := range c.all {
		switch {
		case ch.boundAt.IsZero():
			if ch.number != 0 && !c.adopted {
				t.in[ch.number] = addr
			}
		case now.Sub(ch.boundAt) < channelLifetime:
			t.out[addr], t.in[ch.number] = ch, addr
		}
	}
	c.bound.Store(t)
}

// bindChannels requests channels until the allocation ends. Without a channel a datagram merely
// costs some bytes more.
func (a *allocation) bindChannels() {
	for {
		ask, next := a.channels.due(time.Now())
		for some := range slices.Chunk(ask, bindAtOnce) {
			var wg sync.WaitGroup
			for _, b := range some {
				wg.Go(func() { a.bindChannel(b) })
			}
			wg.Wait()
		}
		if len(ask) > 0 && a.ctx.Err() == nil {
			continue // the answers change what is due
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-a.channels.wake:
		case <-a.ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

func (a *allocation) bindChannel(b bind) {
	m, _, err := a.link.exchange(a.ctx, methodChannelBind, func(p []byte, tx txID) []byte {
		number := binary.BigEndian.AppendUint16(nil, b.number)
		return addPeer(addAttr(p, attrChannelNumber, append(number, 0, 0)), b.addr, tx)
	})
	switch {
	case err == nil:
		a.channels.answered(time.Now(), b, m.class == classSuccess)
	case errors.Is(err, errNoAnswer):
		a.channels.unanswered(time.Now(), b)
	default: // closed
	}
}
