package cell

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// ascii maps the signs of the screen to ASCII characters of the same width.
var ascii = map[rune]byte{
	'✓': '+', '✗': 'x', '●': '*', '○': 'o', '◌': 'o', '◇': 'w', '━': '=', '┅': '~', '▓': '@', '▒': '%', '░': ':', '╌': ';', '┈': '_', '→': '>', '←': '<', '↑': '^', '↓': 'v', '▲': '^', '▼': 'v',
	'▶': '>', '▸': '>', '◄': '<', '·': '|', '…': '.', '–': '-', '×': 'x', 'µ': 'u', '▏': '|', '─': '-', '│': '|', '┆': ':', '╳': 'x',
	'┌': '.', '┐': '.', '└': '`', '┘': '+', '├': '|', '┤': '|', '┬': '+', '┴': '+', '┼': '+',
}

// ASCII converts a text for a terminal without Unicode. It keeps the width, and replaces unknown
// characters by question marks.
func ASCII(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch like, known := ascii[r]; {
		case r < 0x80:
			b.WriteRune(r)
		case known:
			b.WriteByte(like)
		default:
			b.WriteString(strings.Repeat("?", ansi.StringWidth(string(r))))
		}
	}
	return b.String()
}
