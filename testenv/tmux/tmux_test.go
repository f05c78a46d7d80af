package tmux

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// drawnText returns the texts of a picture, element by element, sorted by line. It fails if the
// picture is not XML.
func drawnText(t *testing.T, svg []byte) string {
	t.Helper()
	var b strings.Builder
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		switch token := token.(type) {
		case xml.CharData:
			b.Write(token)
		case xml.StartElement:
			for _, a := range token.Attr {
				if a.Name.Local == "x" || a.Name.Local == "class" {
					b.WriteString("|" + a.Value)
				}
			}
		}
	}
}

func TestAPictureHasWhatTheTerminalShowed(t *testing.T) {
	first := "plain  \x1b[1m\x1b[32mgreen <&>\x1b[0m\n\x1b[7mreversed  \x1b[27m\x1b[2mfaint\nstill so"
	second := strings.Replace(first, "plain", "other", 1)
	svg := SVG(20, 3, "a <title>", []Frame{{"before", first, time.Second}, {"after", second, 3 * time.Second}})
	text := drawnText(t, svg)
	for _, want := range []string{
		"a <title>", "|12.0plain", "|12.0other", "|70.8|b k2green <&>", "|12.0|vreversed", "|96.0|ffaint", "|12.0|fstill so", // attributes persist
		".s1{visibility:hidden}", "4s step-end", "25%{visibility:visible}",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for what, n := range map[string]int{"still so": 1, "faint": 1, "plain": 1, "href": 0, "script": 0, ".s2{visibility": 0} {
		if got := strings.Count(string(svg), what); got != n {
			t.Errorf("got %q %d times, want %d", what, got, n)
		}
	}
}
