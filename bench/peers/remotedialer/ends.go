package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rancher/remotedialer"
	"github.com/sirupsen/logrus"

	"github.com/postern-dev/postern/bench/peers/remotedialer/load"
)

// agent is the name by which the server knows the serving end.
const agent = "serving"

// newEnds connects an agent to a server by a websocket over TLS, as Rancher does. It carries
// connections from a local listener of the server to a service that the agent dials.
func newEnds(ctx context.Context, _ load.Spec) (load.Ends, error) {
	logrus.SetLevel(logrus.ErrorLevel)
	server := remotedialer.New(
		func(*http.Request) (string, bool, error) { return agent, true, nil }, remotedialer.DefaultErrorWriter)
	front := httptest.NewTLSServer(server)
	running, cancel := context.WithCancel(context.Background())
	var agents sync.WaitGroup
	end := func() error {
		cancel()
		agents.Wait()
		front.CloseClientConnections()
		front.Close()
		return nil
	}
	var lc net.ListenConfig
	service, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return load.Ends{}, errors.Join(fmt.Errorf("listen: %w", err), end())
	}
	failed := make(chan error, 1)
	agents.Go(func() {
		roots := front.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		failed <- remotedialer.ConnectToProxy(running, strings.Replace(front.URL, "https", "wss", 1), nil,
			func(proto, address string) bool { return proto == "tcp" && address == service.Addr().String() },
			&websocket.Dialer{TLSClientConfig: &tls.Config{RootCAs: roots}, HandshakeTimeout: remotedialer.HandshakeTimeOut}, nil)
	})
	for !server.HasSession(agent) {
		select {
		case <-time.After(time.Millisecond):
		case err := <-failed:
			return load.Ends{}, errors.Join(err, service.Close(), end())
		case <-ctx.Done():
			return load.Ends{}, errors.Join(ctx.Err(), service.Close(), end())
		}
	}
	return load.Before(ctx, service, load.Ends{
		Dial: func(ctx context.Context) (net.Conn, error) {
			return server.Dialer(agent)(ctx, "tcp", service.Addr().String())
		},
		Close: end,
	})
}
