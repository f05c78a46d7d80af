package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/tui"
)

// app is the environment of all commands.
type app struct {
	stdin  io.Reader
	stdout *output
	stderr io.Writer
	getenv func(string) string

	// socket is the value of --socket.
	socket string
	// cluster selects a gateway in a cluster instead.
	cluster inCluster
	// patience is how long a gateway may take to start; see [app.waits].
	patience time.Duration
	// asked is the client of the gateway; nil before the first request.
	asked *admin.Client
	// parsed: the command line was valid. An earlier error is a usage error.
	parsed bool
	// end ends the context of the command that runs.
	end context.CancelCauseFunc
}

func newApp(stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) *app {
	return &app{stdin: stdin, stdout: &output{to: stdout}, stderr: stderr, getenv: getenv}
}

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, a *app, args []string) int {
	root := a.rootCommand()
	return a.run(ctx, root, args)
}

// run runs one command line with a tree of commands.
func (a *app) run(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	if completing(args) {
		root.SetOut(newOffers(a.stdout, args))
	}
	defer a.close()
	ctx, a.end = context.WithCancelCause(ctx)
	defer a.end(nil)
	err := root.ExecuteContext(ctx)
	if err == nil && a.stdout.err != nil {
		err = fmt.Errorf("write the output: %w", a.stdout.err)
	}
	if err == nil {
		return exitOK
	}
	if !a.parsed {
		err = usageError(err, root, args)
	}
	if cause := context.Cause(ctx); errors.As(cause, new(interrupted)) {
		err = cause
	}
	code, lines := explain(err, a.place())
	for _, line := range lines {
		fmt.Fprintf(a.stderr, "postern: %s\n", tui.Printable(line))
	}
	return code
}

func (a *app) rootCommand() *cobra.Command {
	var ask bool
	root := &cobra.Command{
		Use:   "postern",
		Short: "Peer Kubernetes clusters across NATs and firewalls through one UDP port",
		Long: "postern lets two Kubernetes clusters reach each other's auth service and API server through a userspace " +
			"WireGuard tunnel on one UDP port. Only one of the two gateways must be reachable. To see it work on " +
			"this machine, run `postern lab`.",
		Example: "  postern gateway --config gateway.yaml &\n  postern invite --name edge       # at one gateway\n" +
			"  postern join postern1cagq…       # at the other\n  postern status",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if ask {
				return a.printVersion()
			}
			return c.Help()
		},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRunE: func(*cobra.Command, []string) error {
			a.parsed = true
			return a.onePlace()
		},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.Flags().BoolVar(&ask, "version", false, "print the version")
	root.PersistentFlags().StringVar(&a.socket, "socket", "", "`path` of the admin socket (default $POSTERN_SOCKET, then "+config.DefaultSocket+")")
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Run:"},
		&cobra.Group{ID: groupPeer, Title: "Peer:"},
		&cobra.Group{ID: groupLook, Title: "Observe:"},
		&cobra.Group{ID: groupTool, Title: "Tools:"},
	)
	for _, c := range a.commands() {
		root.AddCommand(c)
	}
	root.AddCommand(a.stdioCommand(), a.benchPartCommand())
	root.SetHelpCommandGroupID(groupTool)
	if a.cluster.plugin {
		asPlugin(root)
	}
	a.wrapHelp(root)
	strictHelp(root)
	return root
}

// The groups of commands in help.
const (
	groupRun  = "run"
	groupPeer = "peer"
	groupLook = "look"
	groupTool = "tool"
)

// commands returns all commands, group by group.
func (a *app) commands() []*cobra.Command {
	in := func(group string, commands ...*cobra.Command) []*cobra.Command {
		for _, c := range commands {
			c.GroupID = group
		}
		return commands
	}
	all := in(groupRun, a.upCommand(), a.gatewayCommand(), a.labCommand(), a.configCommand(), a.keyCommand(), a.stateCommand())
	first := a.waits(a.inviteCommand(), a.joinCommand(), a.acceptCommand(), a.kubeconfigCommand(), a.credentialCommand())
	all = append(all, in(groupPeer, a.reaching(append(first, a.peerCommand())...)...)...)
	all = append(all, in(groupLook, a.reaching(a.tuiCommand(), a.statusCommand(), a.checkCommand(), a.pathCommand(), a.historyCommand(),
		a.pingCommand(), a.netCheckCommand(), a.discoverCommand(), a.dnsRecordsCommand(), a.servicesCommand(), a.logCommand())...)...)
	all = append(all, in(groupTool, a.reaching(a.bundleCommand())...)...)
	return append(all, in(groupTool, a.benchCommand(), a.versionCommand(), a.completionCommand(), a.manCommand())...)
}

// socketPath returns the running gateway's admin socket.
func (a *app) socketPath() string {
	if a.socket != "" {
		return a.socket
	}
	if s := a.getenv("POSTERN_SOCKET"); s != "" {
		return s
	}
	return config.DefaultSocket
}

// terminal returns the file behind a stream if that is a terminal.
func terminal(stream any) (*os.File, bool) {
	f, ok := file(stream)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

// file returns the file behind a stream, if any.
func file(stream any) (*os.File, bool) {
	if o, ok := stream.(*output); ok {
		stream = o.to
	}
	f, ok := stream.(*os.File)
	return f, ok
}

// discards reports whether what is written to a stream is lost: it is the null device, which the Go
// runtime also opens instead of a closed standard stream.
func discards(stream any) bool {
	f, ok := file(stream)
	if !ok {
		return false
	}
	own, err := f.Stat()
	null, errNull := os.Stat(os.DevNull)
	return err == nil && errNull == nil && os.SameFile(own, null)
}

// maxSecret bounds what is read from stdin in bytes. Tickets have a few hundred.
const maxSecret = 64 << 10

// secretArgument returns the arguments as one text, because they may be a pasted command. For a
// single "-" it returns stdin.
func (a *app) secretArgument(args []string, what string) (string, error) {
	text, from := strings.Join(args, " "), "in the argument"
	if text == "-" {
		if _, asks := terminal(a.stdin); asks {
			fmt.Fprintf(a.stderr, "Paste the %s, then press ctrl+d on a line of its own.\n", what)
		}
		data, err := io.ReadAll(io.LimitReader(a.stdin, maxSecret+1))
		if err != nil {
			return "", fmt.Errorf("read the %s from stdin: %w", what, err)
		}
		if len(data) > maxSecret {
			return "", usagef("", "the %s on stdin is larger than %d bytes", what, maxSecret)
		}
		text, from = string(data), "on stdin"
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", usagef("pipe it in, or give it as the argument", "no %s %s", what, from)
	}
	return text, nil
}
