package sender

import "time"

// rateSampler measures at what rate the path delivers (draft-ietf-ccwg-bbr, delivery
// rate samples): from one segment's departure to its acknowledgement, so much was
// delivered in so much time, or sent if that took longer.
type rateSampler struct {
	delivered   int64 // bytes in all, by the present way
	deliveredAt time.Duration
	firstAt     time.Duration // departure of the first of the flight
	limitedTo   int64         // what will have been delivered when samples aren't limited any more; 0 is they aren't
}

// sample is what one acknowledgement tells the congestion control.
type sample struct {
	rate      float64       // bytes per second; 0 is none
	limited   bool          // the sender could have sent more: the rate is a lower bound
	rtt       time.Duration // of a segment that was sent once; 0 is none
	prior     int64         // bytes delivered when the newest delivered segment departed
	delivered int64         // bytes in all
	newly     int           // bytes delivered by this one
	losses                  // found, less what turned out to be late only
	flight    int           // bytes in flight after it
}

// departs describes a departure.
func (r *rateSampler) departs(now time.Duration, idle bool) departure {
	if idle {
		r.firstAt, r.deliveredAt = now, now
	}
	return departure{at: now, firstAt: r.firstAt, delivered: r.delivered, deliveredAt: r.deliveredAt, limited: r.limitedTo > 0}
}

// limit says that there is nothing to send although there could be: samples of what departs
// until all that is in flight now is delivered are limited.
func (r *rateSampler) limit(flight int) { r.limitedTo = max(r.delivered+int64(flight), 1) }

// sample fills in what an acknowledgement says of the rate: newest is the departure of the
// newest segment that it delivers. Samples over less than the shortest round trip are
// artefacts of acknowledgements that come together.
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
