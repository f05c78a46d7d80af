//go:build !linux

package child

import "os/exec"

// EndWithParent does nothing: only Linux can do this. The processes of a killed benchmark keep
// running.
func EndWithParent(*exec.Cmd) {}
