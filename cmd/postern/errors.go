package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/kube/kubeconfig"
	"github.com/postern-dev/postern/control/suggest"
)

// Exit codes: the public interface of every script.
const (
	exitOK = 0
	// exitFailed: a check failed, or the requested state was not reached.
	exitFailed = 1
	// exitUsage: the command line or the configuration is wrong.
	exitUsage       = 2
	exitNoGateway   = 3
	exitInterrupted = 130
)

// commandError is an error with its exit code and advice.
type commandError struct {
	code int
	err  error
	hint string
}

func (e *commandError) Error() string { return e.err.Error() }
func (e *commandError) Unwrap() error { return e.err }

// usagef returns a usage error. The hint may be empty.
func usagef(hint, format string, args ...any) error {
	return &commandError{exitUsage, fmt.Errorf(format, args...), hint}
}

// failedf returns an error for a requested state that was not reached. The hint may be empty.
func failedf(hint, format string, args ...any) error {
	return &commandError{exitFailed, fmt.Errorf(format, args...), hint}
}

// usageError returns the usage error for an error of the command line's parser, with the command
// for help.
func usageError(err error, root *cobra.Command, args []string) error {
	if own, ok := errors.AsType[*commandError](err); ok {
		return own
	}
	c, _, findErr := root.Find(args)
	if findErr != nil {
		c = root
	}
	first, _, _ := strings.Cut(err.Error(), "\n") // Cobra adds suggestions on separate lines
	hint := "see " + c.CommandPath() + " --help"
	var value *pflag.InvalidValueError
	usage := "usage: " + strings.TrimSuffix(c.UseLine(), " [flags]") + "; " + hint
	stray, number := unknownWord.FindStringSubmatch(first), wrongNumber.FindStringSubmatch(first)
	switch {
	case errors.As(err, &value):
		return &commandError{exitUsage, invalidValue(value), hint}
	case number != nil && len(number[1]) <= len(number[2]) && number[1] < number[2]:
		return usagef(usage, "%s: too many arguments", c.Name())
	case number != nil:
		return usagef(usage, "%s: an argument is missing", c.Name())
	case stray != nil && !c.HasAvailableSubCommands() && len(c.ValidArgs) == 0:
		return usagef(usage, "%s: the argument %q is too many", c.Name(), stray[1])
	}
	if word := meant(first, c); word != "" {
		hint = "did you mean " + word + "? See" + hint[len("see"):]
	}
	return &commandError{exitUsage, errors.New(first), hint}
}

// unknownWord and unknownFlag match the beginnings of the parser's messages.
// wrongNumber matches those about the number of arguments, with how many there should be and are.
var (
	wrongNumber = regexp.MustCompile(`^(?:accepts|requires) \D*(?:\d+ and )?(\d+) arg\(s\), (?:only )?received (\d+)$`)
	unknownWord = regexp.MustCompile(`^(?:unknown command|invalid argument) "([^"]*)" for `)
	unknownFlag = regexp.MustCompile(`^unknown flag: --(\S*)`)
)

// kinds say what values of types of flags look like.
var kinds = map[string]string{
	"duration": "a duration such as 30s, 10m or 24h", "bool": "true or false", "float64": "a number",
	"int": "a whole number", "int64": "a whole number", "uint16": "a number from 0 to 65535", "uint64": "a whole number from 0",
}

// invalidValue says what a flag's value should be, instead of how parsing it failed.
func invalidValue(err *pflag.InvalidValueError) error {
	f := err.GetFlag()
	kind := kinds[f.Value.Type()]
	if kind == "" {
		return fmt.Errorf("--%s %q: %w", f.Name, err.GetValue(), err.Unwrap())
	}
	return fmt.Errorf("--%s: %q is not %s", f.Name, err.GetValue(), kind)
}

// meant returns the command, argument or flag of c that the parser's message is probably about.
func meant(message string, c *cobra.Command) string {
	if m := unknownWord.FindStringSubmatch(message); m != nil {
		known := slices.Clone(c.ValidArgs)
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				known = append(known, sub.Name())
			}
			if slices.Contains(sub.SuggestFor, m[1]) {
				return sub.Name()
			}
		}
		if !c.HasParent() {
			known = append(known, "help")
		}
		return suggest.Nearest(m[1], known)
	}
	m := unknownFlag.FindStringSubmatch(message)
	if m == nil {
		return ""
	}
	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) }) // the parser has added those of the commands above
	if word := suggest.Nearest(m[1], known); word != "" {
		return "--" + word
	}
	return ""
}

// explain returns the exit code of an error and the lines to print. socket is empty if a gateway
// in a cluster was used.
func explain(err error, socket string) (int, []string) {
	var (
		own      *commandError
		problems config.Problems
		problem  config.Problem
		answer   *admin.Error
	)
	switch {
	case errors.As(err, &own):
		return own.code, []string{hinted(err.Error(), cmp.Or(own.hint, fileHint(err)))}
	case errors.As(err, &problems):
		return exitUsage, strings.Split(problems.Error(), "\n")
	case errors.As(err, &problem):
		return exitUsage, []string{problem.Error()}
	case errors.As(err, &answer):
		code := exitFailed
		if answer.Usage {
			code = exitUsage
		}
		return code, []string{hinted(answer.Message, answer.Hint)}
	case errors.Is(err, kubeconfig.ErrConfig):
		return exitUsage, []string{hinted(err.Error(), "")}
	case errors.Is(err, admin.ErrSilent):
		return exitNoGateway, []string{hinted(err.Error(), "it hangs or is stopped: start it again; its log may say why")}
	case errors.Is(err, admin.ErrNoGateway) && socket == "":
		return exitNoGateway, []string{hinted(err.Error(), "")}
	case errors.Is(err, admin.ErrNoGateway):
		return exitNoGateway, []string{hinted(err.Error(), noGatewayHint(err, socket))}
	case errors.As(err, new(interrupted)), errors.Is(err, context.Canceled):
		return exitInterrupted, []string{"interrupted"}
	}
	return exitFailed, []string{hinted(err.Error(), fileHint(err))}
}

// fileHint returns what to do about a file that cannot be read or written; empty if that is not
// the error, or the error says it itself.
func fileHint(err error) string {
	if !errors.As(err, new(*fs.PathError)) || strings.HasSuffix(err.Error(), ")") {
		return ""
	}
	for cause, hint := range map[error]string{
		fs.ErrNotExist:   "correct the path, or create it",
		fs.ErrPermission: "run this as a user who may, or change its owner or mode",
		syscall.ENOSPC:   "free some space",
		syscall.EROFS:    "mount it writable, or choose another place",
		syscall.ENOTDIR:  "a part of the path is a file: correct it",
		syscall.EISDIR:   "name a file",
	} {
		if errors.Is(err, cause) {
			return hint
		}
	}
	return ""
}

func hinted(message, hint string) string {
	message = strings.ReplaceAll(message, "\n", "; ")
	if hint == "" {
		return message
	}
	return message + " (" + hint + ")"
}

func noGatewayHint(err error, socket string) string {
	if errors.Is(err, fs.ErrPermission) {
		return "run it as the gateway's user or as root; its group may read the status"
	}
	if socket == config.DefaultSocket {
		return "start one with postern gateway --config FILE, or name its socket with --socket PATH"
	}
	return "start one with postern gateway --config FILE, or correct --socket or POSTERN_SOCKET"
}

// group returns a command that only contains others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
	c.RunE = func(c *cobra.Command, _ []string) error {
		names := make([]string, 0, len(commands))
		for _, sub := range commands {
			names = append(names, sub.Name())
		}
		return usagef("see "+c.CommandPath()+" --help", "%s needs one of: %s", use, strings.Join(names, ", "))
	}
	c.AddCommand(commands...)
	return c
}

func errorsAsProblems(err error) bool { return errors.As(err, new(config.Problems)) }
