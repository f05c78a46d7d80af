//go:build linux && e2e

package e2e

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

// planted is a secret and its origin.
type planted struct {
	name string
	raw  []byte // as bytes
	text string // as in a file or on a command line; may be empty
}

// forms returns all the ways in which the secret could be printed.
func (p planted) forms() map[string]string {
	out := map[string]string{}
	add := func(how, s string) {
		const least = 8 // shorter texts occur anywhere
		if len(s) >= least {
			out[how] = s
		}
	}
	if len(p.raw) > 0 {
		add("raw", string(p.raw))
		add("hex", hex.EncodeToString(p.raw))
		add("HEX", strings.ToUpper(hex.EncodeToString(p.raw)))
		add("base32", strings.TrimRight(base32.StdEncoding.EncodeToString(p.raw), "="))
		add("base64", strings.TrimRight(base64.StdEncoding.EncodeToString(p.raw), "="))
		add("base64 for URLs", base64.RawURLEncoding.EncodeToString(p.raw))
		numbers := make([]string, len(p.raw))
		for i, b := range p.raw {
			numbers[i] = strconv.Itoa(int(b))
		}
		add("a list of numbers", strings.Join(numbers, " "))
		add("JSON's list of numbers", strings.Join(numbers, ","))
	}
	if p.text != "" {
		add("text", p.text)
		add("in a URL", url.QueryEscape(p.text))
		add("text in base64", strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(p.text)), "="))
		add("text in hex", hex.EncodeToString([]byte(p.text)))
		for line := range strings.Lines(p.text) { // each line of a PEM block
			if line = strings.TrimSpace(line); len(line) > 40 && !strings.HasPrefix(line, "-----") {
				add("a line: "+line[:8]+"…", line)
			}
		}
	}
	return out
}

// secretText returns a text secret; secretBytes one of bytes that is written in base64.
func secretText(name, text string) planted { return planted{name, []byte(text), text} }

func secretBytes(t *testing.T, name, b64 string) planted {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(b64))
	if err != nil || len(raw) == 0 {
		t.Fatalf("%s: %q is no secret in base64: %v", name, b64, err)
	}
	return planted{name, raw, ""}
}

// secretPEM returns a private key in PEM.
func secretPEM(t *testing.T, name, text string) planted {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		t.Fatalf("%s: no PEM in %q", name, text)
	}
	return planted{name, block.Bytes, text}
}

const (
	plantedTurn   = "Planted-TURN-pass/word+42"
	plantedBearer = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJwbGFudGVkIn0.cGxhbnRlZC1zaWduYXR1cmU"
)

// TestNoOutputHasASecret plants every kind of secret in a pair, runs everything that prints, and
// looks for each secret in each form.
func TestNoOutputHasASecret(t *testing.T) {
	t.Parallel()
	f := newFaultLab(t, setting{left: dial, right: portRestricted})
	var secrets []planted
	var seen evidence
	psk := f.right.presharedKey()
	secrets = append(secrets, secretBytes(t, "preshared key", readFile(t, psk)))
	for _, w := range f.wards() {
		secrets = append(secrets, secretBytes(t, w.name+"'s private key", w.key.Base64()))
		issuer := w.doc.Spec.Services.Auth.Issuer.LocalCA.KeyFile
		secrets = append(secrets, secretPEM(t, w.name+"'s CA key", readFile(t, issuer)))
		w.plantTurn()
		w.other.PresharedKeyFile = psk
	}
	secrets = append(secrets, secretText("TURN password", plantedTurn), secretText("relay's password", turnPassword))
	f.right.plantToken()
	secrets = append(secrets, secretText("bearer token", plantedBearer))
	for _, w := range f.wards() {
		w.write()
		w.startDebug()
	}
	for _, w := range f.wards() {
		w.waitConnected(f.across(w).name)
	}
	secrets = append(secrets, f.ticketSecrets(&seen)...)
	f.right.waitPeer("left", "with an identity", func(p api.PeerStatus) bool { return p.Identity != nil })
	secrets = append(secrets, secretPEM(t, "issued client key", f.clientKey()))
	secrets = append(secrets, f.storedSecrets()...)

	for _, w := range f.wards() {
		f.printEverything(w, &seen)
	}
	for _, s := range secrets {
		t.Log("looked for: " + s.name)
		for how, form := range s.forms() {
			told := map[string]bool{}
			for i, text := range seen.text {
				if where := seen.where[i]; !told[where] && strings.Contains(text, form) {
					told[where] = true
					t.Errorf("%s shows the %s (%s)", where, s.name, how)
				}
			}
		}
	}
	const least = 15 // including those of the stores
	if len(secrets) < least {
		t.Errorf("%d secrets were planted, want at least %d", len(secrets), least)
	}
	t.Logf("%d secrets looked for in %d outputs", len(secrets), len(seen.text))
	// A search must be able to find something: the public key is everywhere.
	public := planted{"public key", nil, f.left.key.Public().String()}
	if !strings.Contains(strings.Join(seen.text, ""), public.forms()["text"]) {
		t.Error("not even the public key was seen")
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// plantTurn adds a TURN server that refuses the password, so that there are errors about it, too.
func (w *ward) plantTurn() {
	w.t.Helper()
	file := filepath.Join(w.dir, "turn-planted")
	writeFile(w.t, file, plantedTurn+"\n", 0o600)
	w.doc.Spec.Discovery.TURNServers = append(w.doc.Spec.Discovery.TURNServers,
		api.TURNServer{Address: secondRelayAddr + ":3478", Username: "planted", PasswordFile: file})
}

// plantToken makes the right side reach the left one's API server outside the tunnel, too, with a
// token.
func (w *ward) plantToken() {
	w.t.Helper()
	file := filepath.Join(w.dir, "token-planted")
	writeFile(w.t, file, plantedBearer+"\n", 0o600)
	w.other.OutOfBand = &api.PeerOutOfBand{
		AuthURL: "https://" + leftPublic + ":8443", APIServerURL: "https://" + leftPublic + ":6443", TokenFile: file,
	}
}

// ticketSecrets returns an open ticket, a used one, and a reply.
func (f *faultLab) ticketSecrets(seen *evidence) []planted {
	f.t.Helper()
	decoded := func(name, text string) planted {
		f.t.Helper()
		raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ToUpper(strings.TrimPrefix(text, "postern1")))
		if err != nil {
			f.t.Fatalf("the %s %q: %v", name, text, err)
		}
		return planted{name, raw, text}
	}
	out := []planted{decoded("open ticket", f.left.invite("--name", "fourth"))}
	tried := f.left.invite("--name", "third")
	third := f.newNeighbour(f.right.site, "third", "192.168.8.3")
	third.startDebug()
	// The join gets no answer, and prints a reply for the inviter.
	mute := f.core.Drop("ip saddr "+leftPublic, "ip daddr "+leftPublic) // the relayed path as well
	r := third.postern(within(f.t, patience), "join", tried, "--wait", "2s")
	mute.Remove()
	reply, ok := strings.CutPrefix(strings.TrimSpace(r.stdout), "postern accept ")
	if !ok {
		f.t.Fatalf("join printed no reply ticket: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	seen.add("join's stderr", r.stderr)
	a := f.left.postern(within(f.t, patience), "accept", reply)
	seen.add("accept", a.stdout+a.stderr)
	f.left.waitPeer("third", "at all", func(api.PeerStatus) bool { return true })
	seen.gather(third.gateway, nil, "left")
	return append(out, decoded("ticket that was tried", tried), decoded("reply ticket", reply))
}

// clientKey returns the key of the identity that the left side issued to the right one.
func (f *faultLab) clientKey() string {
	f.t.Helper()
	var c struct {
		Status struct{ ClientKeyData string }
	}
	out := f.right.must("credential", "left")
	if err := json.Unmarshal([]byte(out), &c); err != nil {
		f.t.Fatalf("credential: %v in %q", err, out)
	}
	return c.Status.ClientKeyData
}

// stored matches a secret in a gateway's state: preshared keys of peers and of tickets, and the
// keys of identities.
var stored = regexp.MustCompile(`"(presharedKey|tunnelPresharedKey|replyMAC|peerKey|key)":\s*"([^"]{20,})"`)

// storedSecrets returns those that the gateways created themselves.
func (f *faultLab) storedSecrets() []planted {
	f.t.Helper()
	var out []planted
	for _, w := range f.wards() {
		files, err := os.ReadDir(w.doc.Spec.StateDir)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, file := range files {
			if !file.Type().IsRegular() {
				continue
			}
			content, err := os.ReadFile(filepath.Join(w.doc.Spec.StateDir, file.Name()))
			if errors.Is(err, fs.ErrNotExist) {
				continue // the gateway runs: the file was being written, and has its name by now
			}
			if err != nil {
				f.t.Fatal(err)
			}
			for _, m := range stored.FindAllStringSubmatch(string(content), -1) {
				name := fmt.Sprintf("%s of %s in %s", m[1], w.name, file.Name())
				if raw, err := base64.StdEncoding.DecodeString(m[2]); err == nil {
					out = append(out, planted{name, raw, ""})
				} else {
					out = append(out, secretText(name, strings.ReplaceAll(m[2], `\n`, "\n")))
				}
			}
		}
	}
	return out
}

// printEverything runs everything that prints at one side, successfully and with mistakes.
func (f *faultLab) printEverything(w *ward, seen *evidence) {
	f.t.Helper()
	term := newTerminal(f.t, w.gateway, 120, 40)
	term.run("postern tui")
	term.await("the overview", "[1 Overview]")
	seen.gather(w.gateway, term, f.across(w).name)
	for _, args := range [][]string{
		{"config", "view", w.configFile()}, {"config", "view", w.configFile(), "-o", "json"}, {"config", "validate", w.configFile()},
		{"join", "postern1damaged"}, {"accept", "postern1damaged"}, {"peer", "add", "x", "--public-key", "nonsense"},
	} {
		r := runPostern(within(f.t, patience), f.t, w.host, "", append([]string{w.bin}, args...)...)
		seen.add(w.name+": "+strings.Join(args, " "), r.stdout+r.stderr)
	}
	// Reload a valid file, and one with a mistake.
	w.reload()
	w.waitLog("reload")
	seen.add(w.name+"'s log", w.proc.Stderr())
	seen.add(w.name+"'s stdout", w.proc.Stdout())
}
