package wan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// pathArg makes the test binary a forwarder.
const pathArg = "-serve-path"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == pathArg {
		if err := Serve(context.Background(), os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// patience bounds all waits. It only matters if something is broken.
const patience = 90 * time.Second

// served is a forwarder in this process, for tunnels that share a path.
type served struct {
	at  []string
	ask func() Traffic
	end func() Traffic
}

func serve(t *testing.T, p Path, tunnels int) served {
	t.Helper()
	text, err := json.Marshal(plan{p, tunnels})
	if err != nil {
		t.Fatal(err)
	}
	until, end := io.Pipe()
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := Serve(context.Background(), string(text), until, in)
		in.CloseWithError(errors.Join(err, io.EOF))
		done <- err
	}()
	lines := json.NewDecoder(out)
	var r ready
	if err := lines.Decode(&r); err != nil {
		t.Fatal(err)
	}
	traffic := func() (got Traffic) {
		if err := lines.Decode(&got); err != nil {
			t.Error(err)
		}
		return got
	}
	s := served{
		ask: func() Traffic {
			if _, err := io.WriteString(end, "\n"); err != nil {
				t.Error(err)
			}
			return traffic()
		},
		end: func() Traffic {
			end.Close()
			defer func() {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}()
			return traffic()
		},
	}
	for _, at := range r.Addresses {
		s.at = append(s.at, at.String())
	}
	return s
}

// dial returns an end.
func dial(t *testing.T, at string) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "udp4", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, c net.Conn, want string) {
	t.Helper()
	b := make([]byte, 2048)
	n, err := c.Read(b)
	if err != nil {
		t.Fatalf("waiting for %q: %v", want, err)
	}
	if got := string(b[:n]); got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestDatagramsPassBetweenTheFirstTwo(t *testing.T) {
	const rtt = 30 * time.Millisecond
	s := serve(t, Path{RTT: rtt, Rate: 1e9}, 1)
	a, b, stranger := dial(t, s.at[0]), dial(t, s.at[0]), dial(t, s.at[0])
	send(t, a, "one") // waits until there is another end
	send(t, a, "two!")
	send(t, b, "back")
	expect(t, b, "one")
	expect(t, b, "two!")
	expect(t, a, "back")
	send(t, stranger, "who, me?")
	began := time.Now()
	for i := range 100 {
		send(t, a, strings.Repeat("x", 100+i))
	}
	for i := range 100 {
		expect(t, b, strings.Repeat("x", 100+i))
		if took := time.Since(began); i == 0 && took < rtt/2-tick {
			t.Errorf("the first packet arrived after %s, less than half the round-trip time", took)
		}
	}
	traffic := s.end()
	if f, b := traffic.Tunnels[0].Forward, traffic.Tunnels[0].Backward; f.Forwarded != 102 || b.Forwarded != 1 || f.Lost+f.Overflow+b.Lost+b.Overflow != 0 {
		t.Errorf("got %+v, want 102 packets forward and 1 backward", traffic)
	}
	if traffic.Missed != 0 || traffic.CPU <= 0 {
		t.Errorf("got %+v, want none missed and some processor time", traffic)
	}
}

// Two tunnels share the path: each one's packets delay those of the other, and only reach its own
// other end.
func TestTunnelsShareThePath(t *testing.T) {
	const size, packets = 1222, 80 // 1,250 bytes on the wire: 10 ms at 1 Mbit/s.
	s := serve(t, Path{Rate: 1e6, Queue: time.Minute}, 2)
	var ends [2][2]net.Conn
	for i, at := range s.at {
		ends[i] = [2]net.Conn{dial(t, at), dial(t, at)}
		send(t, ends[i][0], "hello")
		send(t, ends[i][1], "hello")
		expect(t, ends[i][1], "hello")
		expect(t, ends[i][0], "hello")
	}
	began := time.Now()
	for range packets {
		send(t, ends[0][0], strings.Repeat("x", size))
	}
	send(t, ends[1][0], "after you")
	expect(t, ends[1][1], "after you")
	// The forwarder reads its sockets in turn. If it is delayed, it may take this packet behind
	// only one of the others.
	if took, least := time.Since(began), 10*time.Millisecond; took < least {
		t.Errorf("the other tunnel's packet took %s, want %s and more behind the queue", took, least)
	}
	for range packets {
		expect(t, ends[0][1], strings.Repeat("x", size))
	}
	asked, last := s.ask(), s.end()
	for _, traffic := range []Traffic{asked, last} {
		one, two := traffic.Tunnels[0], traffic.Tunnels[1]
		if one.Forward.Forwarded != packets+1 || two.Forward.Forwarded != 2 || one.Backward.Forwarded != 1 || two.Backward.Forwarded != 1 {
			t.Errorf("got %+v, want %d and 2 packets forward, 1 and 1 back", traffic, packets+1)
		}
	}
}

// Which end speaks first is random: forward is from the one that sends large packets.
func TestForwardIsFromTheEndThatSends(t *testing.T) {
	s := serve(t, Path{RTT: time.Millisecond, Rate: 1e9}, 1)
	a, b := dial(t, s.at[0]), dial(t, s.at[0])
	send(t, a, "a keepalive")
	send(t, b, "hello")
	expect(t, b, "a keepalive")
	expect(t, a, "hello")
	for range 3 {
		send(t, b, strings.Repeat("x", fullSize))
		expect(t, a, strings.Repeat("x", fullSize))
	}
	send(t, a, "acknowledged")
	expect(t, b, "acknowledged")
	traffic := s.end().Tunnels[0]
	if f, b := traffic.Forward.Forwarded, traffic.Backward.Forwarded; f != 4 || b != 2 {
		t.Errorf("%d packets forward and %d back, want 4 and 2", f, b)
	}
}

func TestServeRefusesWhatMakesNoSense(t *testing.T) {
	for _, text := range []string{"", "{}", `{"rateBitsPerSecond":-1}`} {
		if err := Serve(t.Context(), text, strings.NewReader(""), io.Discard); err == nil {
			t.Errorf("Serve(%q): got no error", text)
		}
	}
}

func TestStartSaysWhyItFailed(t *testing.T) {
	_, err := Start(t.Context(), []string{"sh", "-c", "echo no path today >&2; exit 3"}, Path{Rate: 1}, 1)
	if err == nil || !strings.Contains(err.Error(), "no path today") {
		t.Errorf("got %v, want the program's output", err)
	}
	if _, err := Start(t.Context(), []string{"/nonexistent/forwarder"}, Path{Rate: 1}, 1); err == nil {
		t.Error("missing program: got no error")
	}
}
