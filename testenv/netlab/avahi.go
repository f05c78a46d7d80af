//go:build linux

package netlab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Avahi is avahi-daemon on a host, with its own message bus.
type Avahi struct {
	host *Host
	env  []string
}

// busConfig permits everything: only the test's programs use the bus.
const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path=%s</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
    <allow user="*"/>
  </policy>
</busconfig>
`

const avahiConfig = `[server]
host-name=%s
use-ipv4=yes
use-ipv6=yes
allow-interfaces=eth0
enable-dbus=yes
ratelimit-interval-usec=1000000
ratelimit-burst=1000
[publish]
publish-workstation=no
publish-hinfo=no
`

// StartAvahi starts avahi-daemon on the host's interface eth0 for the duration of the test, and
// waits until it has registered its name.
func (h *Host) StartAvahi() *Avahi {
	t := h.lab.t
	t.Helper()
	dir, err := os.MkdirTemp("", "avahi")
	if err != nil {
		t.Fatalf("netlab: a folder for avahi: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("netlab: remove avahi's files: %v", err)
		}
	})
	bus := filepath.Join(dir, "bus")
	files := map[string]string{"bus.conf": fmt.Sprintf(busConfig, bus), "avahi.conf": fmt.Sprintf(avahiConfig, h.name)}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatalf("netlab: avahi's configuration: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	a := &Avahi{host: h, env: []string{"DBUS_SYSTEM_BUS_ADDRESS=unix:path=" + bus}}
	daemon := h.Start(Command{Args: []string{"dbus-daemon", "--config-file=" + filepath.Join(dir, "bus.conf"), "--nofork", "--print-address"}})
	if _, err := daemon.WaitStdout(ctx, func(s string) bool { return strings.Contains(s, bus) }); err != nil {
		t.Fatalf("netlab: dbus-daemon on %s: %v", h.name, err)
	}
	// The paths of its pid file and socket are fixed, so each daemon has its own /run.
	avahi := h.Start(Command{Env: a.env, Args: []string{"unshare", "--mount", "sh", "-c",
		"mount -t tmpfs tmpfs /run && exec avahi-daemon --no-drop-root --no-rlimits --no-chroot --file " + filepath.Join(dir, "avahi.conf")}})
	if _, err := avahi.WaitStderr(ctx, func(log string) bool { return strings.Contains(log, "Server startup complete") }); err != nil {
		t.Fatalf("netlab: avahi-daemon on %s: %v", h.name, err)
	}
	return a
}

// Browse lists the services of a type that avahi-browse finds and resolves, one a line, in its
// parsable format: event;interface;protocol;name;type;domain;host;address;port;txt.
func (a *Avahi) Browse(ctx context.Context, service string) ([]string, error) {
	p, err := Start(Command{Namespace: a.host.namespace, Env: a.env, Args: []string{"avahi-browse", "--resolve", "--parsable", "--terminate", service}})
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	if code, err := p.Wait(ctx); err != nil || code != 0 {
		return nil, fmt.Errorf("avahi-browse on %s: exit code %d, %w%s", a.host.name, code, err, p.tail())
	}
	var out []string
	for line := range strings.Lines(p.Stdout()) {
		if strings.HasPrefix(line, "=") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out, nil
}

// Publish announces a service until the process is killed, at the latest at the test's end.
func (a *Avahi) Publish(name, service string, port uint16, txt ...string) *Process {
	a.host.lab.t.Helper()
	args := append([]string{"avahi-publish", "--service", name, service, fmt.Sprint(port)}, txt...)
	p := a.host.Start(Command{Env: a.env, Args: args})
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	if _, err := p.WaitStderr(ctx, func(s string) bool { return strings.Contains(s, "Established under name") }); err != nil {
		a.host.lab.t.Fatalf("netlab: avahi-publish on %s: %v", a.host.name, err)
	}
	return p
}
