// Command postern is a WireGuard gateway in userspace that lets two Kubernetes clusters
// reach each other's auth service and API server through one UDP port, and the commands
// to run, enrol and observe it.
//
// The package only contains the command line: flags, output and exit codes. Each file is a group
// of commands. The gateway (control/gateway) does the work; commands use its admin socket
// (control/admin).
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/postern-dev/postern/tui/noquery"
	"github.com/postern-dev/postern/tunnel"
)

// version is set by the linker (-X main.version=…).
var version = "devel"

func main() { os.Exit(run()) }

// run is main with the exit code as its result.
func run() int {
	_ = tunnel.UseSmallPages() // before there is much; where it is forbidden memory is larger
	noquery.Restore()
	ctx, stop := signalContext()
	defer stop()
	a := newApp(os.Stdin, os.Stdout, os.Stderr, os.Getenv)
	var args []string
	a.cluster.plugin, args = asCalled(os.Args)
	return execute(ctx, a, args)
}

// interrupted is the cause of a context that was ended by a signal.
type interrupted struct{ signal os.Signal }

func (interrupted) Error() string { return "interrupted" }

// tidies is called by commands that would leave something behind if they were killed: they are
// interrupted instead when the terminal closes, or when nobody reads stdout any more. It returns a
// function that ends this.
func (a *app) tidies() func() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGPIPE)
	if !signal.Ignored(syscall.SIGHUP) { // as by nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				// Connections that break also cause SIGPIPE.
				if out, there := file(a.stdout); s == syscall.SIGHUP || there && unread(out) {
					a.end(interrupted{s})
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}

// signalContext ends at the first SIGINT or SIGTERM. The second one ends the process at once.
func signalContext() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case s := <-signals:
			signal.Stop(signals)
			cancel(interrupted{s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
		<-done
	}
}
