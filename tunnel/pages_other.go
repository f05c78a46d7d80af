//go:build !linux

package tunnel

// UseSmallPages does nothing: only Linux uses huge pages unasked.
func UseSmallPages() error { return nil }
