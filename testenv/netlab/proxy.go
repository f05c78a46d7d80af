//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ProxyOptions configure an HTTP proxy with CONNECT.
type ProxyOptions struct {
	// Program is squid or tinyproxy.
	Program string
	// Listen is the address that it listens on.
	Listen netip.AddrPort
	// Username and Password are required from clients; both empty means no authentication.
	Username, Password string
	// Ports are the ports that it connects to.
	Ports []uint16
}

// StartProxy starts a proxy for the duration of the test, and waits until it answers.
func (h *Host) StartProxy(o ProxyOptions) *Process {
	t := h.lab.t
	t.Helper()
	dir, err := os.MkdirTemp("", "proxy")
	if err != nil {
		t.Fatalf("netlab: a folder for the proxy: %v", err)
	}
	t.Cleanup(func() {
		shared, err := filepath.Glob("/dev/shm/" + filepath.Base(dir) + "-*") // of squid, which was killed
		for _, file := range append(shared, dir) {
			err = errors.Join(err, os.RemoveAll(file))
		}
		if err != nil {
			t.Errorf("netlab: remove the proxy's files: %v", err)
		}
	})
	if err := os.Chmod(dir, 0o777); err != nil { // squid changes to another user
		t.Fatalf("netlab: the proxy's folder: %v", err)
	}
	write := map[string]func(*Host, string) ([]string, string){"squid": o.squid, "tinyproxy": o.tinyproxy}[o.Program]
	args, conf := write(h, dir)
	if err := os.WriteFile(filepath.Join(dir, "conf"), []byte(conf), 0o644); err != nil {
		t.Fatalf("netlab: configure the proxy: %v", err)
	}
	p := h.Start(Command{Args: args, Dir: dir})
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	for {
		c, err := h.DialContext(ctx, "tcp", o.Listen.String())
		if err == nil {
			c.Close()
			return p
		}
		select {
		case <-p.Done():
			log, _ := os.ReadFile(filepath.Join(dir, "log")) // only for the message
			t.Fatalf("netlab: the proxy on %s ended at its start%s\n%s", h.name, p.tail(), log)
		case <-ctx.Done():
			t.Fatalf("netlab: the proxy on %s does not answer: %v%s", h.name, err, p.tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// squid returns its command line and a configuration like Debian's: CONNECT only to some ports.
func (o ProxyOptions) squid(h *Host, dir string) (args []string, conf string) {
	t := h.lab.t
	t.Helper()
	var ports []string
	for _, p := range o.Ports {
		ports = append(ports, portText(p))
	}
	lines := []string{
		"http_port " + o.Listen.String(), "visible_hostname proxy", "pid_filename none", "pinger_enable off", "netdb_filename none",
		"access_log none", "cache_log " + filepath.Join(dir, "log"), "coredump_dir " + dir, "cache deny all", "shutdown_lifetime 0 seconds",
		"acl open port " + strings.Join(ports, " "), "http_access deny CONNECT !open",
	}
	if o.Username != "" {
		hash, err := exec.CommandContext(t.Context(), "openssl", "passwd", "-apr1", o.Password).Output()
		if err != nil {
			t.Fatalf("netlab: hash the proxy's password: %v", err)
		}
		users := filepath.Join(dir, "users")
		if err := os.WriteFile(users, []byte(o.Username+":"+string(hash)), 0o644); err != nil {
			t.Fatalf("netlab: the proxy's users: %v", err)
		}
		lines = append(lines, "auth_param basic program /usr/lib/squid/basic_ncsa_auth "+users, "auth_param basic children 2 startup=1 idle=1",
			"acl known proxy_auth REQUIRED", "http_access deny !known")
	}
	lines = append(lines, "http_access allow all")
	return []string{"squid", "-N", "-n", filepath.Base(dir), "-f", filepath.Join(dir, "conf")}, strings.Join(lines, "\n") + "\n"
}

// tinyproxy returns its command line and configuration.
func (o ProxyOptions) tinyproxy(_ *Host, dir string) (args []string, conf string) {
	lines := []string{fmt.Sprintf("Listen %s", o.Listen.Addr()), "Port " + portText(o.Listen.Port()), "Timeout 600", "LogLevel Error"}
	for _, p := range o.Ports {
		lines = append(lines, "ConnectPort "+portText(p))
	}
	if o.Username != "" {
		lines = append(lines, "BasicAuth "+o.Username+" "+o.Password)
	}
	return []string{"tinyproxy", "-d", "-c", filepath.Join(dir, "conf")}, strings.Join(lines, "\n") + "\n"
}
