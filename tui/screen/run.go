package screen

import (
	"context"
	"fmt"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
	"golang.org/x/term"
)

// framesPerSecond bounds how often changes are written: the effect of a key waits for at most a
// thirtieth of a second, which leaves as much of a twentieth for drawing a thousand peers.
const framesPerSecond = 30

// Run takes over the terminal until q is pressed (nil) or ctx ends (its error). It restores the
// terminal. The caller handles signals by ending ctx. A gateway that does not answer is no error:
// the screen says so and retries.
func Run(ctx context.Context, o Options) error {
	if !isTerminal(o.In) || !isTerminal(o.Out) {
		return ErrNoTerminal
	}
	// Otherwise the libraries would query the terminal for both, and wait for an answer.
	profile := termenv.Ascii
	if o.Color {
		profile = termenv.ANSI
	}
	lipgloss.SetColorProfile(profile)
	lipgloss.SetHasDarkBackground(true)

	tasks := newTasks(ctx)
	defer tasks.close()
	program := newProgram(o, tasks)
	// Not tea.WithContext: a program that is killed does not wait for its reader.
	quit := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(quit); program.Quit() })
	_, err := program.Run()
	if !stop() {
		<-quit
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("draw the screen: %w", err)
	}
	return nil
}

// newProgram returns the screen for any In and Out.
func newProgram(o Options, t *tasks) *tea.Program {
	options := []tea.ProgramOption{tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithoutSignalHandler(),
		tea.WithAltScreen(), tea.WithReportFocus(), tea.WithFPS(framesPerSecond)}
	if o.Mouse {
		options = append(options, tea.WithMouseCellMotion())
	}
	return tea.NewProgram(newModel(o, t), options...)
}

func isTerminal(f any) bool {
	file, ok := f.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(file.Fd()))
}
