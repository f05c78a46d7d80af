package turnserver_test

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/turn/v4"
	"go.uber.org/goleak"

	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/testenv/simnet/turnserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The client is pion/turn's, so that the server is tested by other code than that which it is
// meant to test.
func TestClientsAreServedAsTheOptionsSay(t *testing.T) {
	restUser, restPassword, err := turn.GenerateLongTermTURNRESTCredentials("shared", "edge", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	users := map[string]string{"edge": "secret"}
	for _, c := range []struct {
		name           string
		options        turnserver.Options
		user, password string
		earlier        int    // the user's existing allocations
		allocate       string // text of Allocate's error; "" means success
		permit         string // text of the permission's error
	}{
		{"a user", turnserver.Options{Users: users}, "edge", "secret", 0, "", ""},
		{"a wrong password", turnserver.Options{Users: users}, "edge", "wrong", 0, "400", ""},
		{"a stranger", turnserver.Options{Users: users}, "who", "secret", 0, "400", ""},
		{"TURN REST", turnserver.Options{Secret: "shared"}, restUser, restPassword, 0, "", ""},
		{"TURN REST with another secret", turnserver.Options{Secret: "other"}, restUser, restPassword, 0, "400", ""},
		{"a denied peer", turnserver.Options{Users: users, Deny: netip.MustParsePrefix("192.0.2.0/24").Contains}, "edge", "secret", 0, "", "CreatePermission error response"},
		{"the last of the quota", turnserver.Options{Users: users, Quota: 2}, "edge", "secret", 1, "", ""},
		{"beyond the quota", turnserver.Options{Users: users, Quota: 2}, "edge", "secret", 2, "486", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, c.options)
				for range c.earlier {
					conn, err := w.client(t, c.user, c.password).Allocate()
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
				}
				client := w.client(t, c.user, c.password)
				conn, err := client.Allocate()
				if says(t, "Allocate", err, c.allocate); err != nil {
					return
				}
				defer conn.Close()
				if got, want := w.server.Allocations(), c.earlier+1; got != want {
					t.Errorf("the server counts %d allocations, want %d", got, want)
				}
				says(t, "CreatePermission", client.CreatePermission(w.peer.LocalAddr()), c.permit)
				if c.permit != "" {
					return
				}
				if _, err := conn.WriteTo([]byte("out"), w.peer.LocalAddr()); err != nil {
					t.Fatal(err)
				}
				buf := make([]byte, 100)
				n, from, err := w.peer.ReadFrom(buf)
				if err != nil || string(buf[:n]) != "out" || from.String() != conn.LocalAddr().String() {
					t.Fatalf("the peer got %q from %v (%v), want what was sent, from %v", buf[:n], from, err, conn.LocalAddr())
				}
				if _, err := w.peer.WriteTo([]byte("back"), from); err != nil {
					t.Fatal(err)
				}
				if n, _, err = conn.ReadFrom(buf); err != nil || string(buf[:n]) != "back" {
					t.Fatalf("the client got %q (%v)", buf[:n], err)
				}
			})
		})
	}
}

func says(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: error %v, want one that says %q", what, err, want)
	}
}

// world is a server, a client and a peer on the public internet.
type world struct {
	server *turnserver.Server
	host   *simnet.Host
	peer   *simnet.Conn
}

func newWorld(t *testing.T, o turnserver.Options) *world {
	in := simnet.New(simnet.Options{})
	t.Cleanup(func() { in.Close() })
	hosts := make(map[string]*simnet.Host)
	for name, addr := range map[string]string{"client": "198.51.100.1", "server": "203.0.113.1", "peer": "192.0.2.1"} {
		h, err := in.AddHost(simnet.HostOptions{Name: name, Addrs: []netip.Addr{netip.MustParseAddr(addr)}})
		if err != nil {
			t.Fatal(err)
		}
		hosts[name] = h
	}
	server, err := turnserver.ServeHost(hosts["server"], netip.MustParseAddr("203.0.113.1"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	peer, err := hosts["peer"].ListenAddrPort(netip.MustParseAddrPort("192.0.2.1:7"))
	if err != nil {
		t.Fatal(err)
	}
	return &world{server, hosts["client"], peer}
}

// client returns a client on a new socket.
func (w *world) client(t *testing.T, user, password string) *turn.Client {
	conn, err := w.host.ListenUDP(0)
	if err != nil {
		t.Fatal(err)
	}
	client, err := turn.NewClient(&turn.ClientConfig{
		TURNServerAddr: w.server.AddrPort().String(), Username: user, Password: password, Conn: conn,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		conn.Close()
	})
	return client
}
