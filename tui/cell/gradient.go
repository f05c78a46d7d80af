package cell

import (
	"math"

	"github.com/charmbracelet/x/ansi"
)

// Gradient is the colours from the lowest to the highest value, for terminals with 16 million of
// them.
type Gradient struct{ Low, High ansi.RGBColor }

// shades is the number of colours of a gradient: each change of colour is some 20 bytes.
const shades = 8

// Shade returns the number of the colour for a share between 0 and 1 of the maximum.
func (g Gradient) Shade(share float64) int {
	return int(math.Round(min(max(share, 0), 1) * (shades - 1)))
}

// Text returns s in the colour of a shade.
func (g Gradient) Text(shade int, s string) string {
	mix := func(low, high uint8) uint8 {
		return uint8((int(low)*(shades-1-shade) + int(high)*shade) / (shades - 1))
	}
	return colored(ansi.RGBColor{R: mix(g.Low.R, g.High.R), G: mix(g.Low.G, g.High.G), B: mix(g.Low.B, g.High.B)}).Styled(s)
}

// Gradients of the layers of a chart, by chart.Tint. The maximum contrasts most with the
// background.
var (
	onDark = []Gradient{
		{rgb(0x1f6f8b), rgb(0x7ff6ff)}, {rgb(0x8a4a8a), rgb(0xffb0ff)}, {rgb(0x8a7420), rgb(0xfff08a)}, {rgb(0x4a62b0), rgb(0xa8c0ff)}, {rgb(0x707070), rgb(0xf4f4f4)},
	}
	onLight = []Gradient{
		{rgb(0x3f93ad), rgb(0x003f5c)}, {rgb(0xb070b0), rgb(0x5c005c)}, {rgb(0x6f9f5a), rgb(0x234d00)}, {rgb(0x7a8fd8), rgb(0x10206b)}, {rgb(0x909090), rgb(0x101010)},
	}
	forAllEyes = append([]Gradient{{rgb(0x3b6fb6), rgb(0xffe873)}}, onDark[1:]...) // blue to yellow, as cividis
)

func rgb(hex uint32) ansi.RGBColor {
	return ansi.RGBColor{R: uint8(hex >> 16), G: uint8(hex >> 8), B: uint8(hex)}
}

// Shaded returns a paint with other gradients.
func (p Paint) Shaded(gradients []Gradient) Paint {
	changed := *p.palette
	changed.gradients = gradients
	return Paint{&changed, p.rich}
}

// InTrueColor returns a paint for a terminal with 16 million colours.
func (p Paint) InTrueColor() Paint {
	p.rich = p != Bare
	return p
}

// Gradients returns those of charts; none if the terminal or the theme has none.
func (p Paint) Gradients() []Gradient {
	if !p.rich {
		return nil
	}
	return p.gradients
}
