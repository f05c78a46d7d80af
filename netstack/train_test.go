package netstack

import (
	"fmt"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// The largest segment that gVisor hands over must leave in one system call, whatever the MTU and
// the family, and nearly fill it.
func TestSegmentsFillOneSystemCall(t *testing.T) {
	for _, mtu := range []int{MinMTU, 1300, 1340, 1380, 1412, DefaultMTU, 1500, 8920, 20000, 60000, gsoMaxSize} {
		for _, ip := range []struct {
			v4     bool
			header int
		}{{false, ipv6HeaderLen}, {true, ipv4HeaderLen}} {
			for _, reserve := range []int{40, 12} { // gVisor's, to peers with SACK and without
				t.Run(fmt.Sprintf("mtu=%d,v4=%v,reserve=%d", mtu, ip.v4, reserve), func(t *testing.T) {
					mss := mtu - ip.header - tcpHeaderLen - reserve
					l := &link{mtu: uint32(mtu)}
					payload := min(int(l.GSOMaxSize())-header.TCPTotalHeaderMaximumSize-1, pieceSize(mtu, ip.v4))
					packets := (payload + mss - 1) / mss
					if packets <= 1 {
						return // nothing to fill
					}
					headers := ip.header + tcpHeaderLen + timestampOption
					last := payload - (packets-1)*mss
					size := (packets-1)*datagramSize(mss+headers, mtu) + datagramSize(last+headers, mtu)
					if packets > trainPackets || size > trainBytes {
						t.Errorf("%d packets, %d bytes of datagrams, do not fit one system call", packets, size)
					}
					if room := trainBytes - size; packets < trainPackets-1 && room >= 3*(mtu+tunnelOverhead) {
						t.Errorf("%d packets leave room for %d bytes more", packets, room)
					}
				})
			}
		}
	}
}

// segmentOf returns a segment that is cut into n packets.
func segmentOf(n int) *stack.PacketBuffer {
	const mss = 1000
	views, gso := packetSpec{mss: mss, flags: 0x10, payload: make([]byte, n*mss-60)}.build() // headers: 60
	p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(views[0])})
	p.GSOOptions = gso
	return p
}

func TestBatchesEndBetweenSegments(t *testing.T) {
	for _, c := range []struct {
		name     string
		segments []int // packets each; 0 is a packet without offload
		want     []int // packets each batch of 64
	}{
		{"a segment that does not fit waits for the next batch", []int{45, 45, 45}, []int{45, 45, 45}},
		{"what fits is taken along", []int{45, 0, 0, 10, 45}, []int{57, 45}},
		{"a batch is filled to the last packet", []int{32, 32, 32}, []int{64, 32}},
		{"a segment larger than a batch is divided", []int{45, 65, 1}, []int{64, 47}},
		{"small packets leave in full batches", make([]int, 200), []int{64, 64, 64, 8}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := newQueue()
			d := newDevice(&link{mtu: DefaultMTU, out: out, drops: new(drops)}, Options{})
			for _, n := range c.segments {
				p := segmentOf(max(n, 1))
				if n == 0 {
					p.GSOOptions = stack.GSO{}
				}
				out.put(p, p.Size(), false)
				p.DecRef()
			}
			out.close()
			var got []int
			for {
				n, err := d.Read(batchBuffers())
				if err != nil {
					break
				}
				got = append(got, n)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("batches of %v packets, want %v", got, c.want)
			}
		})
	}
}

// batchBuffers returns the arguments of a Read call.
func batchBuffers() (bufs [][]byte, sizes []int, offset int) {
	bufs, sizes = make([][]byte, batchSize), make([]int, batchSize)
	for i := range bufs {
		bufs[i] = make([]byte, 16+DefaultMTU)
	}
	return bufs, sizes, 16
}

// Segments that wait for their batch stay in the queue, whose bound holds senders back.
func TestTheDeviceHoardsNothing(t *testing.T) {
	out := newQueue()
	d := newDevice(&link{mtu: DefaultMTU, out: out, drops: new(drops)}, Options{})
	p := segmentOf(45)
	defer p.DecRef()
	for range 100 {
		out.put(p, p.Size(), false)
	}
	for range 50 {
		if n, err := d.Read(batchBuffers()); n != 45 || err != nil {
			t.Fatalf("a batch of %d packets, %v; want 45", n, err)
		}
	}
	if len(d.pending) > 3 || out.count < 100-50-3 {
		t.Errorf("after 50 of 100 segments %d are left in the queue and %d in the device, want at most 3 in it", out.count, len(d.pending))
	}
	for _, rest := range d.pending {
		rest.DecRef()
	}
	for range out.count {
		p.DecRef()
	}
}
