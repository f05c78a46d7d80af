package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

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
	var own *commandError
	if errors.As(err, &own) {
		return own
	}
	c, _, findErr := root.Find(args)
	if findErr != nil {
		c = root
	}
	first, _, _ := strings.Cut(err.Error(), "\n") // Cobra adds suggestions on separate lines
	hint := "see " + c.CommandPath() + " --help"
	if word := meant(first, c); word != "" {
		hint = "did you mean " + word + "? See" + hint[len("see"):]
	}
	return &commandError{exitUsage, errors.New(first), hint}
}

// unknownWord and unknownFlag match the beginnings of the parser's messages.
var (
	unknownWord = regexp.MustCompile(`^(?:unknown command|invalid argument) "([^"]*)" for `)
	unknownFlag = regexp.MustCompile(`^unknown flag: --(\S*)`)
)

// meant returns the command, argument or flag of c that the parser's message is probably about.
func meant(message string, c *cobra.Command) string {
	if m := unknownWord.FindStringSubmatch(message); m != nil {
		known := slices.Clone(c.ValidArgs)
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				known = append(known, sub.Name())
			}
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
		return own.code, []string{hinted(err.Error(), own.hint)}
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
	return exitFailed, []string{strings.ReplaceAll(err.Error(), "\n", "; ")}
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
