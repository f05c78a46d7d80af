package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

const (
	// keepaliveAfter is how often something is sent over UDP: NATs may forget after 30 s (Linux,
	// for unreplied flows; RFC 4787 §4.3 wants 2 minutes).
	keepaliveAfter  = 18 * time.Second
	keepaliveJitter = 4 * time.Second
	// refreshAfter is how often the allocation is refreshed. It lasts 10 minutes; a shorter
	// interval notices a restarted server. Together with the keepalives in between that is 0.8 MB a
	// day.
	refreshAfter    = time.Minute
	requestLifetime = 10 * time.Minute // RFC 8656 §7.2's default
	// patience is how many answers in a row may be missing, 1.9 s each, without a suspicion: a path
	// that is gone for a few seconds should not cost the relayed address. After [Client.Check] it
	// is one.
	patience = 4
	// askedTimeout is when an answer counts as missing for [Client.Ask]: with requests at 0, 200
	// and 600 ms.
	askedTimeout = 1400 * time.Millisecond
)

// reason is why an allocation is verified.
type reason int

const (
	inTurn reason = iota
	onDemand
	onSuspicion // nothing comes through it: one missing answer is enough
)

// maintain keeps the allocation alive until it is lost or closed.
func (a *allocation) maintain() {
	now := time.Now()
	perms := newPermissions(now, a.Relayed.Addr())
	perms.want(now, a.wants())
	keepalive, refresh := a.nextKeepalive(now), now.Add(a.refreshAfter())
	for {
		a.publish(perms, 0)
		ask, due := perms.due(time.Now())
		if len(ask) > 0 {
			if !a.askPermissions(perms, ask) {
				return
			}
			continue
		}
		timer := time.NewTimer(time.Until(earliest(keepalive, refresh, due)))
		verify, why := false, inTurn
		select {
		case <-timer.C:
		case <-a.permit:
			perms.want(time.Now(), a.wants())
		case <-a.check:
			verify, why = true, onSuspicion
		case <-a.ask:
			verify, why = true, onDemand
		case <-a.ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
		if now = time.Now(); !verify && !now.Before(keepalive) && now.Before(refresh) {
			verify = !a.keepalive()
			keepalive = a.nextKeepalive(time.Now())
		}
		if verify || !now.Before(refresh) {
			if !a.verify(perms, why) {
				return
			}
			keepalive, refresh = a.nextKeepalive(time.Now()), time.Now().Add(a.refreshAfter())
		}
	}
}

func (a *allocation) nextKeepalive(now time.Time) time.Time {
	if a.Transport != TransportUDP {
		return farAway(now) // the refreshes do that
	}
	return now.Add(keepaliveAfter + rand.N(keepaliveJitter))
}

// refreshAfter is a minute, or less on a server with shorter lifetimes.
func (a *allocation) refreshAfter() time.Duration { return min(refreshAfter, a.lifetime/3) }

// keepalive asks the server for our address: without credentials, and a fifth of a refresh's size.
// It returns false if the allocation should be verified: no answer, or another address than the
// allocation's, which then belongs to another client.
func (a *allocation) keepalive() bool {
	m, rtt, err := a.link.exchange(a.ctx, methodBinding, nil)
	if err != nil {
		return false
	}
	if rtt > 0 {
		a.report(a, observed{rtt: rtt})
	}
	return m.class != classSuccess || m.mapped == a.Mapped
}

// verify refreshes the allocation and reports whether it still exists; if not it is lost.
func (a *allocation) verify(perms *permissions, why reason) bool {
	for try := 1; ; try++ {
		m, rtt, err := a.refresh(why)
		select {
		case <-a.check:
			why = onSuspicion
		default:
		}
		if errors.Is(err, errNoAnswer) && why != onSuspicion && try < patience {
			if try > 1 {
				a.report(a, observed{silence: a.silence()})
				if why == onDemand { // the caller knows; the rest is as without the request
					try, why = 0, inTurn
				}
			}
			continue
		}
		if lost := a.failed(m, err); lost != nil {
			a.lose(lost)
			return false
		}
		a.publish(perms, rtt)
		if err == nil {
			a.report(a, observed{refreshed: m.lifetime})
		}
		return err == nil
	}
}

// refresh asks the server to keep the allocation.
func (a *allocation) refresh(why reason) (message, time.Duration, error) {
	ctx := a.ctx
	if why == onDemand {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, askedTimeout, errNoAnswer)
		defer cancel()
	}
	return a.link.exchange(ctx, methodRefresh, func(b []byte, _ txID) []byte { return addLifetime(b, requestLifetime) })
}

// askPermissions sends several requests at once, and lets datagrams pass with each answer. It
// returns false if the allocation is lost.
func (a *allocation) askPermissions(perms *permissions, ask [][]netip.Addr) bool {
	type answer struct {
		addrs []netip.Addr
		m     message
		rtt   time.Duration
		err   error
	}
	answers := make(chan answer, len(ask))
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, addrs := range ask {
		wg.Go(func() {
			m, rtt, err := a.link.exchange(a.ctx, methodCreatePermission, func(b []byte, tx txID) []byte {
				for _, addr := range addrs {
					b = addPeer(b, netip.AddrPortFrom(addr, 0), tx)
				}
				return b
			})
			answers <- answer{addrs, m, rtt, err}
		})
	}
	silent := false
	for range ask {
		got := <-answers
		switch {
		case errors.Is(got.err, errNoAnswer):
			perms.unanswered(time.Now(), got.addrs)
			silent = true
		case got.err != nil:
			return false // closed
		case got.m.code == codeMismatch || got.m.code == codeUnauthorized ||
			got.m.code == codeWrongUser || got.m.code == codeStaleNonce:
			a.lose(a.failed(got.m, nil))
			return false
		default:
			perms.answered(time.Now(), got.addrs, got.m)
			a.restate(perms.states())
			a.report(a, observed{rtt: got.rtt})
		}
	}
	if !silent {
		return true
	}
	// pion's server does not answer requests for an unknown allocation, so this may be a restart,
	// too.
	select {
	case <-a.check:
		a.lose(a.silence())
		return false
	default:
	}
	return a.verify(perms, inTurn)
}

// publish passes what is permitted to the sending side and the status.
func (a *allocation) publish(perms *permissions, rtt time.Duration) {
	a.restate(perms.states())
	a.report(a, observed{rtt: rtt, asked: true, denied: perms.refused()})
}

func earliest(times ...time.Time) time.Time {
	first := times[0]
	for _, t := range times[1:] {
		if t.Before(first) {
			first = t
		}
	}
	return first
}
