package pod

import (
	"testing"

	"github.com/postern-dev/postern/control/config"
)

func TestAuthWithoutTLSHasAServiceOfItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		auth    *config.OutOfBand
		service string
		port    uint16
	}{
		"none":        {nil, "", 0},
		"with TLS":    {&config.OutOfBand{Listen: ":8443", CertFile: "tls.crt", KeyFile: "tls.key"}, "gw-postern", 8443},
		"without TLS": {&config.OutOfBand{Listen: "0.0.0.0:8080"}, "gw-postern-out-of-band", 8080},
	} {
		service, port := outOfBand(&config.Resolved{Kubernetes: &config.Kubernetes{Service: "gw-postern"}, Services: config.Services{OutOfBand: c.auth}})
		if service != c.service || port != c.port {
			t.Errorf("%s: got %q and port %d, want %q and %d", name, service, port, c.service, c.port)
		}
	}
}
