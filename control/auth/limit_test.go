package auth

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestEachPeerHasItsOwnRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, nil)
		s.dir.set(Caller{Name: "berlin", PublicKey: berlinKey})
		for i := range requestBurst {
			if _, err := s.client(edgeKey).Hello(t.Context()); err != nil {
				t.Fatalf("request %d: %v", i+1, err)
			}
		}
		_, err := s.client(edgeKey).Hello(t.Context())
		var answer *Error
		if !errors.Is(err, ErrRateLimited) || !errors.As(err, &answer) || answer.RetryAfter != time.Second {
			t.Fatalf("after the burst: got %#v, want %v, to come back in 1s", err, ErrRateLimited)
		}
		if _, err := s.client(berlinKey).Hello(t.Context()); err != nil {
			t.Errorf("another peer: %v", err)
		}
		time.Sleep(answer.RetryAfter) // virtual
		if _, err := s.client(edgeKey).Hello(t.Context()); err != nil {
			t.Errorf("when it was told to come back: %v", err)
		}
		time.Sleep(2 * forgetAfter)
		if _, err := s.client(berlinKey).Hello(t.Context()); err != nil {
			t.Error(err)
		}
		if n := len(s.srv.limits.peers); n != 1 {
			t.Errorf("%d peers are remembered after a while, want 1", n)
		}
		s.stop()
	})
}

// A peer chooses its keys, and announces each by the one before. What it may request does not depend
// on how many it has had.
func TestAnotherKeyIsNoOtherAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rotated := 0
		s := serve(t, func(o *ServerOptions) {
			o.OnRotation = func(context.Context, Announcement) error { rotated++; return nil }
		})
		key := edgeKey
		for n := range byte(10) {
			next := peer.PublicKey{42, n}
			if err := s.client(key).Rotate(t.Context(), Announcement{Next: next}); err != nil && !errors.Is(err, ErrRateLimited) {
				t.Fatalf("rotation %d: %v", n+1, err)
			}
			key = next
			s.dir.set(Caller{Name: edge.Name, PublicKey: key, Grants: edge.Grants})
		}
		if rotated != rotationBurst {
			t.Errorf("%d rotations in a row, each by the key before, want %d", rotated, rotationBurst)
		}
		if n := len(s.srv.limits.peers); n != 1 {
			t.Errorf("%d allowances of one peer are remembered", n)
		}
		s.stop()
	})
}

// Catalogues sent too fast do not use up the peer's allowance for other requests.
func TestACatalogueTakesNothingOfOtherRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var taken atomic.Int64
		s := serve(t, func(o *ServerOptions) {
			o.OnServices = func(peer.PublicKey, []byte) (string, error) { taken.Add(1); return mcs.Nothing, nil }
		})
		for i := range 3 * requestBurst {
			_, err := s.client(edgeKey).Services(t.Context(), mcs.Message{})
			if want := i >= servicesBurst; want != errors.Is(err, ErrRateLimited) || !want && err != nil {
				t.Fatalf("message %d: %v", i+1, err)
			}
		}
		for i := range requestBurst - servicesBurst {
			if _, err := s.client(edgeKey).Hello(t.Context()); err != nil {
				t.Fatalf("hello %d: %v", i+1, err)
			}
		}
		if n := taken.Load(); n != servicesBurst {
			t.Errorf("%d messages are taken", n)
		}
		s.stop()
	})
}

func TestOnePeerCannotTakeAllTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := serve(t, func(o *ServerOptions) {
			o.Redeemer = redeemer(func(peer.PublicKey, ticket.Request) (ticket.Grant, error) {
				<-release
				return ticket.Grant{}, ticket.ErrAlreadyUsed
			})
		})
		s.dir.set(Caller{PublicKey: ticketKey, Kind: KindOneTime})
		errs := make(chan error, peerConcurrency+1)
		for range peerConcurrency + 1 {
			go func() {
				_, err := s.client(ticketKey).Redeem(context.Background(), ticket.Request{PublicKey: edgeKey, Name: "edge"})
				errs <- err
			}()
		}
		if err := <-errs; !errors.Is(err, ErrRateLimited) {
			t.Errorf("one too many: got %v, want %v", err, ErrRateLimited)
		}
		if _, err := s.client(edgeKey).Hello(t.Context()); err != nil {
			t.Errorf("another peer meanwhile: %v", err)
		}
		close(release)
		for range peerConcurrency {
			if err := <-errs; !errors.Is(err, ticket.ErrAlreadyUsed) {
				t.Errorf("one of those that had a turn: %v", err)
			}
		}
		s.stop()
	})
}

func TestSlowCallersAreCutOff(t *testing.T) {
	for _, c := range []struct {
		name, sent string
		within     time.Duration
	}{
		{"nothing sent", "", headerTimeout},
		{"half a header", "GET /v1/hello HTTP/1.1\r\nHost: ", headerTimeout},
		{"half a body", "POST /v1/redeem HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{", readTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, func(o *ServerOptions) { o.Redeemer = redeemer(nil) })
				s.dir.set(Caller{PublicKey: ticketKey, Kind: KindOneTime})
				conn, err := s.net.dialFrom(peer.OverlayAddr(ticketKey))(t.Context(), "tcp", "")
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				if _, err := io.WriteString(conn, c.sent); err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, conn); err != nil {
					t.Errorf("waiting for the end: %v", err)
				}
				if took := time.Since(start); took > c.within+time.Second {
					t.Errorf("cut off after %v, want %v", took, c.within)
				}
				_ = conn.Close()
				s.stop()
			})
		})
	}
}

// Nothing is answered besides the table, not even what net/http answers without asking a handler.
func TestTheServerInGeneralAnswersNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, nil)
		stock := peer.PublicKey{5}
		s.dir.set(Caller{Name: "router", PublicKey: stock, Kind: KindStock})
		for _, c := range []struct {
			key    peer.PublicKey
			status string
		}{{edgeKey, "404 Not Found"}, {stock, "404 Not Found"}, {peer.PublicKey{99}, "403 Forbidden"}} {
			conn, err := s.net.dialFrom(peer.OverlayAddr(c.key))(t.Context(), "tcp", "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(conn)
			if status, _, _ := strings.Cut(string(answer), "\r\n"); err != nil || status != "HTTP/1.1 "+c.status {
				t.Errorf("%v is answered %q, %v, want %s", c.key, status, err, c.status)
			}
			_ = conn.Close()
		}
		s.stop()
	})
}

func TestConnectionsPerPeerAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, nil)
		s.dir.set(Caller{Name: "berlin", PublicKey: berlinKey})
		var open []net.Conn
		dial := s.net.dialFrom(peer.OverlayAddr(edgeKey))
		for range peerConns {
			c, err := dial(t.Context(), "tcp", "")
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
		extra, err := dial(t.Context(), "tcp", "")
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := extra.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(start) > 0 {
			t.Errorf("connection %d: got %v after %v, want it closed at once", peerConns+1, err, time.Since(start))
		}
		if _, err := s.client(berlinKey).Hello(t.Context()); err != nil {
			t.Errorf("another peer: %v", err)
		}
		for _, c := range open {
			_ = c.Close()
		}
		synctest.Wait()
		if _, err := s.client(edgeKey).Hello(t.Context()); err != nil {
			t.Errorf("after the others were closed: %v", err)
		}
		_ = extra.Close()
		s.stop()
	})
}
