package main

import (
	"log"
	"log/slog"

	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/netstack"
)

// setLibraryLogs sends what libraries write to stderr by themselves to a log, at level debug:
// gVisor, client-go, and those that use package log, such as net/http. Servers, WireGuard and TURN
// have a logger of their own.
func setLibraryLogs(to *slog.Logger) {
	netstack.SetLog(to)
	kube.SetLog(to)
	log.SetFlags(0)
	log.SetOutput(slog.NewLogLogger(to.Handler(), slog.LevelDebug).Writer())
}
