package portmap

import "time"

// epochClock compares the router's epoch time, which counts seconds since it last lost its
// mappings, with our own clock. The zero value has no epoch time yet.
type epochClock struct {
	heard  bool
	server uint32 // the last epoch time, seconds
	at     time.Time
}

// heardPCP records the epoch time of a response and reports whether the router has lost its
// mappings since the last one (RFC 6887 §8.5): its time went back by more than 1 s, or either
// clock ran more than 2 s + 1/16 ahead of the other.
func (e *epochClock) heardPCP(now time.Time, epoch uint32) (lost bool) {
	before := *e
	*e = epochClock{true, epoch, now}
	if !before.heard {
		return false
	}
	if int64(epoch)+1 < int64(before.server) {
		return true
	}
	client := now.Sub(before.at)
	server := time.Duration(int64(epoch)-int64(before.server)) * time.Second
	return client+2*time.Second < server-server/16 || server+2*time.Second < client-client/16
}

// heardNATPMP does the same for NAT-PMP (RFC 6886 §3.6): the time must not be more than 2 s
// behind the last one plus 7/8 of the time passed since.
func (e *epochClock) heardNATPMP(now time.Time, epoch uint32) (lost bool) {
	before := *e
	*e = epochClock{true, epoch, now}
	if !before.heard {
		return false
	}
	expected := time.Duration(before.server)*time.Second + now.Sub(before.at)*7/8
	return time.Duration(epoch)*time.Second < expected-2*time.Second
}
