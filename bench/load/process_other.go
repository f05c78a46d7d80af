//go:build !linux

package load

import "time"

// These answer zero, "unknown": the figures that matter are
// compared on Linux, where gateways run.
func processorTime() (user, system time.Duration) { return 0, 0 }

func memory() usage { return usage{} }

func processorTimeOf(int) (user, system time.Duration) { return 0, 0 }

func memoryOf(int) usage { return usage{} }
