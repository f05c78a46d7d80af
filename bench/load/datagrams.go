package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// Units of the datagrams' values.
const (
	// UnitPackets is the rate of received packets in the window, UnitSent that of sent ones.
	UnitPackets = "packets/s"
	UnitSent    = "sent-packets/s"
	// UnitLost is the share of the window's packets that never arrived. UnitReordered is the
	// share of the received packets that arrived after a later one.
	UnitLost      = "lost-ratio"
	UnitReordered = "reordered-ratio"
)

const (
	// maxDatagram is the maximum UDP payload in bytes (RFC 768, over IPv4).
	maxDatagram = 65507
	// numberSize is the size, in bytes, of a datagram's sequence number, which is needed to
	// detect losses.
	numberSize = 8
	// pace is the minimum time between two bursts at a given rate. Timers are not more precise.
	pace = time.Millisecond
	// behind is how much of a given rate is sent later if the sender was delayed. Anything beyond
	// that is skipped: a longer burst would only measure the length of a queue.
	behind = 5 * time.Millisecond
	// After the window, the run waits until nothing has arrived for quiet, or for afterwards at
	// most. Then missing packets count as lost.
	quiet, afterwards = 300 * time.Millisecond, 10 * time.Second
)

// datagrams sends UDP payloads of spec.Size bytes from the dialling end to the accepting one and
// counts those that arrive. It sends as fast as the subject accepts them, or spec.Rate each
// second in bursts a millisecond apart.
func datagrams(ctx context.Context, spec Spec, ends Ends) (Result, error) {
	if spec.Size < numberSize || spec.Size > maxDatagram || spec.Rate < 0 {
		return Result{}, fmt.Errorf("datagrams of %d bytes at %g a second asked for; want %d to %d bytes", spec.Size, spec.Rate, numberSize, maxDatagram)
	}
	if ends.ListenPacket == nil || ends.DialPacket == nil {
		return Result{}, errors.New("the subject carries no UDP")
	}
	w := newWorkers()
	defer w.close()
	if err := wake(ctx, ends); err != nil {
		return Result{}, err
	}
	in, err := ends.ListenPacket()
	if err != nil {
		return Result{}, fmt.Errorf("listen for packets: %w", err)
	}
	w.own(in)
	out, err := ends.DialPacket(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("dial for packets: %w", err)
	}
	w.own(out)
	f := &flood{}
	f.to.Store(math.MaxUint64)
	w.Go(func() { f.receive(w, in) })
	w.Go(func() { f.send(w, out, spec) })
	return f.measure(spec, w)
}

// flood is the state of a run. Numbers are sequence numbers, from 0.
type flood struct {
	sent            atomic.Uint64 // the next number
	arrived         atomic.Uint64
	bytes           atomic.Uint64
	late            atomic.Uint64 // arrived after one with a greater number
	from, to        atomic.Uint64 // numbers sent in the window
	arrivedOfWindow atomic.Uint64
	ended           atomic.Bool // nothing more is sent
}

// measure meters the run, then waits for packets in flight.
func (f *flood) measure(spec Spec, w *workers) (Result, error) {
	var arrived, late [2]uint64
	look := 0
	r, err := Measure(spec, func() []uint64 {
		if look == 0 {
			f.from.Store(f.sent.Load())
			f.arrivedOfWindow.Store(0)
		} else {
			f.to.Store(f.sent.Load())
		}
		arrived[look], late[look] = f.arrived.Load(), f.late.Load()
		look++
		return []uint64{f.bytes.Load()}
	}, w.failed)
	if err != nil {
		return Result{}, err
	}
	f.ended.Store(true)
	for until, before := time.Now().Add(afterwards), uint64(math.MaxUint64); f.arrived.Load() != before && time.Now().Before(until); {
		before = f.arrived.Load()
		if err := wait(quiet, w.failed, nil); err != nil {
			return Result{}, err
		}
	}
	sent, came := f.to.Load()-f.from.Load(), arrived[1]-arrived[0]
	r.with(map[string]float64{
		UnitPackets: float64(came) / r.Seconds,
		UnitSent:    float64(sent) / r.Seconds,
	})
	if sent > 0 {
		// The reset at the window's beginning is not exact to the packet.
		r.Values[UnitLost] = max(0, 1-float64(f.arrivedOfWindow.Load())/float64(sent))
	}
	if came > 0 {
		r.Values[UnitReordered] = float64(late[1]-late[0]) / float64(came)
	}
	return r, nil
}

func (f *flood) receive(w *workers, in net.PacketConn) {
	packet := make([]byte, maxDatagram)
	next := uint64(0)
	for {
		n, _, err := in.ReadFrom(packet)
		if err != nil {
			w.fail("receive packets", err)
			return
		}
		if n < numberSize {
			w.fail("receive packets", fmt.Errorf("one of %d bytes, which was not sent", n))
			return
		}
		number := binary.BigEndian.Uint64(packet)
		f.arrived.Add(1)
		f.bytes.Add(uint64(n))
		if number >= f.from.Load() && number < f.to.Load() {
			f.arrivedOfWindow.Add(1)
		}
		if number < next {
			f.late.Add(1)
		}
		next = max(next, number+1)
	}
}

func (f *flood) send(w *workers, out net.Conn, spec Spec) {
	packet := make([]byte, spec.Size)
	last, due := time.Now(), 0.0 // due is the number of packets that are due and not sent yet
	for !f.ended.Load() && !w.closing.Load() {
		burst := 1
		if spec.Rate > 0 {
			time.Sleep(pace)
			now := time.Now()
			due += spec.Rate * min(now.Sub(last), behind).Seconds()
			burst, last = int(due), now
			due -= float64(burst)
		}
		for range burst {
			binary.BigEndian.PutUint64(packet, f.sent.Add(1)-1)
			// A packet that a full queue refuses is lost, like one that it drops.
			if _, err := out.Write(packet); err != nil && !errors.Is(err, syscall.ENOBUFS) {
				w.fail("send packets", err)
				return
			}
		}
	}
}
