package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const repository = "../.."

// markdownFiles are the Markdown files of the repository, by their path from its root.
func markdownFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "dist" || d.Name() == "bin"):
			return filepath.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		rel, err := filepath.Rel(repository, path)
		files = append(files, filepath.ToSlash(rel))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// document is a Markdown file: its prose without code, and the code in it.
type document struct {
	prose string
	// code are the lines between fences and what stands between backquotes.
	code []string
}

var (
	inlineCode = regexp.MustCompile("`([^`]+)`")
	heading    = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	link       = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
)

func readDocument(t *testing.T, file string) document {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, file))
	if err != nil {
		t.Fatal(err)
	}
	return parseDocument(string(text))
}

func parseDocument(text string) document {
	var d document
	var prose strings.Builder
	fenced := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced = !fenced
		case fenced:
			d.code = append(d.code, strings.TrimSpace(line))
		default:
			for _, m := range inlineCode.FindAllStringSubmatch(line, -1) {
				d.code = append(d.code, m[1])
			}
			prose.WriteString(line)
		}
	}
	d.prose = prose.String()
	return d
}

// anchors are what a document's headings can be linked to by, made as GitHub makes them.
func (d document) anchors() map[string]bool {
	anchors := make(map[string]bool)
	for _, m := range heading.FindAllStringSubmatch(d.prose, -1) {
		text := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1")
		text = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(text), "")
		anchor := strings.ReplaceAll(text, " ", "-")
		for n, first := 1, anchor; anchors[anchor]; n++ {
			anchor = first + "-" + strconv.Itoa(n)
		}
		anchors[anchor] = true
	}
	return anchors
}

func TestLinksInMarkdownLeadSomewhere(t *testing.T) {
	links := 0
	for _, file := range markdownFiles(t) {
		d := readDocument(t, file)
		for _, m := range link.FindAllStringSubmatch(inlineCode.ReplaceAllString(d.prose, "code"), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			links++
			if problem := follow(t, file, d, m[1]); problem != "" {
				t.Errorf("%s: link to %s: %s", file, m[1], problem)
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links were found: is their form another?", links)
	}
}

// follow says why a link of a document leads nowhere; "" if it does not.
func follow(t *testing.T, file string, d document, target string) string {
	t.Helper()
	path, anchor, hasAnchor := strings.Cut(target, "#")
	if path != "" {
		path = filepath.ToSlash(filepath.Join(filepath.Dir(file), path))
		if strings.HasPrefix(path, "..") {
			return "it leads out of the repository"
		}
		info, err := os.Stat(filepath.Join(repository, path))
		switch {
		case err != nil:
			return "no such file"
		case !hasAnchor:
			return ""
		case info.IsDir() || filepath.Ext(path) != ".md":
			return "an anchor in what is no Markdown file"
		}
		d = readDocument(t, path)
	}
	if !d.anchors()[anchor] {
		return "no such heading"
	}
	return ""
}

// What documents tell somebody to type exists: commands and their flags, and make targets.
func TestCommandsInMarkdownExist(t *testing.T) {
	root := newApp(nil, nil, nil, func(string) string { return "" }).rootCommand()
	root.InitDefaultHelpCmd()
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+(?: [a-z0-9-]+)*):`).FindAllStringSubmatch(string(makefile), -1) {
		for _, target := range strings.Fields(m[1]) {
			targets[target] = true
		}
	}
	commands, makes := 0, 0
	for _, file := range markdownFiles(t) {
		for _, line := range readDocument(t, file).code {
			for _, words := range invocations(line, "postern", "bin/postern") {
				commands++
				if problem := misused(root, words); problem != "" {
					t.Errorf("%s: %q: %s", file, line, problem)
				}
			}
			for _, words := range invocations(line, "make") {
				if words = slices.DeleteFunc(words, func(w string) bool { return strings.Contains(w, "=") }); len(words) == 0 {
					continue
				}
				makes++
				if !targets[words[0]] {
					t.Errorf("%s: %q: no such target", file, line)
				}
			}
		}
	}
	if commands < 100 || makes < 10 {
		t.Errorf("only %d commands and %d make targets were found: is their form another?", commands, makes)
	}
}

// label is a text that keys are derived with, such as "postern ticket v1 id".
var label = regexp.MustCompile(`^postern [a-z -]+ v[0-9]`)

// beforeCommand is what may stand before a command: a prompt, sudo, a pipe or a list.
var beforeCommand = regexp.MustCompile(`^([a-z]*\$|sudo|exec|\||&&|;|then|do)$`)

// invocations are the arguments of each call of a program in a line of shell.
func invocations(line string, programs ...string) [][]string {
	if label.MatchString(line) {
		return nil
	}
	line, _, _ = strings.Cut(line, " #")
	words := strings.Fields(line)
	var all [][]string
	for i, word := range words {
		if !slices.Contains(programs, strings.TrimLeft(word, "(")) || i > 0 && !beforeCommand.MatchString(words[i-1]) {
			continue
		}
		var args []string
		for _, arg := range words[i+1:] {
			if strings.ContainsAny(arg, ";|&<>") {
				break
			}
			args = append(args, strings.Trim(arg, "[]()`,…"))
		}
		all = append(all, args)
	}
	return all
}

// misused says what is wrong with a command line; "" for nothing. Names in capitals stand
// for anything.
func misused(root *cobra.Command, words []string) string {
	c := root
	for _, word := range words {
		switch {
		case strings.HasPrefix(word, "--"):
			name, _, _ := strings.Cut(word[2:], "=")
			if name != "" && name != "help" && c.Flag(name) == nil && c.InheritedFlags().Lookup(name) == nil {
				return "no flag --" + name + " of " + c.CommandPath()
			}
		case len(word) == 2 && word[0] == '-':
			if !hasShorthand(c, word[1:]) {
				return "no flag " + word + " of " + c.CommandPath()
			}
		case c.HasSubCommands():
			next := slices.IndexFunc(c.Commands(), func(s *cobra.Command) bool { return s.Name() == word })
			if next < 0 {
				if strings.ContainsAny(word, "|/") || word == "" || strings.ToUpper(word) == word {
					return ""
				}
				return "no command " + word + " of " + c.CommandPath()
			}
			c = c.Commands()[next]
		}
	}
	return ""
}

func hasShorthand(c *cobra.Command, letter string) bool {
	return slices.ContainsFunc([]*pflag.FlagSet{c.Flags(), c.PersistentFlags(), c.InheritedFlags()}, func(f *pflag.FlagSet) bool {
		return f.ShorthandLookup(letter) != nil
	})
}

// The checks above are worth something only if they find what is wrong.
func TestMarkdownChecksFindMistakes(t *testing.T) {
	d := parseDocument("# A `b` c\n\n# A b c\n\n```\ncloud$ postern invite --nickname x # y\n```\n")
	for anchor, want := range map[string]string{"#a-b-c": "", "#a-b-c-1": "", "#a-b": "no such heading", "../../x": "it leads out of the repository", "nothing.md": "no such file"} {
		if got := follow(t, "docs/x.md", d, anchor); got != want {
			t.Errorf("%s: got %q, want %q", anchor, got, want)
		}
	}
	root := newApp(nil, nil, nil, func(string) string { return "" }).rootCommand()
	for line, want := range map[string]string{
		d.code[len(d.code)-1]:                  "no flag --nickname of postern invite",
		"postern peer lst":                     "no command lst of postern peer",
		"postern status PEER -o json | jq .":   "",
		"sudo postern bench run --memory 64Mi": "",
	} {
		got := invocations(line, "postern")
		if len(got) != 1 {
			t.Errorf("%q: %d invocations, want 1", line, len(got))
		} else if problem := misused(root, got[0]); problem != want {
			t.Errorf("%q: got %q, want %q", line, problem, want)
		}
	}
}

// A name beside a link to a Go file in CONTRIBUTING is declared in that file.
func TestWhereThingsAreDecidedIsTrue(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## Where is … decided?")
	table, _, _ = strings.Cut(table, "\n## ")
	beside := regexp.MustCompile("\\]\\(([^)]+\\.go)\\)((?:, `[^`]+`)+)")
	checked := 0
	for _, m := range beside.FindAllStringSubmatch(table, -1) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, m[1]), nil, 0)
		if err != nil {
			t.Error(err)
			continue
		}
		declared := map[string]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				declared[n.Name.Name] = true
			case *ast.TypeSpec:
				declared[n.Name.Name] = true
			case *ast.ValueSpec:
				for _, name := range n.Names {
					declared[name.Name] = true
				}
			}
			return true
		})
		for _, name := range inlineCode.FindAllStringSubmatch(m[2], -1) {
			checked++
			if !declared[name[1]] {
				t.Errorf("%s does not declare %s", m[1], name[1])
			}
		}
	}
	if checked < 15 {
		t.Errorf("%d names were checked, want at least 15", checked)
	}
}

// listing is a row of a table of files in a README, or an item in a package comment.
var listing = regexp.MustCompile(`(?m)^(?:\| (.+?) \||//   - ([^:]+):)`)

// filesListed returns the Go files that a section with the heading Files lists; false without one.
func filesListed(text string) (files []string, found bool) {
	_, section, found := strings.Cut(text, "# Files\n")
	if end := regexp.MustCompile(`(?m)^(?:// )?#|^package `).FindStringIndex(section); end != nil {
		section = section[:end[0]]
	}
	for _, m := range listing.FindAllStringSubmatch(section, -1) {
		files = append(files, regexp.MustCompile(`[a-z0-9_]+\.go\b`).FindAllString(m[1]+m[2], -1)...)
	}
	return files, found
}

// A package's table of files, in its README or its package comment, has each file once.
func TestTablesOfFilesAreComplete(t *testing.T) {
	files, listed := make(map[string][]string), make(map[string][]string)
	err := filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		dir, name := filepath.Split(path)
		code := strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == ".git" || name == "dist" || name == "bin"):
			return filepath.SkipDir
		case !code && name != "README.md":
			return nil
		}
		text, err := os.ReadFile(path)
		if in, found := filesListed(string(text)); found {
			listed[dir] = append(listed[dir], in...)
		}
		if code && name != "doc.go" {
			files[dir] = append(files[dir], name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, in := range listed {
		for _, name := range files[dir] {
			if !slices.Contains(in, name) {
				t.Errorf("%s%s is not in the table of files", dir, name)
			}
		}
		for i, name := range in {
			if !slices.Contains(files[dir], name) || slices.Contains(in[:i], name) {
				t.Errorf("%s: the table of files has %s, which does not exist or is there twice", dir, name)
			}
		}
	}
	if len(listed) < 40 {
		t.Errorf("only %d tables were found: is their form another?", len(listed))
	}
}
