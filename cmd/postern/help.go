package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// helpWidth is the width of help in characters: every terminal has it.
const helpWidth = 80

// wrapHelp makes every command's help fit a terminal.
func (a *app) wrapHelp(root *cobra.Command) {
	whole := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		var text strings.Builder
		c.SetOut(&text)
		whole(c, args)
		for line := range strings.Lines(text.String()) {
			for _, sub := range c.Commands() { // the longest names have but one blank behind them
				name := fmt.Sprintf("  %-*s ", sub.NamePadding(), sub.Name())
				if line == name+sub.Short+"\n" {
					line = name + "  " + sub.Short + "\n"
				}
			}
			_, _ = io.WriteString(a.stdout, wrap(line, helpWidth)) // the error is kept
		}
	})
}

// strictHelp makes `help` refuse the name of a command that does not exist. Cobra prints the help of
// the command above.
func strictHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() != "help" {
			continue
		}
		help.Run, help.RunE = nil, func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 && c.HasAvailableSubCommands() {
				err = fmt.Errorf("unknown command %q for %q", rest[0], c.CommandPath())
			}
			if err != nil {
				return usageError(err, root, args)
			}
			return c.Help()
		}
	}
}

// wrap breaks a line between words. Continuation lines are indented to the last column, which
// starts after several spaces. A word that is too long is not broken.
func wrap(line string, width int) string {
	if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) <= width {
		return line
	}
	column := len(line) - len(strings.TrimLeft(line, " "))
	if i := strings.LastIndex(line, "   "); i >= 0 && i < width*2/3 {
		column = i + len("   ")
	}
	var out strings.Builder
	out.WriteString(line[:column])
	at := column // where the next word begins
	for i, word := range strings.Fields(line[column:]) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > width:
			out.WriteString("\n" + strings.Repeat(" ", column))
			at = column
		default:
			out.WriteByte(' ')
			at++
		}
		out.WriteString(word)
		at += n
	}
	out.WriteByte('\n')
	return out.String()
}
