package bench

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/postern-dev/postern/bench/load"
)

// packetSize is the size, in bytes, of the inner packet that WireGuard encrypts at the default
// MTU.
const packetSize = 1420

// runCipher seals and opens packets of one size in place, on one goroutine. No tunnel with both
// ends on this host can avoid this work per packet.
func runCipher(_ context.Context, spec load.Spec) (load.Result, error) {
	key := make([]byte, chacha20poly1305.KeySize)
	if _, err := rand.Read(key); err != nil {
		return load.Result{}, fmt.Errorf("make key: %w", err)
	}
	aead, err := chacha20poly1305.New(key)
	if err != nil {
		return load.Result{}, fmt.Errorf("make cipher: %w", err)
	}
	var (
		done   atomic.Uint64
		stop   atomic.Bool
		failed = make(chan error, 1)
		ended  = make(chan struct{})
	)
	go func() {
		defer close(ended)
		if err := sealAndOpen(aead, &done, &stop); err != nil {
			failed <- err
		}
	}()
	r, err := load.Measure(spec, func() []uint64 { return []uint64{done.Load()} }, failed)
	stop.Store(true)
	<-ended
	return r, err
}

// sealAndOpen counts bytes of plain text until stop. Like WireGuard it uses nonces of four zero
// bytes and a counter (whitepaper §5.4.6).
func sealAndOpen(aead cipher.AEAD, done *atomic.Uint64, stop *atomic.Bool) error {
	packet := make([]byte, packetSize, packetSize+chacha20poly1305.Overhead)
	nonce := make([]byte, chacha20poly1305.NonceSize)
	for n := uint64(0); !stop.Load(); n++ {
		binary.LittleEndian.PutUint64(nonce[4:], n)
		sealed := aead.Seal(packet[:0], nonce, packet, nil)
		if _, err := aead.Open(sealed[:0], nonce, sealed, nil); err != nil {
			return fmt.Errorf("open packet %d: %w", n, err)
		}
		done.Add(packetSize)
	}
	return nil
}
