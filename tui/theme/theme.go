// Package theme contains the colours of the live screen, by name: the built-in themes, and files of
// the user.
//
// A file has a line for each role that differs from the theme it is based on:
//
//	# night.theme
//	base: dark
//	good: "#5fd7af"
//	bad: bold bright-white on 160 # it fails
//	quiet: faint
//
// A colour is one of the terminal's first sixteen by name (red, bright-red), one of its 256 by
// number, or #RRGGBB, with or without quotes. It may be preceded by bold, faint, underline and
// reverse, and followed by `on` and the background colour. `low` and `high` are the ends of the
// gradient that shades a chart's first line and sparklines on a terminal with 16 million colours:
// only #RRGGBB, both or neither. `plain` is the terminal's own text. A # followed by a space begins
// a comment.
package theme

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/suggest"
	"github.com/postern-dev/postern/tui/cell"
)

// Names of the built-in themes.
const (
	Dark       = "dark"
	Light      = "light"
	Contrast   = "contrast"
	ColorBlind = "colour-blind"
)

// Suffix is the suffix of files in the user's directory.
const Suffix = ".theme"

var builtIn = map[string]cell.Paint{Dark: cell.Dark, Light: cell.Light, Contrast: cell.Contrast, ColorBlind: cell.ColorBlind}

// roles are the styles that a file can change.
var roles = map[string]cell.Style{
	"good": cell.Good, "bad": cell.Bad, "wary": cell.Wary, "quiet": cell.Quiet, "strong": cell.Strong, "second": cell.Second, "selected": cell.Selected,
}

// The ends of the gradient of a chart's first line.
const lowEnd, highEnd = "low", "high"

// maxSize bounds a file, in bytes.
const maxSize = 64 << 10

// Dir is the directory with the user's own themes, which need not exist; empty is none.
type Dir string

// DirFor returns the Dir in the environment's configuration directory.
func DirFor(getenv func(string) string) Dir {
	base := getenv("XDG_CONFIG_HOME")
	if home := getenv("HOME"); !filepath.IsAbs(base) && filepath.IsAbs(home) {
		base = filepath.Join(home, ".config")
	}
	if !filepath.IsAbs(base) {
		return ""
	}
	return Dir(filepath.Join(base, "postern", "themes"))
}

// BuiltIn returns the names of the built-in themes, the default first.
func BuiltIn() []string { return []string{Dark, Light, Contrast, ColorBlind} }

// Names returns the names that can be loaded.
func (d Dir) Names() []string {
	names := BuiltIn()
	if d == "" {
		return names
	}
	files, _ := filepath.Glob(filepath.Join(string(d), "*"+Suffix))
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), Suffix); builtIn[name] == cell.Bare && cell.Printable(name) == name {
			names = append(names, name)
		}
	}
	return names
}

// Load returns a theme by its name or, if it contains a slash, by the path of its file. The error
// says what is wrong and where.
func (d Dir) Load(name string) (cell.Paint, error) {
	if p, known := builtIn[name]; known {
		return p, nil
	}
	file := name
	if !strings.ContainsRune(name, filepath.Separator) {
		if file = filepath.Join(string(d), name+Suffix); !slices.Contains(d.Names(), name) {
			return cell.Bare, fmt.Errorf("no theme is called %q (%s)", name, suggest.Hint(name, d.Names(), "there are: "))
		}
	}
	text, err := read(file)
	if err != nil {
		return cell.Bare, fmt.Errorf("read the theme: %w", err)
	}
	p, err := Parse(text)
	if err != nil {
		return cell.Bare, fmt.Errorf("%s:%w", cell.Printable(file), err)
	}
	return p, nil
}

// read reads a file, but nothing endless.
func read(file string) (text string, err error) {
	info, err := os.Stat(file)
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: file, Err: errors.New("it is no regular file")}
	}
	if err != nil {
		return "", err
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(data) > maxSize {
		err = fmt.Errorf("%s has more than %d bytes", file, maxSize)
	}
	return string(data), err
}

// Parse parses a file's text. An error begins with the line's number.
func Parse(text string) (cell.Paint, error) {
	base, looks, ends := Dark, map[cell.Style]ansi.Style{}, map[string]ansi.RGBColor{}
	seen := map[string]int{}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line+" ", "# ")
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		bad := func(format string, args ...any) (cell.Paint, error) {
			return cell.Bare, fmt.Errorf("%d: %s", i+1, cell.Printable(fmt.Sprintf(format, args...)))
		}
		name, value, found := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.Trim(strings.TrimSpace(value), `"'`)
		role, known := roles[name]
		switch {
		case !found:
			return bad("%.40q is no line of a theme (want ROLE: COLOUR, such as good: green)", line)
		case seen[name] != 0:
			return bad("%s is given twice, first in line %d (remove one)", name, seen[name])
		case name == "base" && builtIn[value] == cell.Bare:
			return bad("base: no theme that is built in is called %.40q (%s)", value, suggest.Hint(value, BuiltIn(), "there are: "))
		case name == "base":
			base = value
		case name == lowEnd || name == highEnd:
			c, _ := colourOf(value)
			end, ok := c.(ansi.RGBColor)
			if !ok {
				return bad("%s: %.40q is no #RRGGBB", name, value)
			}
			ends[name] = end
		case !known:
			return bad("there is no role %.40q (%s)", name, suggest.Hint(name, append(slices.Collect(maps.Keys(roles)), "base", lowEnd, highEnd), "there are: "))
		default:
			look, err := styleOf(value)
			if err != nil {
				return bad("%s: %v", name, err)
			}
			looks[role] = look
		}
		seen[name] = i + 1
	}
	p := builtIn[base].With(base == Light, looks)
	switch len(ends) {
	case 1:
		return cell.Bare, fmt.Errorf("%d: a gradient has two ends (give low and high)", seen[lowEnd]+seen[highEnd])
	case 2:
		others := p.InTrueColor().Gradients()
		p = p.Shaded(slices.Concat([]cell.Gradient{{Low: ends[lowEnd], High: ends[highEnd]}}, others[min(1, len(others)):]))
	}
	return p, nil
}

// styleOf parses a style: attributes, a colour, and a background colour.
func styleOf(text string) (ansi.Style, error) {
	s := ansi.NewStyle()
	words := strings.Fields(strings.ToLower(text))
	if len(words) == 0 {
		return s, errors.New("no colour (want one such as green, 208 or #5fd7af; plain is the terminal's own)")
	}
	background := false
	for i, word := range words {
		switch {
		case word == "plain":
		case word == "bold":
			s = s.Bold()
		case word == "faint":
			s = s.Faint()
		case word == "underline":
			s = s.Underline(true)
		case word == "reverse":
			s = s.Reverse(true)
		case word == "on" && !background && i+1 < len(words):
			background = true
		default:
			c, known := colourOf(word)
			if !known {
				return s, fmt.Errorf("%.40q is no colour (want %s with or without bright-, a number to 255, or #RRGGBB; before it bold, faint, underline or reverse)", word, strings.Join(colours, ", "))
			}
			if background {
				s = s.BackgroundColor(c)
			} else {
				s = s.ForegroundColor(c)
			}
		}
	}
	return s, nil
}

// colours are the first eight of a terminal, in its order.
var colours = []string{"black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"}

func colourOf(word string) (ansi.Color, bool) {
	name, bright := strings.CutPrefix(word, "bright-")
	if i := slices.Index(colours, name); i >= 0 {
		if bright {
			i += len(colours)
		}
		return ansi.BasicColor(i), true
	}
	if digits, found := strings.CutPrefix(word, "#"); found {
		rgb, err := hex.DecodeString(digits)
		if err != nil || len(rgb) != 3 {
			return nil, false
		}
		return ansi.RGBColor{R: rgb[0], G: rgb[1], B: rgb[2]}, true
	}
	n, err := strconv.ParseUint(word, 10, 8)
	return ansi.IndexedColor(n), err == nil
}
