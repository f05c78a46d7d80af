//go:build !linux

package wan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// forward needs UDP_GRO, UDP_SEGMENT and fine timers, which are Linux's.
func forward(context.Context, plan, <-chan struct{}, *json.Encoder) error {
	return fmt.Errorf("wan: a forwarder: %w", errors.ErrUnsupported)
}
