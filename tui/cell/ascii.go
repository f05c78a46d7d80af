package cell

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// ascii are the signs of the screen for terminals without Unicode, each as wide as what it stands for.
var ascii = map[rune]byte{
	'✓': '+', '✗': 'x', '●': '*', '○': 'o', '◌': 'o', '◇': 'w', '━': '=', '┅': '~', '▓': '@', '▒': '%', '░': ':', '╌': ';', '┈': '_', '→': '>', '←': '<', '↑': '^', '↓': 'v', '▲': '^', '▼': 'v',
	'▶': '>', '▸': '>', '◄': '<', '·': '|', '…': '.', '–': '-', '×': 'x', 'µ': 'u', '▏': '|', '─': '-', '│': '|', '┆': ':', '╳': 'x',
	'┌': '.', '┐': '.', '└': '`', '┘': '+', '├': '|', '┤': '|', '┬': '+', '┴': '+', '┼': '+',
}

// ASCII is a text for a terminal without Unicode: as wide as it was, with a question mark for a character
// that has no like.
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
