package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"sync"

	"github.com/postern-dev/postern/bench/limits"
	"github.com/postern-dev/postern/bench/load"
)

// wireguardGoPackage is wireguard-go's own program.
const wireguardGoPackage = "golang.zx2c4.com/wireguard"

// peerSubjects are what postern is compared with.
func peerSubjects(p Programs) []Subject {
	peers, tsnet, remoteDialer, wireguardGo := p.peers(".", "."), p.peers("tsnet", "."), p.peers("remotedialer", "."), p.peers(".", wireguardGoPackage)
	return []Subject{
		{
			Name:    Tsnet,
			About:   "two of tailscale's tsnet nodes with its control server for tests, over a direct path",
			Prepare: tsnet.build,
			Run:     tsnet.run,
		},
		{
			Name:    TsnetProxy,
			About:   "the same between a local listener and a service of the kernel's TCP, as tailscaled's userspace proxy is",
			Prepare: tsnet.build,
			Run:     tsnet.run,
		},
		{
			Name:    RemoteDialer,
			About:   "rancher/remotedialer: a websocket over TLS between a local listener and a service",
			Prepare: remoteDialer.build,
			Run:     remoteDialer.run,
		},
		{
			Name:    WireGuardTUN,
			About:   "wireguard-go with TUN devices and the kernel's TCP, in two network namespaces (as root)",
			Prepare: peers.build,
			Run:     peers.run,
		},
		{
			Name:    WireGuardBBR,
			About:   "the same with the kernel's BBR, whatever the machine is set to",
			Prepare: peers.build,
			Run:     peers.run,
		},
		{
			Name:    WireGuardCUBIC,
			About:   "the same with the kernel's CUBIC",
			Prepare: peers.build,
			Run:     peers.run,
		},
		{
			Name:  WireGuardGo,
			About: "two processes of wireguard-go's own program, with TUN devices and the kernel's TCP, in two network namespaces (as root); theirs alone is counted",
			Prepare: func(ctx context.Context) error {
				if err := peers.build(ctx); err != nil {
					return err
				}
				return wireguardGo.build(ctx)
			},
			Run: func(ctx context.Context, spec load.Spec) (load.Result, error) {
				if l := (limits.Limits{CPUs: spec.CPUs, Memory: spec.Memory}); l.Any() {
					return load.Result{}, fmt.Errorf("its processes cannot be limited to %s", l)
				}
				spec.Program = wireguardGo.program
				return peers.run(ctx, spec)
			},
		},
		{
			Name:    Stock,
			About:   "wireguard-go with its tun/netstack and its own bind, as wireproxy embeds it",
			Prepare: peers.build,
			Run:     peers.run,
		},
	}
}

// peerProgram is one that a module of the peers' builds.
type peerProgram struct {
	source, pkg, program string // The module's folder, the package in it, the program's file.
	run                  runFunc
	once                 sync.Once
	err                  error
}

// peers is the program of a package in the module in a folder of the peers', which may be
// the package of another module that this one requires: it is built at the version of that.
func (p Programs) peers(folder, pkg string) *peerProgram {
	if p.Peers == "" {
		return &peerProgram{}
	}
	source := filepath.Join(p.Peers, folder)
	program := filepath.Join(p.Dir, path.Base(path.Join(filepath.ToSlash(source), pkg)))
	return &peerProgram{source: source, pkg: pkg, program: program, run: process([]string{program})}
}

// build compiles it, once for all its subjects.
func (p *peerProgram) build(ctx context.Context) error {
	if p.source == "" {
		return errors.New("its source is in postern's repository alone (make bench)")
	}
	p.once.Do(func() { p.err = build(ctx, p.source, p.pkg, p.program) })
	return p.err
}

// build compiles a package's program in a module.
func build(ctx context.Context, source, pkg, program string) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return fmt.Errorf("build %s in %s: %w", pkg, source, err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, pkg)
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s in %s: %w%s", pkg, source, err, quoted(out))
	}
	return nil
}
