//go:build linux && e2e

package e2e

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/netlab"
	"github.com/postern-dev/postern/testenv/operator"
)

const (
	// upWithin is how long it may take two operators to connect their gateways, upWords how much
	// each may have to type.
	upWithin = 60 * time.Second
	upWords  = 8
)

// fresh makes a fresh machine: with its own /etc, /run and /var/lib, and processes that end with
// the shell.
const fresh = `set -e
mkdir "$0/etc" "$0/lib"
cp -a /etc/passwd /etc/group /etc/hosts /etc/nsswitch.conf "$0/etc"
mount --bind "$0/etc" /etc
mount --bind "$0/lib" /var/lib
mount -t tmpfs tmpfs /run
export PS1='$ ' PATH="$1:$PATH" HOME="$0" HISTFILE= TERM=dumb
cd
unset HTTPS_PROXY https_proxy POSTERN_CONFIG POSTERN_SOCKET
exec bash --norc --noprofile -i`

// sitDown starts an operator's shell on a machine of the lab that has only the program: no
// configuration, no state.
func sitDown(t *testing.T, h *netlab.Host) *operator.Operator {
	t.Helper()
	o := operator.Sit(t, h.Name(), exec.CommandContext(t.Context(), "nsenter", "--net=/run/netns/"+h.Namespace(), "--",
		"unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", fresh, tempDir(t), filepath.Dir(posternBinary(t))))
	o.Sees(`\$ $`)
	return o
}

// TestTwoOperatorsBecomePeers has two operators without any knowledge type `postern up`.
func TestTwoOperatorsBecomePeers(t *testing.T) {
	w := newWorld(t)
	cloud, edge := sitDown(t, w.cloud), sitDown(t, w.edge)
	start := time.Now()
	cloud.Types(``, "postern up")
	cloud.Types(`know this one.*\? $`, "cloud")
	cloud.Types(`API server .*\? $`, "127.0.0.1:6443")
	cloud.Types(`Create a CA .*\? $`, "")
	cloud.Types(`Ticket .*\? $`, "")
	ticket := cloud.Sees(`\n(postern1[a-z0-9]+)\n`)

	edge.Types(``, "postern up")
	edge.Types(`know this one.*\? $`, "edge")
	edge.Types(`API server .*\? $`, "")
	// Broken as by a chat program.
	edge.Types(`Ticket .*\? $`, "“"+ticket[:60]+"\r"+ticket[60:]+"”")
	edge.Sees(`\njoined cloud; may reach there: .*apiServer`)
	took := time.Since(start)
	t.Logf("peers after %v; %d and %d words were typed", took.Round(100*time.Millisecond), cloud.Words(), edge.Words())
	late(t, "until two operators were peers", took, upWithin)
	if cloud.Words() > upWords || edge.Words() > upWords {
		t.Errorf("it took %d and %d words, want at most %d", cloud.Words(), edge.Words(), upWords)
	}
	for _, o := range []*operator.Operator{cloud, edge} {
		o.Types(`\$ $`, "until postern status | grep -w direct; do sleep 0.2; done") // a probe shows it
		o.Sees(`(?m)^(?:cloud|edge) .* direct `)
	}

	// The file has comments for people, is valid and is not overwritten; the gateway continues.
	cloud.Types(`\$ $`, "grep -c '#' /etc/postern/gateway.yaml; grep -h localCA /etc/postern/gateway.yaml; ls -l /etc/postern")
	cloud.Sees(`(?s)\n[1-9][0-9]\n +auth: \{issuer: \{localCA: .*-rw-r--r-- .* gateway\.yaml\n-rw------- .* issuer\.crt\n-rw------- .* issuer\.key`)
	cloud.Types(`\$ $`, "cksum /etc/postern/* >before; postern up --name other; echo code $?")
	cloud.Sees(`/etc/postern/gateway\.yaml already exists, and disagrees with --name .*\ncode 2\n`)
	cloud.Types(`\$ $`, "postern up")
	cloud.Sees(`The gateway cloud is already running`)
	cloud.Types(`Ticket .*\? $`, "")
	if again := cloud.Sees(`\n(postern1[a-z0-9]+)\n`); again == ticket {
		t.Error("the ticket is the one before")
	}
	cloud.Types(`\$ $`, "postern up --name cloud --api-server 127.0.0.1:6443 --issuer-ca </dev/null; echo code $?")
	cloud.Sees(`The gateway cloud is already running\.\nNext: postern invite .*\ncode 0\n`)
	cloud.Types(`\$ $`, "cksum /etc/postern/* | diff before - && echo unchanged")
	cloud.Sees(`\nunchanged\n`)
}

// Without a terminal flags are enough, and missing ones are reported before anything is changed.
func TestUpWithoutATerminal(t *testing.T) {
	w := newWorld(t)
	o := sitDown(t, w.cloud)
	o.Types(``, "postern up </dev/null; echo code $?; ls /etc/postern")
	o.Sees(`there is no terminal to ask, and --name is missing .*\ncode 2\nls: cannot access`)
	o.Types(`\$ $`, "postern up --name Cloud </dev/null; echo code $?; ls /etc/postern")
	o.Sees(`\ncode 2\nls: cannot access`)
	o.Types(`\$ $`, "postern up --name cloud --advertise "+cloudAddr+":51820 --http-address 127.0.0.1:9520 </dev/null >ticket; echo code $?")
	o.Sees(`Wrote /etc/postern/gateway\.yaml(?s:.*)\ncode 0\n`)
	o.Types(`\$ $`, "grep -c ^postern1 ticket; grep -E '^ +(advertise|http):' /etc/postern/gateway.yaml")
	o.Sees(`\n1\n +http: \{address: "127.0.0.1:9520"\}\n +advertise: \["` + regexp.QuoteMeta(cloudAddr) + `:51820"\]\n`)

	edge := sitDown(t, w.edge)
	o.Types(`\$ $`, "cat ticket")
	ticket := o.Sees(`\n(postern1[a-z0-9]+)\n`)
	edge.Types(``, "postern up --name edge "+ticket+" </dev/null; echo code $?")
	edge.Sees(`\njoined cloud; .*\n(?s:.*)code 0\n`)
	// A gateway that does not start is an error.
	edge.Types(`\$ $`, "postern up --config ~/other.yaml --socket /run/other.sock --state-dir /var/lib/other --name other </dev/null; echo code $?")
	edge.Sees(`the gateway did not start: .*UDP port 51820 is in use (?s:.*)/var/lib/other/gateway\.log says more(?s:.*)\ncode 1\n`)
}
