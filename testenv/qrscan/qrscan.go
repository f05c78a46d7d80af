// Package qrscan reads QR codes off terminals, for tests.
package qrscan

import (
	"fmt"
	"image"
	"image/color"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"
)

// Scan finds the QR code in a terminal's text and decodes it, as a camera would: blocks are light
// on a dark background, and other characters are so sparse that they count as background.
func Scan(picture string) (string, error) {
	const scale = 3 // pixels for a module
	lines := strings.Split(ansi.Strip(picture), "\n")
	width := 0
	for _, l := range lines {
		width = max(width, ansi.StringWidth(l))
	}
	inked := map[rune][2]bool{'█': {true, true}, '▀': {true, false}, '▄': {false, true}}
	pixels := image.NewGray(image.Rect(0, 0, scale*width, 2*scale*len(lines)))
	for row, line := range lines {
		column := 0
		for _, r := range line {
			for y := range 2 * scale {
				for x := range scale {
					if inked[r][y/scale] {
						pixels.SetGray(column*scale+x, row*2*scale+y, color.Gray{Y: 255})
					}
				}
			}
			column += ansi.StringWidth(string(r))
		}
	}
	bitmap, err := gozxing.NewBinaryBitmapFromImage(pixels)
	if err != nil {
		return "", fmt.Errorf("make a picture: %w", err)
	}
	result, err := qrcode.NewQRCodeReader().Decode(bitmap, nil)
	if err != nil {
		return "", fmt.Errorf("scan the picture: %w", err)
	}
	return result.GetText(), nil
}
