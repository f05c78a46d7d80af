// Package tunnel runs WireGuard in userspace: one device, one UDP port, and a set of
// peers that is kept as it is wished to be.
//
// # Rules
//
//   - [Engine.SetPeers] takes the whole wished set and applies the difference. It
//     checks the set first and applies all of it or nothing. What did not change is
//     not touched: a peer keeps its session while its endpoints, its preshared key or
//     other peers change.
//   - A peer with endpoints is dialled when it is added, by a handshake initiation to
//     all of them. WireGuard's roaming then follows the address that answers.
//   - A peer that is silent while it is sent data for 5 s, or that leaves a handshake
//     unanswered, is dialled again: at all its endpoints and at the address that last
//     proved itself, without end, after 1, 2, 4 … 30 s. WireGuard by itself gives up
//     after 90 s. No address is ever forgotten.
//   - A managed peer's path is chosen from outside, by [Engine.SetPaths]; WireGuard's
//     roaming is off for it. What becomes of the path is told as an [Event].
//
// The package knows nothing of how addresses are found, nor of what runs inside the
// tunnel; it is given a tun.Device and an underlay.Bind.
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
)

// Options configure an Engine.
type Options struct {
	PrivateKey peer.PrivateKey
	// ListenPort is the UDP port; 0 lets the system choose.
	ListenPort uint16
	// Device is where decrypted packets go and those to be sent come from. The Engine
	// owns it from New on, and closes it.
	Device tun.Device
	// Underlay is the UDP socket. The Engine opens and closes it.
	Underlay *underlay.Bind
	// OnEvent is told what becomes of managed peers, without locks held and one event
	// after the other. It must not block, nor close the Engine; nil asks for nothing.
	OnEvent func(Event)
	// Logger may be nil.
	Logger *slog.Logger
}

// Engine is a running WireGuard device. Its methods may be called concurrently.
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
	kick    chan struct{}   // wakes drive before its next tick
	done    chan struct{}   // closed when drive has ended

	stateSize atomic.Int64 // what the next answer of the device will take, in bytes

	// setMu makes SetPeers calls take turns; it is held during changes to the device. The set
	// of peers and their configurations change with both locks held only.
	setMu sync.Mutex
	taken taken  // guarded by setMu
	wish  uint64 // counts the sets that were wished; likewise

	mu     sync.Mutex
	peers  map[peer.PublicKey]*peerState
	events []Event // yet to be delivered
	closed bool
	// observed is the number of the reading that the machines know.
	observed uint64
}

// peerState is one peer: what is wished of it, and how it fares. Guarded by Engine.mu.
type peerState struct {
	id      string // endpointID of its key
	config  peer.Config
	wished  uint64 // the last wish that it is part of; guarded by setMu
	machine handshake.Machine
	pollAt  time.Time // when the machine is asked; zero: when something becomes known
	paths   *Paths    // nil until SetPaths
	// endpoint is the device's text for where it sends to, as last read, and parsed what it says.
	endpoint string
	parsed   peer.Path
	newest   newest
	shook    bool // since keepStamps was last called

	unverified Sight // as Sightings last told
	// stampInPast likewise, since what came may have made place for something forged.
	stampInPast StampSight
}

// New starts a device without peers, and is up when it returns. A port that is taken
// gives an error that wraps ErrPortInUse. The Device is closed on failure as well.
func New(o Options) (*Engine, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
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
		kick:      make(chan struct{}, 1),
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
	e.dev = device.NewDevice(&boundedDevice{Device: o.Device, boundary: e.boundary}, newBoundedBind(o.Underlay, e.boundary), e.devLog.logger())
	// Peers that get their endpoint when they are made never roam: the managed ones.
	e.dev.DisableSomeRoamingForBrokenMobileSemantics()
	e.bind.Listen(e.wake)
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
	text.Grow(int(e.stateSize.Load())) // half a megabyte with a thousand peers, which would else grow there
	if err := e.dev.IpcGetOperation(&text); err != nil {
		return uapi.Device{}, err
	}
	e.stateSize.Store(int64(text.Len() + text.Len()/64))
	return uapi.ParseDevice(text.String())
}

// PublicKey is this gateway's key.
func (e *Engine) PublicKey() peer.PublicKey { return e.publicKey }

// Redial starts a fresh handshake now, at all the peer's endpoints and the address that
// last proved itself. Data waits until it completes; a session that was alive ends.
func (e *Engine) Redial(key peer.PublicKey) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.stillLocked(key); err != nil {
		return fmt.Errorf("redial %s: %w", key, err)
	}
	p := e.peers[key]
	if !p.reachable() {
		return fmt.Errorf("redial peer %q: %w (it must dial, or needs an endpoint)", p.config.Name, underlay.ErrNoCandidates)
	}
	now := time.Now()
	p.pollAt = now
	p.machine.Redial(now)
	e.wake()
	return nil
}

// Renew starts a fresh handshake after the wait, unless one completes before. The present
// session lives on until then. It is for when the peer is about to dial by itself:
// initiations of both sides that cross on the way undo each other, and WireGuard repeats
// them only after 5 s.
func (e *Engine) Renew(key peer.PublicKey, wait time.Duration) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.stillLocked(key); err != nil {
		return fmt.Errorf("renew the session with %s: %w", key, err)
	}
	p, now := e.peers[key], time.Now()
	p.pollAt = now
	p.machine.Renew(now, wait)
	e.wake()
	return nil
}

// Close takes the device down, closes the Device and the Underlay, and waits for it.
func (e *Engine) Close() error {
	e.mu.Lock()
	already := e.closed
	e.closed = true
	e.mu.Unlock()
	if !already {
		e.cancel()
	}
	<-e.done
	e.setMu.Lock() // A change under way ends first.
	defer e.setMu.Unlock()
	e.dev.Close()
	<-e.dev.Wait()
	e.devLog.close()
	return nil
}

// wake has drive look before its next tick.
func (e *Engine) wake() {
	select {
	case e.kick <- struct{}{}:
	default: // It is about to look anyway.
	}
}
