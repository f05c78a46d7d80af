package auth

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// to returns a client of an arbitrary HTTP handler, over loopback.
func to(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return NewClient(serverIP, func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", srv.Listener.Addr().String())
	})
}

// says answers with a body, like a postern gateway.
func says(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(VersionHeader, ProtocolVersion)
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestClientTellsWhatAnswered(t *testing.T) {
	const good = `{"version":"1.0","name":"cloud","capabilities":[],"offers":[]}`
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		want    error
	}{
		{"a gateway", says(200, good), nil},
		{"a gateway of a newer minor version", says(200, strings.Replace(good, "1.0", "1.5", 1)), nil},
		{"a gateway of the next major version", says(200, strings.Replace(good, "1.0", "2.0", 1)), ErrIncompatible},
		{"a gateway that refuses our version", says(400, `{"version":"2.0","code":"incompatibleVersion","message":"upgrade"}`), ErrIncompatible},
		{"a web server", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, ErrAnswer},
		{"a web server that refuses", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, ErrAnswer},
		{"a JSON server", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, good) }, ErrAnswer},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		}, ErrAnswer},
		{"no JSON", says(200, "hello"), ErrAnswer},
		{"no version", says(200, `{"name":"cloud"}`), ErrAnswer},
		{"a name that is none", says(200, `{"version":"1.0","name":"../etc"}`), ErrAnswer},
		{"far too much", says(200, good+strings.Repeat(" ", helloAnswer)), ErrAnswer},
		{"an unknown code with a status", says(409, `{"version":"1.0","code":"later","message":"m"}`), ticket.ErrAlreadyUsed},
		{"an unknown failure", says(502, `{"version":"1.0","code":"later","message":"m"}`), ErrServer},
		{"an unknown refusal", says(418, `{"version":"1.0","code":"later","message":"m"}`), ErrRequest},
		{"pending", says(403, `{"version":"1.0","code":"pending","message":"m"}`), ErrPending},
		{"no issuer", says(501, `{"version":"1.0","code":"noIssuer","message":"m"}`), ErrNoIssuer},
	} {
		_, err := to(t, c.handler).Hello(t.Context())
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
		if errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %v is also unreachable, but it answered", c.name, err)
		}
	}
}

func TestAStrangersTextIsMadeFitToShow(t *testing.T) {
	body := `{"version":"1.0","code":"denied","message":"no\u001b[2J\u202egnirts\n` + strings.Repeat("x", 1000) + `"}`
	_, err := to(t, says(403, body)).Hello(t.Context())
	if !errors.Is(err, ErrDenied) {
		t.Fatalf("got %v", err)
	}
	if text := err.Error(); strings.ContainsAny(text, "\x1b\u202e\n") || len(text) > maxMessage+10 {
		t.Errorf("shown as %q", text)
	}
}

func TestRetryAfterIsTold(t *testing.T) {
	for header, want := range map[string]time.Duration{"7": 7 * time.Second, "99999999": maxRetryAfter, "soon": 0, "-1": 0} {
		_, err := to(t, says(429, `{"version":"1.0","code":"rateLimited","message":"m"}`, "Retry-After", header)).Hello(t.Context())
		var answer *Error
		if !errors.As(err, &answer) || answer.RetryAfter != want {
			t.Errorf("Retry-After %q: got %#v, want %v", header, err, want)
		}
	}
}

func TestUnreachableIsToldFromDenied(t *testing.T) {
	refused := errors.New("connection refused")
	for name, dial := range map[string]func(context.Context, string, string) (net.Conn, error){
		"refused": func(context.Context, string, string) (net.Conn, error) { return nil, refused },
		"silent": func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"closed without an answer": func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				_, _ = far.Read(make([]byte, 4096))
				_ = far.Close()
			}()
			return near, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				_, err := NewClient(serverIP, dial).Hello(t.Context())
				if !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "[fd00::1]:80") {
					t.Errorf("got %v, want %v with the address", err, ErrUnreachable)
				}
				if strings.Contains(err.Error(), "http://") {
					t.Errorf("%q repeats the URL", err)
				}
				if took := time.Since(start); took > requestTimeout {
					t.Errorf("took %v, want at most %v", took, requestTimeout)
				}
			})
		})
	}
}

func TestClientUsesTheDialerItWasGiven(t *testing.T) {
	var got string
	c := NewClient(netip.MustParseAddr("fd12::9"), func(_ context.Context, network, address string) (net.Conn, error) {
		got = network + " " + address
		return nil, errors.New("no")
	})
	if _, err := c.Hello(t.Context()); err == nil {
		t.Error("no error")
	}
	if want := "tcp [fd12::9]:80"; got != want {
		t.Errorf("dialled %q, want %q", got, want)
	}
}

func TestRedeemChecksTheAnswer(t *testing.T) {
	psk := peer.PresharedKeyFromBytes([32]byte{1}).Base64()
	for name, body := range map[string]string{
		"no preshared key":      `{"version":"1.0","name":"cloud","peer":"edge","presharedKey":""}`,
		"preshared key of zero": `{"version":"1.0","name":"cloud","peer":"edge","presharedKey":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`,
		"a name that is none":   `{"version":"1.0","name":"a b","peer":"edge","presharedKey":"` + psk + `"}`,
		"our name is none":      `{"version":"1.0","name":"cloud","peer":"","presharedKey":"` + psk + `"}`,
	} {
		_, err := to(t, says(200, body)).Redeem(t.Context(), ticket.Request{PublicKey: edgeKey, Name: "edge"})
		if !errors.Is(err, ErrAnswer) {
			t.Errorf("%s: got %v, want %v", name, err, ErrAnswer)
		}
	}
}
