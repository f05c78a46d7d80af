// Package cmdline is what the programs of the benchmarks have in common: exit codes,
// signals, and what is said of a command line that makes no sense.
//
// Exit codes are 0 when what was asked for was done, or help was shown, 1 when it failed,
// and 2 for a mistake of the command line ([Usagef], [Parse]). What went wrong is one line
// on standard error that begins with the program's name.
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

// Streams are a program's.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Program is one without what is around it: the exit code, and saying its error.
type Program func(ctx context.Context, args []string, s Streams) error

// Main runs p with the process's arguments and streams, and ends the process. SIGINT and
// SIGTERM end p's context; the second one ends the process at once.
func Main(name string, p Program) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(Run(ctx, name, p, os.Args[1:], Streams{os.Stdin, os.Stdout, os.Stderr}))
}

// Run runs p, says its error and returns the exit code. Packages begin their errors with
// their names, which may be the program's: it is not said twice.
func Run(ctx context.Context, name string, p Program, args []string, s Streams) int {
	err := p(ctx, args, s)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	head := name + ": "
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), head), "\n", "; ") // Joined errors have a line each.
	fmt.Fprintln(s.Err, head+text)
	if errors.As(err, new(*usageError)) {
		return exitUsage
	}
	return exitFailed
}

// usageError is a mistake of the command line.
type usageError struct {
	err  error
	hint string
}

func (e *usageError) Error() string { return fmt.Sprintf("%v (%s)", e.err, e.hint) }
func (e *usageError) Unwrap() error { return e.err }

// Usagef is a mistake of the command line, which ends a program with exit code 2. The hint
// says what to do; the format, as [fmt.Errorf] has it, what is wrong.
func Usagef(hint, format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...), hint}
}

// Parse has flags read args. What follows the flags is to be of arguments, if anything: it
// is then flags.Args(). Help that was asked for goes to help, and [flag.ErrHelp] is
// returned; every other error is a mistake of the command line. The flag set is to be one
// that continues on errors.
func Parse(flags *flag.FlagSet, args []string, help io.Writer, arguments ...string) error {
	flags.SetOutput(io.Discard) // Otherwise it writes all its flags beneath each mistake.
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

// List is a flag's value that holds names, separated by commas. The flag may be given more
// than once, and empty names are none.
type List []string

// Set adds the names in text. It does not fail.
func (l *List) Set(text string) error {
	*l = append(*l, slices.DeleteFunc(strings.Split(text, ","), func(name string) bool { return name == "" })...)
	return nil
}

// String joins the names.
func (l *List) String() string { return strings.Join(*l, ",") }
