package egress_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/discovery/egress"
)

// listen serves each connection to a free port, and returns its address.
func listen(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}

// answering runs a proxy that answers every CONNECT with a text.
func answering(t testing.TB, text string) string {
	return listen(t, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, text)
		}
	})
}

// echoing runs a proxy that requires credentials, acts as the target itself, and reports which
// one was requested.
func echoing(t testing.TB, asked chan<- string) string {
	return listen(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		q, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		asked <- q.Method + " " + q.Host
		if q.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte("edge:s3cret")) {
			_, _ = io.WriteString(c, "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"x\"\r\n\r\n")
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nhello ")
		_, _ = io.Copy(c, r)
	})
}

func TestANameGoesToTheProxyAsItIs(t *testing.T) {
	asked := make(chan string, 2)
	at := echoing(t, asked)
	d := egress.New(egress.Proxy{URL: "http://" + at, Username: "edge", Password: "s3cret"})
	c, err := d.DialContext(t.Context(), "tcp", "turn.invalid:443")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := <-asked; got != "CONNECT turn.invalid:443" {
		t.Errorf("the proxy was asked for %q", got)
	}
	if _, err := io.WriteString(c, "postern"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("hello postern")) // data that came with the answer is not lost
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello postern" {
		t.Errorf("%q, %v", got, err)
	}
	if o := d.Outcomes(); len(o) != 1 || o[0].Target != "turn.invalid:443" || o[0].Err != nil {
		t.Errorf("outcomes %+v", o)
	}
}

// Addresses that use no proxy are dialled directly, and the others never are.
func TestWhatTakesTheProxy(t *testing.T) {
	d := egress.New(egress.Proxy{URL: "http://192.0.2.1:3128", NoProxy: "198.51.100.0/24,.inside.example,turn.example:5349"})
	for address, want := range map[string]bool{
		"203.0.113.7:443": true, "turn.example:443": true, "[2001:db8::1]:3478": true,
		"198.51.100.7:443": false, "a.inside.example:443": false, "turn.example:5349": false, "127.0.0.1:443": false, "localhost:1": false,
	} {
		if got := d.Proxied(address); got != want {
			t.Errorf("%s goes through the proxy: %v, want %v", address, got, want)
		}
	}
	d.Use(egress.Proxy{})
	if d.Proxied("203.0.113.7:443") || d.Address() != "" {
		t.Error("without a proxy something takes one")
	}
}

func TestFailuresAreToldApart(t *testing.T) {
	closed := listen(t, func(net.Conn) {})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	for name, x := range map[string]struct {
		proxy string
		user  string
		want  egress.Failure
		says  string
	}{
		"nobody there":          {proxy: l.Addr().String(), want: egress.Refused, says: "refuses TCP"},
		"no name":               {proxy: "proxy.invalid:3128", want: egress.Unresolved, says: "DNS"},
		"no credentials":        {proxy: answering(t, "HTTP/1.1 407 x\r\nProxy-Authenticate: Negotiate\r\nProxy-Authenticate: NTLM\r\n\r\n"), want: egress.Unauthorized, says: "by negotiate or ntlm, and postern speaks Basic alone"},
		"wrong credentials":     {proxy: answering(t, "HTTP/1.1 407 x\r\nProxy-Authenticate: Basic realm=x\r\n\r\n"), user: "edge", want: egress.Rejected, says: "does not take the user"},
		"by tinyproxy":          {proxy: answering(t, "HTTP/1.0 401 Unauthorized\r\n\r\n"), user: "edge", want: egress.Rejected, says: "(401)"},
		"forbidden":             {proxy: answering(t, "HTTP/1.0 403 Forbidden\r\n\r\n<html>"), want: egress.Forbidden, says: "turn.example:3478"},
		"the target is away":    {proxy: answering(t, "HTTP/1.1 503 Service Unavailable\r\n\r\n"), want: egress.TargetUnreached, says: "gets no connection to turn.example:3478 (503)"},
		"a web server":          {proxy: answering(t, "HTTP/1.1 405 Method Not Allowed\r\n\r\n"), want: egress.NoProxy, says: "HTTP status 405"},
		"another protocol":      {proxy: answering(t, "SSH-2.0-evil\x1b[31m\r\n\r\n"), want: egress.NoProxy, says: "as an HTTP proxy does"},
		"it hangs up":           {proxy: closed, want: egress.NoProxy, says: "as an HTTP proxy does"},
		"an answer without end": {proxy: answering(t, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("a", 1<<20)), want: egress.NoProxy, says: "as an HTTP proxy does"},
		"no status":             {proxy: answering(t, "HTTP/1.1 2000 OK\r\n\r\n"), want: egress.NoProxy, says: "no HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			d := egress.New(egress.Proxy{URL: "http://" + x.proxy, Username: x.user, Password: "s3cret"})
			_, err := d.DialContext(t.Context(), "tcp", "turn.example:3478")
			var e *egress.Error
			if !errors.As(err, &e) || e.Failure != x.want || !strings.Contains(err.Error(), x.says) {
				t.Fatalf("%v, want %s and %q", err, x.want, x.says)
			}
			if text := fmt.Sprintf("%v %+v %#v", err, d.Outcomes(), egress.Proxy{Password: "s3cret"}); strings.Contains(text, "s3cret") || strings.Contains(text, "\x1b") || strings.Contains(text, "evil") {
				t.Errorf("it shows too much: %s", text)
			}
			if o := d.Outcomes(); len(o) != 1 || o[0].Err != e {
				t.Errorf("outcomes %+v", o)
			}
		})
	}
}

// ending is a context that ends in a certain way.
type ending struct {
	context.Context
	done chan struct{}
	why  error
}

func (e *ending) Done() <-chan struct{} { return e.done }

func (e *ending) Err() error {
	select {
	case <-e.done:
		return e.why
	default:
		return nil
	}
}

// The time is over, or the caller cancels, after the proxy was asked.
func TestAProxyThatDoesNotAnswerIsGivenUp(t *testing.T) {
	for _, why := range []error{context.DeadlineExceeded, context.Canceled} {
		ctx := &ending{t.Context(), make(chan struct{}), why}
		d := egress.New(egress.Proxy{URL: "http://" + listen(t, func(c net.Conn) {
			r := bufio.NewReader(c)
			if _, err := http.ReadRequest(r); err == nil {
				close(ctx.done)
				_, _ = io.Copy(io.Discard, r)
			}
		})})
		_, err := d.DialContext(ctx, "tcp", "turn.example:443")
		var e *egress.Error
		if !errors.As(err, &e) || e.Failure != egress.TargetUnreached {
			t.Errorf("%v: %v", why, err)
		}
		want := 1
		if errors.Is(why, context.Canceled) { // cancelled by the caller: that says nothing about the proxy
			want = 0
		}
		if o := d.Outcomes(); len(o) != want {
			t.Errorf("%v: outcomes %+v", why, o)
		}
	}
}

// Of any number of hosts, the last ones are stored.
func TestOutcomesAreBounded(t *testing.T) {
	d := egress.New(egress.Proxy{URL: "http://" + answering(t, "HTTP/1.1 403 x\r\n\r\n")})
	for i := range 40 {
		_, _ = d.DialContext(t.Context(), "tcp", fmt.Sprintf("h%d.example:443", i))
	}
	o := d.Outcomes()
	if len(o) != 16 || o[0].Target != "h39.example:443" {
		t.Errorf("%d outcomes, the first of %q", len(o), o[0].Target)
	}
}
