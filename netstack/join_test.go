package netstack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// joinAll runs a batch through a joiner and returns what comes out, as bytes.
func joinAll(t testing.TB, batch [][]byte) [][]byte {
	t.Helper()
	var out [][]byte
	j := joiner{emit: func(proto tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
		v := pkt.ToView()
		b := v.ToSlice()
		v.Release()
		pkt.DecRef()
		want := header.IPv6ProtocolNumber
		if b[0]>>4 == 4 {
			want = header.IPv4ProtocolNumber
		}
		if proto != want {
			t.Errorf("a packet of version %d goes up as protocol %#x", b[0]>>4, proto)
		}
		out = append(out, b)
	}}
	for _, p := range batch {
		j.add(p)
	}
	j.flush()
	if got := len(batch) - len(out); j.joined != got {
		t.Errorf("joined counts %d, %d packets went away", j.joined, got)
	}
	return out
}

// describedTCP is what two segments must have in common to be joined, read through gVisor's header
// types and written as text: the oracle's view of a packet.
type describedTCP struct {
	common  string
	seq     uint32
	flags   header.TCPFlags
	head    []byte
	payload []byte
}

// describe returns ok if the packet may be joined at all.
func describe(p []byte) (f describedTCP, ok bool) {
	var tcp header.TCP
	if p[0]>>4 == 4 {
		ip := header.IPv4(p)
		if ip.HeaderLength() != 20 || ip.Protocol() != 6 || int(ip.TotalLength()) != len(p) || ip.More() || ip.FragmentOffset() != 0 || len(p) < 40 {
			return f, false
		}
		tos, _ := ip.TOS()
		tcp = header.TCP(p[20:])
		f.common = fmt.Sprint(4, tos, ip.TTL(), ip.Flags(), ip.SourceAddress(), ip.DestinationAddress())
	} else {
		ip := header.IPv6(p)
		if ip.NextHeader() != 6 || int(ip.PayloadLength()) != len(p)-40 || len(p) < 60 {
			return f, false
		}
		tos, label := ip.TOS()
		tcp = header.TCP(p[40:])
		f.common = fmt.Sprint(6, tos, label, ip.HopLimit(), ip.SourceAddress(), ip.DestinationAddress())
	}
	if tcp.DataOffset() < 20 || int(tcp.DataOffset()) >= len(tcp) {
		return f, false
	}
	f.seq, f.flags, f.payload = tcp.SequenceNumber(), tcp.Flags(), tcp[tcp.DataOffset():]
	f.head = p[:len(p)-len(f.payload)]
	ece := f.flags & header.TCPFlagEce
	f.common += fmt.Sprint(tcp.SourcePort(), tcp.DestinationPort(), tcp.AckNumber(), tcp.WindowSize(), ece, f.flags&header.TCPFlagAck, tcp[12], string(tcp[20:tcp.DataOffset()]))
	return f, f.flags&(header.TCPFlagSyn|header.TCPFlagRst|header.TCPFlagUrg) == 0
}

// naiveJoin does the joiner's work with slices and strings.
func naiveJoin(batch [][]byte) [][]byte {
	var out [][]byte
	var run []describedTCP
	flush := func() {
		if len(run) == 0 {
			return
		}
		p := slices.Clone(run[0].head)
		l3 := 40
		if p[0]>>4 == 4 {
			l3 = 20
		}
		for _, f := range run {
			p = append(p, f.payload...)
			p[l3+13] |= byte(f.flags & (header.TCPFlagFin | header.TCPFlagPsh))
		}
		if l3 == 20 {
			binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
		} else {
			binary.BigEndian.PutUint16(p[4:], uint16(len(p)-40))
		}
		out = append(out, p)
		run = nil
	}
	for _, p := range batch {
		f, ok := describe(p)
		if !ok {
			flush()
			out = append(out, p)
			continue
		}
		if len(run) > 0 {
			first, last := run[0], run[len(run)-1]
			size := len(f.payload) + len(first.head)
			for _, r := range run {
				size += len(r.payload)
			}
			ended := last.flags&(header.TCPFlagFin|header.TCPFlagPsh) != 0 || len(last.payload) < len(first.payload)
			if ended || f.common != first.common || f.seq != last.seq+uint32(len(last.payload)) ||
				len(f.payload) > len(first.payload) || f.flags&header.TCPFlagCwr != 0 || size > 65535 {
				flush()
			}
		}
		run = append(run, f)
	}
	flush()
	return out
}

// randomBatch cuts random segments of a few flows and sprinkles faults over them.
func randomBatch(rng *rand.Rand) [][]byte {
	var batch [][]byte
	for range 1 + rng.IntN(5) {
		spec := packetSpec{
			v4: rng.IntN(2) == 0, flags: 0x10 | byte(rng.IntN(256))&0xc9, mss: uint16(1 + rng.IntN(1400)),
			seq: rng.Uint32(), ack: rng.Uint32(), options: make([]byte, 4*rng.IntN(4)),
		}
		spec.payload = make([]byte, min(rng.IntN(30*int(spec.mss)), 60000))
		fill(rng, spec.payload)
		views, gso := spec.build()
		segments, _ := cutAll(views, gso, 2000)
		batch = append(batch, segments...)
	}
	for range rng.IntN(4) {
		p := batch[rng.IntN(len(batch))]
		switch rng.IntN(5) {
		case 0:
			i, j := rng.IntN(len(batch)), rng.IntN(len(batch))
			batch[i], batch[j] = batch[j], batch[i]
		case 1: // Any header bit.
			p[1+rng.IntN(min(len(p), 80)-1)] ^= 1 << rng.IntN(8)
		case 2: // A TCP flag.
			l3 := 40
			if p[0]>>4 == 4 {
				l3 = 20
			}
			p[l3+13] ^= 1 << rng.IntN(8)
		case 3:
			batch = slices.Delete(batch, 0, 1)
			if len(batch) == 0 {
				return batch
			}
		case 4: // A duplicate.
			batch = slices.Insert(batch, rng.IntN(len(batch)), p)
		}
	}
	return batch
}

func TestJoinerAgainstNaiveJoin(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	joined := 0
	for i := range 2 * oracleCases {
		batch := randomBatch(rng)
		want := naiveJoin(batch)
		got := joinAll(t, batch)
		joined += len(batch) - len(got)
		if len(got) != len(want) {
			t.Fatalf("case %d: %d packets joined to %d, want %d", i, len(batch), len(got), len(want))
		}
		for k := range got {
			if !bytes.Equal(got[k], want[k]) {
				t.Fatalf("case %d: packet %d of %d is\n%x, want\n%x", i, k, len(got), got[k], want[k])
			}
		}
	}
	if joined < 5*oracleCases {
		t.Errorf("only %d packets were joined: the test tests little", joined)
	}
}

// Cut segments are joined to the original segment, except for checksums and the IPv4 ID (that of
// the first segment).
func TestCutThenJoinedIsTheOriginal(t *testing.T) {
	for _, v4 := range []bool{true, false} {
		spec := packetSpec{v4: v4, flags: 0x99, mss: 1348, seq: 0xffffff00, id: 0xfffe, payload: make([]byte, 62001)}
		fill(rand.New(rand.NewPCG(5, 6)), spec.payload)
		views, gso := spec.build()
		segments, err := cutAll(views, gso, 1500)
		if err != nil {
			t.Fatal(err)
		}
		got := joinAll(t, segments)
		if len(got) != 1 {
			t.Fatalf("v4 %v: %d segments joined to %d packets, want 1", v4, len(segments), len(got))
		}
		want := slices.Concat(views...)
		l3 := 40
		if v4 {
			l3 = 20
			copy(got[0][10:12], want[10:12])
		}
		copy(got[0][l3+16:l3+18], want[l3+16:l3+18])
		if !bytes.Equal(got[0], want) {
			t.Errorf("v4 %v: the joined packet differs from the original", v4)
		}
	}
}

func FuzzJoiner(f *testing.F) {
	f.Add(uint64(1), []byte{0x45, 0, 0, 40})
	f.Add(uint64(2), bytes.Repeat([]byte{0x60}, 70))
	f.Fuzz(func(t *testing.T, seed uint64, foreign []byte) {
		batch := randomBatch(rand.New(rand.NewPCG(seed, 7)))
		if len(foreign) >= 40 && (foreign[0]>>4 == 4 || foreign[0]>>4 == 6) && len(foreign) < 65536 {
			at := int(seed % uint64(len(batch)+1))
			batch = slices.Insert(batch, at, foreign, foreign)
		}
		got, want := joinAll(t, batch), naiveJoin(batch)
		if !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%d packets joined to %d, want %d", len(batch), len(got), len(want))
		}
	})
}
