//go:build linux && release

// Package package_test makes a release twice, compares the bytes, and installs it.
package package_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/postern-dev/postern/testenv/kube"
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
	if n := bytes.Count(sums, []byte("\n")); n != 6*2+3*2+2+1 {
		t.Errorf("%d files, want an archive and a list of modules for each of six platforms, two packages for three of them, two of the chart and one for krew:\n%s", n, sums)
	}
	t.Run("archive", func(t *testing.T) { archive(t, first) })
	t.Run("elsewhere", func(t *testing.T) { elsewhere(t, first) })
	t.Run("sbom", func(t *testing.T) { sbom(t, first) })
	t.Run("chart", func(t *testing.T) { chart(t, first) })
	t.Run("krew", func(t *testing.T) { krew(t, first) })
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

// elsewhere: the programs for other systems cannot be run here. They are for these, and nothing
// comes with them that is for Linux alone.
func elsewhere(t *testing.T, out string) {
	for platform, c := range map[string]struct{ program, other, magic string }{
		"darwin_amd64":  {"postern", "postern.exe", "\xcf\xfa\xed\xfe\x07\x00\x00\x01"},
		"darwin_arm64":  {"postern", "postern.exe", "\xcf\xfa\xed\xfe\x0c\x00\x00\x01"},
		"windows_amd64": {"postern.exe", "postern", "MZ"},
	} {
		dir := t.TempDir()
		run(t, dir, "tar", "-xzf", match(t, out+"/postern_*_"+platform+".tar.gz"))
		dir = match(t, dir+"/postern_*")
		program, err := os.ReadFile(filepath.Join(dir, c.program))
		if err != nil || !bytes.HasPrefix(program, []byte(c.magic)) {
			t.Errorf("%s: the program begins with % x, %v", platform, program[:min(8, len(program))], err)
		}
		for _, name := range []string{c.other, "postern.service", "sysusers.conf"} {
			if _, err := os.Lstat(filepath.Join(dir, name)); !os.IsNotExist(err) {
				t.Errorf("%s: it comes with %s (%v)", platform, name, err)
			}
		}
	}
}

// sbom: each archive's program is what its document says, by checksum.
func sbom(t *testing.T, out string) {
	for _, platform := range []string{"linux_amd64", "linux_arm64", "linux_arm", "darwin_amd64", "darwin_arm64", "windows_amd64"} {
		var document struct {
			Metadata struct {
				Component struct{ Hashes []struct{ Content string } }
			}
			Components []struct{ Purl string }
		}
		text, err := os.ReadFile(match(t, out+"/postern_*_"+platform+".cdx.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &document); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		run(t, dir, "tar", "-xzf", match(t, out+"/postern_*_"+platform+".tar.gz"))
		name := "postern"
		if strings.HasPrefix(platform, "windows") {
			name = "postern.exe"
		}
		program, err := os.ReadFile(filepath.Join(match(t, dir+"/postern_*"), name))
		if err != nil {
			t.Fatal(err)
		}
		sum := fmt.Sprintf("%x", sha256.Sum256(program))
		if got := document.Metadata.Component.Hashes; len(got) != 1 || got[0].Content != sum {
			t.Errorf("%s: it is about %v, and the program is %s", platform, got, sum)
		}
		if !slices.ContainsFunc(document.Components, func(c struct{ Purl string }) bool { return strings.HasPrefix(c.Purl, "pkg:golang/gvisor.dev/gvisor@") }) {
			t.Errorf("%s: its network stack is not among %d components", platform, len(document.Components))
		}
	}
}

// chart has Helm pull the artefact from a registry, and compares it with the packed chart.
func chart(t *testing.T, out string) {
	helm, err := kube.Helm(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	send := func(method, path, kind string, body []byte) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/v2/charts/postern/"+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", kind)
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusCreated {
			t.Fatalf("%s %s: %s", method, path, response.Status)
		}
	}
	layout := t.TempDir()
	run(t, layout, "tar", "-xf", match(t, out+"/postern-chart-*.oci.tar"))
	blobs, err := filepath.Glob(layout + "/blobs/sha256/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range blobs {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		send("POST", "blobs/uploads/?digest=sha256:"+filepath.Base(file), "application/octet-stream", content)
	}
	text, err := os.ReadFile(layout + "/index.json")
	if err != nil {
		t.Fatal(err)
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(text))
	if err != nil || len(index.Manifests) != 1 {
		t.Fatalf("%s: %v", text, err)
	}
	top := index.Manifests[0]
	manifest, err := os.ReadFile(filepath.Join(layout, "blobs", top.Digest.Algorithm, top.Digest.Hex))
	if err != nil {
		t.Fatal(err)
	}
	send("PUT", "manifests/"+top.Annotations["org.opencontainers.image.ref.name"], string(top.MediaType), manifest)

	dir := t.TempDir()
	run(t, dir, helm, "pull", "oci://"+strings.TrimPrefix(server.URL, "http://")+"/charts/postern", "--version", strings.TrimPrefix(version, "v"), "--plain-http")
	pulled, err := os.ReadFile(match(t, dir+"/postern-*.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	file := match(t, out+"/postern-"+strings.TrimPrefix(version, "v")+".tgz")
	if packed, err := os.ReadFile(file); err != nil || !bytes.Equal(pulled, packed) {
		t.Errorf("what is pulled is not what was packed (%v)", err)
	}
	if objects := run(t, dir, helm, "template", "postern", file, "--set", "name=edge"); !strings.Contains(objects, `image: "localhost/postern:`+version+`"`) {
		t.Errorf("it does not run the release's image:\n%s", objects)
	}
}

// krew installs the plugin from the archive.
func krew(t *testing.T, out string) {
	root := t.TempDir()
	t.Setenv("KREW_ROOT", root)
	run(t, out, "go", "run", os.Getenv("KREW"), "install", "--manifest", out+"/postern.krew.yaml", "--archive", match(t, out+"/postern_*_linux_"+runtime.GOARCH+".tar.gz"))
	if got := run(t, out, filepath.Join(root, "bin", "kubectl-postern"), "version"); !strings.HasPrefix(got, "postern "+version+" ") {
		t.Errorf("it is %q", got)
	}
	// A platform that krew knows must be one of ours, with an archive that is as it says.
	text, err := os.ReadFile(out + "/postern.krew.yaml")
	if err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`(?m)^    uri: https://\S+/(\S+)\n    sha256: (\S+)$`).FindAllSubmatch(text, -1)
	if len(links) != 6 {
		t.Errorf("%d platforms:\n%s", len(links), text)
	}
	for _, link := range links {
		if content, err := os.ReadFile(filepath.Join(out, string(link[1]))); err != nil || fmt.Sprintf("%x", sha256.Sum256(content)) != string(link[2]) {
			t.Errorf("%s is not what the manifest says (%v)", link[1], err)
		}
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
