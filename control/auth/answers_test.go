package auth

import (
	"bufio"
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/bounded"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// answering returns a client of a gateway that answers everything with the same bytes.
func answering(answer []byte) *Client {
	return NewClient(serverIP, func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			r, err := http.ReadRequest(bufio.NewReader(far))
			if err != nil {
				return
			}
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				_, _ = far.Write(answer)
			}()
			_, _ = io.Copy(io.Discard, r.Body) // a client that is cut off while it sends may not look at the answer
			<-answered
		}()
		return near, nil
	})
}

// reply returns an answer of a postern gateway.
func reply(status int, body string, headers ...string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 %d X\r\n%s: 1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s",
		status, VersionHeader, len(body), strings.Join(headers, ""), body)
}

// asked is each kind of request, with a check that its answer is within bounds.
var asked = map[string]func(context.Context, *Client) error{
	"hello": func(ctx context.Context, c *Client) error {
		h, err := c.Hello(ctx)
		if err == nil && (len(h.Offers) > maxOffers || len(h.Capabilities) > maxOffers || len(h.Report) > MaxReport ||
			h.APIServer != nil && len(h.APIServer.CAData) > 2*api.MaxCAData) {
			panic("a hello out of bounds")
		}
		return err
	},
	"redeem": func(ctx context.Context, c *Client) error {
		r, err := c.Redeem(ctx, ticket.Request{PublicKey: edgeKey, Name: "edge"})
		if err == nil && (len(r.Granted) > ticket.MaxServices || len(r.Name) > api.MaxNameLength || len(r.As) > api.MaxNameLength) {
			panic("a redemption out of bounds")
		}
		for _, s := range r.Granted {
			if !canBeService(s) {
				panic("a grant of what is no service: " + s)
			}
		}
		return err
	},
	"identity": func(ctx context.Context, c *Client) error {
		g, err := c.AnyIdentity(ctx, nil)
		if len(g.CertificatePEM) > maxCertificate || len(g.Token) > maxToken || len(g.User) > 256 {
			panic("an identity out of bounds")
		}
		return err
	},
	"path":   func(ctx context.Context, c *Client) error { return c.Path(ctx, []byte(`{}`)) },
	"report": func(ctx context.Context, c *Client) error { return c.Report(ctx, []byte(`{}`)) },
	"rotation": func(ctx context.Context, c *Client) error {
		return c.Rotate(ctx, Announcement{Next: berlinKey})
	},
	"throughput": func(ctx context.Context, c *Client) error {
		l, err := c.sendLoad(ctx)
		if l.Bytes < 0 || l.Bytes > loadBytes || l.Took < 0 || l.Took > loadTime+loadGrace {
			panic("a load out of bounds")
		}
		return err
	},
}

func TestAnswersOutOfBoundsAreNotTaken(t *testing.T) {
	redeemed := func(granted string) string {
		return fmt.Sprintf(`{"version":"1.0","name":"cloud","peer":"edge","presharedKey":%q,"granted":%s}`,
			peer.PresharedKeyFromBytes([32]byte{1}).Base64(), granted)
	}
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: make([]byte, 700<<10)}))
	for _, c := range []struct {
		name, question, body string
	}{
		{"20,000 grants", "redeem", redeemed("[" + strings.Repeat(`"auth",`, 19999) + `"auth"]`)},
		{"33 grants", "redeem", redeemed("[" + strings.Repeat(`"auth",`, 32) + `"auth"]`)},
		{"a long grant", "redeem", redeemed(`["` + strings.Repeat("x", 41) + `"]`)},
		{"a name twice", "redeem", strings.Replace(redeemed("[]"), "{", `{"Name":"other",`, 1)},
		{"a certificate of 972 kB", "identity", fmt.Sprintf(`{"version":"1.0","certificate":%q}`, certificate)},
		{"a certificate of 40 KB", "identity", `{"version":"1.0","certificate":"` + strings.Repeat("x", 40<<10) + `"}`},
		{"a token of 9 KB", "identity", `{"version":"1.0","token":"` + strings.Repeat("x", 9<<10) + `"}`},
		{"a long user", "identity", `{"version":"1.0","user":"` + strings.Repeat("x", 300) + `"}`},
		{"an end that is none", "identity", `{"version":"1.0","token":"x","notAfter":"10000-01-01T00:00:00Z"}`},
		{"another version", "identity", `{"version":"2.0","token":"x"}`},
		{"much with a path's", "path", `{"version":"1.0","x":"` + strings.Repeat("x", smallBody) + `"}`},
		{"much with a report's", "report", `{"version":"1.0","x":"` + strings.Repeat("x", smallBody) + `"}`},
		{"no version with a rotation's", "rotation", `{}`},
		{"a version without end", "rotation", `{"version":"1.` + strings.Repeat("0", 1000) + `"}`},
		{"more than was sent", "throughput", `{"version":"1.0","bytes":33554433,"seconds":1}`},
		{"less than nothing", "throughput", `{"version":"1.0","bytes":-1,"seconds":1}`},
		{"in no time that can be", "throughput", `{"version":"1.0","bytes":1,"seconds":1e300}`},
		{"offers without end", "hello", `{"version":"1.0","name":"cloud","offers":[` + strings.Repeat(`"a",`, 9000) + `"a"]}`},
		{"much of everything", "hello", `{"version":"1.0","name":"cloud","x":"` + strings.Repeat("x", helloAnswer) + `"}`},
	} {
		err := asked[c.question](t.Context(), answering(reply(200, c.body)))
		if !errors.Is(err, ErrAnswer) && !errors.Is(err, ErrIncompatible) {
			t.Errorf("%s: got %v, want %v", c.name, err, ErrAnswer)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%s: the error has %d bytes", c.name, len(err.Error()))
		}
	}
	// Invalid service names are not grants.
	r, err := answering(reply(200, redeemed(`["auth","\u001b[2J","$(reboot)","registry","auth"]`))).Redeem(t.Context(), ticket.Request{PublicKey: edgeKey})
	if err != nil || strings.Join(r.Granted, " ") != "auth registry" {
		t.Errorf("granted %q, %v", r.Granted, err)
	}
}

func TestErrorsOutOfBoundsAreShort(t *testing.T) {
	for name, answer := range map[string][]byte{
		"a long message": reply(403, `{"version":"1.0","code":"denied","message":"`+strings.Repeat("x", 1<<20)+`"}`),
		"a long code":    reply(403, `{"version":"1.0","code":"`+strings.Repeat("x", 1000)+`","message":"m"}`),
		"a code twice":   reply(403, `{"version":"1.0","code":"pending","code":"name","message":"m"}`),
		"an hour":        reply(403, `{}`, "Retry-After: 4000000000\r\n"),
		"a long header":  reply(403, `{}`, "X: "+strings.Repeat("x", 1<<20)+"\r\n"),
	} {
		for question, ask := range asked {
			err := ask(t.Context(), answering(answer))
			var e *Error
			if err == nil || len(err.Error()) > 2*maxMessage {
				t.Errorf("%s, %s: error %.700v", name, question, err)
			}
			if errors.As(err, &e) && (e.RetryAfter > maxRetryAfter || len(e.Message) > 2*maxMessage || len(e.Code) > 40) {
				t.Errorf("%s, %s: %+.700v", name, question, e)
			}
		}
	}
}

// Of a hostile gateway's answer only the certificate is used, and nothing if the answer is too
// large.
func TestNothingOversizedIsStored(t *testing.T) {
	dir := t.TempDir()
	store, err := state.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ca := loadCA(t, nil)
	for name, grow := range map[string]func(certPEM string) string{
		"text around it":   func(c string) string { return strings.Repeat("# hello\n", 20<<10) + c },
		"another after it": func(c string) string { return c + block("PRIVATE KEY", 500<<10) },
		"headers": func(c string) string {
			return strings.Replace(c, "\n", "\nNote: "+strings.Repeat("x", 500<<10)+"\n\n", 1)
		},
		"a little text more": func(c string) string { return "# hello\n" + c + "\x1b[2J" },
	} {
		keyPEM, csrPEM, err := keyAndCSR("")
		if err != nil {
			t.Fatal(err)
		}
		issued, err := ca.Issue(t.Context(), subject, csrPEM)
		if err != nil {
			t.Fatal(err)
		}
		text := []byte(grow(string(issued.CertificatePEM)))
		id, err := Grant{CertificatePEM: text}.identity(keyPEM, time.Now())
		if (err == nil) != (len(text) < maxCertificate) || err == nil && !bytes.Equal(id.CertificatePEM, issued.CertificatePEM) {
			t.Errorf("%s: got %d bytes and %v", name, len(id.CertificatePEM), err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		certificate := block("CERTIFICATE", 700<<10)
		client := answering(reply(200, fmt.Sprintf(`{"version":"1.0","certificate":%q}`, certificate)))
		k, stop := keepAny(t, client.AnyIdentity, &cabinet{}, func(o *KeeperOptions) { o.Store = store })
		synctest.Wait()
		if _, err := k.LastError(); !errors.Is(err, ErrAnswer) {
			t.Errorf("the keeper says %v, want %v", err, ErrAnswer)
		}
		stop()
	})
	// An oversized identity stored by an earlier version is not used but requested again.
	if err := store.SetIdentity(peer.PublicKey{9}, []byte(block("CERTIFICATE", 700<<10)), nil); err != nil {
		t.Fatal(err)
	}
	k, err := NewKeeper(KeeperOptions{Peer: peer.PublicKey{9}, Store: store, Request: func(context.Context, []byte) (Grant, error) { return Grant{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := k.Current(); ok {
		t.Error("a certificate of 972 kB is in use")
	}
	files, err := filepath.Glob(filepath.Join(dir, "observed.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Size() > 1<<10 {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// FuzzAnswers answers each request with arbitrary data.
func FuzzAnswers(f *testing.F) {
	f.Add(uint16(200), []byte(`{"version":"1.0","name":"cloud","peer":"edge","granted":["auth"],"presharedKey":"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","capabilities":["path"],"offers":["auth","x"],"ports":{"x":1}}`))
	f.Add(uint16(200), []byte(`{"version":"1.0","certificate":"x","notAfter":"2026-03-02T12:00:00Z"}`))
	f.Add(uint16(200), []byte(`{"version":"1.0","bytes":1,"seconds":0.5}`))
	f.Add(uint16(200), []byte(`{"version":"1.0","name":"a","apiServer":{"caData":"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}}`))
	f.Add(uint16(429), []byte(`{"version":"1.0","code":"rateLimited","message":"later"}`))
	f.Add(uint16(403), []byte(`{"code":"\u001b[2J","message":"$(reboot)"}`))
	f.Add(uint16(501), []byte(`[[[[`))
	f.Fuzz(func(t *testing.T, status uint16, body []byte) {
		answer := reply(200+int(status)%400, string(body))
		for question, ask := range asked {
			if question == "throughput" { // which sends 32 MB each time
				var l loadAnswer
				if bounded.Unmarshal(body, smallBody, &l) == nil && (l.Bytes < 0 || l.Bytes > loadBytes || l.Seconds < 0) {
					t.Errorf("a load of %d bytes in %g s", l.Bytes, l.Seconds)
				}
				continue
			}
			if err := ask(t.Context(), answering(answer)); err != nil && (len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\x1b\u202e")) {
				t.Errorf("%s: error %q", question, err)
			}
		}
	})
}
