package metrics

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// serve starts a server on a free port with these probes.
func serve(t *testing.T, live, ready func() error) *Server {
	t.Helper()
	snap := connected()
	reg, err := NewRegistry(collector(&snap))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Serve(t.Context(), ServerOptions{Address: "127.0.0.1:0", Gatherer: reg, Live: live, Ready: ready})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// request sends a request and returns status and body.
func request(t *testing.T, s *Server, method, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestServerAnswersScrapesAndProbes(t *testing.T) {
	stuck := func() error { return errors.New("the loop is stuck") }
	healthy, sick := serve(t, nil, nil), serve(t, stuck, stuck)
	for _, c := range []struct {
		name         string
		server       *Server
		method, path string
		status       int
		body         string
	}{
		{"metrics", healthy, http.MethodGet, "/metrics", 200, `postern_peer_receive_bytes_total{peer="cloud"} 1000`},
		{"process metrics", healthy, http.MethodGet, "/metrics", 200, "process_open_fds"},
		{"alive", healthy, http.MethodGet, "/livez", 200, "ok\n"},
		{"ready", healthy, http.MethodGet, "/readyz", 200, "ok\n"},
		{"not alive", sick, http.MethodGet, "/livez", 503, "the loop is stuck\n"},
		{"not ready", sick, http.MethodGet, "/readyz", 503, "the loop is stuck\n"},
		{"metrics of a gateway that is not ready", sick, http.MethodGet, "/metrics", 200, "postern_build_info"},
		{"another method", healthy, http.MethodPost, "/livez", 405, ""},
		{"another path", healthy, http.MethodGet, "/debug/pprof/", 404, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, body := request(t, c.server, c.method, c.path)
			if status != c.status || !strings.Contains(body, c.body) {
				t.Errorf("%s %s: got %d %.200q, want %d with %q", c.method, c.path, status, body, c.status, c.body)
			}
		})
	}
}

func TestPortInUseIsAClearError(t *testing.T) {
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, err = Serve(t.Context(), ServerOptions{Address: ln.Addr().String()})
	if err == nil {
		t.Fatal("a port in use was accepted")
	}
	want := "listen for metrics on spec.http.address " + ln.Addr().String() +
		": bind: address already in use (another process has the port, perhaps another gateway: choose another)"
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestHeartbeatStopsWithItsLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHeartbeat(10 * time.Second)
		for range 5 {
			time.Sleep(9 * time.Second) // virtual
			if err := h.Check(); err != nil {
				t.Fatalf("within the limit: %v", err)
			}
			h.Beat()
		}
		time.Sleep(11 * time.Second)
		if err := h.Check(); err == nil {
			t.Error("a loop that has not turned for 11 s counts as alive")
		}
		h.Beat()
		if err := h.Check(); err != nil {
			t.Errorf("after a new beat: %v", err)
		}
	})
}

// Connections that say nothing must not keep the kubelet's probes out, whoever has them.
func TestConnectionsOfOthersKeepNobodyOut(t *testing.T) {
	s := serve(t, nil, nil)
	from := func(n int) *net.Dialer {
		return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(n))}}
	}
	var first []net.Conn // of each address
	for n := range totalConns {
		c, err := from(1+n/sourceConns).DialContext(t.Context(), "tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if n%sourceConns == 0 {
			first = append(first, c)
		}
		if _, err := io.WriteString(c, "GET"); err != nil {
			t.Fatal(err)
		}
	}
	client := http.Client{Transport: &http.Transport{DialContext: from(99).DialContext, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr()+"/livez", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the probe gets %s", resp.Status)
	}
	gone := 0
	for _, c := range first {
		if err := c.SetReadDeadline(time.Now().Add(headerTimeout / 50)); err != nil { // before they end by themselves
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			gone++
		}
	}
	if gone == 0 {
		t.Error("the oldest connection of no address has given way")
	}
}
