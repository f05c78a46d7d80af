package faketest

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// askedAt5351 answers a datagram to port 5351, and reports whether that is closed.
func (r *Router) askedAt5351(b []byte) (answers [][]byte, refused bool) {
	r.mu.Lock()
	o, lies := r.o, r.lies
	r.mu.Unlock()
	if o.Silent {
		r.count("silent")
		return nil, false
	}
	if !o.PCP && !o.NATPMP {
		r.count("closed")
		return nil, true
	}
	var answer []byte
	switch {
	case len(b) >= 2 && b[0] == 0 && o.NATPMP:
		answer = r.natpmp(b)
	case len(b) >= 24 && b[0] == 2 && o.PCP:
		answer = r.pcp(b)
	case o.NATPMP: // RFC 6886 §3.5
		answer = []byte{0, b[1] | 128, 0, 1, 0, 0, 0, 0}
	default: // RFC 6887 §9
		answer = make([]byte, 24)
		answer[0], answer[1], answer[3] = 2, b[1]|128, 1
	}
	if lies.Answer != nil {
		return lies.Answer(b, answer), false
	}
	return [][]byte{answer}, false
}

// epoch returns for how many seconds the router has had its mappings.
func (r *Router) epoch() uint32 { return uint32(time.Since(r.began) / time.Second) }

// pcp answers a request of version 2.
func (r *Router) pcp(b []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]byte, len(b))
	copy(out, b)
	clear(out[8:24])
	out[1] |= 128
	binary.BigEndian.PutUint32(out[8:], r.epoch())
	result := func(code byte) []byte {
		out[3] = code
		binary.BigEndian.PutUint32(out[4:], 30)
		return out
	}
	if b[1] == 0 {
		r.requests["PCP ANNOUNCE"]++
		binary.BigEndian.PutUint32(out[4:], 0)
		return out
	}
	r.requests["PCP MAP"]++
	client := netip.AddrFrom16([16]byte(b[8:24])).Unmap()
	switch {
	case b[1] != 1 || len(b) < 60:
		return result(4)
	case client != r.o.Seen:
		return result(12)
	case r.lies.Result != 0 && binary.BigEndian.Uint32(b[4:]) > 0:
		return result(r.lies.Result)
	}
	nonce := [12]byte(b[24:36])
	internal := binary.BigEndian.Uint16(b[40:])
	port := r.assign(client, internal, binary.BigEndian.Uint16(b[42:]))
	if was, there := r.table[port]; there && was.By == "PCP" && was.Nonce != nonce {
		return result(2)
	}
	lifetime := binary.BigEndian.Uint32(b[4:])
	if lifetime == 0 {
		delete(r.table, port)
		return out
	}
	if r.lies.Lifetime != 0 {
		lifetime = r.lies.Lifetime
	}
	r.table[port] = Mapping{client, internal, port, "PCP", nonce, time.Now().Add(time.Duration(lifetime) * time.Second)}
	binary.BigEndian.PutUint32(out[4:], lifetime)
	binary.BigEndian.PutUint16(out[42:], port)
	external := r.o.External.As16()
	copy(out[44:60], external[:])
	return out
}

// natpmp answers a request of version 0.
func (r *Router) natpmp(b []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b[1] == 0 {
		r.requests["NAT-PMP address"]++
		out := make([]byte, 12)
		out[1] = 128
		binary.BigEndian.PutUint32(out[4:], r.epoch())
		external := r.o.External.As4()
		copy(out[8:], external[:])
		return out
	}
	r.requests["NAT-PMP map"]++
	out := make([]byte, 16)
	out[1] = b[1] | 128
	binary.BigEndian.PutUint32(out[4:], r.epoch())
	if b[1] != 1 || len(b) != 12 {
		out[3] = 5
		return out
	}
	copy(out[8:], b[4:6])
	lifetime := binary.BigEndian.Uint32(b[8:])
	if r.lies.Result != 0 && lifetime > 0 {
		out[3] = r.lies.Result
		return out
	}
	internal := binary.BigEndian.Uint16(b[4:])
	port := r.assign(r.o.Seen, internal, binary.BigEndian.Uint16(b[6:]))
	if lifetime == 0 {
		delete(r.table, port)
		return out
	}
	if r.lies.Lifetime != 0 {
		lifetime = r.lies.Lifetime
	}
	r.table[port] = Mapping{Client: r.o.Seen, Internal: internal, External: port, By: "NAT-PMP",
		Expires: time.Now().Add(time.Duration(lifetime) * time.Second)}
	binary.BigEndian.PutUint16(out[10:], port)
	binary.BigEndian.PutUint32(out[12:], lifetime)
	return out
}
