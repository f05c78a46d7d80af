package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/postern-dev/postern/tunnel/foreign"
)

const (
	// maxAnswer limits how much of a proxy's answer is read, in bytes.
	maxAnswer = 16 << 10
	// answerWait limits the time for connecting to a proxy and for its answer. Proxies give up on
	// a target that does not answer only after a minute or more, and the caller has other ways to
	// try.
	answerWait = 10 * time.Second
)

// address returns host:port of the proxy, empty without a proxy.
func (p Proxy) address() string {
	u, err := url.Parse(p.URL)
	if err != nil || u.Host == "" {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// connect makes the proxy connect to the target.
func (p Proxy) connect(ctx context.Context, dial Dial, target string) (net.Conn, *Error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	failed := &Error{Proxy: p.address(), Target: target}
	conn, err := dial(ctx, "tcp", failed.Proxy)
	if err != nil {
		return nil, failed.by(dialling(ctx, err), err)
	}
	if strings.HasPrefix(p.URL, "https:") {
		conn = tls.Client(conn, &tls.Config{ServerName: p.host(), MinVersion: tls.VersionTLS12})
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	out, wrong := p.ask(ctx, conn, failed)
	if !stop() && wrong == nil {
		_ = out.Close()
		return nil, failed.by(TargetUnreached, ctx.Err())
	}
	if wrong != nil {
		_ = conn.Close()
		return nil, wrong
	}
	return out, nil
}

func (p Proxy) host() string {
	host, _, _ := net.SplitHostPort(p.address())
	return host
}

// ask sends CONNECT and reads the answer.
func (p Proxy) ask(ctx context.Context, conn net.Conn, failed *Error) (net.Conn, *Error) {
	if secure, ok := conn.(*tls.Conn); ok {
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, failed.by(unless(ctx, NoProxy, Timeout), err)
		}
	}
	q := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: failed.Target}, Host: failed.Target, Header: http.Header{"User-Agent": {"postern"}}}
	if p.Username != "" {
		q.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(p.Username+":"+string(p.Password))))
	}
	if err := q.Write(conn); err != nil {
		return nil, failed.by(unless(ctx, NoProxy, Timeout), err)
	}
	r := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	status, header, err := readAnswer(r)
	if err != nil {
		return nil, failed.by(unless(ctx, NoProxy, TargetUnreached), err)
	}
	if status/100 != 2 {
		return nil, failed.answered(status, schemes(header.Values("Proxy-Authenticate")), p.Username != "")
	}
	if early, _ := r.Peek(r.Buffered()); len(early) > 0 { // the server spoke first
		return &prefixed{Conn: conn, r: io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn)}, nil
	}
	return conn, nil
}

// prefixed is a connection of which some data has already been read.
type prefixed struct {
	net.Conn
	r io.Reader
}

func (p *prefixed) Read(b []byte) (int, error) { return p.r.Read(b) }

// dialling returns how connecting to a proxy failed.
func dialling(ctx context.Context, err error) Failure {
	var name *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &name):
		return Unresolved
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case ctx.Err() != nil || errors.As(err, &timeout) && timeout.Timeout():
		return Timeout
	}
	return Unreachable
}

// unless returns f, or late if the time was over.
func unless(ctx context.Context, f, late Failure) Failure {
	if ctx.Err() != nil {
		return late
	}
	return f
}

// by sets the failure and its error, without the sender's words.
func (e *Error) by(f Failure, err error) *Error {
	e.Failure, e.Err = f, foreign.Err(err)
	return e
}

// answered sets the failure for an answer other than 2xx.
func (e *Error) answered(status int, schemes []string, authenticated bool) *Error {
	e.Status, e.Schemes = status, schemes
	switch status {
	case http.StatusProxyAuthRequired, http.StatusUnauthorized: // tinyproxy sends 401 for a wrong password
		e.Failure = Unauthorized
		if authenticated {
			e.Failure = Rejected
		}
	case http.StatusForbidden, http.StatusTooManyRequests, http.StatusUnavailableForLegalReasons:
		e.Failure = Forbidden
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusInternalServerError:
		e.Failure = TargetUnreached
	default:
		e.Failure = NoProxy
	}
	return e
}

// errAnswer is the error for an answer that is not HTTP.
var errAnswer = errors.New("no HTTP")

// readAnswer reads the header of an answer. What follows is the target's data or a text for
// people, and is not read.
func readAnswer(r *bufio.Reader) (status int, header textproto.MIMEHeader, err error) {
	text := textproto.NewReader(r)
	line, err := text.ReadLine()
	if err != nil {
		return 0, nil, err
	}
	version, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest, " ")
	status, err = strconv.Atoi(code)
	if _, _, ok := http.ParseHTTPVersion(version); !ok || err != nil || status < 100 || status > 599 {
		return 0, nil, errAnswer
	}
	header, err = text.ReadMIMEHeader()
	return status, header, err
}
