package scale

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/postern-dev/postern/bench/child"
	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// hubName is the peers' name for the hub.
	hubName = "hub"
	// stopTime bounds how long the hub takes to end after a signal.
	stopTime = 60 * time.Second
)

// loopback is the address of everything here.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// Hub is the measured gateway: a process and the folder of its configuration. It is for one
// goroutine, except for Status.
type Hub struct {
	program []string // ends with the flag that takes the configuration file
	dir     string
	public  peer.PublicKey
	at      netip.AddrPort
	http    string
	log     io.Writer
	client  *admin.Client

	cmd   *exec.Cmd     // of the last start
	ended chan struct{} // closed when that has ended
}

// hubOptions configure a hub.
type hubOptions struct {
	// program is the command line of a gateway, up to its configuration file.
	program []string
	// dir is an empty folder.
	dir string
	// peers are the hub's peers, listed in its file.
	peers []member
	// services that each of them may reach.
	services []api.NamedService
	// log receives the hub's log; it may be nil.
	log io.Writer
}

// newHub writes a configuration without starting the hub.
func newHub(o hubOptions) (*Hub, error) {
	key, err := peer.NewPrivateKey()
	if err != nil {
		return nil, err
	}
	udp, tcp, err := freePorts()
	if err != nil {
		return nil, err
	}
	h := &Hub{
		program: o.program, dir: o.dir, public: key.Public(), at: netip.AddrPortFrom(loopback, udp),
		http: netip.AddrPortFrom(loopback, tcp).String(), log: o.log,
	}
	h.client = admin.NewClient(h.socket())
	keyFile := filepath.Join(o.dir, "private.key")
	if err := os.WriteFile(keyFile, []byte(key.Base64()+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("write the hub's key: %w", err)
	}
	var allow []string
	for _, s := range o.services {
		allow = append(allow, s.Name)
	}
	doc := api.Gateway{APIVersion: api.Version, Kind: "Gateway", Metadata: api.Metadata{Name: hubName}, Spec: api.GatewaySpec{
		StateDir: filepath.Join(o.dir, "state"), PrivateKeyFile: keyFile, Listen: api.Listen{Port: &udp},
		Admin: api.Admin{Socket: h.socket()}, HTTP: api.HTTP{Address: h.http},
		Discovery: api.Discovery{Advertise: []string{h.at.String()}},
		Services:  api.Services{Named: o.services},
	}}
	for _, p := range o.peers {
		doc.Spec.Peers = append(doc.Spec.Peers, api.Peer{Name: p.name, PublicKey: p.key.Public().String(), Allow: allow})
	}
	text, err := json.Marshal(doc) // JSON is valid YAML
	if err != nil {
		return nil, fmt.Errorf("write the hub's configuration: %w", err)
	}
	if err := os.WriteFile(h.file(), text, 0o600); err != nil {
		return nil, fmt.Errorf("write the hub's configuration: %w", err)
	}
	return h, nil
}

// freePorts returns a UDP and a TCP port that are free now.
func freePorts() (udp, tcp uint16, err error) {
	u, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopback, 0)))
	if err != nil {
		return 0, 0, fmt.Errorf("find a free UDP port: %w", err)
	}
	defer u.Close()
	t, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(loopback, 0)))
	if err != nil {
		return 0, 0, fmt.Errorf("find a free TCP port: %w", err)
	}
	defer t.Close()
	return u.LocalAddr().(*net.UDPAddr).AddrPort().Port(), t.Addr().(*net.TCPAddr).AddrPort().Port(), nil
}

func (h *Hub) socket() string { return filepath.Join(h.dir, "admin.sock") }
func (h *Hub) file() string   { return filepath.Join(h.dir, "hub.yaml") }

// start starts the hub, without waiting until it answers.
func (h *Hub) start() error {
	args := append(h.program[1:len(h.program):len(h.program)], h.file())
	cmd, ended := exec.Command(h.program[0], args...), make(chan struct{}) //nolint:noctx // its life is the Hub's
	cmd.Stderr = h.log
	child.EndWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the hub: %w (make build makes bin/postern; -postern names another program)", err)
	}
	h.cmd, h.ended = cmd, ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // stop causes the error; if the hub ends by itself, its log says why
	}()
	return nil
}

// stop sends the hub a signal and waits for it to end.
func (h *Hub) stop(s syscall.Signal) error {
	if h.cmd == nil {
		return nil
	}
	select {
	case <-h.ended:
		return nil
	default:
	}
	if err := h.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("stop the hub: %w", err)
	}
	late := time.NewTimer(stopTime)
	defer late.Stop()
	select {
	case <-h.ended:
		return nil
	case <-late.C:
	}
	err := h.cmd.Process.Kill()
	<-h.ended
	return errors.Join(fmt.Errorf("the hub did not end within %v of %v", stopTime, s), err)
}

// close kills the hub.
func (h *Hub) close() error {
	h.client.Close()
	return h.stop(syscall.SIGKILL)
}

// errEnded is returned if the hub has ended unexpectedly.
var errEnded = errors.New("the hub has ended by itself (its log says why)")

// status asks over the admin socket, as `postern status` does. It fails with errEnded if the hub
// has ended.
func (h *Hub) status(ctx context.Context) (api.Status, error) {
	select {
	case <-h.ended:
		return api.Status{}, errEnded
	default:
		return h.client.Status(ctx)
	}
}

// usage returns what the hub uses.
func (h *Hub) usage() (Usage, error) { return usageOf(h.cmd.Process.Pid) }

// metric reads a metric without labels from the hub's HTTP server.
func (h *Hub) metric(ctx context.Context, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.http+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("read the hub's metrics: %w", err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("the hub has no metric %s", name)
}

// connectedIn returns the number of connected peers.
func connectedIn(s api.Status) (n int) {
	for _, p := range s.Peers {
		if p.State == api.StateConnected {
			n++
		}
	}
	return n
}

// answers waits until the hub answers `status`.
func (h *Hub) answers(ctx context.Context) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		_, err := h.status(ctx)
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the hub does not answer: %w: %w", err, ctx.Err())
		}
	}
}
