package check

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strconv"
	"sync"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// CheckUpstreams checks the servers behind this gateway's services, concurrently and each within
// Timeout. The results are in the order of the upstreams. The API server is compared with what
// peers are told about its certificate, so that the side which can fix a problem finds it; it is
// asked without an identity. Other services are only connected to: their protocol is unknown.
func CheckUpstreams(ctx context.Context, n Network, upstreams []Upstream) []verdict.Finding {
	results := make([]verdict.Finding, len(upstreams))
	var wg sync.WaitGroup
	for i, u := range upstreams {
		wg.Go(func() { results[i] = checkUpstream(ctx, n, u) })
	}
	wg.Wait()
	return results
}

func checkUpstream(ctx context.Context, n Network, u Upstream) verdict.Finding {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	r := beginOwn(verdict.Upstream(u.Service))
	r.Via = verdict.ViaDirect
	if u.Service == api.ServiceAPIServer {
		r.Target = api.ServiceAPIServer
	}
	p := catalogue.Params{Service: u.Service, Upstream: u.Address, Inbound: true, Timeout: Timeout}
	host, port, err := splitHostPort(u.Address)
	if err != nil {
		p.Detail = err.Error()
		return r.fail(api.Error, StageTCP, catalogue.UpstreamUnreachable, p)
	}
	c, remote, stage, err := r.reach(ctx, n, host, port)
	if err != nil {
		p.Remote, p.Detail = remote, catalogue.Reason(err)
		code := catalogue.UpstreamName
		switch {
		case catalogue.Exhausted(err):
			code = catalogue.SocketsUsedUp
		case stage == StageTCP:
			code = unconnected("upstream", err)
		}
		return r.fail(api.Error, stage, code, p)
	}
	defer c.Close()
	if !u.TLS {
		return r.ok(r.took(StageTCP))
	}
	p.Path = livePath
	name := cmp.Or(u.ServerName, catalogue.DefaultServerName)
	again := func(ctx context.Context) (net.Conn, error) {
		c, _, _, err := beginOwn(r.Name).reach(ctx, n, host, port)
		return c, err
	}
	return r.askAPIServer(ctx, c, question{p: p, host: name, path: livePath, anonymous: true, version: true, dial: again,
		expected: expected{serverName: name, ca: u.CA}})
}

var errAddress = errors.New("want HOST:PORT")

func splitHostPort(address string) (string, uint16, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return "", 0, errAddress
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return "", 0, errAddress
	}
	return host, uint16(port), nil
}
