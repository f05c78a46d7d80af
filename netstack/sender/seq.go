package sender

// Seq is a TCP sequence number. Numbers wrap: only those within 2^31 of each other can be
// compared (RFC 9293 §3.4).
type Seq uint32

// Before reports whether s comes before t.
func (s Seq) Before(t Seq) bool { return int32(s-t) < 0 }

// To returns the number of bytes from s up to t, negative if t comes before s.
func (s Seq) To(t Seq) int { return int(int32(t - s)) }

// Range is the sequence numbers from Start up to End, without End.
type Range struct{ Start, End Seq }

// Size returns the number of bytes in r.
func (r Range) Size() int { return r.Start.To(r.End) }
