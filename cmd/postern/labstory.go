package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/tui"
)

// labStory prints what happens in the lab, one step a line. On a terminal it also shows the step
// in progress, and wraps sentences.
type labStory struct {
	out   io.Writer
	width int // of the terminal, 0 when there is none
}

// clearLine moves to the start of a line and erases it (ECMA-48: CR, EL).
const clearLine = "\r\x1b[K"

func (a *app) labStory(format string) labStory {
	if format == formatJSON {
		return labStory{out: io.Discard}
	}
	return labStory{out: a.stdout, width: a.width()}
}

func (s labStory) introduce(scenario lab.Scenario) {
	for _, line := range [][2]string{
		{"scenario", scenario.Name + ": " + scenario.Summary},
		{"network", scenario.Network()},
		{"real", scenario.Real()},
		{"simulated", scenario.Simulated()},
	} {
		s.print(fmt.Sprintf("%-11s", line[0]), line[1])
	}
	fmt.Fprintln(s.out)
}

func (s labStory) begin(name, doing string) {
	if s.width == 0 || doing == "" {
		return
	}
	line := []rune(fmt.Sprintf("… %-13s %8s  %s", name, "", doing))
	fmt.Fprint(s.out, string(line[:min(len(line), s.width-1)]))
}

func (s labStory) end(step api.LabStep) {
	glyph := "✓"
	if !step.OK {
		glyph = "✗"
	}
	if s.width > 0 {
		fmt.Fprint(s.out, clearLine)
	}
	head := fmt.Sprintf("%s %-13s %6.2f s  ", glyph, step.Name, step.Seconds)
	lines := strings.Split(step.Detail, "\n")
	if len(lines) == 1 {
		s.print(head, tui.Printable(step.Detail))
		return
	}
	fmt.Fprintln(s.out, strings.TrimRight(head, " "))
	for _, line := range lines { // what each side finds
		text := strings.TrimLeft(line, " ")
		s.print(strings.Repeat(" ", 4+len(line)-len(text)), tui.Printable(text))
	}
}

// print writes text after a prefix, wrapped to the terminal's width.
func (s labStory) print(prefix, text string) {
	indent := utf8.RuneCountInString(prefix)
	line, used := prefix, indent
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case s.width > 0 && used+1+n > s.width && used > indent:
			fmt.Fprintln(s.out, line)
			line, used = strings.Repeat(" ", indent), indent
		default:
			line, used = line+" ", used+1
		}
		line, used = line+word, used+n
	}
	fmt.Fprintln(s.out, line)
}
