//go:build linux && e2e

package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

// TestConfigurationErrorsNameThePlace makes one mistake at a time in a valid file. The gateway
// and `config validate` both print one line with file, line and field, and exit with code 2.
func TestConfigurationErrorsNameThePlace(t *testing.T) {
	w := newWorld(t)
	bin := posternBinary(t)
	keys := []string{newKey(t).Public().String(), newKey(t).Public().String()}
	good := strings.Join([]string{ // with the line numbers
		"apiVersion: postern.dev/v1alpha1",         // 1
		"kind: Gateway",                            // 2
		"metadata: {name: edge}",                   // 3
		"spec:",                                    // 4
		"  stateDir: DIR/state",                    // 5
		"  privateKeyFile: DIR/private.key",        // 6
		"  listen: {port: 51820}",                  // 7
		"  admin: {socket: DIR/admin.sock}",        // 8
		"  http: {address: \"127.0.0.1:9520\"}",    // 9
		"  peers:",                                 // 10
		"  - name: cloud",                          // 11
		"    publicKey: " + keys[0],                // 12
		"    endpoints: [\"198.51.100.10:51820\"]", // 13
		"  - name: laptop",                         // 14
		"    publicKey: " + keys[1],                // 15
		"    stock: true",                          // 16
		"    allowedIPs: [\"2001:db8:7::2/128\"]",  // 17
		"",
	}, "\n")
	for _, c := range []struct {
		name     string
		old, new string // replaced in the file
		keyMode  os.FileMode
		line     int
		words    []string
	}{
		{"unknown field", "  listen: {port", "  lisen: {port", 0o600, 7, []string{"lisen"}},
		{"wrong type", "{port: 51820}", "{port: many}", 0o600, 7, []string{"port", "many"}},
		{"bad key", "publicKey: " + keys[0], "publicKey: AAAA", 0o600, 12, []string{"publicKey"}},
		{"duplicate name", "name: laptop", "name: cloud", 0o600, 14, []string{"name", "cloud"}},
		{"duplicate key", keys[1], keys[0], 0o600, 15, []string{"publicKey"}},
		{"unreadable file", "DIR/private.key", "DIR/missing/private.key", 0o600, 6, []string{"privateKeyFile", "missing"}},
		{"world-readable key", "kind: Gateway", "kind: Gateway", 0o644, 6, []string{"privateKeyFile", "chmod"}},
		{"stock peer that overlaps overlay addresses", "2001:db8:7::2/128", "fd00::/16", 0o600, 17, []string{"allowedIPs", "fd00::/16"}},
		{"stock peer with every address", "2001:db8:7::2/128", "::/0", 0o600, 17, []string{"allowedIPs", "::/0"}},
		{"bad endpoint", "198.51.100.10:51820", "198.51.100.10", 0o600, 13, []string{"endpoints", "198.51.100.10"}},
		{"not YAML", "spec:\n", "spec: [\n", 0o600, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := tempDir(t)
			if strings.Count(good, c.old) != 1 && c.old != "kind: Gateway" {
				t.Fatalf("the file holds %q %d times, want once", c.old, strings.Count(good, c.old))
			}
			text := strings.ReplaceAll(strings.Replace(good, c.old, c.new, 1), "DIR", dir)
			file := filepath.Join(dir, "edge.yaml")
			writeFile(t, file, text, 0o600)
			key := newKey(t)
			writeFile(t, filepath.Join(dir, "private.key"), key.Base64()+"\n", c.keyMode)
			place := file
			if c.line > 0 {
				place = fmt.Sprintf("%s:%d: ", file, c.line)
			}
			for _, args := range [][]string{{"gateway", "--config", file}, {"config", "validate", file}} {
				r := runPostern(within(t, patience), t, w.third, "", append([]string{bin}, args...)...)
				checkRefusal(t, strings.Join(args, " "), r, 2, append(slices.Clone(c.words), place)...)
				if strings.Contains(r.stderr, key.Base64()) {
					t.Errorf("%v prints the private key", args)
				}
			}
		})
	}
	t.Run("the good file is good", func(t *testing.T) {
		dir := tempDir(t)
		file := filepath.Join(dir, "edge.yaml")
		writeFile(t, file, strings.ReplaceAll(strings.Replace(good, "  privateKeyFile: DIR/private.key\n", "", 1), "DIR", dir), 0o600)
		if r := runPostern(within(t, patience), t, w.third, "", bin, "config", "validate", file); r.code != 0 {
			t.Errorf("config validate: exit code %d\n%s", r.code, r.stderr)
		}
	})
	t.Run("a file that isn't there", func(t *testing.T) {
		file := filepath.Join(tempDir(t), "edge.yaml")
		r := runPostern(within(t, patience), t, w.third, "", bin, "gateway", "--config", file)
		checkRefusal(t, "gateway", r, 2, file)
	})
}

func writeFile(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
}

func TestPortInUseIsSaid(t *testing.T) {
	w := newWorld(t)
	c, err := w.third.ListenUDP(netip.AddrPortFrom(netip.IPv4Unspecified(), gatewayPort))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g := newGateway(t, w.third, "edge")
	r := runPostern(within(t, patience), t, w.third, "", g.bin, "gateway", "--config", g.configFile())
	line := lineOf(t, g.configFile(), "port: 51820")
	checkRefusal(t, "gateway", lastLine(r), 2, fmt.Sprintf("%s:%d: ", g.configFile(), line), "listen.port", "51820", "in use")
}

// lastLine drops what a gateway logged, or a join showed of the ticket's terms, before it failed.
func lastLine(r result) result {
	lines := strings.Split(strings.TrimRight(r.stderr, "\n"), "\n")
	r.stderr = lines[len(lines)-1] + "\n"
	return r
}

// lineOf returns the number of the only line of a file that contains a text.
func lineOf(t *testing.T, file, text string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(b), "\n") {
		if strings.Contains(line, text) {
			return i + 1
		}
	}
	t.Fatalf("%s has no line with %q", file, text)
	return 0
}

// TestReloadDisturbsNothing reloads a bad and a good file while a transfer runs.
func TestReloadDisturbsNothing(t *testing.T) {
	w := newWorld(t)
	p := newPeers(t, w)
	d := startDownload(t, w.edge, blobLocal, 1<<20)
	handshake := p.cloud.waitConnected("edge").LastHandshake
	good, err := os.ReadFile(p.cloud.configFile())
	if err != nil {
		t.Fatal(err)
	}
	reloads := func(result string) float64 {
		n, _ := p.cloud.metric("postern_reloads_total", `result="`+result+`"`)
		return n
	}

	writeFile(t, p.cloud.configFile(), string(good)+"nonsense: true\n", 0o600)
	p.reload(t)
	eventually(within(t, patience), t, "the bad file is refused", func() (bool, string) {
		return reloads("error") == 1, fmt.Sprint(reloads("error"))
	})
	p.cloud.waitLog("nonsense")
	p.checkRuns(t, d)
	if n := len(p.cloud.status().Peers); n != 1 {
		t.Errorf("after a bad file cloud has %d peers, want 1", n)
	}

	p.cloud.doc.Spec.Services.Named = append(p.cloud.doc.Spec.Services.Named,
		api.NamedService{Name: "second", Port: blobPort + 1, Address: blobUpstream})
	p.cloud.writeConfig()
	p.reload(t)
	eventually(within(t, patience), t, "the good file is taken", func() (bool, string) {
		return reloads("success") == 1, fmt.Sprint(reloads("success"))
	})
	p.cloud.must("peer", "allow", "edge", "auth,"+blobService+",second")
	p.edge.must("peer", "local", "cloud", "second=127.0.0.1:8002")
	ctx := within(t, patience)
	eventually(ctx, t, "the added service answers", func() (bool, string) {
		got, err := fetch(ctx, w.edge, "http://127.0.0.1:8002/")
		return err == nil, fmt.Sprint(got, err)
	})
	p.checkRuns(t, d)
	if now := p.cloud.waitConnected("edge").LastHandshake; handshake == nil || now == nil || now.Sub(*handshake) > 0 && now.Sub(*handshake).Seconds() < 100 {
		t.Errorf("the session of %v was replaced at %v, before its time", handshake, now)
	}
}

// TestAConfigurationThatNobodyConfirmsIsUndone removes what edge uses, and with it the connection
// on which the mistake could be reported.
func TestAConfigurationThatNobodyConfirmsIsUndone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newPeers(t, w)
	cloud := p.cloud
	served := func(want bool, when string) {
		t.Helper()
		ctx := within(t, patience)
		eventually(ctx, t, fmt.Sprintf("%s: the service answers: %v", when, want), func() (bool, string) {
			got, err := fetch(ctx, w.edge, "http://"+blobLocal+"/")
			return err == nil == want, fmt.Sprint(len(got), err)
		})
	}
	undone := func() bool {
		return slices.ContainsFunc(cloud.status().Problems, func(c api.Check) bool { return c.Code == "PST0704" })
	}
	served(true, "before")
	cloud.doc.Spec.Services.Named = nil
	cloud.writeConfig()
	if said := cloud.must("config", "reload", "--confirm-within", "40s"); !strings.Contains(said, "undone at") {
		t.Errorf("reload says %q", said)
	}
	if cloud.status().Gateway.ConfigUndoneAt == nil {
		t.Error("status does not say that it will be undone")
	}
	served(false, "tried")
	cloud.stop(syscall.SIGKILL)
	cloud.start()
	served(true, "in time, although it was restarted")
	if r := cloud.postern(within(t, patience), "config", "confirm"); r.code == 0 || !strings.Contains(r.stderr, "undone already") {
		t.Errorf("confirm, too late: exit code %d, %s", r.code, r.stderr)
	}
	for when, sig := range map[string]syscall.Signal{"after a kill": syscall.SIGKILL, "after a stop": syscall.SIGTERM} {
		cloud.stop(sig)
		cloud.start()
		served(true, when)
		if !undone() {
			t.Errorf("%s: status does not say that the file is not in force: %+v", when, cloud.status().Problems)
		}
	}
	cloud.must("config", "reload", "--confirm-within", "1h")
	cloud.must("config", "confirm")
	cloud.stop(syscall.SIGKILL)
	cloud.start()
	served(false, "confirmed")
	if s := cloud.status(); s.Gateway.ConfigUndoneAt != nil || undone() {
		t.Errorf("it is shown as undone at %v: %+v", s.Gateway.ConfigUndoneAt, s.Problems)
	}
}

func (p *pair) reload(t *testing.T) {
	t.Helper()
	if err := p.cloud.proc.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// checkRuns waits for more bytes of a running transfer.
func (p *pair) checkRuns(t *testing.T, d *download) {
	t.Helper()
	before := d.bytes.Load()
	eventually(within(t, patience), t, "the transfer goes on", func() (bool, string) {
		select {
		case <-d.done:
			t.Fatalf("the transfer ended: %v", d.err)
		default:
		}
		return d.bytes.Load() > before, "no byte"
	})
}
