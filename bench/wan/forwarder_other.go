//go:build !linux

package wan

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
)

// forward needs UDP_GRO, UDP_SEGMENT and fine timers, which are Linux's.
func forward(context.Context, Path, func(netip.AddrPort) error) (Traffic, error) {
	return Traffic{}, fmt.Errorf("wan: a forwarder: %w", errors.ErrUnsupported)
}
