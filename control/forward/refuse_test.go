package forward

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/control/catalogue"
)

// A backend that does not answer is not one that is not ready: a NetworkPolicy drops packets, and
// nobody finds it in the Service.
func TestHowABackendFailsDecidesWhatToDo(t *testing.T) {
	dial := func(err error) error {
		return fmt.Errorf("dial: %w", &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort("10.244.0.5:8080")), Err: err})
	}
	for name, c := range map[string]struct {
		reason     Reason
		err        error
		cause, fix string
		not        string
		code       catalogue.Code
	}{
		"a NetworkPolicy":     {UpstreamDown, dial(os.ErrDeadlineExceeded), "its ready backends do not answer this gateway, the last one tried being 10.244.0.5:8080", "kubectl describe networkpolicies -n shop", "targetPort", catalogue.NoBackendReady},
		"nothing listens":     {UpstreamDown, dial(syscall.ECONNREFUSED), "10.244.0.5:8080: connection refused", "kubectl get endpointslices -n shop -l kubernetes.io/service-name=web", "ipFamilies", catalogue.NoBackendReady},
		"another family":      {UpstreamDown, dial(syscall.ENETUNREACH), "10.244.0.5:8080: network is unreachable", "kubectl get service web -n shop -o jsonpath='{.spec.ipFamilies}'", "NetworkPolic", catalogue.NoBackendReady},
		"no pod is ready":     {NoneReady, errNoneReady, "none of its backends is ready", "correct the selector of the Service", "NetworkPolic", catalogue.NoBackendReady},
		"another error of it": {UpstreamDown, errors.New("broken pipe"), "no ready backend accepted the connection: broken pipe", "ipFamilies", "selector", catalogue.NoBackendReady},
		"no open file":        {UpstreamDown, dial(os.NewSyscallError("socket", syscall.EMFILE)), "could not open a connection to 10.244.0.5:8080: too many open files", "LimitNOFILE", "selector", catalogue.SocketsUsedUp},
	} {
		var log strings.Builder
		in := &Inbound{opts: InboundOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
		in.tell(refusal{peer: Peer{Name: "edge"}, service: Service{Name: web}, reason: c.reason, err: c.err})
		if got := log.String(); !strings.Contains(got, "code="+string(c.code)) || !strings.Contains(got, c.cause) || !strings.Contains(got, c.fix) || strings.Contains(got, c.not) {
			t.Errorf("%s: got %s", name, got)
		}
	}
}
