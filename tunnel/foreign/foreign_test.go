package foreign

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/textproto"
	"os/exec"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// hostile returns texts that a stranger may choose.
func hostile() []string {
	return []string{
		"", "edge", "edge (2)", "Zürich", "北京", "-rf", "--force", "'", `"`, "`reboot`", "$(reboot)", "a'b`c\"d", "~root", "a=b", "=ls", "!!", "*", "a\\", "\\",
		"\x1b[2J\x1b[31mroot", "\x1b]52;c;Y3VybA==\x07", "\u009b31m", "a\nb", "a\r\nb", "a\tb", "a\x00b", "\u2028x\u2029", "\u202egnp.exe", "\u2066x\u2069",
		"\u200bx\ufeff", "x\U000e0041", "x\ufe0f", "\u3164", "\ue000", "\xff\xfe", "a\u00a0b\u3000c", "null", "yes", "0x10", "- a: b", "#", "{{.}}", "%s%d",
		strings.Repeat("A", MaxShown), strings.Repeat("A", MaxShown+1), strings.Repeat("ü", 10*MaxShown), strings.Repeat("😀", 400),
	}
}

func TestShown(t *testing.T) {
	for in, want := range map[string]string{
		"":                        "",
		"cluster-1, Zürich, 北京 ✓": "cluster-1, Zürich, 北京 ✓",
		"\x1b[2Jroot":             "\ufffd[2Jroot",
		"a\nb\tc\r":               "a\ufffdb\ufffdc\ufffd",
		"a\u00a0b\u2028c":         "a b\ufffdc",
		"\u202egnp.exe":           "\ufffdgnp.exe",
		"zero\u200bwidth":         "zero\ufffdwidth",
		"\xff\x00":                "\ufffd\ufffd",
		"tag\U000e0041":           "tag\ufffd",
		"filler\u3164":            "filler\ufffd",
	} {
		if got := Of(in).String(); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
	long := Of(strings.Repeat("ü", MaxShown+1))
	if got, want := long.String(), strings.Repeat("ü", MaxShown)+"…"; got != want {
		t.Errorf("a long text is shown as %q", got)
	}
}

func TestWord(t *testing.T) {
	for in, want := range map[string]string{
		"edge": "edge", "10.0.0.1:80": "10.0.0.1:80", "": "''", "edge (2)": "'edge (2)'", "it's": `'it'\''s'`,
		"--force": "'\ufffd-force'", "=ls": "'=ls'", "~": "'~'", "`id`": "'`id`'",
	} {
		if got := Of(in).Word(); got != want {
			t.Errorf("%q as a word is %s, want %s", in, got, want)
		}
	}
}

// Formatted text, log records and documents contain the sanitised text.
func TestNothingShowsTheRawText(t *testing.T) {
	raw := "\x1b[31m`id`\u202e"
	text := Of(raw)
	var b strings.Builder
	slog.New(slog.NewTextHandler(&b, nil)).Info("heard", "name", text, "names", []Text{text})
	document, err := json.Marshal(map[string]any{"name": text, "names": []Text{text}})
	if err != nil {
		t.Fatal(err)
	}
	yml, err := yaml.Marshal(map[string]any{"name": text})
	if err != nil {
		t.Fatal(err)
	}
	shown := []string{b.String(), string(document), string(yml), fmt.Sprint(text), fmt.Sprint([]Text{text}, map[Text]Text{text: text}, &text)}
	for _, verb := range []string{"%s", "%v", "%+v", "%#v", "%q", "%10s", "%.3s", "%d", "%x", "%T"} {
		shown = append(shown, fmt.Sprintf(verb, text), fmt.Sprintf(verb, struct{ T Text }{text}))
	}
	for _, s := range shown {
		if strings.ContainsAny(s, "\x1b\u202e") || strings.Contains(s, `\x1b`) || strings.Contains(s, `\u001b`) || strings.Contains(s, "1b5b") {
			t.Errorf("the raw text is in %q", s)
		}
	}
	if text.RawUnsafe() != raw {
		t.Errorf("the raw text is %q", text.RawUnsafe())
	}
	var back Text
	if err := json.Unmarshal([]byte(`"a\u001bb"`), &back); err != nil || back != Of("a\x1bb") {
		t.Errorf("got %q, %v", back.RawUnsafe(), err)
	}
}

func TestForms(t *testing.T) {
	for _, c := range []struct {
		form Form
		in   string
		fits bool
	}{
		{Host, "*.example.net", true}, {Host, "fd00::1", true}, {Host, "::1", true}, {Host, "a b", false}, {Host, "-x", false}, {Host, "a`b", false},
		{Host, strings.Repeat("a", 254), false}, {Host.Max(3), "abcd", false}, {Host, "a\n", false},
		{Authority, "k3s-server-ca@1690000000", true}, {Authority, "kubernetes", true}, {Authority, "run this", false},
		{Software, "v1.36.3+k3s1", true}, {Software, "v", false},
	} {
		want := c.in
		if !c.fits {
			want = Unfit
		}
		if got := Of(c.in).As(c.form); got != want {
			t.Errorf("%q became %q, want %q", c.in, got, want)
		}
	}
}

func TestAnErrorIsToldWithoutTheWordsInIt(t *testing.T) {
	sentinel := errors.New("no such thing")
	for want, err := range map[string]error{
		`malformed status`:                 fmt.Errorf("malformed status %q", "run `this`"),
		"the answer's header is malformed": fmt.Errorf("read: %w", textproto.ProtocolError("malformed MIME header line: run this")),
		"plain: no such thing":             fmt.Errorf("plain: %w", sentinel),
		"a\ufffdb":                         errors.New("a\x1bb"),
	} {
		if got := Err(err).Error(); got != want {
			t.Errorf("%v is told as %q, want %q", err, got, want)
		}
	}
	if !errors.Is(Err(sentinel), sentinel) || Err(nil) != nil {
		t.Error("the error itself is lost")
	}
}

// sh returns the words as a shell reads them, each followed by a byte that no word contains.
func sh(t testing.TB, words []string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\001' `+strings.Join(words, " ")).CombinedOutput()
	if err != nil {
		t.Fatalf("sh: %v: %s", err, out)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x01"), "\x01")
}

func TestAShellReadsAWordAsItIsShown(t *testing.T) {
	var words []string
	for _, s := range hostile() {
		words = append(words, Of(s).Word())
	}
	for i, got := range sh(t, words) {
		want := Of(hostile()[i]).String()
		if strings.HasPrefix(want, "-") {
			want = "\ufffd" + want[1:]
		}
		if got != want {
			t.Errorf("%q: sh reads %q, want %q", hostile()[i], got, want)
		}
	}
}

// FuzzText checks that no text has an effect in any place where it is shown.
func FuzzText(f *testing.F) {
	for _, s := range hostile() {
		f.Add(s, 20)
	}
	f.Fuzz(func(t *testing.T, s string, max int) {
		max = 3 + (max&0x7fffffff)%2048
		text := Of(s)
		for place, got := range map[string]string{
			"terminal": text.String(), "cut": text.Cut(max), "word": text.Word(), "line": Line(s), "verb": fmt.Sprintf("%v", text),
		} {
			for _, r := range got {
				if r != ' ' && (!unicode.IsGraphic(r) || unicode.In(r, unicode.C, unicode.Z, unicode.Bidi_Control, unicode.Variation_Selector)) {
					t.Errorf("%s: %U is left of %q in %q", place, r, s, got)
				}
			}
			if !utf8.ValidString(got) {
				t.Errorf("%s: %q is no UTF-8", place, got)
			}
		}
		for place, c := range map[string]struct {
			make func(string) string
			most int
		}{
			"terminal": {func(s string) string { return Of(s).String() }, MaxShown + 1},
			"cut":      {func(s string) string { return Of(s).Cut(max) }, max + 1},
			"line":     {Line, utf8.RuneCountInString(s)},
		} {
			once := c.make(s)
			if again := c.make(once); again != once {
				t.Errorf("%s: %q becomes %q, and that %q", place, s, once, again)
			}
			if n := utf8.RuneCountInString(once); n > c.most {
				t.Errorf("%s: %d of at most %d", place, n, c.most)
			}
		}
		if w := text.Word(); Bare(w) && strings.ContainsAny(w, " '\"`$\\|&;<>()*?[]#~!{}\n") || strings.HasPrefix(w, "-") || strings.HasPrefix(w, "'-") ||
			!Bare(w) && strings.Count(strings.ReplaceAll(w, `'\''`, ""), "'") != 2 {
			t.Errorf("the word of %q is %s", s, w)
		}
	})
}
