package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// ProtocolMajor is the major version of the in-band protocol that this gateway speaks.
// A newer minor is understood, another major is not.
const ProtocolMajor = 1

const protocolVersion = "1.0"

// helloPath is asked in-band without any grant.
const helloPath = "/v1/hello"

// Hello is what a check needs of the answer to GET /v1/hello.
type Hello struct {
	Version  string   `json:"version"`
	Software string   `json:"software"`
	Name     string   `json:"name"`
	Offers   []string `json:"offers"`
	// Ports are the overlay TCP ports of the named services among Offers.
	Ports     map[string]uint16 `json:"ports"`
	APIServer HelloAPIServer    `json:"apiServer"`
}

// HelloAPIServer is what the peer says of its API server's certificate.
type HelloAPIServer struct {
	ServerName string `json:"serverName"`
	CAData     string `json:"caData"` // PEM
}

// Auth checks the peer's auth service: it connects to it and asks for its hello.
func Auth(ctx context.Context, dial DialFunc, f Facts) Result {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	r := begin(api.ServiceAuth, f)
	if f.Stock || !f.Address.IsValid() {
		return r.off(AuthOff)
	}
	to := f.endpoint(api.PortAuth)
	p := Params{Address: to.String(), Timeout: Timeout, Path: helloPath}
	c, err := dial(ctx, to)
	if err != nil {
		p.Detail = err.Error()
		return r.fail(api.Error, StageTCP, byFailure(err, AuthRefused, AuthTimeout, AuthBroken), p)
	}
	defer c.Close()
	r.passed(StageTCP, to.String())

	asked := time.Now()
	a, err := get(ctx, c, to.String(), helloPath)
	if err != nil {
		return r.authExchangeFailed(p, err)
	}
	rtt := time.Since(asked)
	if a.status != http.StatusOK {
		return r.authStatus(p, a.status)
	}
	r.passed(StageHTTP, "HTTP 200")
	hello, err := parseHello(a.body)
	switch {
	case errors.Is(err, errMajor):
		p.Version, p.OwnVersion, p.Detail = hello.Version, protocolVersion, err.Error()
		return r.fail(api.Error, StageAuth, AuthVersion, p)
	case err != nil:
		p.Detail = err.Error()
		return r.fail(api.Error, StageHTTP, AuthNotUnderstood, p)
	}
	r.passed(StageAuth, "version "+hello.Version)
	res := r.ok(rtt)
	if !hello.grants(api.ServiceAuth) {
		res = r.off(AuthOff)
	}
	res.Hello = &hello
	return res
}

// authExchangeFailed is the result of a connection that gave no HTTP answer.
func (r *recorder) authExchangeFailed(p Params, err error) Result {
	p.Detail = err.Error()
	switch classify(err) {
	case timedOut:
		return r.fail(api.Error, StageHTTP, AuthTimeout, p)
	case garbled:
		return r.fail(api.Error, StageHTTP, AuthNotUnderstood, p)
	}
	return r.fail(api.Error, StageHTTP, AuthBroken, p)
}

// authStatus is the result of an HTTP answer that is no success.
func (r *recorder) authStatus(p Params, status int) Result {
	p.Status = status
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		p.Detail = "HTTP " + strconv.Itoa(status)
		return r.fail(api.Error, StageAuth, AuthDenied, p)
	case http.StatusUpgradeRequired, http.StatusHTTPVersionNotSupported:
		p.OwnVersion = protocolVersion
		return r.fail(api.Error, StageAuth, AuthVersion, p)
	case http.StatusNotFound:
		p.Detail = "HTTP 404 for " + helloPath
		return r.fail(api.Error, StageHTTP, AuthNotUnderstood, p)
	}
	return r.fail(api.Error, StageHTTP, AuthHTTP, p)
}

// errMajor marks a hello of another major version.
var errMajor = errors.New("another major version")

// parseHello reads and checks a hello. With errMajor the version is set.
func parseHello(body []byte) (Hello, error) {
	var h Hello
	if err := json.Unmarshal(body, &h); err != nil {
		return Hello{}, fmt.Errorf("hello is not JSON: %w", err)
	}
	major, _, _ := strings.Cut(h.Version, ".")
	n, err := strconv.ParseUint(major, 10, 16)
	if err != nil {
		return Hello{}, fmt.Errorf("hello has no version (%q)", cleanText(h.Version))
	}
	if n != ProtocolMajor {
		return Hello{Version: h.Version}, fmt.Errorf("version %s: %w", cleanText(h.Version), errMajor)
	}
	return h.clean(), nil
}

// maxOffers bounds the services that a peer can offer; what is beyond is not seen.
const maxOffers = 256

// clean makes a peer's text safe to show and keep: what cannot be the name of a service
// is dropped.
func (h Hello) clean() Hello {
	h.Version, h.Software, h.Name = cleanText(h.Version), cleanText(h.Software), cleanText(h.Name)
	h.APIServer.ServerName = cleanText(h.APIServer.ServerName)
	offers := make([]string, 0, min(len(h.Offers), maxOffers))
	ports := make(map[string]uint16)
	for _, s := range h.Offers {
		known := s == api.ServiceAuth || s == api.ServiceAPIServer || api.CheckName(s) == nil
		if !known || slices.Contains(offers, s) || len(offers) == maxOffers {
			continue
		}
		offers = append(offers, s)
		if port := h.Ports[s]; port != 0 {
			ports[s] = port
		}
	}
	h.Offers, h.Ports = offers, ports
	return h
}

// grants reports whether the hello offers a service.
func (h Hello) grants(service string) bool {
	return slices.Contains(h.Offers, service)
}
