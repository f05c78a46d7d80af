package stunserver_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/testenv/simnet/stunserver"
	"github.com/postern-dev/postern/tunnel/foreign"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheServerAnswersAsItIsTold(t *testing.T) {
	lie := netip.MustParseAddrPort("203.0.113.7:7")
	for _, c := range []struct {
		name     string
		response stunserver.Response
		want     stunwire.Message // the fields that the test checks
		silent   bool
	}{
		{"honest", stunserver.Honest, stunwire.Message{Class: stunwire.Success, Mapped: netip.MustParseAddrPort("192.0.2.1:1")}, false},
		{"lying", stunserver.Lying(lie), stunwire.Message{Class: stunwire.Success, Mapped: lie}, false},
		{"failing", stunserver.Failing(420, "no"), stunwire.Message{Class: stunwire.Error, Code: 420, Reason: foreign.Of("no")}, false},
		{"failing with a code that is none", stunserver.Failing(99, "no"), stunwire.Message{}, true},
		{"silent", stunserver.Silent, stunwire.Message{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := simnet.New(simnet.Options{})
				defer in.Close()
				h, err := in.AddHost(simnet.HostOptions{Name: "h", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
				if err != nil {
					t.Fatal(err)
				}
				client, err := h.ListenUDP(1)
				if err != nil {
					t.Fatal(err)
				}
				conn, err := h.ListenUDP(3478)
				if err != nil {
					t.Fatal(err)
				}
				s := stunserver.Serve(conn)
				s.SetResponse(c.response)
				id := stunwire.NewTxID()
				request := stunwire.BindingRequest(id)
				to := netip.MustParseAddrPort("192.0.2.1:3478")
				for _, b := range [][]byte{[]byte("no STUN"), append(request, 0), request} {
					if _, err := client.WriteToUDPAddrPort(b, to); err != nil {
						t.Fatal(err)
					}
				}
				if err := client.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
					t.Fatal(err)
				}
				buf := make([]byte, 1500)
				n, _, err := client.ReadFromUDPAddrPort(buf)
				if (err != nil) != c.silent {
					t.Fatalf("read: %v, want silence: %v", err, c.silent)
				}
				if err == nil {
					m, err := stunwire.Parse(buf[:n])
					if err != nil {
						t.Fatal(err)
					}
					if m.TxID != id || m.Class != c.want.Class || m.Mapped != c.want.Mapped || m.Code != c.want.Code || m.Reason != c.want.Reason {
						t.Errorf("got %+v, want %+v", m, c.want)
					}
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if n := s.Requests(); n != 1 {
					t.Errorf("%d requests were counted, want 1", n)
				}
			})
		})
	}
}
