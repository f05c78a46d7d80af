package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/postern-dev/postern/bench/child"
	"github.com/postern-dev/postern/bench/load"
	"github.com/postern-dev/postern/testenv/simnet/turnserver"
)

// relayBuffer is the receive buffer of a relayed address, in bytes. With the small system
// default, a relay in Go would drop packets, and the benchmark would measure that.
const relayBuffer = 4 << 20

// ServeRelay runs a TURN server at a loopback address, over UDP and TCP, until reading from until
// ends. A program of this module calls it when [Subjects] starts the program as a relay.
func ServeRelay(address string, until io.Reader) error {
	tcp, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", address)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	udp, err := listenRelay(address)
	if err != nil {
		tcp.Close()
		return fmt.Errorf("relay: %w", err)
	}
	server, err := turnserver.Serve(turnserver.Sockets{
		Packets: []net.PacketConn{udp}, Streams: []net.Listener{tcp}, RelayAddr: loopback,
		ListenRelay: func(port int) (net.PacketConn, error) {
			return listenRelay(netip.AddrPortFrom(loopback, uint16(port)).String())
		},
	}, turnserver.Options{Users: map[string]string{relayUser: relayPassword}})
	if err != nil {
		udp.Close()
		tcp.Close()
		return fmt.Errorf("relay: %w", err)
	}
	_, err = io.Copy(io.Discard, until)
	return errors.Join(err, server.Close())
}

func listenRelay(address string) (net.PacketConn, error) {
	conn, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp4", address)
	if err != nil {
		return nil, err
	}
	if udp, ok := conn.(*net.UDPConn); ok {
		err = udp.SetReadBuffer(relayBuffer)
	}
	return conn, err
}

// coturn returns the arguments with which Debian's coturn serves an address, with its files in
// dir.
func coturn(dir string) func(at netip.AddrPort) []string {
	return func(at netip.AddrPort) []string {
		return []string{
			coturnProgram, "-c", os.DevNull, "--no-cli", "--no-tls", "--no-dtls", "--log-file=stdout", "--simple-log",
			"--listening-ip=" + at.Addr().String(), fmt.Sprintf("--listening-port=%d", at.Port()), "--relay-ip=" + loopback.String(),
			"--allow-loopback-peers", "--lt-cred-mech", "--realm=postern.test", "--user=" + relayUser + ":" + relayPassword,
			"--userdb=" + filepath.Join(dir, "users"), "--pidfile=" + filepath.Join(dir, "coturn.pid"),
		}
	}
}

// coturnProgram is the name of coturn's program, in PATH.
const coturnProgram = "turnserver"

// findCoturn returns an error if coturn is not installed.
func findCoturn(context.Context) error {
	if _, err := exec.LookPath(coturnProgram); err != nil {
		return errors.New("coturn is not installed (no turnserver in PATH)")
	}
	return nil
}

// serveTimeout bounds the time until a server accepts connections.
const serveTimeout = time.Minute

// through runs a TURN server during a run, as a separate process whose memory and processor time
// are not counted. server returns its arguments. The process ends with its standard input, or is
// killed.
func through(server func(at netip.AddrPort) []string, run runFunc) runFunc {
	return func(ctx context.Context, spec load.Spec) (r load.Result, err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		at, err := freePort(ctx)
		if err != nil {
			return load.Result{}, err
		}
		argv := server(at)
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Stdout, cmd.Stderr = &out, &out
		child.EndWithParent(cmd)
		if _, err := cmd.StdinPipe(); err != nil { // closed when this process ends; coturn does not read it
			return load.Result{}, fmt.Errorf("start relay: %w", err)
		}
		if err := cmd.Start(); err != nil {
			return load.Result{}, fmt.Errorf("start relay: %w", err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		serving := serves(ctx, at, ended)
		if serving == nil {
			spec.Relay = at.String()
			r, err = run(ctx, spec)
		}
		cancel()
		killed := <-ended
		if serving == nil && killed == nil {
			serving = errors.New("it ended by itself")
		}
		if serving != nil {
			return load.Result{}, fmt.Errorf("relay: %w%s", serving, quoted(out.Bytes()))
		}
		return r, err
	}
}

// portAttempts bounds the search for a port that is free for both TCP and UDP. A free TCP port is
// rarely in use by a UDP socket.
const portAttempts = 16

// freePort returns an address that is free for TCP and UDP.
func freePort(ctx context.Context) (at netip.AddrPort, err error) {
	for range portAttempts {
		if at, err = freeForBoth(ctx); err == nil {
			return at, nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("find a free port: %w", err)
}

// freeForBoth lets the system choose a TCP port, and fails if that is not free for UDP.
func freeForBoth(ctx context.Context) (netip.AddrPort, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", netip.AddrPortFrom(loopback, 0).String())
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer l.Close()
	p, err := new(net.ListenConfig).ListenPacket(ctx, "udp4", l.Addr().String())
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer p.Close()
	return netip.ParseAddrPort(l.Addr().String())
}

// serves waits until a server accepts connections at an address, or has ended. It puts the value
// that it takes from ended back.
func serves(ctx context.Context, at netip.AddrPort, ended chan error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, serveTimeout, fmt.Errorf("no connection to %s within %s", at, serveTimeout))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp4", at.String())
		if err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case err := <-ended:
			ended <- err
			return fmt.Errorf("ended at once: %w", err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
