//go:build release

// Package package_test makes a release twice, compares the bytes, and installs it.
package package_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/operator"
)

const (
	repository = "../../../.."
	version    = "v0.0.1-test"
	// suite is the Debian that the package is installed in.
	suite = "trixie"
	// patience bounds what is waited for; it only matters when something is broken.
	patience = 20 * time.Minute
)

// run runs a command in a folder and gives what it printed.
func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Dir = dir
	var complaint bytes.Buffer
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out, complaint.String())
	}
	return string(out)
}

// release makes one of what is committed, in a clone of its own.
func release(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	clone, out := filepath.Join(dir, "clone"), filepath.Join(dir, "out")
	top, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, "git", "clone", "-q", "--shared", top, clone)
	run(t, clone, "make", "release", "VERSION="+version, "RELEASE="+out)
	return out
}

// One test, as each part needs what the one before has made.
func TestARelease(t *testing.T) {
	first, second := release(t), release(t)
	sums, err := os.ReadFile(filepath.Join(first, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := os.ReadFile(filepath.Join(second, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(sums, again) {
		t.Errorf("two releases of one commit differ:\n%s\n%s", sums, again)
	}
	run(t, second, "sha256sum", "--check", "--strict", filepath.Join(first, "SHA256SUMS"))
	if n := bytes.Count(sums, []byte("\n")); n != 9 {
		t.Errorf("%d files, want an archive and two packages for each of three architectures:\n%s", n, sums)
	}
	t.Run("archive", func(t *testing.T) { archive(t, first) })
	t.Run("rpm", func(t *testing.T) { rpm(t, first) })
	t.Run("deb", func(t *testing.T) { deb(t, first) })
}

// match is the only file of a pattern.
func match(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q, %v", pattern, found, err)
	}
	return found[0]
}

func archive(t *testing.T, out string) {
	dir := t.TempDir()
	run(t, dir, "tar", "-xzf", match(t, out+"/postern_*_linux_"+runtime.GOARCH+".tar.gz"))
	if got := run(t, match(t, dir+"/postern_*"), "./postern", "version"); !strings.HasPrefix(got, "postern "+version+" ") {
		t.Errorf("it is %q", got)
	}
}

func rpm(t *testing.T, out string) {
	for architecture, name := range map[string]string{"amd64": "x86_64", "arm64": "aarch64", "arm": "armv7hl"} {
		file := match(t, out+"/postern-*."+name+".rpm")
		run(t, out, "rpm", "-K", "--nosignature", file)
		files := run(t, out, "rpm", "-qp", "--qf", "[%{FILEMODES:perms} %{FILEUSERNAME} %{FILENAMES}\n]", file)
		for _, want := range []string{"-rwxr-xr-x root /usr/bin/postern\n", "-rw-r--r-- root /etc/postern/gateway.yaml\n",
			"-rw-r--r-- root /usr/lib/systemd/system/postern.service\n", "-rw-r--r-- root /usr/share/zsh/site-functions/_postern\n"} {
			if !strings.Contains(files, want) {
				t.Errorf("%s lacks %q:\n%s", architecture, want, files)
			}
		}
		if got := run(t, out, "rpm", "-qp", "--configfiles", file); got != "/etc/postern/gateway.yaml\n" {
			t.Errorf("%s: the configuration files are %q", architecture, got)
		}
	}
}

// deb installs the package in a clean Debian, and runs the gateway as its unit does.
func deb(t *testing.T, out string) {
	root := filepath.Join(t.TempDir(), "root")
	run(t, out, "mmdebstrap", "--quiet", "--variant=minbase", suite, root)
	in := func(args ...string) string {
		t.Helper()
		return run(t, out, append([]string{"chroot", root}, args...)...)
	}
	data, err := os.ReadFile(match(t, out+"/postern_*_"+runtime.GOARCH+".deb"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "postern.deb"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	in("dpkg", "--install", "/postern.deb")
	if got := in("postern", "--version"); !strings.HasPrefix(got, "postern "+version+" ") {
		t.Errorf("it is %q", got)
	}
	if got := in("getent", "passwd", "postern"); !strings.HasSuffix(got, ":/var/lib/postern:/usr/sbin/nologin\n") {
		t.Errorf("its user is %q", got)
	}

	operators(t, root)

	// The unit is as shut in as it says, and what it names is there.
	unit := filepath.Join(root, "usr/lib/systemd/system/postern.service")
	t.Log(run(t, out, "systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=20", unit))
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindSubmatch(text)
	if command == nil {
		t.Fatalf("it starts nothing:\n%s", text)
	}

	// As it comes, the configuration lacks a name, and says so.
	const file = "/etc/postern/gateway.yaml"
	c := exec.CommandContext(t.Context(), "chroot", root, "postern", "config", "validate", file)
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), file+":14: metadata.name: missing") {
		t.Errorf("without a name: %v: %s", err, out)
	}
	in("sed", "-i", `s/name: ""/name: edge/`, file)
	in("postern", "config", "validate", file)

	// What systemd would make: StateDirectory, RuntimeDirectory, User.
	in("install", "-d", "-o", "postern", "-g", "postern", "-m", "0700", "/var/lib/postern")
	in("install", "-d", "-o", "postern", "-g", "postern", "-m", "0750", "/run/postern")
	gateway := exec.CommandContext(t.Context(), "unshare", append([]string{"--net", "--pid", "--fork", "--root", root, "--mount-proc",
		"setpriv", "--reuid", "postern", "--regid", "postern", "--clear-groups", "--no-new-privs", "--bounding-set=-all", "--pdeathsig", "KILL"},
		strings.Fields(string(command[1]))...)...)
	var log bytes.Buffer
	gateway.Stderr = &log
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = gateway.Process.Kill() // of which the gateway dies
		_ = gateway.Wait()
	}()
	ticket := in("postern", "invite", "--name", "cloud") // waits for the gateway
	if !strings.HasPrefix(ticket, "postern1") {
		t.Errorf("the ticket is %q\n%s", ticket, log.String())
	}
	if got := in("postern", "status"); !strings.HasPrefix(got, "gateway edge ") {
		t.Errorf("the status is %q", got)
	}

	// Another installation keeps the configuration; a purge leaves nothing.
	in("dpkg", "--install", "/postern.deb")
	if got := in("grep", "^  name:", file); strings.TrimSpace(got) != "name: edge" {
		t.Errorf("the configuration is %q", got)
	}
	in("dpkg", "--purge", "postern")
	for _, path := range []string{"/usr/bin/postern", "/etc/postern", "/var/lib/postern", "/usr/share/postern"} {
		if _, err := os.Lstat(root + path); !os.IsNotExist(err) {
			t.Errorf("%s is left behind (%v)", path, err)
		}
	}
}

// operators are two who have installed the package, each on a machine of its own, and type
// `postern up`, which finds the configuration as it comes.
func operators(t *testing.T, root string) {
	const upWords = 8
	sit := func(name, other string) *operator.Operator {
		t.Helper()
		machine := filepath.Join(t.TempDir(), "root")
		run(t, "/", "cp", "-a", root, machine)
		namespace := "postern-up-" + name
		run(t, "/", "ip", "netns", "add", namespace)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", namespace).Run() }) //nolint:noctx // the test's context has ended
		if other != "" {
			run(t, "/", "ip", "link", "add", "eth0", "netns", namespace, "type", "veth", "peer", "name", "eth0", "netns", "postern-up-"+other)
		}
		o := operator.Sit(t, name, exec.CommandContext(t.Context(), "nsenter", "--net=/run/netns/"+namespace, "unshare", "--pid", "--fork", "--kill-child",
			"--root", machine, "--mount-proc", "env", "-i", "TERM=dumb", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "bash", "--norc", "--noprofile", "-i"))
		o.Types(`# $`, "export PS1='$ '")
		return o
	}
	cloud, edge := sit("cloud", ""), sit("edge", "cloud")
	for namespace, address := range map[string]string{"postern-up-cloud": "192.0.2.1/24", "postern-up-edge": "192.0.2.2/24"} {
		run(t, "/", "ip", "-n", namespace, "address", "add", address, "dev", "eth0")
		run(t, "/", "ip", "-n", namespace, "link", "set", "eth0", "up")
		run(t, "/", "ip", "-n", namespace, "link", "set", "lo", "up")
	}
	before := cloud.Words() + edge.Words()
	start := time.Now()
	cloud.Types(`\$ $`, "postern up")
	cloud.Types(`call this one.*\? $`, "cloud")
	cloud.Types(`API server .*\? $`, "")
	cloud.Types(`Ticket .*\? $`, "")
	ticket := cloud.Sees(`\n(postern1[a-z0-9]+)\n`)
	edge.Types(`\$ $`, "postern up")
	edge.Types(`call this one.*\? $`, "edge")
	edge.Types(`API server .*\? $`, "")
	edge.Types(`Ticket .*\? $`, ticket)
	edge.Sees(`\njoined cloud`)
	words := cloud.Words() + edge.Words() - before
	t.Logf("peers after %v and %d words", time.Since(start).Round(time.Millisecond), words)
	if words > 2*upWords {
		t.Errorf("it took %d words, want at most %d", words, 2*upWords)
	}
}
