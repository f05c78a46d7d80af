// Command testserver runs in the pods of test clusters. Without arguments it is a server: HTTP on
// TCP 8080, which answers each request with its method, path and host name, and UDP 9000, which
// echoes each datagram. It is ready (/readyz) until a request for /unready, and again after one for
// /ready. Images have no shell, so it is also the client that tests run with `kubectl exec`:
//
//	testserver udp ADDRESS:PORT TEXT   sends TEXT until an answer comes, and prints it
//	testserver get URL                 prints what a GET request returns
//	testserver hold ADDRESS:PORT       opens a connection, says so, and says how it ended
//	testserver api PATH                the same at the pod's own API server, with the
//	                                   token and the authority of its service account
//
// A client gives up after 30 s with exit code 1. The loads take as long as they take, and print a
// report (JSON):
//
//	testserver load COUNT RATE URL...          opens COUNT connections in turn, RATE a second, and holds some
//	testserver clients FIRST COUNT URL         asks from each of COUNT addresses of its own
//	testserver flows ADDRESS:PORT FIRST EACH COUNT DURATION
//	                                           has COUNT flows echo two datagrams, EACH of them from one
//	                                           address; gives each up after DURATION
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Ports of the server.
const (
	httpAddress = ":8080"
	udpAddress  = ":9000"
)

// clientTimeout limits a client; it is generous for busy machines.
const clientTimeout = 30 * time.Second

// accountDir is where the kubelet mounts the files of a service account.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

var errUsage = errors.New("usage: testserver [udp ADDRESS:PORT TEXT | get URL | hold ADDRESS:PORT | api PATH | load … | clients … | flows …]")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "testserver: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return serve(ctx, out)
	}
	switch {
	case args[0] == "load" && len(args) > 3:
		count, rate := atoi(args[1]), atoi(args[2])
		return load(ctx, count, rate, args[3:], out)
	case args[0] == "clients" && len(args) == 4:
		first, err := netip.ParseAddr(args[1])
		if err != nil {
			return err
		}
		return clients(ctx, first, atoi(args[2]), args[3], out)
	case args[0] == "flows" && len(args) == 6:
		first, err := netip.ParseAddr(args[2])
		if err != nil {
			return err
		}
		giveUp, err := time.ParseDuration(args[5])
		if err != nil {
			return err
		}
		return useFlows(ctx, args[1], first, max(1, atoi(args[3])), atoi(args[4]), giveUp, out)
	}
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	switch {
	case args[0] == "udp" && len(args) == 3:
		return askUDP(ctx, args[1], args[2], out)
	case args[0] == "get" && len(args) == 2:
		return get(ctx, http.DefaultClient, args[1], "", out)
	case args[0] == "hold" && len(args) == 2:
		return hold(ctx, args[1], out)
	case args[0] == "api" && len(args) == 2:
		return getAPI(ctx, args[1], out)
	default:
		return errUsage
	}
}

// atoi returns 0 for what is no number.
func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// serve serves until ctx ends.
func serve(ctx context.Context, out io.Writer) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	packets, err := new(net.ListenConfig).ListenPacket(ctx, "udp", udpAddress)
	if err != nil {
		return err
	}
	var unready atomic.Bool
	server := &http.Server{Addr: httpAddress, ReadHeaderTimeout: clientTimeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/ready", "/unready":
				unready.Store(r.URL.Path == "/unready")
			case "/readyz":
				if unready.Load() {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}
			fmt.Fprintf(w, "%s %s %s\n", r.Method, r.URL.Path, host)
			fmt.Fprintf(out, "%s %s from %s\n", r.Method, r.URL.Path, r.RemoteAddr)
		})}
	ended := make(chan error, 2) // with room for both, so that neither waits for a reader
	var tasks sync.WaitGroup
	tasks.Go(func() { ended <- echo(packets) })
	tasks.Go(func() { ended <- server.ListenAndServe() })
	fmt.Fprintf(out, "serving on %s\n", host)
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	err = errors.Join(err, packets.Close(), server.Close())
	tasks.Wait()
	return err
}

// echo echoes datagrams until the socket is closed.
func echo(c net.PacketConn) error {
	b := make([]byte, 64<<10)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return err
		}
		if _, err := c.WriteTo(b[:n], from); err != nil {
			return err
		}
	}
}

// resend is when a datagram or its answer counts as lost.
const resend = time.Second

// askUDP sends text until it is answered.
func askUDP(ctx context.Context, address, text string, out io.Writer) error {
	c, err := new(net.Dialer).DialContext(ctx, "udp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, 64<<10)
	for {
		// A port that is still closed refuses, which counts as a loss.
		if _, err = c.Write([]byte(text)); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
			if err := c.SetReadDeadline(time.Now().Add(resend)); err != nil {
				return err
			}
			var n int
			if n, err = c.Read(b); err == nil {
				_, err = fmt.Fprintf(out, "%s\n", b[:n])
				return err
			}
		}
		if err := pause(ctx, resend/10); err != nil {
			return fmt.Errorf("no answer from %s: %w", address, err)
		}
	}
}

// pause waits, or returns when ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// get prints the response to a request; any status but 200 is an error.
func get(ctx context.Context, client *http.Client, url, token string, out io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(out, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// hold opens a connection and waits for its end.
func hold(ctx context.Context, address string, out io.Writer) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	if err := c.SetReadDeadline(deadline); err != nil {
		return err
	}
	fmt.Fprintln(out, "open")
	_, err = c.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	_, err = fmt.Fprintf(out, "ended: %v\n", err)
	return err
}

// getAPI requests a path of the API server as the pod's service account.
func getAPI(ctx context.Context, path string, out io.Writer) error {
	token, err := os.ReadFile(filepath.Join(accountDir, "token"))
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(filepath.Join(accountDir, "ca.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return fmt.Errorf("%s/ca.crt holds no certificate", accountDir)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	host := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	return get(ctx, client, "https://"+host+path, strings.TrimSpace(string(token)), out)
}
