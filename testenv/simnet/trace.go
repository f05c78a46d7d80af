package simnet

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"time"
)

// EventKind is what happened to a datagram.
type EventKind uint8

// The kinds of events.
const (
	Sent EventKind = iota
	Translated
	Delivered
	Dropped
)

// Event is one line of the trace.
type Event struct {
	At       time.Duration // since the Internet was made
	ID       uint64        // the datagram's
	Kind     EventKind
	Where    string         // name of the host, NAT or link
	Src, Dst netip.AddrPort // after the event
	Size     int            // bytes of payload
	TTL      uint8
	Reason   Reason // of Dropped
}

// String formats the event as one line.
func (e Event) String() string {
	head := fmt.Sprintf("%12s #%-5d", e.At.Round(time.Microsecond), e.ID)
	way := fmt.Sprintf("%v → %v", e.Src, e.Dst)
	switch e.Kind {
	case Sent:
		return fmt.Sprintf("%s %s sends %s, %d B, TTL %d", head, e.Where, way, e.Size, e.TTL)
	case Translated:
		return fmt.Sprintf("%s   %s makes it %s", head, e.Where, way)
	case Delivered:
		return fmt.Sprintf("%s   arrives at %s, TTL %d", head, e.Where, e.TTL)
	default:
		return fmt.Sprintf("%s   dropped at %s: %s (%s)", head, e.Where, e.Reason, way)
	}
}

// tracer is a ring buffer of the latest events.
type tracer struct {
	start  time.Time
	events []Event // grows to its limit, then wraps
	limit  int
	next   int
}

func (t *tracer) add(now time.Time, kind EventKind, where string, p *packet, reason Reason) {
	if t.limit == 0 {
		return
	}
	e := Event{
		At: now.Sub(t.start), ID: p.id, Kind: kind, Where: where,
		Src: p.src, Dst: p.dst, Size: len(p.payload), TTL: p.ttl, Reason: reason,
	}
	if len(t.events) < t.limit {
		t.events = append(t.events, e)
		return
	}
	t.events[t.next] = e
	t.next = (t.next + 1) % t.limit
}

// Trace returns the latest events, at most [Options.Trace], oldest first.
func (in *Internet) Trace() []Event {
	in.mu.Lock()
	defer in.mu.Unlock()
	t := &in.trace
	return append(append([]Event(nil), t.events[t.next:]...), t.events[:t.next]...)
}

// WriteTrace prints the trace, for a failed test.
func (in *Internet) WriteTrace(w io.Writer) error {
	b := bufio.NewWriter(w)
	for _, e := range in.Trace() {
		if _, err := fmt.Fprintln(b, e); err != nil {
			return fmt.Errorf("write trace: %w", err)
		}
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}
