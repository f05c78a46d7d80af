package egress

import (
	"bufio"
	"bytes"
	"io"
	"testing"

	"github.com/postern-dev/postern/tunnel/foreign"
)

func FuzzProxyAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\n\r\nrest", "HTTP/1.0 407 x\r\nProxy-Authenticate: Basic realm=\"x\"\r\n\r\n", "HTTP/1.1 200", "SSH-2.0-x\r\n",
		"HTTP/1.1 403 \x1b[31m\r\nProxy-Authenticate: \x1b]0;x\r\n\r\n", "HTTP/1.1 -1 x\r\n\r\n", "\n\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		status, header, err := readAnswer(bufio.NewReader(io.LimitReader(bytes.NewReader(b), maxAnswer)))
		if err != nil {
			return
		}
		if status < 100 || status > 599 {
			t.Errorf("status %d", status)
		}
		e := (&Error{Proxy: "p:1", Target: "t:1"}).answered(status, schemes(header.Values("Proxy-Authenticate")), true)
		if text := e.Error(); text != foreign.Line(text) {
			t.Errorf("it is shown as %q", text)
		}
	})
}
