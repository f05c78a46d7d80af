//go:build !linux

package load

import "time"

// Zero means unknown. Figures are only compared on Linux, where gateways run.
func processorTime() (user, system time.Duration) { return 0, 0 }

func memory() usage { return usage{} }

func processorTimeOf(int) (user, system time.Duration) { return 0, 0 }

func memoryOf(int) usage { return usage{} }
