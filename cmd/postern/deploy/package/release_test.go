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
	suite        = "trixie"
	programBytes = 40_000_000
	// patience bounds what a command takes, awhile what a machine does; they only matter when something
	// is broken.
	patience, awhile = 20 * time.Minute, 2 * time.Minute
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
	if n := bytes.Count(sums, []byte("\n")); n != 7*2+3*2+1+2+1+1+1 {
		t.Errorf("%d files, want an archive and a list of modules for each of seven platforms, two packages for three of them, the image, two of the chart, and one each for krew, scanners and people:\n%s", n, sums)
	}
	t.Run("provenance", func(t *testing.T) { provenance(t, first, second, string(sums)) })
	t.Run("words", func(t *testing.T) { words(t, first) })
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

// provenance: it is about each file, of the commit that was cloned, and the same for both releases.
func provenance(t *testing.T, first, second, sums string) {
	text, err := os.ReadFile(first + "/postern.provenance.json")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(second + "/postern.provenance.json"); err != nil || !bytes.Equal(text, again) {
		t.Errorf("that of the other release differs (%v)", err)
	}
	var statement struct {
		Subject []struct {
			Name   string
			Digest struct{ SHA256 string }
		}
	}
	if err := json.Unmarshal(text, &statement); err != nil {
		t.Fatal(err)
	}
	var about strings.Builder
	for _, s := range statement.Subject {
		fmt.Fprintf(&about, "%s  %s\n", s.Digest.SHA256, s.Name)
	}
	if about.String() != sums {
		t.Errorf("it is about\n%swant\n%s", about.String(), sums)
	}
	if commit := strings.TrimSpace(run(t, repository, "git", "rev-parse", "HEAD")); !strings.Contains(string(text), `"gitCommit": "`+commit+`"`) {
		t.Errorf("it is not of %s:\n%s", commit, text)
	}
}

// words: what has changed, and what scanners are told, of this version.
func words(t *testing.T, out string) {
	for file, want := range map[string]string{
		"RELEASE-NOTES.md":     "](https://github.com/postern-dev/postern/blob/" + version + "/",
		"postern.openvex.json": `"pkg:golang/github.com/postern-dev/postern@` + version + `"`,
	} {
		text, err := os.ReadFile(filepath.Join(out, file))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q (%v):\n%s", file, want, err, text)
		}
	}
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
		"windows_arm64": {"postern.exe", "postern", "MZ"},
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
	for _, platform := range []string{"linux_amd64", "linux_arm64", "linux_arm", "darwin_amd64", "darwin_arm64", "windows_amd64", "windows_arm64"} {
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
		if len(program) > programBytes {
			t.Errorf("%s: the program has %d bytes, want at most %d", platform, len(program), programBytes)
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
	if len(links) != 7 {
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

// deb installs the package in a clean Debian, in which two operators become peers, and takes it away.
func deb(t *testing.T, out string) {
	root := filepath.Join(t.TempDir(), "root")
	run(t, out, "mmdebstrap", "--quiet", "--variant=minbase", "--include=systemd", suite, root)
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
	// As it comes, the configuration lacks a name, and says so.
	const file = "/etc/postern/gateway.yaml"
	c := exec.CommandContext(t.Context(), "chroot", root, "postern", "config", "validate", file)
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), file+":14: metadata.name: missing") {
		t.Errorf("without a name: %v: %s", err, out)
	}

	o := sitDown(t, root)
	o.becomePeers(t)
	o.cloud.unit(t)
	o.reboots(t)

	// Another installation keeps the configuration and the peer; a purge leaves nothing.
	m := o.cloud.machine
	before := o.cloud.shows("MainPID")
	m.run("dpkg", "--install", "/postern.deb")
	o.cloud.connected(t, "edge")
	if now := o.cloud.shows("MainPID"); now == before {
		t.Error("an upgrade leaves the program of before running")
	}
	m.run("dpkg", "--purge", "postern")
	if got := m.run("sh", "-c", "cat /proc/[0-9]*/comm"); strings.Contains(got, "postern\n") {
		t.Errorf("the gateway goes on:\n%s", got)
	}
	for _, path := range []string{"/usr/bin/postern", "/etc/postern", "/var/lib/postern", "/usr/share/postern"} {
		if _, err := os.Lstat(o.cloud.root + path); !os.IsNotExist(err) {
			t.Errorf("%s is left behind (%v)", path, err)
		}
	}
}

const (
	// upWithin is how long it may take two operators to have peers, upWords how much each may have to
	// type.
	upWithin = 60 * time.Second
	upWords  = 8
)

// site is where one operator has installed the package.
type site struct {
	*machine
	name, root, address string
}

// operators are two of them, at one link.
type operators struct{ cloud, edge *site }

// sitDown boots two machines with what is in root.
func sitDown(t *testing.T, root string) operators {
	t.Helper()
	start := func(name, address string) *site {
		t.Helper()
		s := &site{name: name, address: address, root: filepath.Join(t.TempDir(), "root")}
		run(t, "/", "cp", "-a", root, s.root)
		s.machine = boot(t, s.root)
		return s
	}
	o := operators{start("cloud", "192.0.2.1/24"), start("edge", "192.0.2.2/24")}
	o.link(t)
	return o
}

// link lays the cable between them.
func (o operators) link(t *testing.T) {
	t.Helper()
	run(t, "/", "ip", "link", "add", "eth0", "netns", o.cloud.first, "type", "veth", "peer", "name", "eth0", "netns", o.edge.first)
	for _, s := range []*site{o.cloud, o.edge} {
		for _, args := range []string{"address add " + s.address + " dev eth0", "link set eth0 up"} {
			run(t, "/", append([]string{"nsenter", "--target", s.first, "--net", "ip"}, strings.Fields(args)...)...)
		}
	}
}

// becomePeers has each type `postern up`, which finds the configuration as it comes.
func (o operators) becomePeers(t *testing.T) {
	t.Helper()
	sit := func(s *site) *operator.Operator {
		t.Helper()
		sitting := operator.Sit(t, s.name, s.command(t.Context(), "bash", "--norc", "--noprofile", "-i"))
		sitting.Sees(`# $`)
		return sitting
	}
	cloud, edge := sit(o.cloud), sit(o.edge)
	start := time.Now()
	cloud.Types(`# $`, "postern up")
	cloud.Types(`know this one.*\? $`, "cloud")
	cloud.Types(`API server .*\? $`, "")
	cloud.Types(`Ticket .*\? $`, "")
	ticket := cloud.Sees(`\n(postern1[a-z0-9]+)\n`)
	edge.Types(`# $`, "postern up")
	edge.Types(`know this one.*\? $`, "edge")
	edge.Types(`API server .*\? $`, "")
	edge.Types(`Ticket .*\? $`, ticket)
	edge.Sees(`\njoined cloud`)
	took := time.Since(start)
	t.Logf("peers after %v; %d and %d words were typed", took.Round(time.Millisecond), cloud.Words(), edge.Words())
	if took > upWithin || cloud.Words() > upWords || edge.Words() > upWords {
		t.Errorf("it took %v, %d and %d words; want at most %v and %d", took, cloud.Words(), edge.Words(), upWithin, upWords)
	}
	o.cloud.connected(t, "edge")
	o.edge.connected(t, "cloud")
}

// connected waits until the status has a peer.
func (s *site) connected(t *testing.T, peer string) {
	t.Helper()
	s.eventually(t, "connected to "+peer, func(ctx context.Context) (bool, string) {
		out, err := s.command(ctx, "postern", "status", peer).CombinedOutput()
		return err == nil && strings.Contains(string(out), "● connected"), string(out)
	})
}

// eventually asks until something is so.
func (s *site) eventually(t *testing.T, what string, ask func(context.Context) (bool, string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), awhile)
	defer cancel()
	for {
		done, seen := ask(ctx)
		if done {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s is not %s: %s\n%s", s.name, what, seen, s.run("journalctl", "--no-pager", "--unit", "postern"))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// shows is a property of the unit.
func (s *site) shows(property string) string {
	s.t.Helper()
	return strings.TrimSpace(s.run("systemctl", "show", "--value", "--property="+property, "postern"))
}

// unit: systemd runs the gateway as shut in as its unit says, reads its configuration again and
// starts it again.
func (s *site) unit(t *testing.T) {
	t.Helper()
	t.Log(s.run("systemd-analyze", "security", "--no-pager", "--threshold=20", "postern.service"))
	if got := s.shows("ActiveState") + " " + s.shows("UnitFileState"); got != "active enabled" {
		t.Errorf("the unit is %s", got)
	}
	first := s.shows("MainPID")
	status := s.run("cat", "/proc/"+first+"/status")
	uid := strings.TrimSpace(s.run("id", "--user", "postern"))
	for _, want := range []string{"Uid:\t" + uid + "\t", "CapPrm:\t0000000000000000\n", "CapBnd:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
		if !strings.Contains(status, want) {
			t.Errorf("the gateway's process lacks %q:\n%s", want, status)
		}
	}
	s.run("systemctl", "reload", "postern")
	s.run("systemctl", "kill", "--signal=KILL", "postern")
	s.eventually(t, "started again", func(context.Context) (bool, string) {
		now := s.shows("MainPID")
		return now != first && now != "0", "the process " + now
	})
	s.connected(t, "edge")
}

// reboots: the gateway comes back by itself, with its peer.
func (o operators) reboots(t *testing.T) {
	t.Helper()
	o.edge.halt()
	o.edge.machine = boot(t, o.edge.root)
	o.link(t)
	o.edge.connected(t, "cloud")
}
