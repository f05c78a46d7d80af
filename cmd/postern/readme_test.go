//go:build linux

package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/testenv/apiserver"
	"github.com/postern-dev/postern/testenv/pki"
)

// patience bounds what the session waits for; it only matters when something is broken.
const patience = 2 * time.Minute

// The README's session is typed as it stands there, with its configuration: at cloud, whose
// addresses and paths are replaced by those of this machine, and at edge. The ticket is the
// one that was printed, and kubectl is a client that reads its kubeconfig as kubectl does.
func TestTheSessionOfTheREADME(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	config, session := blockWith(t, string(text), "metadata: {name: cloud}"), blockWith(t, string(text), "postern join")
	s := newSession(t, config)
	line := regexp.MustCompile(`^(cloud|edge)\$ +(.*?)(?: +# .*)?$`)
	done := 0
	for _, l := range strings.Split(strings.TrimSpace(session), "\n") {
		m := line.FindStringSubmatch(l)
		if m == nil {
			t.Fatalf("no command after a prompt: %q", l)
		}
		s.typed(s.hosts[m[1]], strings.ReplaceAll(m[2], "postern1cagq…", s.ticket))
		done++
	}
	if past := s.hosts["cloud"].output(t, "postern", "history", "edge", "-o", "json"); !strings.Contains(past, `"kind": "joined"`) {
		t.Errorf("after the session the history of edge at cloud is %s", past)
	}
	if done < 6 {
		t.Errorf("the session has %d lines, want 6 and more", done)
	}
}

// blockWith is the first fenced block of a document that contains a text.
func blockWith(t *testing.T, text, mark string) string {
	t.Helper()
	for i, block := range strings.Split(text, "```") {
		if i%2 == 1 && strings.Contains(block, mark) {
			_, body, _ := strings.Cut(block, "\n")
			return body
		}
	}
	t.Fatalf("no block with %q", mark)
	return ""
}

// session is two machines with a gateway each, and what was printed last.
type session struct {
	t      *testing.T
	hosts  map[string]*sessionHost
	ticket string
}

type sessionHost struct {
	name, dir, socket string
	gateway           *exec.Cmd
}

func newSession(t *testing.T, config string) *session {
	s := &session{t: t, hosts: make(map[string]*sessionHost)}
	for _, name := range []string{"cloud", "edge"} {
		// A socket's path holds 107 bytes, and a test's own directory may be longer.
		dir, err := os.MkdirTemp("", "p")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		s.hosts[name] = &sessionHost{name: name, dir: dir, socket: filepath.Join(dir, "s")}
	}
	cloud, edge := s.hosts["cloud"], s.hosts["edge"]
	cluster, peers := newAuthority(t, "cluster"), newAuthority(t, "peers")
	api, err := apiserver.Start(t.Context(), cluster, peers.Pool(), "default", "shop")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	pair, err := peers.Pair()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := pair.Write(cloud.dir, "issuer"); err != nil {
		t.Fatal(err)
	}
	cloud.write(t, "ca.crt", string(cluster.CertPEM()))
	for from, to := range map[string]string{
		"/var/lib/postern": "state", "/etc/postern/": "", "/etc/kubernetes/pki/": "", "127.0.0.1:6443": api.Addr(),
	} {
		if !strings.Contains(config, from) {
			t.Fatalf("the README's configuration has no %s", from)
		}
		config = strings.ReplaceAll(config, from, to)
	}
	cloud.write(t, "gateway.yaml", config)
	edge.write(t, "gateway.yaml", "apiVersion: postern.dev/v1alpha1\nkind: Gateway\nmetadata: {name: edge}\nspec: {stateDir: state}\n")
	return s
}

func newAuthority(t *testing.T, name string) *pki.CA {
	t.Helper()
	ca, err := pki.NewCA(name)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func (h *sessionHost) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// command is a command on that machine, whose gateway listens on a port that is free.
func (h *sessionHost) command(t *testing.T, args ...string) *exec.Cmd {
	c := exec.CommandContext(t.Context(), args[0], args[1:]...)
	c.Dir = h.dir
	c.Env = append(os.Environ(), "POSTERN_SOCKET="+h.socket, "POSTERN_LISTEN_PORT=0", "GORACE=atexit_sleep_ms=0")
	return c
}

func (h *sessionHost) output(t *testing.T, args ...string) string {
	t.Helper()
	c := h.command(t, args...)
	var complaint strings.Builder
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s$ %s: %v\n%s%s", h.name, strings.Join(args, " "), err, out, complaint.String())
	}
	return string(out)
}

// typed runs one line of the session.
func (s *session) typed(h *sessionHost, line string) {
	s.t.Helper()
	args := strings.Fields(line)
	switch {
	case args[len(args)-1] == "&":
		s.start(h, args[:len(args)-1])
	case args[0] == "kubectl":
		s.kubectl(h, args[1:])
	default:
		out := h.output(s.t, args...)
		if args[1] == "invite" {
			s.ticket = strings.TrimSpace(out)
		}
	}
}

// start runs a gateway until the test ends. The port of cloud, which its configuration
// advertises, is known when it runs: then it is told the address, as an operator would.
func (s *session) start(h *sessionHost, args []string) {
	s.t.Helper()
	h.gateway = h.command(s.t, args...)
	log, err := os.Create(filepath.Join(h.dir, "log"))
	if err != nil {
		s.t.Fatal(err)
	}
	h.gateway.Stdout, h.gateway.Stderr = log, log
	h.gateway.Cancel = func() error { return h.gateway.Process.Signal(syscall.SIGTERM) }
	if err := h.gateway.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = h.gateway.Wait(); _ = log.Close() })
	status := s.await(h, func(st sessionStatus) bool { return st.Gateway.ListenPort != 0 })
	text, err := os.ReadFile(filepath.Join(h.dir, "gateway.yaml"))
	if err != nil {
		s.t.Fatal(err)
	}
	const advertised = "203.0.113.10:51820"
	if !strings.Contains(string(text), advertised) {
		return
	}
	own := fmt.Sprintf("127.0.0.1:%d", status.Gateway.ListenPort)
	h.write(s.t, "gateway.yaml", strings.ReplaceAll(string(text), advertised, own))
	if err := h.gateway.Process.Signal(syscall.SIGHUP); err != nil {
		s.t.Fatal(err)
	}
	s.await(h, func(st sessionStatus) bool {
		for _, c := range st.Gateway.Candidates {
			if c.Address == own {
				return true
			}
		}
		return false
	})
}

type sessionStatus struct {
	Gateway struct {
		ListenPort uint16                     `json:"listenPort"`
		Candidates []struct{ Address string } `json:"candidates"`
	} `json:"gateway"`
}

// await asks a gateway for its status until it is as wanted.
func (s *session) await(h *sessionHost, wanted func(sessionStatus) bool) (status sessionStatus) {
	s.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		out, err := h.command(s.t, "postern", "status", "-o", "json").Output()
		if err == nil && json.Unmarshal(out, &status) == nil && wanted(status) {
			return status
		}
	}
	log, _ := os.ReadFile(filepath.Join(h.dir, "log"))
	s.t.Fatalf("%s is not as it should be: %+v\n%s", h.name, status, log)
	return status
}

// kubectlConfig is what kubectl reads of the file.
type kubectlConfig struct {
	Clusters []struct {
		Cluster struct {
			Server string `json:"server"`
			CA     string `json:"certificate-authority-data"`
			Name   string `json:"tls-server-name"`
		} `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		User struct {
			Exec struct {
				Command string   `json:"command"`
				Args    []string `json:"args"`
			} `json:"exec"`
		} `json:"user"`
	} `json:"users"`
}

// kubectl gets the namespaces by a kubeconfig, with the credential that its plugin gives.
func (s *session) kubectl(h *sessionHost, args []string) {
	s.t.Helper()
	if len(args) != 4 || args[0] != "--kubeconfig" || args[2] != "get" || args[3] != "namespaces" {
		s.t.Fatalf("kubectl %s: only get namespaces with a kubeconfig can be played", strings.Join(args, " "))
	}
	text, err := os.ReadFile(filepath.Join(h.dir, args[1]))
	if err != nil {
		s.t.Fatal(err)
	}
	var k kubectlConfig
	if err := yaml.Unmarshal(text, &k); err != nil || len(k.Clusters) != 1 || len(k.Users) != 1 {
		s.t.Fatalf("the kubeconfig: %v\n%s", err, text)
	}
	plugin := k.Users[0].User.Exec
	var credential struct {
		Status struct{ ClientCertificateData, ClientKeyData string }
	}
	if err := json.Unmarshal([]byte(h.output(s.t, append([]string{plugin.Command}, plugin.Args...)...)), &credential); err != nil {
		s.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair([]byte(credential.Status.ClientCertificateData), []byte(credential.Status.ClientKeyData))
	if err != nil {
		s.t.Fatal(err)
	}
	ca, err := base64.StdEncoding.DecodeString(k.Clusters[0].Cluster.CA)
	if err != nil {
		s.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: k.Clusters[0].Cluster.Name}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, k.Clusters[0].Cluster.Server+"/api/v1/namespaces", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: transport, Timeout: patience}).Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(body), `"shop"`) {
		s.t.Errorf("namespaces of cloud: %s, %v: %s", answer.Status, err, body)
	}
}
