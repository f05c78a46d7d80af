//go:build linux && e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/postern-dev/postern/testenv/netlab"
)

// resolver is a name server on a side's loopback, with a resolv.conf that names it.
type resolver struct {
	proc                *netlab.Process
	records, resolvConf string
	read                int // how often it has read its records
}

// resolves makes a name lead to an address on a side's host and, with the next call, elsewhere.
// The side's gateway uses this resolver if the first call comes before its start.
func (w *ward) resolves(name, address string) {
	w.t.Helper()
	if w.names == nil {
		w.names = &resolver{records: filepath.Join(w.dir, "records"), resolvConf: filepath.Join(w.dir, "resolv.conf")}
		writeFile(w.t, w.names.resolvConf, "nameserver 127.0.0.1\n", 0o644)
	}
	r := w.names
	writeFile(w.t, r.records, fmt.Sprintf("%s %s\n", address, name), 0o644)
	if r.proc == nil {
		// dnsmasq(8): without this machine's own configuration, and without upstream servers.
		r.proc = w.host.Start(netlab.Command{Args: []string{
			"dnsmasq", "--keep-in-foreground", "--log-facility=-", "--conf-file=/dev/null", "--pid-file=", "--user=root",
			"--no-resolv", "--no-hosts", "--addn-hosts=" + r.records, "--listen-address=127.0.0.1", "--bind-interfaces",
		}})
	} else if err := r.proc.Signal(syscall.SIGHUP); err != nil {
		w.t.Fatal(err)
	}
	r.read++
	if _, err := r.proc.WaitStderr(within(w.t, patience), func(log string) bool { return strings.Count(log, r.records) >= r.read }); err != nil {
		w.t.Fatalf("the name server of %s: %v", w.name, err)
	}
}

// launch runs the gateway with the side's own resolver, if it has one.
func (w *ward) launch() {
	w.t.Helper()
	args := []string{w.bin, "gateway", "--config", w.configFile()}
	if w.names != nil {
		args = append([]string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, w.names.resolvConf}, args...)
	}
	w.proc = w.host.Start(netlab.Command{Args: args, Env: w.env})
}
