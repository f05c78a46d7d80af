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

// pathArg makes the test's program a forwarder.
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

// patience bounds waiting; it only matters when something is broken.
const patience = 90 * time.Second

// serve runs a forwarder in this process, and returns its address and what ends it.
func serve(t *testing.T, p Path) (at string, stop func() Traffic) {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	until, end := io.Pipe()
	out, in := io.Pipe()
	served := make(chan error, 1)
	go func() {
		err := Serve(context.Background(), string(text), until, in)
		in.CloseWithError(errors.Join(err, io.EOF))
		served <- err
	}()
	lines := json.NewDecoder(out)
	var r ready
	if err := lines.Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r.Address.String(), func() Traffic {
		end.Close()
		var traffic Traffic
		if err := lines.Decode(&traffic); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		return traffic
	}
}

// dial is an end.
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
	at, stop := serve(t, Path{RTT: rtt, Rate: 1e9})
	a, b, stranger := dial(t, at), dial(t, at), dial(t, at)
	send(t, a, "one") // Waits until there is another end.
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
			t.Errorf("the first arrived after %s, sooner than half the round-trip time", took)
		}
	}
	traffic := stop()
	if f, b := traffic.Forward, traffic.Backward; f.Forwarded != 102 || b.Forwarded != 1 || f.Lost+f.Overflow+b.Lost+b.Overflow != 0 {
		t.Errorf("got %+v, want 102 packets forward and 1 backward", traffic)
	}
	if traffic.Missed != 0 || traffic.CPU <= 0 {
		t.Errorf("got %+v, want nothing missed and some processor time", traffic)
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
	_, err := Start(t.Context(), []string{"sh", "-c", "echo no path today >&2; exit 3"}, Path{Rate: 1})
	if err == nil || !strings.Contains(err.Error(), "no path today") {
		t.Errorf("got %v, want what the program said", err)
	}
	if _, err := Start(t.Context(), []string{"/nonexistent/forwarder"}, Path{Rate: 1}); err == nil {
		t.Error("a program that is not there: got no error")
	}
}
