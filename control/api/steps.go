package api

import "strings"

// Step is one step of a fix.
type Step struct {
	// Text is a sentence without its full stop. If there is a command, it says what the command is
	// for.
	Text string `json:"text"`
	// Command is what to type, here or there, as Text says.
	Command string `json:"command,omitempty"`
	// Here marks the one command of a fix that can be run at this gateway unchanged: the verdict's
	// command. Others may be for this gateway too; Text says where.
	Here bool `json:"here,omitempty"`
	// Or marks an alternative to the step before.
	Or bool `json:"or,omitempty"`
}

// Steps is a fix, in order.
type Steps []Step

// StepsOf returns the steps of a fix from a gateway. An earlier version has only the fix as text,
// and its command.
func StepsOf(steps Steps, fix, command string) Steps {
	if len(steps) == 0 && fix != "" {
		return Steps{{Text: fix, Command: command, Here: command != ""}}
	}
	return steps
}

// String returns the steps as text, with the commands in backticks.
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

// Command returns the command to type at this gateway, or "".
func (s Steps) Command() string {
	for _, step := range s {
		if step.Here {
			return step.Command
		}
	}
	return ""
}
