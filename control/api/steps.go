package api

import "strings"

// Step is one thing to do of a fix.
type Step struct {
	// Text is a sentence without its full stop; with a command it is what the command is for.
	Text string `json:"text"`
	// Command is what is typed for it: here or there, as Text says.
	Command string `json:"command,omitempty"`
	// Here marks the one command of a fix that can be run at this gateway as it is: the verdict's command.
	// Others may be for this gateway too; Text says where.
	Here bool `json:"here,omitempty"`
	// Or: it is done instead of the step before.
	Or bool `json:"or,omitempty"`
}

// Steps are a fix, in the order in which they are done.
type Steps []Step

// StepsOf returns the steps of a fix from a gateway. An earlier version has only the fix in words, and its
// command.
func StepsOf(steps Steps, fix, command string) Steps {
	if len(steps) == 0 && fix != "" {
		return Steps{{Text: fix, Command: command, Here: command != ""}}
	}
	return steps
}

// String says the steps in words, with the commands between backticks.
func (s Steps) String() string {
	var b strings.Builder
	for i, step := range s {
		switch {
		case step.Or:
			b.WriteString("; or ")
		case i > 0:
			b.WriteString("; ")
		}
		b.WriteString(step.Text)
		if step.Command != "" {
			b.WriteString(": `" + step.Command + "`")
		}
	}
	return b.String()
}

// Command is the one that is typed at this gateway, empty without one.
func (s Steps) Command() string {
	for _, step := range s {
		if step.Here {
			return step.Command
		}
	}
	return ""
}
