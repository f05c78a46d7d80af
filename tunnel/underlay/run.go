package underlay

import (
	"net/netip"

	"github.com/postern-dev/postern/tunnel/peer"
)

// WriteRun sends datagrams of any content to one address, in order and with as few system calls as
// the kernel allows. It is for a TURN server's frames. It does not keep them. A run has at most
// [conn.IdealBatchSize] datagrams.
func (b *Bind) WriteRun(bs [][]byte, to netip.AddrPort) error {
	if err := b.sendDirect(bs, b.endpointOf(peer.Direct(to))); err != nil {
		b.counters.sendErrors.Add(1)
		return err
	}
	b.counters.sent.Add(uint64(len(bs)))
	return nil
}
