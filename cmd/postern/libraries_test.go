package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	gvlog "gvisor.dev/gvisor/pkg/log"

	"github.com/postern-dev/postern/control/config"
)

// records passes on what is written.
type records chan string

func (l records) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// What others make libraries log must not go to stderr past the log's format and level.
func TestAGatewayLogsWhatLibrariesDo(t *testing.T) {
	flags, was := log.Flags(), gvlog.Log().Emitter
	t.Cleanup(func() {
		log.SetFlags(flags)
		log.SetOutput(os.Stderr)
		gvlog.SetTarget(was)
	})
	out := make(records, 100)
	a := newApp(strings.NewReader(""), &strings.Builder{}, out, func(string) string { return "" })
	to, err := a.logger(formatJSON, "debug")
	if err != nil {
		t.Fatal(err)
	}
	bad := errors.New("enough")
	if err := a.gateway(t.Context(), func() (*config.Resolved, error) { return nil, bad }, to); !errors.Is(err, bad) {
		t.Fatal(err)
	}
	want := func(text string) {
		t.Helper()
		var record struct{ Level, Msg, Text string }
		line := <-out
		if err := json.Unmarshal([]byte(line), &record); err != nil || record.Level != slog.LevelDebug.String() || !strings.Contains(record.Msg+record.Text, text) {
			t.Errorf("got %q (%v), want %q", line, err, text)
		}
	}
	gvlog.Warningf("tcp.Endpoint.handleListenSegment() failed")
	want("handleListenSegment")

	// A server that speaks without having been asked.
	client, server := net.Pipe()
	defer server.Close()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil }}
	defer transport.CloseIdleConnections()
	go func() {
		if _, err := server.Read(make([]byte, 4096)); err == nil {
			_, _ = server.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
			_, _ = server.Write([]byte("{\"level\":\"ERROR\"}\n"))
		}
	}()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://peer/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	want("Unsolicited response")
}
