//go:build !linux

package underlay

// New wraps wireguard-go's own bind; Linux has a leaner one.
func New(o Options) *Bind { return NewStd(o) }
