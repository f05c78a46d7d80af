package admin

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/patience"
)

// A stopped process accepts connections and does not answer. A client must not wait longer than a
// gateway may take.
func TestAGatewayThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClientVia("s", func(context.Context) (net.Conn, error) {
			time.Sleep(time.Hour) // the time to connect does not count
			here, there := net.Pipe()
			go func() { // read everything
				b := make([]byte, 4096)
				for err := error(nil); err == nil; {
					_, err = there.Read(b)
				}
			}()
			t.Cleanup(func() { _ = there.Close() })
			return here, nil
		})
		defer c.Close()
		for _, q := range []struct {
			ask   func() error
			after time.Duration
		}{
			{func() error { _, err := c.Status(t.Context()); return err }, answerTime},
			{func() error {
				_, err := c.Join(t.Context(), api.JoinRequest{Wait: api.Duration(time.Minute)})
				return err
			}, answerTime + time.Minute},
			{func() error { _, err := c.KeyRotate(t.Context(), api.KeyRotateRequest{}); return err }, answerTime + api.DefaultWait},
		} {
			start := time.Now()
			err := q.ask()
			if !errors.Is(err, ErrNoGateway) || !errors.Is(err, ErrSilent) || !strings.Contains(err.Error(), "says nothing for "+q.after.String()) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(start) - time.Hour; took != q.after {
				t.Errorf("given up after %s, want %s", took, q.after)
			}
		}
	})
}

func TestAGatewayThatStartsIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.sock")
	asked := make(chan error, 1)
	go func() { _, err := NewPatientClient(path, patience.Left()).Status(within(t)); asked <- err }()
	if _, err := NewClient(path).Status(within(t)); !errors.Is(err, ErrNoGateway) {
		t.Errorf("one who does not wait: got %v, want ErrNoGateway", err)
	}
	s, err := Listen(ServerOptions{Socket: path, Backend: &fake{}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // The test is over.
	if err := <-asked; err != nil {
		t.Error(err)
	}
	start := time.Now()
	if _, err := NewPatientClient(path+"-absent", time.Second).Status(within(t)); !errors.Is(err, ErrNoGateway) || time.Since(start) < time.Second-2*dialPause {
		t.Errorf("after %s: got %v, want ErrNoGateway after a second", time.Since(start), err)
	}
}
