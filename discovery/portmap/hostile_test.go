package portmap_test

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/portmap"
	"github.com/postern-dev/postern/discovery/portmap/faketest"
)

// TestAHostileUPnPDeviceLeadsNowhere has a device that sends URLs of other hosts, redirects,
// floods and stalls. None of that may make the gateway talk to anyone but the router.
func TestAHostileUPnPDeviceLeadsNowhere(t *testing.T) {
	redirect := func(to string) http.Handler { return http.RedirectHandler(to, http.StatusTemporaryRedirect) }
	describe := func(base, control string) faketest.Lies {
		return faketest.Lies{Description: faketest.Description(1, base, control)}
	}
	for _, c := range []struct {
		name  string
		lies  faketest.Lies
		words string
	}{
		{"location of the metadata service", faketest.Lies{Location: "http://169.254.169.254/latest/meta-data/"}, "leads elsewhere"},
		{"location of a neighbour", faketest.Lies{Location: "http://192.168.7.3:5000/rootDesc.xml"}, "leads elsewhere"},
		{"location of loopback", faketest.Lies{Location: "http://127.0.0.1:9520/metrics"}, "leads elsewhere"},
		{"location by name", faketest.Lies{Location: "http://router.example.net/rootDesc.xml"}, "leads elsewhere"},
		{"location by a number", faketest.Lies{Location: "http://3232237313/rootDesc.xml"}, "leads elsewhere"},
		{"location with a user", faketest.Lies{Location: "http://192.168.7.1@192.168.7.3/rootDesc.xml"}, "not plain http"},
		{"location of a file", faketest.Lies{Location: "file:///etc/passwd"}, "not plain http"},
		{"location by https", faketest.Lies{Location: "https://192.168.7.1/rootDesc.xml"}, "not plain http"},
		{"location with port 0", faketest.Lies{Location: "http://192.168.7.1:0/rootDesc.xml"}, "port that is none"},
		{"an answer of a neighbour", faketest.Lies{From: netip.MustParseAddrPort("192.168.7.3:1900")}, "no answer"},
		{"URLBase of a neighbour", describe("http://192.168.7.3:5000/", "/ctl/IPConn"), "URLBase of its description"},
		{"control URL of a neighbour", describe("", "http://192.168.7.3:5000/ctl"), "control URL of its description"},
		{"control URL without a scheme", describe("", "//192.168.7.3/ctl"), "control URL of its description"},
		{"redirected description", faketest.Lies{HTTP: redirect("http://192.168.7.3/")}, "redirects"},
		{"redirected to itself", faketest.Lies{HTTP: redirect("http://192.168.7.1:5000/rootDesc.xml")}, "redirects"},
		{"an endless description", faketest.Lies{HTTP: flood()}, "larger than 65536 bytes"},
		{"a description of 70,000 bytes", faketest.Lies{Description: strings.Repeat(" ", 70000)}, "larger than 65536 bytes"},
		{"no XML", faketest.Lies{Description: "hello"}, "no XML"},
		{"no service", faketest.Lies{Description: "<root/>"}, "no service that maps ports"},
		{"billion laughs", faketest.Lies{Description: `<!DOCTYPE r [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><root>&b;</root>`}, "no XML"},
		{"deep", faketest.Lies{Description: strings.Repeat("<device>", 7000)}, "no XML"},
		{"dawdling", faketest.Lies{HTTP: dawdle()}, "read its description"},
		{"a huge header", faketest.Lies{HTTP: header()}, "read its description"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, faketest.Options{UPnP: true}, c.lies, func(w *world) {
				s := w.after(12 * time.Second)
				if s.State != portmap.StateFailed || !strings.Contains(s.Err, c.words) {
					t.Errorf("got %s (%s), want it failed because %q", s.State, s.Err, c.words)
				}
				if n := w.router.Requests("elsewhere"); n != 0 {
					t.Errorf("%d connections to others than the router", n)
				}
			})
		})
	}
}

// flood writes until nobody reads.
func flood() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	})
}

// dawdle writes a byte per second.
func dawdle() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for {
			select {
			case <-time.After(time.Second):
			case <-r.Context().Done():
				return
			}
			if _, err := fmt.Fprint(w, " "); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
		}
	})
}

func header() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Padding", strings.Repeat("x", 1<<20))
		w.WriteHeader(http.StatusOK)
	})
}

// TestForgedAnswersAreIgnored sends answers of PCP and NAT-PMP that do not match the request.
func TestForgedAnswersAreIgnored(t *testing.T) {
	change := func(do func(b []byte)) func([]byte, []byte) [][]byte {
		return func(_, b []byte) [][]byte { do(b); return [][]byte{b} }
	}
	for _, c := range []struct {
		name   string
		answer func(request, answer []byte) [][]byte
	}{
		{"another nonce", change(func(b []byte) {
			if len(b) > 30 {
				b[30]++
			}
		})},
		{"another port", change(func(b []byte) {
			if len(b) >= 60 {
				binary.BigEndian.PutUint16(b[40:], 1)
			} else if len(b) == 16 {
				binary.BigEndian.PutUint16(b[8:], 1)
			}
		})},
		{"another protocol", change(func(b []byte) {
			if len(b) >= 60 {
				b[36] = 6
			} else {
				b[1] = 130
			}
		})},
		{"the request itself", func(q, _ []byte) [][]byte { return [][]byte{q} }},
		{"cut", func(_, b []byte) [][]byte { return [][]byte{b[:len(b)-4], {}, {2}, b[:len(b)/2]} }},
		{"a newer version", change(func(b []byte) { b[0] = 3 })},
		{"much too long", func(_, b []byte) [][]byte { return [][]byte{append(b, make([]byte, 4000)...)} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, faketest.Options{PCP: true}, faketest.Lies{Answer: c.answer}, func(w *world) {
				w.want(w.after(20*time.Second), portmap.StateFailed, "", "PCP: no answer")
			})
			if c.name == "another nonce" { // NAT-PMP has none
				return
			}
			inWorld(t, faketest.Options{NATPMP: true}, faketest.Lies{Answer: c.answer}, func(w *world) {
				w.want(w.after(20*time.Second), portmap.StateFailed, "", "NAT-PMP: no answer")
			})
		})
	}
}
