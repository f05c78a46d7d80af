package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/muesli/cancelreader"
	"golang.org/x/term"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

// ErrNoTerminal reports that a screen was requested without a terminal.
var ErrNoTerminal = errors.New("input and output are not both a terminal")

// interval is the time between updates.
const interval = time.Second

// Fetch returns the status of one gateway, or of several to be shown below each other. It is not
// called again before it returns.
type Fetch func(ctx context.Context) ([]api.Status, error)

// WatchOptions configure how the screen is drawn.
type WatchOptions struct {
	Color, Wide bool
	// Below are lines to show below the tables.
	Below []string
}

// update is the result of a Fetch.
type update struct {
	statuses []api.Status
	err      error
}

// Watch takes over the terminal and shows the result of fetch once a second, until q or ctrl+c is
// pressed (nil) or ctx ends (its error). It restores the terminal. A failure of the first fetch is
// returned before the screen is taken over. Later, a gateway that does not answer keeps its last
// table, with a line that says so.
func Watch(ctx context.Context, in, out *os.File, fetch Fetch, o WatchOptions) error {
	if !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return ErrNoTerminal
	}
	first, err := fetch(ctx)
	if err != nil {
		return err
	}
	old, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("take over the terminal: %w", err)
	}
	defer func() { _ = term.Restore(int(in.Fd()), old) }()
	fmt.Fprint(out, ansi.SetModeAltScreenSaveCursor+ansi.HideCursor)
	defer fmt.Fprint(out, ansi.ShowCursor+ansi.ResetModeAltScreenSaveCursor)

	keys, err := cancelreader.NewReader(in)
	if err != nil {
		return fmt.Errorf("read the keyboard: %w", err)
	}
	defer keys.Close()
	if err := draw(out, update{statuses: first}, o); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer keys.Cancel()
	defer cancel()

	quit := make(chan struct{})
	group.Go(func() { defer close(quit); awaitQuit(keys) })
	updates := make(chan update)
	group.Go(func() { poll(ctx, fetch, updates) })
	return show(ctx, out, quit, updates, update{statuses: first}, o)
}

// show draws until the user quits. It also draws when nothing new arrived, since the size of the
// terminal may have changed.
func show(ctx context.Context, out *os.File, quit <-chan struct{}, updates <-chan update, last update, o WatchOptions) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-quit:
			return nil
		case u := <-updates:
			if u.err != nil {
				u.statuses = last.statuses
			}
			last = u
		case <-tick.C:
		}
		if err := draw(out, last, o); err != nil {
			return err
		}
	}
}

func draw(out *os.File, u update, o WatchOptions) error {
	width, height := Size(out)
	if _, err := io.WriteString(out, screen(frame(u, width, height, o, time.Now()))); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}

// Size returns a terminal's width and height in cells: the classic 80 × 24 if it does not say, as
// serial consoles do not.
func Size(terminal *os.File) (width, height int) {
	width, height, err := term.GetSize(int(terminal.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// poll fetches once per interval.
func poll(ctx context.Context, fetch Fetch, updates chan<- update) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s, err := fetch(ctx)
		select {
		case updates <- update{s, err}:
		case <-ctx.Done():
			return
		}
	}
}

// awaitQuit reads keys until q, ctrl+c or the end of input. In raw mode ctrl+c is a byte.
func awaitQuit(keys io.Reader) {
	const ctrlC = 3
	buf := make([]byte, 64)
	for {
		n, err := keys.Read(buf)
		for _, key := range buf[:n] {
			if key == 'q' || key == ctrlC {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// frame returns the screen's content: never wider or higher than the terminal, and the last line
// says how to quit.
func frame(u update, width, height int, o WatchOptions, now time.Time) []string {
	p := cell.Colors(o.Color)
	var lines []string
	if u.err != nil {
		lines = append(lines, cell.Wrap("✗ no answer: ", Printable(u.err.Error()), width, "  ")...)
		lines[0] = p.Text(cell.Bad, lines[0])
		lines = append(lines, "")
	}
	for i, s := range u.statuses {
		if i > 0 {
			lines = append(lines, "")
		}
		table := strings.TrimSuffix(Table(s, width, Options{Color: o.Color, Wide: o.Wide, Now: now}), "\n")
		lines = append(lines, strings.Split(table, "\n")...)
	}
	if len(o.Below) > 0 {
		lines = append(lines, "")
		for _, line := range o.Below {
			lines = append(lines, p.Text(cell.Quiet, cell.Fit(line, width)))
		}
	}
	footer := "q quit"
	if room := max(0, height-2); len(lines) > room {
		footer = fmt.Sprintf("q quit · %d more lines do not fit", len(lines)-room)
		lines = lines[:room]
	}
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	return append(lines, cell.Fit(p.Text(cell.Quiet, footer), width))
}

// screen encodes a frame for the terminal: every line is overwritten and its rest erased, to avoid
// flicker.
func screen(lines []string) string {
	var b strings.Builder
	b.WriteString(ansi.CursorHomePosition)
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + ansi.EraseLineRight)
	}
	b.WriteString(ansi.EraseScreenBelow)
	return b.String()
}
