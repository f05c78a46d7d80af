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
	rtt, err := repeatedPing(ctx, ping, f)
	if err == nil {
		r.passed(StageHandshake, "")
		r.passed(StagePing, rtt.String())
		return r.ok(rtt)
	}
	if code, age := r.handshakeFault(); code != "" {
		return r.fail(api.Error, StageHandshake, code, Params{Endpoints: f.Endpoints, Age: age})
	}
	r.passed(StageHandshake, "")
	return r.fail(api.Error, StagePing, PingLost, Params{Address: f.Address.String(),
		Age: time.Since(f.LastHandshake), Timeout: Timeout, Detail: err.Error()})
}

// repeatedPing pings until one is answered or ctx ends.
func repeatedPing(ctx context.Context, ping PingFunc, f Facts) (time.Duration, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, pingWait)
		rtt, err := ping(wait, f.Address, pingPayload)
		cancel()
		if err == nil {
			return rtt, nil
		}
		select {
		case <-ctx.Done():
			return 0, err
		case <-time.After(retryPing):
		}
	}
}

// handshakeFault names what is wrong with the handshake, if anything is.
func (r *recorder) handshakeFault() (Code, time.Duration) {
	f := r.facts
	switch age := time.Since(f.LastHandshake); {
	case f.LastHandshake.IsZero() && len(f.Endpoints) == 0:
		return PeerMustDial, time.Since(f.Since)
	case f.LastHandshake.IsZero():
		return PeerSilent, time.Since(f.Since)
	case age > sessionLife:
		return HandshakeStale, age
	}
	return "", 0
}

// handshakeOnly is the verdict on a stock peer whose addresses need not answer pings.
// Such a peer is silent while nothing is to be sent, so an old handshake tells nothing.
func (r *recorder) handshakeOnly() Result {
	code, age := r.handshakeFault()
	p := Params{Endpoints: r.facts.Endpoints, Age: age}
	switch code {
	case "":
		r.passed(StageHandshake, "")
		return r.ok(0)
	case HandshakeStale:
		return r.fail(api.Unknown, StageHandshake, code, p)
	}
	return r.fail(api.Error, StageHandshake, code, p)
}
