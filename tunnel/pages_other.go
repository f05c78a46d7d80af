//go:build !linux

package tunnel

// UseSmallPages is for Linux, where pages may be huge without being asked for.
func UseSmallPages() error { return nil }
