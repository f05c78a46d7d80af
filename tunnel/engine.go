// Package tunnel runs WireGuard in userspace: one device, one UDP port, and a set of peers that is
// kept in sync with the wanted one.
//
// # Rules
//
//   - [Engine.SetPeers] takes the whole wanted set and applies the difference. It
//     checks the set first and applies all of it or nothing. Unchanged peers are left
//     alone: a peer keeps its session while its endpoints, its preshared key or other
//     peers change.
//   - A peer with endpoints is dialled when it is added, by a handshake initiation to
//     all of them. WireGuard's roaming then follows the address that answers.
//   - A peer that has been silent for 5 s while it is sent data, or that leaves a
//     handshake unanswered, is dialled again: at all its endpoints and at the last proven
//     address, after 1, 2, 4 … 30 s and without end. WireGuard by itself gives up after
//     90 s. No address is ever forgotten.
//   - The path of a managed peer is chosen from outside, by [Engine.SetPaths];
//     WireGuard's roaming is off for it. What happens on the path is reported as an
//     [Event].
//
// The package knows neither how addresses are found nor what runs inside the tunnel; its caller
// provides a tun.Device and an underlay.Bind.
package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/postern-dev/postern/tunnel/handshake"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/uapi"
	"github.com/postern-dev/postern/tunnel/underlay"
	"github.com/postern-dev/postern/tunnel/wake"
)

// Options configure an Engine.
type Options struct {
	PrivateKey peer.PrivateKey
	// ListenPort is the UDP port; 0 lets the system choose.
	ListenPort uint16
	// Device takes decrypted packets and provides those to send. The Engine owns it from New on,
	// and closes it.
	Device tun.Device
	// Underlay is the UDP socket. The Engine opens and closes it.
	Underlay *underlay.Bind
	// Owner returns an address that stands for all inner addresses of the same peer. It is called
	// on the sending goroutine and must not block. If it is nil, each address is a peer.
	Owner func(netip.Addr) netip.Addr
	// OnEvent is called with the events of managed peers, one at a time and without locks held. It
	// must not block or close the Engine. It may be nil.
	OnEvent func(Event)
	// Logger may be nil.
	Logger *slog.Logger
}

// Engine is a running WireGuard device. Its methods are safe for concurrent use.
type Engine struct {
	log       *slog.Logger
	publicKey peer.PublicKey
	private   peer.PrivateKey
	dev       *device.Device
	devLog    *deviceLog
	bind      *underlay.Bind
	boundary  boundary

	onEvent    func(Event)
	inspection inspection
	readings   *readings

	cancel  context.CancelFunc
	closing <-chan struct{} // closed when Close begins
	kick    wake.Signal     // wakes drive before its next tick
	done    chan struct{}   // closed when drive has ended

	stateSize atomic.Int64 // expected size of the device's next answer, in bytes

	// setMu serialises SetPeers and is held while the device changes. The set of peers and their
	// configurations change only with both locks held.
	setMu      sync.Mutex
	taken      taken  // guarded by setMu
	generation uint64 // counts the wanted sets; guarded by setMu

	mu     sync.Mutex
	peers  map[peer.PublicKey]*peerState
	events []Event // to be delivered
	closed bool
	// observed is the number of the machines' latest reading.
	observed uint64
}

// peerState is one peer: its configuration and its state. Guarded by Engine.mu.
type peerState struct {
	id         string // endpointID of its key
	config     peer.Config
	generation uint64 // the last wanted set that includes it; guarded by setMu
	machine    handshake.Machine
	pollAt     time.Time // when to poll the machine; zero: on news only
	paths      *Paths    // nil until SetPaths
	// endpoint is the device's text for where it sends, as last read, and parsed the parsed form.
	endpoint string
	parsed   peer.Path
	newest   newest
	shook    bool // since keepStamps was last called

	unverified Sight // as last reported by Sightings
	// stampInPast is kept, too: a forged initiation may have replaced the genuine one.
	stampInPast StampSight
}

// New starts a device without peers, which is up when New returns. A port that is taken gives an
// error that wraps ErrPortInUse. On failure the Device is closed as well.
func New(o Options) (*Engine, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Owner == nil {
		o.Owner = func(a netip.Addr) netip.Addr { return a }
	}
	if o.PrivateKey.IsZero() {
		return nil, errors.Join(errors.New("start the tunnel: no private key"), o.Device.Close())
	}
	e := &Engine{
		log:       o.Logger,
		private:   o.PrivateKey,
		publicKey: o.PrivateKey.Public(),
		devLog:    newDeviceLog(o.Logger),
		bind:      o.Underlay,
		onEvent:   o.OnEvent,
		kick:      wake.New(),
		done:      make(chan struct{}),
		peers:     make(map[peer.PublicKey]*peerState),
		taken:     taken{names: map[string]peer.PublicKey{}, addrs: map[netip.Addr]peer.PublicKey{}},
	}
	e.inspection.inspector = NewInspector(o.PrivateKey)
	e.readings = newReadings(e.state, e.bind.Observations)
	mtu, err := o.Device.MTU()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the tunnel: the device's MTU: %w", err), o.Device.Close())
	}
	e.boundary = newBoundary(mtu)
	e.dev = device.NewDevice(&boundedDevice{Device: o.Device, boundary: e.boundary, owner: o.Owner}, newBoundedBind(o.Underlay, e.boundary), e.devLog.logger())
	// Peers that are created with an endpoint never roam: the managed ones.
	e.dev.DisableSomeRoamingForBrokenMobileSemantics()
	e.bind.Listen(e.kick.Set)
	if err := e.up(o.ListenPort); err != nil {
		e.dev.Close()
		e.devLog.close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel, e.closing = cancel, ctx.Done()
	go func() {
		defer close(e.done)
		e.drive(ctx)
	}()
	return e, nil
}

func (e *Engine) up(port uint16) error {
	if err := e.bind.SetPublicKey(e.publicKey); err != nil {
		return fmt.Errorf("guard the tunnel's handshakes: %w", err)
	}
	err := e.configure(uapi.Config{PrivateKey: &e.private, ListenPort: &port})
	if err == nil {
		err = e.dev.Up()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listen on UDP port %d: %w: %w (stop the other program or choose another port)", port, ErrPortInUse, err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("listen on UDP port %d: %w (ports below 1024 need a privilege; choose a higher one)", port, err)
	default:
		return fmt.Errorf("listen on UDP port %d: %w", port, err)
	}
}

// configure applies a "set" message to the device.
func (e *Engine) configure(c uapi.Config) error {
	text, err := c.MarshalText()
	if err != nil {
		return err
	}
	return e.dev.IpcSet(string(text))
}

// state asks the device for its "get" answer.
func (e *Engine) state() (uapi.Device, error) {
	var text strings.Builder
	text.Grow(int(e.stateSize.Load())) // half a megabyte with a thousand peers, too much to grow step by step
	if err := e.dev.IpcGetOperation(&text); err != nil {
		return uapi.Device{}, err
	}
	e.stateSize.Store(int64(text.Len() + text.Len()/64))
	return uapi.ParseDevice(text.String())
}

// PublicKey is this gateway's key.
func (e *Engine) PublicKey() peer.PublicKey { return e.publicKey }

// Redial starts a new handshake now, with all the peer's endpoints and the last proven address. A
// live session ends; data waits until the handshake completes.
func (e *Engine) Redial(key peer.PublicKey) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.checkPeerLocked(key); err != nil {
		return fmt.Errorf("redial %s: %w", key, err)
	}
	p := e.peers[key]
	if !p.reachable() {
		return fmt.Errorf("redial peer %q: %w (it must dial, or needs an endpoint)", p.config.Name, underlay.ErrNoCandidates)
	}
	now := time.Now()
	p.pollAt = now
	p.machine.Redial(now)
	e.kick.Set()
	return nil
}

// Renew starts a new handshake after the wait, unless one completes before. The session lives on
// until then. Use it if the peer is likely to start a handshake itself: initiations that cross undo
// each other, and WireGuard retries only after 5 s.
func (e *Engine) Renew(key peer.PublicKey, wait time.Duration) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.checkPeerLocked(key); err != nil {
		return fmt.Errorf("renew the session with %s: %w", key, err)
	}
	p, now := e.peers[key], time.Now()
	p.pollAt = now
	p.machine.Renew(now, wait)
	e.kick.Set()
	return nil
}

// Close takes the device down, closes the Device and the Underlay, and waits for them.
func (e *Engine) Close() error {
	e.mu.Lock()
	already := e.closed
	e.closed = true
	e.mu.Unlock()
	if !already {
		e.cancel()
	}
	<-e.done
	e.setMu.Lock() // wait for a change in progress
	defer e.setMu.Unlock()
	e.dev.Close()
	<-e.dev.Wait()
	e.devLog.close()
	return nil
}
