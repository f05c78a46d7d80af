package check

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// recording is a connection whose content is already complete.
type recording struct {
	net.Conn
	in io.Reader
}

func (r recording) Read(p []byte) (int, error)  { return r.in.Read(p) }
func (r recording) Write(p []byte) (int, error) { return len(p), nil }
func (r recording) SetDeadline(time.Time) error { return nil }

// Any answer of a server leads to a verdict, and none of it can control the screen.
func FuzzWhatAServerAnswers(f *testing.F) {
	version := "HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n{\"gitVersion\":\"v1.36.0\"}"
	for _, seed := range []string{
		body(`{"version":"1.0","name":"cloud","offers":["auth"]}`), status("401 Unauthorized"), status("999 Odd"), version + version,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + version, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n",
		"HTTP/1.1 200 \x1b[2J\r\n\r\n{\"gitVersion\":\"\x1b]52;c;\x07\"}", "SSH-2.0-x\r\n", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		conn := recording{in: bytes.NewReader(said)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r := begin(api.ServiceAPIServer, api.ServiceAPIServer, facts())
		x := newExchange(conn, "api", goodToken)
		a, err := x.get(ctx, livePath, false)
		var res verdict.Finding
		if err != nil {
			res = r.apiExchangeFailed(question{}, err)
		} else {
			res = r.apiStatus(question{}, try{answer: a, took: time.Millisecond})
			sawVersion(ctx, x, versionPath, res.Stages)
		}
		results := []verdict.Finding{res}
		if err == nil {
			res, _ := begin(api.ServiceAuth, api.ServiceAuth, facts()).authAnswer(catalogue.Params{}, a, time.Millisecond)
			results = append(results, res)
		}
		for _, res := range results {
			if res.Outcome == "" || (res.Outcome != api.OK) == (res.Code == "") {
				t.Fatalf("no verdict: %+v", res.Verdict())
			}
			shown := res.Verdict().Cause + res.Verdict().Fix
			for _, s := range res.Stages {
				shown += s.Detail
			}
			if strings.ContainsAny(shown, "\x1b\x07\x00\n") || strings.Contains(shown, goodToken) {
				t.Fatalf("shows %q", shown)
			}
		}
	})
}
