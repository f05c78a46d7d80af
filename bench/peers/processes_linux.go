package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/ecdh"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/postern-dev/postern/bench/peers/load"
)

const (
	// listenPort is the UDP port of both processes, each in its own namespace.
	listenPort = 51820
	// runDir is the parent of wireguard-go's socket folder.
	runDir = "/var/run"
	// answerTimeout bounds the start of a process and its answers.
	answerTimeout = 30 * time.Second
	// upPoll is the pause between attempts to connect to a process.
	upPoll = 10 * time.Millisecond
	// endTimeout bounds how long a process takes to end after SIGTERM.
	endTimeout = 30 * time.Second
)

// process is a wireguard-go process, spec.Program, at its site.
type process struct {
	site
	name  string // of its interface and its configuration socket
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
	err   error         // the reason, after that
}

// processes are two of them.
type processes struct {
	sites
	both [2]*process
}

// newProcesses runs wireguard-go as wg-quick does if the kernel has no WireGuard: its own
// program, one process for each end, configured through its socket. Each is in its own network
// namespace. A veth pair connects the two. The kernel's TCP is used by this process. Only the two
// processes are counted.
func newProcesses(ctx context.Context, spec load.Spec) (load.Ends, error) {
	switch {
	case spec.Program == "":
		return load.Ends{}, errors.New("which wireguard-go? The run was not told")
	case spec.Via != "":
		return load.Ends{}, errors.New("not by way of a forwarder: the processes are in namespaces that it is not in")
	}
	s, err := newSites()
	if err != nil {
		return load.Ends{}, err
	}
	p := &processes{sites: s}
	ends, err := p.start(ctx, spec)
	if err != nil {
		return load.Ends{}, errors.Join(err, p.close())
	}
	return ends, nil
}

func (p *processes) start(ctx context.Context, spec load.Spec) (load.Ends, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	mtu := cmp.Or(spec.MTU, defaultMTU)
	if err := p.join(mtu); err != nil {
		return load.Ends{}, err
	}
	began := time.Now() // the machines to start wireguard-go on exist now
	var keys [2]*ecdh.PrivateKey
	for i := range keys {
		var err error
		if keys[i], err = newKey(); err != nil {
			return load.Ends{}, err
		}
		if p.both[i], err = startProcess(p.sites[i], spec.Program, tunNames[i]); err != nil {
			return load.Ends{}, err
		}
	}
	for i, one := range p.both {
		other := 1 - i
		err := one.configure(ctx, fmt.Sprintf("private_key=%s\nlisten_port=%d\n", hex.EncodeToString(keys[i].Bytes()), listenPort)+
			peerLines(keys[other].PublicKey(), netip.AddrPortFrom(underlayAddrs[other], listenPort), overlayAddrs[other], 0))
		if err != nil {
			return load.Ends{}, err
		}
		if err := one.setUp(one.name, overlayAddrs[i], mtu); err != nil {
			return load.Ends{}, err
		}
	}
	ends, err := p.ends()
	ends.Close, ends.Began = p.close, began
	ends.Processes = []int{p.both[0].cmd.Process.Pid, p.both[1].cmd.Process.Pid}
	return ends, err
}

// startProcess starts a process at a site, where it creates its interface. It ends with this
// process.
func startProcess(s site, program, name string) (*process, error) {
	p := &process{site: s, name: name, ended: make(chan struct{})}
	p.cmd = exec.Command(program, "--foreground", name) //nolint:noctx // close ends it, with time to clean up
	// It inherits no settings of ours. The variable suppresses the advice to use the kernel's
	// WireGuard.
	p.cmd.Env = []string{"WG_PROCESS_FOREGROUND=1"}
	p.cmd.Stdout, p.cmd.Stderr = os.Stderr, os.Stderr // standard output is for the result
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	s.in(func() {
		if err = hideRunDir(); err == nil {
			err = p.cmd.Start()
		}
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// hideRunDir mounts an empty folder on runDir for the thread and the processes that it starts. So
// sockets there are private to them, and removed with them.
func hideRunDir() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep mounts in the namespace: %w", err)
	}
	if err := unix.Mount("tmpfs", runDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=64k,mode=0755"); err != nil {
		return fmt.Errorf("mount a folder on %s: %w", runDir, err)
	}
	return nil
}

// configure waits until the process answers and sends it lines of WireGuard's cross-platform
// configuration protocol.
func (p *process) configure(ctx context.Context, lines string) error {
	conn, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return fmt.Errorf("configure %s: %w", p.name, err)
	}
	if _, err := io.WriteString(conn, "set=1\n"+lines+"\n"); err != nil {
		return fmt.Errorf("configure %s: %w", p.name, err)
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return fmt.Errorf("configure %s: %w", p.name, err)
	}
	if answer = strings.TrimSpace(answer); answer != "errno=0" {
		return fmt.Errorf("configure %s: it answers %q", p.name, answer)
	}
	return nil
}

// open connects to the process's socket, which exists once the process has its interface.
func (p *process) open(ctx context.Context) (net.Conn, error) {
	at := filepath.Join(runDir, "wireguard", p.name+".sock")
	tick := time.NewTicker(upPoll)
	defer tick.Stop()
	for {
		conn, err := p.dial(ctx, "unix", at)
		if err == nil {
			return conn, nil
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return nil, fmt.Errorf("wireguard-go for %s (needs root and /dev/net/tun) ended: %s", p.name, p.cmd.ProcessState)
		case <-ctx.Done():
			return nil, fmt.Errorf("wireguard-go for %s does not answer: %w", p.name, err)
		}
	}
}

// close ends the processes and releases the namespaces.
func (p *processes) close() error {
	var running []*process
	for _, one := range p.both {
		if one != nil {
			_ = one.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			running = append(running, one)
		}
	}
	var errs []error
	for _, one := range running {
		errs = append(errs, one.wait())
	}
	return errors.Join(append(errs, p.sites.close())...)
}

// wait waits for the process to end after SIGTERM, kills it after a timeout, and returns an error
// if it did not exit cleanly.
func (p *process) wait() error {
	limit := time.NewTimer(endTimeout)
	defer limit.Stop()
	select {
	case <-p.ended:
		if p.err != nil {
			return fmt.Errorf("wireguard-go for %s: %w", p.name, p.err)
		}
		return nil
	case <-limit.C:
		_ = p.cmd.Process.Kill() // it may end just now
		<-p.ended
		return fmt.Errorf("wireguard-go for %s: still running %s after SIGTERM", p.name, endTimeout)
	}
}
