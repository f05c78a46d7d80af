package check

import (
	"context"
	"time"

	"github.com/postern-dev/postern/control/api"
)

const (
	// sessionLife is how long a WireGuard session may be used after its handshake
	// (REJECT_AFTER_TIME, WireGuard paper §6.1). A handshake older than that means that
	// a new one was needed and did not come, or that nothing was to be sent.
	sessionLife = 180 * time.Second
	// pingWait is how long one echo is waited for before the next is sent: one lost
	// packet is no fault.
	pingWait = 1500 * time.Millisecond
	// pingPayload makes the packet as long as an ordinary ping.
	pingPayload = 56
	// retryPing is the pause after a ping that failed at once.
	retryPing = 250 * time.Millisecond
)

// Gateway checks the tunnel itself: the age of the handshake, then a ping to the peer's
// overlay address, which also makes WireGuard start a handshake when it needs one.
func Gateway(ctx context.Context, ping PingFunc, f Facts) Result {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	r := begin(api.ServiceGateway, f)
	if f.Pending {
		return r.fail(api.Warning, StageHandshake, AwaitingApproval, Params{})
	}
	if !f.Address.IsValid() {
		return r.handshakeOnly()
	}
	rtt, clean, err := repeatedPing(ctx, ping, f)
	if err == nil {
		if !clean {
			rtt = min(rtt, pingAgain(ctx, ping, f, rtt))
		}
		r.passed(StageHandshake, "")
		r.passed(StagePing, rtt.String())
		return r.ok(rtt)
	}
	if code, age := r.handshakeFault(); code != "" {
		return r.fail(api.Error, StageHandshake, code, Params{Endpoints: f.Endpoints, Age: age, NoPath: f.NoPath})
	}
	r.passed(StageHandshake, "")
	return r.fail(api.Error, StagePing, PingLost, Params{Address: f.Address.String(),
		Age: time.Since(f.LastHandshake), Timeout: Timeout, Detail: err.Error()})
}

// repeatedPing pings until one is answered or ctx ends. clean reports whether the echo
// took the way there and back and nothing else: one that found no session waited for a
// handshake first, and so did one that was answered after others were not.
func repeatedPing(ctx context.Context, ping PingFunc, f Facts) (rtt time.Duration, clean bool, err error) {
	clean = f.hasSession()
	for {
		if rtt, err = pingOnce(ctx, ping, f); err == nil {
			return rtt, clean, nil
		}
		clean = false
		select {
		case <-ctx.Done():
			return 0, false, err
		case <-time.After(retryPing):
		}
	}
}

func pingOnce(ctx context.Context, ping PingFunc, f Facts) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, pingWait)
	defer cancel()
	return ping(ctx, f.Address, pingPayload)
}

// pingAgain measures the round trip once there is a session; if that echo is lost the
// first one's time must do.
func pingAgain(ctx context.Context, ping PingFunc, f Facts, first time.Duration) time.Duration {
	rtt, err := pingOnce(ctx, ping, f)
	if err != nil {
		return first
	}
	return rtt
}

// hasSession reports whether a packet can be sent at once, without a handshake: the
// last one's session lives for as long as a check may take.
func (f Facts) hasSession() bool {
	return !f.LastHandshake.IsZero() && time.Since(f.LastHandshake) < sessionLife-Timeout
}

// handshakeFault names what is wrong with the handshake, if anything is, and for how long
// it has been. Where the path finder has lost its last path the peer is gone, however
// young the session is.
func (r *recorder) handshakeFault() (Code, time.Duration) {
	f := r.facts
	switch age := time.Since(f.LastHandshake); {
	case f.LastHandshake.IsZero() && len(f.Endpoints) == 0:
		return PeerMustDial, time.Since(f.Since)
	case f.LastHandshake.IsZero():
		return PeerSilent, time.Since(f.Since)
	case f.NoPath != "":
		return HandshakeStale, time.Since(f.PathLost)
	case age > sessionLife:
		return HandshakeStale, age
	}
	return "", 0
}

// handshakeOnly is the verdict on a stock peer whose addresses need not answer pings.
// Such a peer is silent while nothing is to be sent, so an old handshake tells nothing.
func (r *recorder) handshakeOnly() Result {
	code, age := r.handshakeFault()
	p := Params{Endpoints: r.facts.Endpoints, Age: age, NoPath: r.facts.NoPath}
	switch code {
	case "":
		r.passed(StageHandshake, "")
		return r.ok(0)
	case HandshakeStale:
		return r.fail(api.Unknown, StageHandshake, code, p)
	}
	return r.fail(api.Error, StageHandshake, code, p)
}
