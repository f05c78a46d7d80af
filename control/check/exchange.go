package check

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// maxBody bounds the answer to a check. A hello has a few PEM certificates.
const maxBody = 256 << 10

// answer is an HTTP server's answer.
type answer struct {
	status int
	body   []byte
	page   bool          // it is a web page
	skew   time.Duration // how far the server's clock is ahead; 0 if unknown
}

// get sends one HTTP/1.1 GET on a new connection, with a token unless that is empty, and reads the
// answer. It reads no further and follows no redirect: the caller closes the connection. The end of
// ctx interrupts it.
func get(ctx context.Context, c net.Conn, host, path string, token Token) (answer, error) {
	return newExchange(c, host, token).get(ctx, path, true)
}

// exchange is a connection for successive requests.
type exchange struct {
	conn  net.Conn
	in    *bufio.Reader
	host  string
	token Token
}

func newExchange(c net.Conn, host string, token Token) exchange {
	return exchange{conn: c, in: bufio.NewReader(io.LimitReader(c, 2*maxBody)), host: host, token: token}
}

// get sends one request and reads its answer; last tells the server that no other follows.
func (x exchange) get(ctx context.Context, path string, last bool) (answer, error) {
	defer bindDeadline(ctx, x.conn)()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+x.host+path, nil)
	if err != nil {
		return answer{}, fmt.Errorf("request for %s: %w", path, err)
	}
	req.Close = last
	req.Header.Set("User-Agent", "postern-check")
	req.Header.Set("Accept", "application/json, */*")
	if x.token != "" {
		req.Header.Set("Authorization", "Bearer "+string(x.token))
	}
	// A server that rejects the request may have said why before it closed (a TLS alert about the
	// client certificate), so the answer is read even then.
	sendErr := req.Write(x.conn)
	resp, err := http.ReadResponse(x.in, req)
	switch {
	case err != nil && sendErr != nil && !remoteAlert(err):
		return answer{}, fmt.Errorf("send request: %w", sendErr)
	case err != nil:
		return answer{}, fmt.Errorf("read answer: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return answer{}, fmt.Errorf("read answer: %w", err)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	a := answer{status: resp.StatusCode, body: body, page: kind == "text/html"}
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		a.skew = time.Until(at)
	}
	return a, nil
}

// httpSeen describes an answer for a stage.
func httpSeen(status int) string { return "HTTP " + strconv.Itoa(status) }

// bindDeadline makes the end of ctx interrupt reads and writes of c. The returned function undoes
// that.
func bindDeadline(ctx context.Context, c net.Conn) func() {
	if d, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(d) // fails on a closed connection, as the next read will
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

// failure is how an exchange failed, as far as errors say.
type failure int

const (
	broken  failure = iota // reset, closed early, or no route
	refused                // nothing listens, or we are not let in
	timedOut
	garbled // the answer is not HTTP
)

// classify distinguishes failures. The overlay's stack wraps syscall's numbers like the kernel's
// errors.
func classify(err error) failure {
	var ne net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &ne) && ne.Timeout():
		return timedOut
	case errors.Is(err, syscall.ECONNREFUSED):
		return refused
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return broken
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return broken
	}
	return garbled
}

// failures are the codes for failed exchanges with a server, by target.
var failures = map[string]map[failure]catalogue.Code{
	api.ServiceAuth: {refused: catalogue.AuthRefused, timedOut: catalogue.AuthTimeout,
		broken: catalogue.AuthBroken, garbled: catalogue.AuthNotUnderstood},
	api.ServiceAPIServer: {refused: catalogue.APIServerRefused, timedOut: catalogue.APIServerTimeout,
		broken: catalogue.APIServerBroken, garbled: catalogue.TLSFailed},
	"upstream": {refused: catalogue.UpstreamRefused, timedOut: catalogue.UpstreamTimeout, broken: catalogue.UpstreamUnreachable},
}

// unconnected returns the code for a failed connection.
func unconnected(to string, err error) catalogue.Code {
	how := classify(err)
	if how == garbled { // nothing was sent yet
		how = broken
	}
	return failures[to][how]
}

// exchangeFailed is the result of a connection without an HTTP answer.
func (r *recorder) exchangeFailed(p catalogue.Params, err error) verdict.Finding {
	how := classify(err)
	if how == refused { // something did listen
		how = broken
	}
	p.Detail = catalogue.Reason(err)
	return r.fail(api.Error, StageHTTP, failures[r.Target][how], p)
}

// connectInside connects to a service of the peer inside the tunnel. If the connection is nil the
// finding says why.
func (r *recorder) connectInside(ctx context.Context, dial DialFunc, port uint16, path string) (net.Conn, catalogue.Params, verdict.Finding) {
	to := r.facts.endpoint(port)
	r.Address = to.String()
	p := catalogue.Params{Address: r.Address, Timeout: Timeout, Path: path}
	c, err := dial(ctx, to)
	if err != nil {
		p.Detail = catalogue.Reason(err)
		return nil, p, r.fail(api.Error, StageTCP, unconnected(r.Target, err), p)
	}
	r.passed(StageTCP, r.Address)
	return c, p, verdict.Finding{}
}
