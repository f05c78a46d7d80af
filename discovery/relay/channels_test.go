package relay

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"
)

var (
	somebody = netip.MustParseAddrPort("192.0.2.9:51820")
	epoch    = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// datagram returns a datagram with room for a channel's header.
func datagram(size int) []byte {
	return append(make([]byte, channelHeader), bytes.Repeat([]byte{7}, size)...)
}

// grantAll grants everything that is due.
func grantAll(c *channels, now time.Time) (asked []bind) {
	asked, _ = c.due(now)
	for _, b := range asked {
		c.answered(now, b, true)
	}
	return asked
}

func TestAChannelIsAskedForWhenItPays(t *testing.T) {
	c := newChannels(false, netip.Addr{})
	for n := range channelAfter {
		if ask, _ := c.due(epoch); len(ask) != 0 {
			t.Fatalf("after %d datagrams: asked for %v", n, ask)
		}
		m, err := parse(c.frame(datagram(5), somebody, false))
		if err != nil || m.class != classIndication || m.method != methodSend || m.peer != somebody || !bytes.Equal(m.data, bytes.Repeat([]byte{7}, 5)) {
			t.Fatalf("without a channel: sent %+v, %v", m, err)
		}
	}
	asked := grantAll(c, epoch)
	if len(asked) != 1 || asked[0].addr != somebody || asked[0].number < firstChannel || asked[0].number >= firstChannel+allChannels {
		t.Fatalf("asked for %v, want one channel", asked)
	}
	for _, stream := range []bool{false, true} {
		b := c.frame(datagram(5), somebody, stream)
		number, payload, ok := readChannelData(b)
		if !ok || number != asked[0].number || !bytes.Equal(payload, bytes.Repeat([]byte{7}, 5)) || (len(b)%4 == 0) != stream {
			t.Errorf("over a channel (stream: %v): sent % x", stream, b)
		}
	}
	if from, ok := c.source(asked[0].number); !ok || from != somebody {
		t.Errorf("the channel's data are from %v, %v", from, ok)
	}
	if _, ok := c.source(asked[0].number ^ 1); ok {
		t.Error("a channel that is not bound has a source")
	}
}

// The server sends on a channel as soon as it has granted it, perhaps before its answer was
// handled.
func TestWhatComesByAChannelThatIsAskedForIsRead(t *testing.T) {
	for _, adopted := range []bool{false, true} {
		c := newChannels(adopted, netip.Addr{})
		for range channelAfter {
			c.want(somebody)
		}
		asked, _ := c.due(epoch)
		if from, ok := c.source(asked[0].number); ok == adopted || ok && from != somebody {
			t.Errorf("while it is asked for (adopted: %v) its data are from %v, %v", adopted, from, ok)
		}
		if m, err := parse(c.frame(datagram(5), somebody, false)); err != nil || m.method != methodSend {
			t.Errorf("while it is asked for: sent %+v, %v", m, err)
		}
		c.answered(epoch, asked[0], false)
		if from, ok := c.source(asked[0].number); ok {
			t.Errorf("after it was refused (adopted: %v) its data are from %v", adopted, from)
		}
	}
}

// On an adopted allocation an address is also requested with channel numbers of unknown meaning.
func TestARefusalOfAnotherNumberLeavesAChannelsOwn(t *testing.T) {
	c := newChannels(true, netip.Addr{})
	for range channelAfter {
		c.want(somebody)
	}
	own, _ := c.due(epoch)
	c.unanswered(epoch, own[0])
	c.answered(epoch, bind{own[0].number ^ 1, somebody}, false)
	_, next := c.due(epoch)
	if again := grantAll(c, next); len(again) != 1 || again[0] != own[0] {
		t.Errorf("asked for %v, want %v", again, own)
	}
}

// It may have been granted all the same, and then only that number works for the address.
func TestAChannelWithoutAnAnswerIsAskedForAgain(t *testing.T) {
	c := newChannels(false, netip.Addr{})
	for range channelAfter {
		c.want(somebody)
	}
	first, _ := c.due(epoch)
	c.unanswered(epoch, first[0])
	if from, ok := c.source(first[0].number); !ok || from != somebody {
		t.Errorf("its data are from %v, %v", from, ok)
	}
	_, next := c.due(epoch)
	if next.Sub(epoch) != permissionRetry {
		t.Fatalf("it is asked for again in %v, want %v", next.Sub(epoch), permissionRetry)
	}
	now := next
	for _, pause := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute} {
		again, _ := c.due(now)
		if len(again) != 1 || again[0] != first[0] {
			t.Fatalf("asked for %v, want %v again", again, first)
		}
		c.unanswered(now, again[0])
		if _, next = c.due(now); next.Sub(now) != pause {
			t.Errorf("it is asked for again in %v, want %v", next.Sub(now), pause)
		}
		now = next
	}
	if again := grantAll(c, now); len(again) != 1 || again[0] != first[0] {
		t.Errorf("asked for %v, want %v again", again, first)
	}
	if _, payload, ok := readChannelData(c.frame(datagram(5), somebody, false)); !ok || len(payload) != 5 {
		t.Error("it is not used once it is granted")
	}
}

func TestAChannelLastsWhileItIsUsed(t *testing.T) {
	c := newChannels(false, netip.Addr{})
	for range channelAfter {
		c.want(somebody)
	}
	number := grantAll(c, epoch)[0].number
	now := epoch
	for range 5 {
		c.frame(datagram(1), somebody, false)
		_, next := c.due(now)
		if d := next.Sub(now); d != channelRefresh {
			t.Fatalf("the next look is in %v, want %v", d, channelRefresh)
		}
		now = next
		if asked := grantAll(c, now); len(asked) != 1 || asked[0].number != number {
			t.Fatalf("asked for %v, want channel %d again", asked, number)
		}
	}
	// No longer used: it ends here before the server ends it, and its number rests.
	if asked := grantAll(c, now.Add(channelRefresh)); len(asked) != 0 {
		t.Errorf("an unused channel is asked for: %v", asked)
	}
	if asked := grantAll(c, now.Add(channelLifetime)); len(asked) != 0 {
		t.Errorf("an ended channel is asked for: %v", asked)
	}
	if b := c.frame(datagram(1), somebody, false); b[0]&0xc0 != 0 {
		t.Errorf("an ended channel is used: % x", b)
	}
	if _, ok := c.source(number); ok {
		t.Error("an ended channel has a source")
	}
	c.due(now.Add(channelRest))
	for range channelAfter {
		c.want(somebody)
	}
	if asked := grantAll(c, now.Add(channelRest)); len(asked) != 1 {
		t.Errorf("after its rest: asked for %v, want one channel", asked)
	}
}

func TestARefusedChannelIsAskedForLater(t *testing.T) {
	c := newChannels(false, netip.Addr{})
	for range channelAfter {
		c.want(somebody)
	}
	asked, _ := c.due(epoch)
	c.answered(epoch, asked[0], false)
	again, next := c.due(epoch)
	if len(again) != 0 || next != epoch.Add(channelRetry) {
		t.Fatalf("asked for %v, next %v", again, next)
	}
	if again, _ = c.due(next); len(again) != 1 || again[0].number == asked[0].number {
		t.Errorf("asked for %v, want another number than %d", again, asked[0].number)
	}
}

// TestChannelsOfBeforeAreFoundOut adopts an allocation with a channel of which only the number is
// seen.
func TestChannelsOfBeforeAreFoundOut(t *testing.T) {
	c := newChannels(true, netip.Addr{})
	const number = 0x4123
	if _, ok := c.source(number); ok {
		t.Fatal("a strange channel has a source")
	}
	if asked, _ := c.due(epoch); len(asked) != 0 {
		t.Errorf("asked for %v with no address to ask about", asked)
	}
	c.want(somebody)
	asked := grantAll(c, epoch)
	if len(asked) != 1 || asked[0] != (bind{number, somebody}) {
		t.Fatalf("asked for %v, want channel %d for %v", asked, number, somebody)
	}
	if from, ok := c.source(number); !ok || from != somebody {
		t.Errorf("its source is %v, %v", from, ok)
	}
	for n := range uint16(1000) { // forging the server's address costs no memory
		c.source(firstChannel + n)
	}
	if len(c.strange) > maxStrange {
		t.Errorf("%d strange channels are kept", len(c.strange))
	}
}

// A search probes all ports of the relay twice. That costs neither memory nor channels, and the
// peer's port gets a channel once it is heard.
func TestPortsBesideOursGetNoChannelUntilTheyAreHeard(t *testing.T) {
	c := newChannels(false, somebody.Addr())
	for range channelAfter {
		for port := range uint16(1000) {
			m, err := parse(c.frame(datagram(5), netip.AddrPortFrom(somebody.Addr(), port+1), false))
			if err != nil || m.method != methodSend {
				t.Fatalf("sent %+v, %v", m, err)
			}
		}
	}
	if asked, _ := c.due(epoch); len(asked) != 0 || len(c.all) != 0 {
		t.Fatalf("asked for %d channels and remembers %d addresses, want none", len(asked), len(c.all))
	}
	c.heard(netip.AddrPortFrom(netip.MustParseAddr("192.0.2.10"), 1)) // needs no hearing
	c.heard(somebody)
	if asked, _ := c.due(epoch); len(asked) != 0 || len(c.all) != 1 {
		t.Fatalf("asked for %v and remembers %d addresses, want no channel before it pays and one address", asked, len(c.all))
	}
	for range channelAfter {
		c.frame(datagram(5), somebody, false)
	}
	if asked := grantAll(c, epoch); len(asked) != 1 || asked[0].addr != somebody {
		t.Errorf("asked for %v, want one channel for %v", asked, somebody)
	}
	c.heard(somebody)
	if len(c.bound.Load().out) != 1 {
		t.Error("the channel is gone when its address is heard again")
	}
}

func TestAddressesAreBounded(t *testing.T) {
	c := newChannels(false, netip.Addr{})
	for n := range uint16(10 * maxAddrs) {
		c.want(netip.AddrPortFrom(somebody.Addr(), n+1))
	}
	if len(c.all) > maxAddrs {
		t.Errorf("%d addresses are kept, want at most %d", len(c.all), maxAddrs)
	}
}

func TestChannelDataOfAnyLengthIsRead(t *testing.T) {
	for _, c := range []struct {
		name string
		b    []byte
		ok   bool
		size int
	}{
		{"empty", nil, false, 0},
		{"half a header", []byte{0x40, 0, 0}, false, 0},
		{"no data", []byte{0x40, 0, 0, 0}, true, 0},
		{"padded", []byte{0x40, 0, 0, 1, 7, 0, 0, 0}, true, 1},
		{"cut short", []byte{0x40, 0, 0, 3, 7, 7}, false, 0},
		{"longest", append(binary.BigEndian.AppendUint16([]byte{0x40, 0}, 0xffff), make([]byte, 0xffff)...), true, 0xffff},
	} {
		if _, payload, ok := readChannelData(c.b); ok != c.ok || len(payload) != c.size {
			t.Errorf("%s: got %d bytes, %v", c.name, len(payload), ok)
		}
	}
}
