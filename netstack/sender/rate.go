package sender

import "time"

// rateSampler measures the path's delivery rate (draft-ietf-ccwg-bbr, delivery rate samples). A
// sample is the bytes delivered between a segment's departure and its acknowledgement, divided by
// that time, or by the time it took to send them if that was longer.
type rateSampler struct {
	delivered   int64 // bytes in total, on the current path
	deliveredAt time.Duration
	firstAt     time.Duration // departure of the first segment of the flight
	limitedTo   int64         // samples are limited until this much is delivered; 0: they are not
}

// sample is what one acknowledgement tells the congestion control.
type sample struct {
	rate      float64       // bytes per second; 0 is none
	limited   bool          // the sender could have sent more: the rate is a lower bound
	rtt       time.Duration // of a segment that was sent once; 0 is none
	tail      bool          // of all that a flow had in flight: the receiver may have delayed it (RFC 1122 §4.2.3.2)
	prior     int64         // bytes delivered when the newest delivered segment departed
	delivered int64         // bytes in all
	newly     int           // bytes delivered by this one
	losses                  // found, less those that were only late
	flight    int           // bytes in flight after it
}

// departs returns the record of a departure.
func (r *rateSampler) departs(now time.Duration, idle bool) departure {
	if idle {
		r.firstAt, r.deliveredAt = now, now
	}
	return departure{at: now, firstAt: r.firstAt, delivered: r.delivered, deliveredAt: r.deliveredAt, limited: r.limitedTo > 0}
}

// limit records that there is nothing to send although there is room. Samples of packets that
// depart before all that is in flight now is delivered count as limited.
func (r *rateSampler) limit(flight int) { r.limitedTo = max(r.delivered+int64(flight), 1) }

// sample adds the rate to an acknowledgement's sample. newest is the departure of the newest
// segment that it delivers. Samples over less than the shortest round trip are artefacts of
// acknowledgements that arrive together.
func (r *rateSampler) sample(s *sample, newest departure, minRTT time.Duration) {
	r.firstAt = newest.at
	if r.limitedTo > 0 && r.delivered > r.limitedTo {
		r.limitedTo = 0
	}
	took := max(newest.at-newest.firstAt, r.deliveredAt-newest.deliveredAt)
	s.prior, s.delivered, s.limited = newest.delivered, r.delivered, newest.limited
	if took > 0 && took >= minRTT {
		s.rate = float64(r.delivered-newest.delivered) / took.Seconds()
	}
}
