//go:build linux && e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/postern-dev/postern/testenv/netlab"
)

// capture records the UDP payloads of one size that arrive at a host.
type capture struct {
	cancel context.CancelFunc
	done   chan struct{}
	found  [][]byte // valid once done is closed
}

// startCapture listens below IP (packet(7)), so that it also sees what others receive.
func startCapture(t *testing.T, host *netlab.Host, size int) *capture {
	t.Helper()
	fd := -1
	err := netlab.Do(host.Namespace(), func() (err error) {
		const allIPv4 = unix.ETH_P_IP<<8&0xff00 | unix.ETH_P_IP>>8 // in network order
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, allIPv4)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// Closing the socket does not end a read, so it has a timeout.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &capture{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		defer unix.Close(fd)
		b := make([]byte, 2048)
		for ctx.Err() == nil {
			n, _, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				continue // the timeout
			}
			if payload, ok := udpPayload(b[:n]); ok && len(payload) == size {
				c.found = append(c.found, bytes.Clone(payload))
			}
		}
	}()
	t.Cleanup(func() { c.stop() })
	return c
}

func (c *capture) stop() [][]byte {
	c.cancel()
	<-c.done
	return c.found
}

// udpPayload returns the payload of an IPv4 packet to the gateway's port.
func udpPayload(b []byte) ([]byte, bool) {
	const minIP, udpHeader = 20, 8
	if len(b) < minIP || b[9] != unix.IPPROTO_UDP {
		return nil, false
	}
	header := int(b[0]&15) * 4
	if len(b) < header+udpHeader || binary.BigEndian.Uint16(b[header+2:]) != gatewayPort {
		return nil, false
	}
	return b[header+udpHeader:], true
}
