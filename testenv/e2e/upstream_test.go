//go:build linux && e2e

package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/netlab"
)

// The named service that tests use through the tunnel: an HTTP server on the loopback of the
// gateway that offers it, and a listener on the loopback of the one that uses it.
const (
	blobService  = "blob"
	blobPort     = 8000 // inside the tunnel
	blobUpstream = "127.0.0.1:8000"
	blobLocal    = "127.0.0.1:8001"
)

// blobServer answers GET / with its name, and GET /stream with bytes as long as the client reads.
func blobServer(t *testing.T, host *netlab.Host) {
	t.Helper()
	l, err := host.Listen(t.Context(), netip.MustParseAddrPort(blobUpstream))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "blob of %s\n", host.Name()) })
	chunk := make([]byte, 64<<10)
	if _, err := rand.Read(chunk); err != nil {
		t.Fatal(err)
	}
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := w.Write(chunk); err != nil {
				return // the client has gone
			}
		}
	})
	srv := &http.Server{Handler: mux}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("blob server of %s: %v", host.Name(), err)
		}
	}()
	t.Cleanup(func() { srv.Close(); <-done })
}

// offerBlob adds the service to a gateway's configuration.
func offerBlob(s *api.GatewaySpec) {
	s.Services.Named = append(s.Services.Named, api.NamedService{Name: blobService, Port: blobPort, Address: blobUpstream})
}

// client returns an HTTP client on a host that opens a connection for each request.
func client(host *netlab.Host) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: host.DialContext, DisableKeepAlives: true}}
}

// fetch gets a small document from an address as seen by a host.
func fetch(ctx context.Context, host *netlab.Host, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client(host).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	return string(b), err
}

// download is a transfer that runs until it is stopped or fails.
type download struct {
	bytes  atomic.Uint64
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
	err    error         // valid once done is closed
}

// startDownload begins to read /stream as fast as limit allows (bytes per second; 0 is
// no limit), and waits for the first bytes.
func startDownload(t *testing.T, host *netlab.Host, address string, limit int) *download {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	d := &download{cancel: cancel, done: make(chan struct{})}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	go d.run(req, client(host), limit)
	t.Cleanup(d.stop)
	eventually(within(t, patience), t, "the transfer runs", func() (bool, string) {
		select {
		case <-d.done:
			t.Fatalf("the transfer ended at its start: %v", d.err)
		default:
		}
		return d.bytes.Load() > 0, "no byte yet"
	})
	return d
}

func (d *download) run(req *http.Request, c *http.Client, limit int) {
	defer close(d.done)
	resp, err := c.Do(req)
	if err != nil {
		d.err = err
		return
	}
	defer resp.Body.Close()
	buf := make([]byte, 32<<10)
	var tick *time.Ticker
	if limit > 0 {
		tick = time.NewTicker(time.Duration(len(buf)) * time.Second / time.Duration(limit))
		defer tick.Stop()
	}
	for {
		n, err := resp.Body.Read(buf)
		d.bytes.Add(uint64(n))
		if err != nil {
			d.err = err
			return
		}
		if tick != nil {
			<-tick.C
		}
	}
}

func (d *download) stop() {
	d.cancel()
	<-d.done
}

// atoi parses a number that a program printed.
func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
