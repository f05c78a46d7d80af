// Package cmdline is the common part of the benchmark programs: exit codes, signals and usage
// errors.
//
// Exit codes are 0 for success and after showing help, 1 for failure, and 2 for a usage error
// ([Usagef], [Parse]). Errors are printed as one line on standard error that begins with the
// program's name.
package cmdline

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// Streams are a program's standard streams.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Program is the body of a program. Its error determines the exit code.
type Program func(ctx context.Context, args []string, s Streams) error

// Main runs p with the process's arguments and streams, and exits. The first SIGINT or SIGTERM
// cancels p's context, the second one ends the process.
func Main(name string, p Program) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(Run(ctx, name, p, os.Args[1:], Streams{os.Stdin, os.Stdout, os.Stderr}))
}

// Run runs p, prints its error and returns the exit code. The error of a package may already
// begin with the program's name, which is then not repeated.
func Run(ctx context.Context, name string, p Program, args []string, s Streams) int {
	err := p(ctx, args, s)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	head := name + ": "
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), head), "\n", "; ") // joined errors have a line each
	fmt.Fprintln(s.Err, head+text)
	if errors.As(err, new(*usageError)) {
		return exitUsage
	}
	return exitFailed
}

// usageError is a mistake in the command line.
type usageError struct {
	err  error
	hint string
}

func (e *usageError) Error() string { return fmt.Sprintf("%v (%s)", e.err, e.hint) }
func (e *usageError) Unwrap() error { return e.err }

// Usagef returns a usage error, which makes a program exit with code 2. The format says what is
// wrong, the hint what to do.
func Usagef(hint, format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...), hint}
}

// Parse parses args. Arguments after the flags must be among arguments; they are then in
// flags.Args(). If help is requested, it is written to help and the error is [flag.ErrHelp]. All
// other errors are usage errors. The flag set must use [flag.ContinueOnError].
func Parse(flags *flag.FlagSet, args []string, help io.Writer, arguments ...string) error {
	flags.SetOutput(io.Discard) // otherwise it writes all its flags below each error
	err := flags.Parse(args)
	flags.SetOutput(help)
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.Usage()
		return err
	case err != nil:
		return Usagef("-h lists the flags", "%w", err)
	}
	for _, a := range flags.Args() {
		switch {
		case len(arguments) == 0:
			return Usagef("it takes flags alone; -h lists them", "unexpected argument %q", a)
		case !slices.Contains(arguments, a):
			return Usagef("there are: "+strings.Join(arguments, ", ")+"; flags go before them", "unexpected argument %q", a)
		}
	}
	return nil
}

// List is a flag value: names separated by commas. The flag may be repeated. Empty names are
// ignored.
type List []string

// Set adds the names in text. It always returns nil.
func (l *List) Set(text string) error {
	*l = append(*l, slices.DeleteFunc(strings.Split(text, ","), func(name string) bool { return name == "" })...)
	return nil
}

// String joins the names with commas.
func (l *List) String() string { return strings.Join(*l, ",") }
