package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/testenv/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, b Backend, who func(net.Conn) (identity, error)) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run", "p.sock")
	s, err := listen(ServerOptions{Socket: path, Backend: b}, who)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the socket is still there: %v", err)
		}
	})
	return NewClient(path)
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience.Left())
	t.Cleanup(cancel)
	return ctx
}

// call is one method of a Backend, and what reaches the other side.
type call struct {
	want   string
	do     func(context.Context, Backend) (any, error)
	answer string
}

// calls is every method once, in the order of the interface.
func calls() []call {
	return []call{
		{"status", func(ctx context.Context, b Backend) (any, error) { s, err := b.Status(ctx); return s.Gateway.Name, err }, "edge"},
		{"config", func(ctx context.Context, b Backend) (any, error) { return b.Config(ctx) }, "[{spec.mtu 0 default}]"},
		{"invite {Name:x TTL:3600000000000 For: Allow:[auth] Approve:true}", func(ctx context.Context, b Backend) (any, error) {
			a, err := b.Invite(ctx, api.InviteRequest{Name: "x", TTL: api.Duration(time.Hour), Allow: []string{"auth"}, Approve: true})
			return a.Ticket, err
		}, "postern1ticket"},
		{"join {Ticket:t Name: Wait:1000000000 Allow:[auth] Local:map[apiServer:127.0.0.1:1]}", func(ctx context.Context, b Backend) (any, error) {
			a, err := b.Join(ctx, api.JoinRequest{Ticket: "t", Wait: api.Duration(time.Second), Allow: []string{"auth"}, Local: map[string]string{"apiServer": "127.0.0.1:1"}})
			return a.Outcome, err
		}, "connected"},
		{"accept {Reply:r Wait:1000000000}", func(ctx context.Context, b Backend) (any, error) {
			a, err := b.Accept(ctx, api.AcceptRequest{Reply: "r", Wait: api.Duration(time.Second)})
			return a.Connected, err
		}, "true"},
		{"add cloud psk", func(ctx context.Context, b Backend) (any, error) {
			return "", b.PeerAdd(ctx, api.PeerAddRequest{Peer: api.Peer{Name: "cloud"}, PresharedKey: "psk"})
		}, ""},
		{"allow cloud [auth]", func(ctx context.Context, b Backend) (any, error) {
			return "", b.PeerAllow(ctx, "cloud", api.PeerAllowRequest{Allow: []string{"auth"}})
		}, ""},
		{"local a/b ?c map[registry:]", func(ctx context.Context, b Backend) (any, error) {
			return "", b.PeerLocal(ctx, "a/b ?c", api.PeerLocalRequest{Local: map[string]string{"registry": ""}})
		}, ""},
		{"try cloud 2m0s [auth]", func(ctx context.Context, b Backend) (any, error) {
			t, err := b.PeerTry(ctx, "cloud", api.PeerTryRequest{Within: api.Duration(2 * time.Minute), Allow: &api.PeerAllowRequest{Allow: []string{"auth"}}})
			return t.UndoneAt.Unix(), err
		}, "60"},
		{"try configuration 2m0s", func(ctx context.Context, b Backend) (any, error) {
			t, err := b.ConfigTry(ctx, api.ConfigTryRequest{Within: api.Duration(2 * time.Minute)})
			return t.UndoneAt.Unix(), err
		}, "60"},
		{"confirm configuration", func(ctx context.Context, b Backend) (any, error) { return "", b.ConfigConfirm(ctx) }, ""},
		{"confirm cloud", func(ctx context.Context, b Backend) (any, error) { return "", b.PeerConfirm(ctx, "cloud") }, ""},
		{"approve cloud {Fingerprint:f}", func(ctx context.Context, b Backend) (any, error) {
			return "", b.PeerApprove(ctx, "cloud", api.PeerApproveRequest{Fingerprint: "f"})
		}, ""},
		{"token cloud {TTL:3600000000000}", func(ctx context.Context, b Backend) (any, error) {
			t, err := b.PeerToken(ctx, "cloud", api.PeerTokenRequest{TTL: api.Duration(time.Hour)})
			return t.Token, err
		}, "t"},
		{"discovered", func(ctx context.Context, b Backend) (any, error) {
			d, err := b.Discovered(ctx)
			return d.AnnouncedAs, err
		}, "edge (2)"},
		{"approve found edge (2) {As:edge Allow:[auth] Fingerprint:f}", func(ctx context.Context, b Backend) (any, error) {
			a, err := b.DiscoveredApprove(ctx, "edge (2)", api.DiscoveredApproveRequest{As: "edge", Allow: []string{"auth"}, Fingerprint: "f"})
			return a.Peer, err
		}, "edge"},
		{"remove cloud false", func(ctx context.Context, b Backend) (any, error) { return "", b.PeerRemove(ctx, "cloud", false) }, ""},
		{"remove cloud true", func(ctx context.Context, b Backend) (any, error) { return "", b.PeerRemove(ctx, "cloud", true) }, ""},
		{"ping cloud {Layer:auth Seq:7}", func(ctx context.Context, b Backend) (any, error) {
			return b.Ping(ctx, "cloud", api.PingRequest{Layer: "auth", Seq: 7})
		}, "{7 0.25    }"},
		{"kubeconfig cloud", func(ctx context.Context, b Backend) (any, error) {
			k, err := b.Kubeconfig(ctx, "cloud")
			return k.Server, err
		}, "https://127.0.0.1:7443"},
		{"credential cloud", func(ctx context.Context, b Backend) (any, error) {
			k, err := b.Credential(ctx, "cloud")
			return k.ClientKey, err
		}, "secret"},
		{"netcheck", func(ctx context.Context, b Backend) (any, error) {
			n, err := b.NetCheck(ctx)
			return n.Mapping, err
		}, "none"},
		{"check {Peer:cloud Throughput:false}", func(ctx context.Context, b Backend) (any, error) {
			r, err := b.Check(ctx, api.CheckRequest{Peer: "cloud"})
			return r.Gateway, err
		}, "edge"},
		{"checks", func(ctx context.Context, b Backend) (any, error) {
			r, err := b.Checks(ctx)
			return r.Gateway, err
		}, "edge"},
		{"history {Peers:[cloud hub] Since:1h0m0s Step:1m0s}", func(ctx context.Context, b Backend) (any, error) {
			h, err := b.History(ctx, api.HistoryRequest{Peers: []string{"cloud", "hub"}, Since: time.Hour, Step: time.Minute})
			return h.Gateway, err
		}, "edge"},
		{"log 41", func(ctx context.Context, b Backend) (any, error) {
			l, err := b.Log(ctx, 41)
			return len(l.Records), err
		}, "1"},
		{`rotate {Wait:60000000000 Force:true}`, func(ctx context.Context, b Backend) (any, error) {
			r, err := b.KeyRotate(ctx, api.KeyRotateRequest{Wait: api.Duration(time.Minute), Force: true})
			return fmt.Sprint(r.Rotated, r.Told), err
		}, "true [cloud]"},
		{"reload", func(ctx context.Context, b Backend) (any, error) { return "", b.Reload(ctx) }, ""},
	}
}

func TestEveryCallArrivesAndIsAnswered(t *testing.T) {
	b := &fake{}
	client := serve(t, b, peerCredentials)
	for _, c := range calls() {
		got, err := c.do(within(t), client)
		if err != nil {
			t.Errorf("%s: %v", c.want, err)
		}
		if b.last() != c.want {
			t.Errorf("the gateway was asked %q, want %q", b.last(), c.want)
		}
		if fmt.Sprint(got) != c.answer {
			t.Errorf("%s: answered %q, want %q", c.want, fmt.Sprint(got), c.answer)
		}
	}
}

func TestErrorsArriveWholeWithTheirStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		want   api.Problem
		status int
	}{
		"usage":    {Usage("no such layer", "try overlay"), api.Problem{Message: "no such layer", Hint: "try overlay", Usage: true}, 400},
		"notFound": {fmt.Errorf("ping: %w", NotFound("no peer x", "")), api.Problem{Message: "no peer x", Usage: true}, 404},
		"conflict": {Conflict("busy", "use --force"), api.Problem{Message: "busy", Hint: "use --force"}, 409},
		"other":    {errors.New("disk full"), api.Problem{Message: "disk full"}, 500},
		"several":  {Failed(errors.Join(errors.New("disk full"), errors.New("no log")).Error(), ""), api.Problem{Message: "disk full; no log"}, 500},
		"config": {config.Problems{{Path: "a", Message: "one", Origin: config.Origin{Source: config.FromFile, Name: "f", Line: 1}}, {Message: "two"}},
			api.Problem{Message: "f:1: a: one; default: two", Hint: "the old configuration stays in force", Usage: true}, 400},
	} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, &fake{err: tc.err}, peerCredentials)
			var got *Error
			if err := client.Reload(within(t)); !errors.As(err, &got) || got.Problem != tc.want || got.Status != tc.status {
				t.Errorf("got %+v (%v), want %+v with status %d", got, err, tc.want, tc.status)
			}
		})
	}
}

// The owner and root may do everything, the group may read, others nothing.
func TestRightsFollowTheCaller(t *testing.T) {
	own := ownIdentity()
	other := own.uid + 1000
	reading := []string{"status", "config", "discovered", "netcheck", "check {Peer:cloud Throughput:false}", "checks",
		"history {Peers:[cloud hub] Since:1h0m0s Step:1m0s}", "log 41"}
	for name, tc := range map[string]struct {
		who          identity
		err          error
		read, change bool
	}{
		"owner":               {who: identity{uid: own.uid, gid: own.gid + 1}, read: true, change: true},
		"root":                {who: identity{uid: 0, gid: own.gid + 1}, read: true, change: true},
		"group":               {who: identity{uid: other, gid: own.gid}, read: true},
		"supplementary group": {who: identity{uid: other, gid: own.gid + 1, groups: []int{own.gid + 2, own.gid}}, read: true},
		"stranger":            {who: identity{uid: other, gid: own.gid + 1, groups: []int{own.gid + 2}}},
		"unknown":             {err: errors.New("no idea")},
		"no credentials here": {err: errNoCredentials, read: true, change: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := &fake{}
			client := serve(t, b, func(net.Conn) (identity, error) { return tc.who, tc.err })
			for _, c := range calls() {
				allowed := tc.change
				if slices.Contains(reading, c.want) {
					allowed = tc.read
				}
				before := len(b.calls)
				_, err := c.do(within(t), client)
				var refusal *Error
				if refused := errors.As(err, &refusal) && refusal.Status == http.StatusForbidden; refused == allowed {
					t.Errorf("%s: got %v, want allowed: %v", c.want, err, allowed)
				}
				if reached := len(b.calls) > before; reached != allowed {
					t.Errorf("%s: reached the gateway: %v, want %v", c.want, reached, allowed)
				}
			}
		})
	}
}

func TestKernelTellsWhoConnects(t *testing.T) {
	seen := make(chan identity, 1)
	client := serve(t, &fake{}, func(c net.Conn) (identity, error) {
		who, err := peerCredentials(c)
		seen <- who
		return who, err
	})
	if _, err := client.Status(within(t)); err != nil {
		t.Fatal(err)
	}
	if who, own := <-seen, ownIdentity(); who.uid != own.uid || who.gid != own.gid {
		t.Errorf("the kernel says %+v, want user and group of %+v", who, own)
	}
}

func TestWaitingEndsWithTheCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(within(t))
	b := &fake{joining: cancel}
	client := serve(t, b, peerCredentials)
	if _, err := client.Join(ctx, api.JoinRequest{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the caller's own end", err)
	}
	waitFor(t, func() bool { return b.last() == "join ended: context canceled" }, "the gateway's join to end")
}

func TestWaitingEndsWithTheServer(t *testing.T) {
	waiting := make(chan struct{})
	b := &fake{joining: func() { close(waiting) }}
	path := filepath.Join(t.TempDir(), "p.sock")
	s, err := Listen(ServerOptions{Socket: path, Backend: b})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := NewClient(path).Join(context.Background(), api.JoinRequest{}); ended <- err }()
	<-waiting
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the join succeeded on a closed server")
		}
	case <-time.After(patience.Left()):
		t.Fatal("the join did not end with the server")
	}
}

// waitFor polls, because the condition changes in another goroutine without an event.
func waitFor(t *testing.T, done func() bool, what string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience.Left())
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timeout waiting for %s", what)
		}
	}
}

func TestRequestsAreBounded(t *testing.T) {
	client := serve(t, &fake{}, peerCredentials)
	_, err := client.Accept(within(t), api.AcceptRequest{Reply: strings.Repeat("x", maxRequest)})
	var e *Error
	if !errors.As(err, &e) || e.Status != http.StatusRequestEntityTooLarge || !e.Usage {
		t.Errorf("got %v, want 413", err)
	}
}

func TestOddRequestsAreAnsweredWithAProblem(t *testing.T) {
	client := serve(t, &fake{}, peerCredentials)
	for request, want := range map[string]string{
		"POST /v1/invite {":           "400 the request is not the JSON that /v1/invite takes: unexpected end of JSON input",
		"POST /v1/invite {} {}":       "400 the request is not the JSON that /v1/invite takes: invalid character '{' after top-level value",
		"POST /v1/invite {\"new\":1}": "200 ",
		"GET /v2/status ":             "404 the gateway knows no GET /v2/status",
		"POST /v1/status {}":          "404 the gateway knows no POST /v1/status",
	} {
		parts := strings.SplitN(request, " ", 3)
		req, err := http.NewRequestWithContext(within(t), parts[0], "http://postern"+parts[1], strings.NewReader(parts[2]))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(resp.StatusCode, " ")
		var e *Error
		if err := problem(resp, data); errors.As(err, &e) && resp.StatusCode >= 400 {
			got += e.Message
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", request, got, want)
		}
	}
}
