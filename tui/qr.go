package tui

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/tui/cell"
)

// Code draws a text as a QR code for a terminal of this size (0 if unknown), or says why it cannot.
// The text ends in a newline.
func Code(text string, width, height int, o Options) string {
	if o.ASCII {
		return "No QR code without Unicode: set POSTERN_GRAPH=block where the terminal has it.\n"
	}
	lines, err := cell.Code(text)
	if err != nil {
		return "No QR code: " + err.Error() + ".\n"
	}
	if wide := ansi.StringWidth(lines[0]); width > 0 && wide > width {
		return fmt.Sprintf("No room for the QR code: it takes %d × %d characters, and the terminal has %d × %d. Enlarge it, or take a smaller font.\n", wide, len(lines), width, height)
	}
	p, note := cell.Colors(o.Color), ""
	if !o.Color {
		note = "The QR code is for a dark background. On a light one, use colours (unset NO_COLOR), or readers may not recognise it.\n"
	}
	if height > 0 && len(lines) >= height {
		note += fmt.Sprintf("The QR code has %d lines, and the terminal %d: enlarge it and scroll back, or take a smaller font.\n", len(lines), height)
	}
	for i := range lines {
		lines[i] = p.Text(cell.Inked, lines[i])
	}
	return strings.Join(lines, "\n") + "\n" + note
}
