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

// wireguardGoPackage is the package of wireguard-go's own program.
const wireguardGoPackage = "golang.zx2c4.com/wireguard"

// peerSubjects are the programs that postern is compared with.
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

// peerProgram is a program built from one of the peers' modules.
type peerProgram struct {
	source, pkg, program string // the module's folder, the package in it, the program's file
	run                  runFunc
	once                 sync.Once
	err                  error
}

// peers returns the program of a package in one of the peers' modules. The package may belong to
// a dependency of the module, and is then built at the version that the module requires.
func (p Programs) peers(folder, pkg string) *peerProgram {
	if p.Peers == "" {
		return &peerProgram{}
	}
	source := filepath.Join(p.Peers, folder)
	program := filepath.Join(p.Dir, path.Base(path.Join(filepath.ToSlash(source), pkg)))
	return &peerProgram{source: source, pkg: pkg, program: program, run: process([]string{program})}
}

// build compiles it once for all its subjects.
func (p *peerProgram) build(ctx context.Context) error {
	if p.source == "" {
		return errors.New("its source is in postern's repository alone (make bench)")
	}
	p.once.Do(func() { p.err = build(ctx, p.source, p.pkg, p.program) })
	return p.err
}

// build compiles the program of a package in a module.
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
