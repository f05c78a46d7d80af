package underlay

import (
	"errors"
	"net/netip"
	"syscall"

	"golang.zx2c4.com/wireguard/conn"
)

// stdBind is wireguard-go's bind with a few fixes. It keeps that bind's batch size: with less than
// 128 on Linux it receives nothing, without an error.
type stdBind struct{ conn.Bind }

var _ network = stdBind{}

func newStd() stdBind { return stdBind{conn.NewStdNetBind()} }

func (b stdBind) endpoint(a netip.AddrPort) conn.Endpoint {
	return &conn.StdNetEndpoint{AddrPort: a}
}

// probe ignores the options, which wireguard-go's bind does not support.
func (b stdBind) probe(p []byte, ep conn.Endpoint, _ SendOptions) error {
	return b.Send([][]byte{p}, ep)
}

// Send splits what is too much for one call of the bind.
func (b stdBind) Send(bufs [][]byte, ep conn.Endpoint) error {
	var first error
	for len(bufs) > 0 {
		n := min(len(bufs), conn.IdealBatchSize)
		if err := b.sendBatch(bufs[:n], ep); err != nil && first == nil {
			first = err
		}
		bufs = bufs[n:]
	}
	return first
}

// sendBatch sends again, one datagram per call, if segments are longer than the link's MTU
// (EMSGSIZE): the kernel fragments a long datagram but not a long segment. What had already been
// sent arrives twice, and WireGuard drops it as a replay.
func (b stdBind) sendBatch(bufs [][]byte, ep conn.Endpoint) error {
	err := b.Bind.Send(bufs, ep)
	if disabled, ok := errors.AsType[conn.ErrUDPGSODisabled](err); ok { // it has already sent everything again
		err = disabled.RetryErr
	}
	if len(bufs) == 1 || !errors.Is(err, syscall.EMSGSIZE) {
		return err
	}
	var first error
	for i := range bufs {
		if err := b.Bind.Send(bufs[i:i+1], ep); err != nil && first == nil {
			first = err
		}
	}
	return first
}
