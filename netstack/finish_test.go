package netstack

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// Once Finish has returned on the other side, whose stack may be gone then, the side that closed
// first has nothing to retransmit.
func TestFinishLeavesTheOtherSideNothingToSend(t *testing.T) {
	for name, imp := range map[string]impairment{"clean": {}, "loss and reordering": {loss: 0.1, reorder: 0.1, seed: 5}} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				p := newPair(t, Options{}, Options{}, imp)
				client, server := p.connect(t, b6)
				if _, err := server.Write([]byte("an answer that nobody reads")); err != nil {
					t.Fatal(err)
				}
				entry, over := waiter.NewChannelEntry(waiter.EventHUp)
				server.wq.EventRegister(&entry)
				server.Close()
				if err := client.Finish(t.Context()); err != nil {
					t.Fatal(err)
				}
				p.a.Close()
				<-over
				if got := tcp.EndpointState(server.ep.State()); got != tcp.StateTimeWait {
					t.Errorf("the server's end is in state %v, want %v", got, tcp.StateTimeWait)
				}
				if _, err := client.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
					t.Errorf("reading after Finish gives %v, want %v", err, net.ErrClosed)
				}
			}
		})
	}
}

// A side that has ended its own stream before closes first, and may be done before it waits.
// Several may finish a connection.
func TestFinishAfterCloseWrite(t *testing.T) {
	p := newPair(t, Options{}, Options{}, impairment{})
	for range 20 {
		client, server := p.connect(t, b6)
		if err := client.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := client.Finish(t.Context()); err != nil && !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
			})
		}
		server.Close()
		wg.Wait()
		if err := client.Finish(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("finishing what is closed gives %v, want %v", err, net.ErrClosed)
		}
	}
}

func TestFinishGivesUp(t *testing.T) {
	p := newPair(t, Options{}, Options{}, impairment{})
	t.Run("with its context", func(t *testing.T) {
		client, server := p.connect(t, b6)
		defer server.Close() // not before: the client waits in vain
		ctx, cancel := context.WithCancel(t.Context())
		finished := make(chan error)
		go func() { finished <- client.Finish(ctx) }()
		cancel()
		if err := <-finished; !errors.Is(err, context.Canceled) {
			t.Errorf("Finish gives %v, want %v", err, context.Canceled)
		}
		if _, err := client.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("writing afterwards gives %v, want %v", err, net.ErrClosed)
		}
	})
	t.Run("with the connection", func(t *testing.T) {
		client, server := p.connect(t, b6)
		server.Abort()
		if err := client.Finish(t.Context()); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("Finish gives %v, want %v", err, syscall.ECONNRESET)
		}
	})
	t.Run("with the stack", func(t *testing.T) {
		client, server := p.connect(t, b6)
		defer server.Close()
		finished := make(chan error)
		go func() { finished <- client.Finish(t.Context()) }()
		p.a.Close()
		if err := <-finished; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Finish gives %v, want %v", err, net.ErrClosed)
		}
	})
}
