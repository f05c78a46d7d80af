package tmux

import (
	"bytes"
	"fmt"
	"html"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// Frame is a screen that a terminal shows for some time.
type Frame struct {
	// Caption is a line above it.
	Caption string
	// Screen is the output of [Terminal.Styled].
	Screen string
	For    time.Duration
}

// Sizes in the units of the picture. Terminal fonts are usually 0.6 em wide.
const (
	cellWidth, cellHeight = 8.4, 18
	margin, bar           = 12, 30
)

// The colours are those of a dark terminal with its own background, for light and dark pages. A
// missing font is replaced by the next, and textLength keeps the columns aligned.
const style = `text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace;fill:#d0d7de;white-space:pre}
.c{fill:#e6edf3;font-weight:bold}.b{font-weight:bold}.f{fill:#8b949e}.v{fill:#0d1117}.u{text-decoration:underline}
.w{fill:#d0d7de}.k1{fill:#ff7b72}.k2{fill:#56d364}.k3{fill:#e3b341}.k4{fill:#79c0ff}.k5{fill:#d2a8ff}.k6{fill:#56d4dd}
`

// SVG returns an animation that repeats frames of a terminal of the given size. Readers who
// prefer reduced motion get the frame with the longest duration. The file has no external
// references, and contains common parts of the frames once.
func SVG(width, height int, title string, frames []Frame) []byte {
	w, h := float64(width)*cellWidth+2*margin, float64(height*cellHeight+bar+2*margin)
	bodies := bySet(height, frames)
	sets := slices.Sorted(maps.Keys(bodies))
	var b bytes.Buffer
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" height=\"%g\" role=\"img\">\n<title>%s</title>\n<style>\n%s",
		w, h, w, h, html.EscapeString(title), style)
	for _, s := range sets {
		writeTimes(&b, s, frames)
	}
	fmt.Fprintf(&b, "</style>\n<rect x=\".5\" y=\".5\" width=\"%g\" height=\"%g\" rx=\"8\" fill=\"#0d1117\" stroke=\"#57606a\"/>\n", w-1, h-1)
	fmt.Fprintf(&b, "<path d=\"M1 %d.5H%g\" stroke=\"#30363d\"/>\n", bar, w-1)
	for _, set := range sets {
		fmt.Fprintf(&b, "<g class=\"s%x\">\n%s</g>\n", set, bodies[set])
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// bySet returns the captions and characters of all frames, each once, by the set of frames that
// contain them: bit i means frame i.
func bySet(height int, frames []Frame) map[uint64]string {
	in := map[string]uint64{}
	var drawn []string
	add := func(frame int, element string) {
		if in[element] == 0 {
			drawn = append(drawn, element)
		}
		in[element] |= 1 << frame
	}
	for i, f := range frames {
		add(i, fmt.Sprintf("<text x=\"%d\" y=\"%d\" class=\"c\">%s</text>\n", margin, bar-10, html.EscapeString(f.Caption)))
		lines := strings.Split(strings.TrimRight(f.Screen, "\n"), "\n")
		var now look // it continues from line to line
		for row, line := range lines[:min(height, len(lines))] {
			for _, r := range runs(line, &now) {
				add(i, r.drawn(row))
			}
		}
	}
	bodies := map[uint64]string{}
	for _, element := range drawn {
		bodies[in[element]] += element
	}
	return bodies
}

// writeTimes writes when the captions and characters of a set of frames are visible.
func writeTimes(b *bytes.Buffer, set uint64, frames []Frame) {
	if set == 1<<len(frames)-1 {
		return // always
	}
	still := 0
	var total, at time.Duration
	for i, f := range frames {
		if total += f.For; f.For > frames[still].For {
			still = i
		}
	}
	if set>>still&1 == 0 {
		fmt.Fprintf(b, ".s%x{visibility:hidden}\n", set)
	}
	fmt.Fprintf(b, "@media(prefers-reduced-motion:no-preference){.s%x{animation:a%x %gs step-end infinite}}\n@keyframes a%x{", set, set, total.Seconds(), set)
	for i, f := range frames {
		seen := "hidden"
		if set>>i&1 == 1 {
			seen = "visible"
		}
		fmt.Fprintf(b, "%.4g%%{visibility:%s}", 100*at.Seconds()/total.Seconds(), seen)
		at += f.For
	}
	b.WriteString("}\n")
}

// look is the appearance of characters.
type look struct {
	colour, ground              int // 1 to 7 of the terminal's first eight colours; 0 means the default
	bold, faint, reverse, under bool
}

// run is a sequence of characters with the same look, starting at a column.
type run struct {
	look
	column int
	text   string
}

// runs splits a line into runs. now is the look at the beginning of the line, which runs changes to
// that at its end. Two spaces end a run, so that columns stay aligned.
func runs(line string, now *look) (out []run) {
	column := 0
	for len(line) > 0 {
		if sequence, rest, ok := cutSequence(line); ok {
			*now, line = now.after(sequence), rest
			continue
		}
		text := line
		if n := strings.IndexByte(line[1:], '\x1b'); n >= 0 {
			text = line[:n+1]
		}
		line = line[len(text):]
		for text != "" {
			part := text
			if i := strings.Index(text, "  "); i >= 0 && now.ground == 0 && !now.reverse && !now.under {
				part = text[:len(text)-len(strings.TrimLeft(text[i:], " "))]
			}
			out = append(out, run{*now, column, part})
			column += ansi.StringWidth(part)
			text = text[len(part):]
		}
	}
	return out
}

// cutSequence cuts an SGR sequence from the start of a line and returns its parameters.
func cutSequence(line string) (parameters, rest string, ok bool) {
	body, ok := strings.CutPrefix(line, "\x1b[")
	if !ok {
		return "", line, false
	}
	return strings.Cut(body, "m")
}

// after returns the look after an SGR sequence (ECMA-48). It ignores unknown parameters.
func (l look) after(parameters string) look {
	for p := range strings.SplitSeq(parameters, ";") {
		n, err := strconv.Atoi(p)
		switch {
		case p == "" || n == 0 && err == nil:
			l = look{}
		case n == 1:
			l.bold = true
		case n == 2:
			l.faint = true
		case n == 4:
			l.under = true
		case n == 7:
			l.reverse = true
		case n == 22:
			l.bold, l.faint = false, false
		case n == 24:
			l.under = false
		case n == 27:
			l.reverse = false
		case n >= 30 && n <= 37:
			l.colour = n - 30
		case n == 39:
			l.colour = 0
		case n >= 40 && n <= 47:
			l.ground = n - 40
		case n == 49:
			l.ground = 0
		}
	}
	return l
}

// drawn returns the run's SVG in a row; "" if nothing is visible.
func (r run) drawn(row int) string {
	var b strings.Builder
	top := float64(row*cellHeight + bar + margin)
	text := strings.TrimRight(r.text, " ")
	if r.reverse || r.ground > 0 {
		text = r.text
		fmt.Fprintf(&b, "<rect x=\"%.1f\" y=\"%g\" width=\"%.1f\" height=\"%d\" class=\"%s\"/>", at(r.column), top, float64(ansi.StringWidth(text))*cellWidth, cellHeight, r.behind())
	}
	visible := strings.TrimLeft(text, " ")
	if visible == "" {
		return b.String()
	}
	fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%g\"", at(r.column+len(text)-len(visible)), top+13.5)
	if n := ansi.StringWidth(visible); n > 1 {
		fmt.Fprintf(&b, " textLength=\"%.1f\"", float64(n)*cellWidth)
		if strings.Trim(visible, "─│━┅═⣿") == "" { // lines without gaps
			b.WriteString(" lengthAdjust=\"spacingAndGlyphs\"")
		}
	}
	if c := r.class(); c != "" {
		fmt.Fprintf(&b, " class=\"%s\"", c)
	}
	fmt.Fprintf(&b, ">%s</text>\n", html.EscapeString(visible))
	return b.String()
}

func at(column int) float64 { return margin + float64(column)*cellWidth }

// behind returns the class of the background.
func (l look) behind() string {
	switch {
	case l.reverse && l.colour > 0 && l.colour < 7:
		return fmt.Sprint("k", l.colour)
	case l.reverse:
		return "w"
	}
	return fmt.Sprint("k", l.ground)
}

// class returns the class of the characters.
func (l look) class() string {
	var c []string
	if l.bold {
		c = append(c, "b")
	}
	if l.under {
		c = append(c, "u")
	}
	switch {
	case l.reverse:
		c = append(c, "v")
	case l.faint:
		c = append(c, "f")
	}
	if !l.reverse && l.colour > 0 && l.colour < 7 {
		c = append(c, fmt.Sprint("k", l.colour))
	}
	return strings.Join(c, " ")
}
