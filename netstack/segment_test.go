package netstack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// packetSpec describes a large outbound segment as gVisor would hand it over.
type packetSpec struct {
	v4       bool
	options  []byte // TCP options, padded to a multiple of 4
	flags    byte
	mss      uint16
	id       uint16
	seq, ack uint32
	payload  []byte
	cuts     []int // where the packet's memory is divided
}

// build returns the packet and its offload options. Lengths and IP checksum are those of the large
// packet, and the TCP checksum is partial; no segment may keep them.
func (s packetSpec) build() ([][]byte, stack.GSO) {
	var ip []byte
	gso := stack.GSO{NeedsCsum: true, CsumOffset: 16, MSS: s.mss, MaxSize: gsoMaxSize}
	tcpLen := 20 + len(s.options)
	if s.v4 {
		gso.Type, gso.L3HdrLen = stack.GSOTCPv4, 20
		ip = []byte{0x45, 0x0b, 0, 0, byte(s.id >> 8), byte(s.id), 0x40, 0, 63, 6, 0xaa, 0xbb, 10, 1, 2, 3, 10, 4, 5, 6}
		binary.BigEndian.PutUint16(ip[2:], uint16(20+tcpLen+len(s.payload)))
	} else {
		gso.Type, gso.L3HdrLen = stack.GSOTCPv6, 40
		ip = make([]byte, 40)
		copy(ip, []byte{0x6a, 0xbc, 0xde, 0xf1, 0, 0, 6, 62, 0xfd, 1, 2, 3})
		copy(ip[24:], []byte{0xfd, 9, 8, 7, 6, 5})
		binary.BigEndian.PutUint16(ip[4:], uint16(tcpLen+len(s.payload)))
	}
	tcp := make([]byte, 20, tcpLen)
	binary.BigEndian.PutUint16(tcp[0:], 40001)
	binary.BigEndian.PutUint16(tcp[2:], 6443)
	binary.BigEndian.PutUint32(tcp[4:], s.seq)
	binary.BigEndian.PutUint32(tcp[8:], s.ack)
	tcp[12] = byte(tcpLen / 4 << 4)
	tcp[13] = s.flags
	binary.BigEndian.PutUint16(tcp[14:], 517)
	binary.BigEndian.PutUint16(tcp[16:], 0x1234)
	whole := slices.Concat(ip, tcp, s.options, s.payload)
	var views [][]byte
	at := 0
	for _, c := range s.cuts {
		if c = min(c, len(whole)); c > at {
			views = append(views, whole[at:c])
			at = c
		}
	}
	return append(views, whole[at:]), gso
}

// cutAll runs the segmenter to its end.
func cutAll(views [][]byte, gso stack.GSO, room int) ([][]byte, error) {
	return cutFor(views, gso, 0, room)
}

// cutFor does so for a path with an MTU.
func cutFor(views [][]byte, gso stack.GSO, mtu, room int) ([][]byte, error) {
	var s segmenter
	if err := s.reset(slices.Clone(views), gso, mtu); err != nil {
		return nil, err
	}
	var out [][]byte
	for !s.done() {
		buf := bytes.Repeat([]byte{0xee}, room) // Stale bytes must not show.
		n, err := s.next(buf)
		if err != nil {
			return out, err
		}
		out = append(out, buf[:n])
	}
	return out, nil
}

// onesSum computes RFC 1071's sum in the slow and obvious way.
func onesSum(parts ...[]byte) uint16 {
	b := slices.Concat(parts...)
	if len(b)%2 == 1 {
		b = append(b, 0)
	}
	var sum uint64
	for i := 0; i < len(b); i += 2 {
		sum += uint64(b[i])<<8 | uint64(b[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// checkSegments is the oracle: it compares every field of every segment with the original packet,
// and shares nothing with the segmenter but the RFCs.
func checkSegments(spec packetSpec, segments [][]byte) error {
	views, _ := spec.build()
	original := slices.Concat(views...)
	l3 := 40
	if spec.v4 {
		l3 = 20
	}
	hdr := l3 + 20 + len(spec.options)
	want := max(1, (len(spec.payload)+int(spec.mss)-1)/max(1, int(spec.mss)))
	if len(segments) != want {
		return fmt.Errorf("%d segments, want %d", len(segments), want)
	}
	var payload []byte
	for i, p := range segments {
		last := i == len(segments)-1
		if len(p) < hdr || !last && len(p) != hdr+int(spec.mss) {
			return fmt.Errorf("segment %d of %d has %d bytes, %d of them header", i, want, len(p), hdr)
		}
		if err := checkIP(spec, i, p, original); err != nil {
			return fmt.Errorf("segment %d of %d: IP: %w", i, want, err)
		}
		if err := checkTCP(spec, i, last, p[l3:], original[l3:hdr], p[:l3]); err != nil {
			return fmt.Errorf("segment %d of %d: TCP: %w", i, want, err)
		}
		payload = append(payload, p[hdr:]...)
	}
	if !bytes.Equal(payload, spec.payload) {
		return errors.New("payload differs from the original")
	}
	return nil
}

// differs returns an error that names the wrong field.
func differs(field string, got, want any) error {
	return fmt.Errorf("%s is %v, want %v", field, got, want)
}

func checkIP(spec packetSpec, i int, p, original []byte) error {
	if !spec.v4 {
		if got := binary.BigEndian.Uint16(p[4:]); int(got) != len(p)-40 {
			return differs("payload length", got, len(p)-40)
		}
		if !bytes.Equal(p[:4], original[:4]) || !bytes.Equal(p[6:40], original[6:40]) {
			return differs("rest of the header", p[:40], original[:40])
		}
		return nil
	}
	if got := binary.BigEndian.Uint16(p[2:]); int(got) != len(p) {
		return differs("total length", got, len(p))
	}
	if got, want := binary.BigEndian.Uint16(p[4:]), spec.id+uint16(i); got != want {
		return differs("ID", got, want)
	}
	if got := onesSum(p[:20]); got != 0xffff {
		return differs("sum of the header", got, 0xffff)
	}
	if !bytes.Equal(p[:2], original[:2]) || !bytes.Equal(p[6:10], original[6:10]) || !bytes.Equal(p[12:20], original[12:20]) {
		return differs("rest of the header", p[:20], original[:20])
	}
	return nil
}

// checkTCP compares the TCP segment tcp, below the IP header ip, with the original header.
func checkTCP(spec packetSpec, i int, last bool, tcp, original, ip []byte) error {
	addresses := ip[8:]
	if spec.v4 {
		addresses = ip[12:]
	}
	pseudo := slices.Concat(addresses, []byte{0, 6})
	pseudo = binary.BigEndian.AppendUint16(pseudo, uint16(len(tcp)))
	if got := onesSum(pseudo, tcp); got != 0xffff {
		return differs("sum", got, 0xffff)
	}
	if got, want := binary.BigEndian.Uint32(tcp[4:]), spec.seq+uint32(i)*uint32(spec.mss); got != want {
		return differs("sequence number", got, want)
	}
	flags := spec.flags
	if !last {
		flags &^= 0x01 | 0x08 // FIN, PSH
	}
	if i > 0 {
		flags &^= 0x80 // CWR
	}
	if tcp[13] != flags {
		return differs("flags", tcp[13], flags)
	}
	hdr, o := tcp[:len(original)], original
	if !bytes.Equal(hdr[:4], o[:4]) || !bytes.Equal(hdr[8:13], o[8:13]) || !bytes.Equal(hdr[14:16], o[14:16]) || !bytes.Equal(hdr[18:], o[18:]) {
		return differs("rest of the header", hdr, o)
	}
	return nil
}

func TestSegmenterAgainstOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range oracleCases * 3 / 2 {
		spec := packetSpec{
			v4:      rng.IntN(2) == 0,
			options: make([]byte, 4*rng.IntN(11)),
			flags:   byte(rng.IntN(256)) &^ 0x06, // Neither SYN nor RST ever has a payload.
			mss:     uint16(1 + rng.IntN(1500)),
			id:      uint16(rng.Uint32()),
			seq:     rng.Uint32(),
			ack:     rng.Uint32(),
		}
		switch rng.IntN(4) {
		case 0: // Around one segment.
			spec.payload = make([]byte, rng.IntN(2*int(spec.mss)+1))
		case 1: // A whole number of segments.
			spec.payload = make([]byte, int(spec.mss)*rng.IntN(40))
		default:
			spec.payload = make([]byte, rng.IntN(65535-120-1))
		}
		for j := range spec.options {
			spec.options[j] = byte(rng.Uint32())
		}
		fill(rng, spec.payload)
		if n := 65535 - 40 - 20 - len(spec.options); len(spec.payload) > n {
			spec.payload = spec.payload[:n]
		}
		for range rng.IntN(6) {
			spec.cuts = append(spec.cuts, rng.IntN(len(spec.payload)+80))
		}
		slices.Sort(spec.cuts)
		views, gso := spec.build()
		segments, err := cutAll(views, gso, 120+1500)
		if err == nil {
			err = checkSegments(spec, segments)
		}
		if err != nil {
			t.Fatalf("case %d (v4 %v, %d bytes, MSS %d, %d option bytes, flags %#x, cuts %v): %v",
				i, spec.v4, len(spec.payload), spec.mss, len(spec.options), spec.flags, spec.cuts, err)
		}
	}
}

func fill(rng *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
}

// The oracle must be able to fail: it notices each wrong field.
func TestOracleNoticesEachWrongByte(t *testing.T) {
	for _, v4 := range []bool{true, false} {
		spec := packetSpec{v4: v4, flags: 0x99, mss: 100, seq: 7, options: []byte{1, 1, 1, 0}, payload: make([]byte, 250)}
		views, gso := spec.build()
		segments, err := cutAll(views, gso, 2000)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkSegments(spec, segments); err != nil {
			t.Fatal(err)
		}
		for i, p := range segments {
			for j := range p {
				p[j] ^= 0x10
				if checkSegments(spec, segments) == nil {
					t.Errorf("v4 %v: byte %d of segment %d was changed and not noticed", v4, j, i)
				}
				p[j] ^= 0x10
			}
		}
	}
}

func TestSegmenterCopiesOtherPacketsWhole(t *testing.T) {
	want := []byte("not even IP")
	got, err := cutAll([][]byte{want[:3], want[3:]}, stack.GSO{}, 64)
	if err != nil || len(got) != 1 || !bytes.Equal(got[0], want) {
		t.Errorf("got %q, %v; want one packet %q", got, err, want)
	}
	if _, err := cutAll([][]byte{want}, stack.GSO{}, len(want)-1); !errors.Is(err, errShort) {
		t.Errorf("a packet larger than the buffer gives %v, want %v", err, errShort)
	}
}

func TestSegmenterRefusesWhatItCannotCut(t *testing.T) {
	good := packetSpec{v4: true, mss: 100, payload: make([]byte, 300)}
	for name, change := range map[string]func(views [][]byte, gso *stack.GSO) [][]byte{
		"IP header too short": func(v [][]byte, g *stack.GSO) [][]byte { g.L3HdrLen = 19; return v },
		"IP header too long":  func(v [][]byte, g *stack.GSO) [][]byte { g.L3HdrLen = 101; return v },
		"MSS of 0":            func(v [][]byte, g *stack.GSO) [][]byte { g.MSS = 0; return v },
		"no TCP header":       func(v [][]byte, _ *stack.GSO) [][]byte { return [][]byte{v[0][:39]} },
		"options missing":     func(v [][]byte, _ *stack.GSO) [][]byte { v[0][32] = 0xf0; return [][]byte{v[0][:50]} },
		"data offset too low": func(v [][]byte, _ *stack.GSO) [][]byte { v[0][32] = 0x40; return v },
	} {
		views, gso := good.build()
		views = change(views, &gso)
		if got, err := cutAll(views, gso, 2000); !errors.Is(err, errUncuttable) {
			t.Errorf("%s: got %d segments and %v, want %v", name, len(got), err, errUncuttable)
		}
	}
	views, gso := good.build()
	if _, err := cutAll(views, gso, 139); !errors.Is(err, errShort) {
		t.Errorf("segments of 140 bytes into 139 give %v, want %v", err, errShort)
	}
}

func FuzzSegmenter(f *testing.F) {
	f.Add(true, byte(0x19), uint16(1360), uint32(1), []byte{1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2}, []byte("payload"), uint16(30), uint16(50))
	f.Add(false, byte(0x99), uint16(3), uint32(0xffffffff), []byte{}, bytes.Repeat([]byte("x"), 1000), uint16(41), uint16(900))
	f.Fuzz(func(t *testing.T, v4 bool, flags byte, mss uint16, seq uint32, options, payload []byte, cut1, cut2 uint16) {
		if len(options) > 40 || len(payload) > 60000 || mss == 0 || len(payload)/int(mss) > 5000 {
			return // Not what gVisor hands over.
		}
		options = options[:len(options)/4*4]
		cuts := []int{int(cut1), int(cut2)}
		slices.Sort(cuts)
		spec := packetSpec{v4: v4, options: options, flags: flags, mss: mss, id: uint16(seq), seq: seq, ack: ^seq, payload: payload, cuts: cuts}
		views, gso := spec.build()
		segments, err := cutAll(views, gso, 120+int(mss))
		if err == nil {
			err = checkSegments(spec, segments)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// Headers that contradict the offload options must give an error, not a panic.
func FuzzSegmenterHeaders(f *testing.F) {
	views, gso := packetSpec{v4: true, mss: 100, payload: make([]byte, 300)}.build()
	f.Add(views[0], true, gso.L3HdrLen, gso.MSS, 2000)
	f.Add([]byte{}, false, uint16(40), uint16(0), 0)
	f.Fuzz(func(t *testing.T, packet []byte, v4 bool, l3, mss uint16, room int) {
		if room < 0 || room > 70000 || len(packet) > 70000 || mss > 0 && len(packet)/int(mss) > 5000 {
			return
		}
		gso := stack.GSO{Type: stack.GSOTCPv6, NeedsCsum: true, L3HdrLen: l3, MSS: mss}
		if v4 {
			gso.Type = stack.GSOTCPv4
		}
		segments, err := cutAll([][]byte{packet}, gso, room)
		for _, s := range segments {
			if len(s) > room {
				t.Errorf("segment of %d bytes in a buffer of %d (%v)", len(s), room, err)
			}
		}
	})
}
