package cell

import (
	"fmt"
	"strings"

	"rsc.io/qr"
)

// quiet is the margin that readers of QR codes require, in modules.
const quiet = 4

// Code returns a text as a QR code: lines of half blocks, all of the same width, whose light
// modules have the text's colour. [Inked] makes those light and the rest dark, whatever the theme.
// Digits and upper case need the least room. A text of more than some 4,000 characters is an error.
func Code(text string) ([]string, error) {
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		return nil, fmt.Errorf("no QR code holds %d characters: %w", len(text), err)
	}
	for _, level := range []qr.Level{qr.H, qr.Q, qr.M} { // the most error correction in the same size
		if better, err := qr.Encode(text, level); err == nil && better.Size == code.Size {
			code = better
			break
		}
	}
	light := func(x, y int) int {
		if code.Black(x-quiet, y-quiet) {
			return 0
		}
		return 1
	}
	blocks := [2][2]string{{" ", "▄"}, {"▀", "█"}}
	var lines []string
	side := code.Size + 2*quiet
	for y := 0; y < side; y += 2 {
		var line strings.Builder
		for x := range side {
			line.WriteString(blocks[light(x, y)][light(x, y+1)])
		}
		lines = append(lines, line.String())
	}
	return lines, nil
}
