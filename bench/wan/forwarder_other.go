//go:build !linux

package wan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// forward needs UDP_GRO, UDP_SEGMENT and precise timers, which only Linux has.
func forward(context.Context, plan, <-chan struct{}, *json.Encoder) error {
	return fmt.Errorf("wan: a forwarder: %w", errors.ErrUnsupported)
}
