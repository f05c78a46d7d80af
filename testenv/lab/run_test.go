package lab

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

func TestAStepThatFailsEndsTheScenario(t *testing.T) {
	fault := errors.New("the moon is in the way")
	l := &Lab{scenario: Scenario{play: func(*Lab) []step {
		return []step{
			{"good", "waits", func(context.Context) (string, error) { return "came", nil }},
			{"bad", "waits", func(context.Context) (string, error) { return "nearly", fault }},
			{"never", "waits", func(context.Context) (string, error) {
				t.Error("a step ran after one that failed")
				return "", nil
			}},
		}
	}}}
	var told []string
	err := l.Run(t.Context(), Progress{
		Begin: func(name, _ string) { told = append(told, "begin "+name) },
		End: func(s api.LabStep) {
			if s.OK != (s.Name == "good") {
				t.Errorf("step %s: ok is %v", s.Name, s.OK)
			}
			told = append(told, "end "+s.Name+" "+s.Detail)
		},
	})
	if !errors.Is(err, fault) {
		t.Errorf("got error %v, want %v", err, fault)
	}
	want := []string{"begin good", "end good came", "begin bad", "end bad " + fault.Error()}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestScenariosHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Scenarios() {
		if seen[s.Name] || s.Name == "" || s.Summary == "" || strings.Contains(s.Summary, "\n") {
			t.Errorf("scenario %q, %q: want a unique name and one line", s.Name, s.Summary)
		}
		seen[s.Name] = true
	}
	if first := Scenarios()[0].Name; first != DefaultScenario {
		t.Errorf("the first is %s, want the default, %s", first, DefaultScenario)
	}
}

// forwarder forwards connections to an echo server.
type forwarder struct {
	listener net.Listener
	running  sync.WaitGroup
}

// forward starts a forwarder; back copies what the echo server sends.
func forward(t *testing.T, to string, back func(client, server net.Conn)) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{listener: l}
	f.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			f.running.Go(func() { _, _ = io.Copy(server, client); server.Close() })
			f.running.Go(func() { back(client, server); client.Close(); server.Close() })
		}
	})
	t.Cleanup(func() {
		l.Close()
		f.running.Wait()
	})
	return l.Addr().String()
}

func echoed(t *testing.T, back func(client, server net.Conn)) *transfer {
	t.Helper()
	e, err := startEcho(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return startTransfer(forward(t, e.listener.Addr().String(), back))
}

func TestTheTransferNoticesAWrongByte(t *testing.T) {
	tr := echoed(t, func(client, server net.Conn) {
		b := make([]byte, 3*blockSize)
		if _, err := io.ReadFull(server, b); err != nil {
			return
		}
		b[2*blockSize+77] ^= 1
		_, _ = client.Write(b)
		_, _ = io.Copy(client, server)
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := tr.flows(ctx); !errors.Is(err, errDiffers) {
		t.Errorf("flows: got %v, want %v", err, errDiffers)
	}
	if err := tr.Close(); !errors.Is(err, errDiffers) {
		t.Errorf("close: got %v, want %v", err, errDiffers)
	}
}

func TestTheTransferGoesOnAfterALostConnection(t *testing.T) {
	var once sync.Once
	tr := echoed(t, func(client, server net.Conn) {
		lost := false
		once.Do(func() { lost = true })
		if lost { // in the middle of the third block
			_, _ = io.CopyN(client, server, 2*blockSize+100)
			return
		}
		_, _ = io.Copy(client, server)
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := tr.flows(ctx); err != nil {
		t.Error(err)
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if n, connections, _ := tr.progress(); connections < 2 || n < flow {
		t.Errorf("%d bytes over %d connections, want at least %d over 2 or more", n, connections, int64(flow))
	}
}
