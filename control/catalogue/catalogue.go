// Package catalogue has the codes of everything that can be wrong, and says each in English:
// what is wrong (the cause) and what is to be done (the fix), in steps.
//
// A code's texts are templates in the folder text, in the language of text/template, made of
// typed parameters ([Params]) alone. So one gateway can tell another what it found without a
// sentence, and each says it in its own words. To add a code:
//
//  1. give it a name and a number in codes.go,
//  2. write its texts in the file of its range in the folder text,
//  3. use it where the fault is found.
//
// docs/troubleshooting.md is made of the same files.
//
// # Format
//
// A file is a sequence of codes, each a line "PSTnnnn title" and its sections. A section is
// a line with its name and lines that are indented by a tab; these make one line, joined by
// blanks, but for a fix. A line that begins with # is a comment. A line "note NAME" begins the
// texts of what is no fault, but the reason why there is no verdict.
//
//	cause          what is wrong
//	fix            what is to be done, a step on each line
//	place          where the fault is, behind "where:", if the code tells more than the way does on
//	               which it was found
//	part NAME      a template for others: {{template "NAME" .}}
//	severity       warning for what keeps no peer from being reached by itself; without it
//	               an own check that finds the fault ends with an error
//	found          how the fault is found, in Markdown, for the page
//	consider       what else to consider when fixing it, likewise
//
// The lines of a fix begin with what they are, and an empty one is nothing:
//
//	TEXT           a step
//	or TEXT        a step that is done instead of the one before
//	$ COMMAND      the command of the step above, typed at this gateway as it is: the one of the fix
//	               that is offered to be copied, unless it has a word to be replaced
//	> COMMAND      another command of the step above: for elsewhere, or one of several
//	<tab>          goes on with the line above
//
// The same fault is read at different places. The first section there is of these counts:
//
//	cause direct     the service was tried outside the tunnel (Params.Direct)
//	cause own        this gateway is read about by itself (Inbound, without a Peer)
//	cause inbound    at the gateway that offers the service, as the Peer reports (Inbound)
//	cause outbound   at the gateway that uses the service of the Peer
//	cause            at any
//
// Templates see a [Params], and the functions and methods in the tables words and methods.
package catalogue

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"text/template/parse"

	"github.com/postern-dev/postern/control/api"
)

//go:embed text/*.txt
var texts embed.FS

// Entry is a code of the catalogue.
type Entry struct {
	Code Code
	// Title says in a few words what the code means.
	Title string
	// Found and Consider tell in Markdown how the fault is found and what else to consider.
	Found, Consider string
	severity        api.Outcome
}

// Codes lists the catalogue in the order of the codes.
func Codes() []Entry { return slices.Clone(load().entries) }

// Severity is the outcome of an own check that ends with a code.
func Severity(c Code) api.Outcome {
	if i, ok := load().find(c); ok && load().entries[i].severity != "" {
		return load().entries[i].severity
	}
	return api.Error
}

// Title says in a few words what a code means; empty of one that this version does not know.
func Title(c Code) string {
	if i, ok := load().find(c); ok {
		return load().entries[i].Title
	}
	return ""
}

// Render makes the cause and the fix of a code from its parameters. A code that this
// version does not know (a newer peer's report) is named as such. Of what a peer says, only
// what the schema marks goes into the fix.
func Render(c Code, p Params) (cause string, fix api.Steps) {
	v := viewOf(c, p)
	known := v
	if p.Heard {
		known = viewOf(c, p.trusted())
	}
	all := load()
	switch _, is := all.find(c); {
	case c.Fault() == "":
		return all.text(all.section("cause", v), v), all.steps(all.section("fix", known), known)
	case !is:
		return all.text(all.templates["unknown cause"], v), all.steps(all.templates["unknown fix"], known)
	}
	return all.text(all.section("cause", v), v) + all.text(all.templates["beside"], v), all.steps(all.section("fix", known), known)
}

// Place is where a fault is, in words, if its code tells; empty where only the way on which it was found
// does.
func Place(c Code, p Params) string {
	v := viewOf(c, p)
	return load().text(load().section("place", v), v)
}

// catalogue is what the files say.
type catalogue struct {
	entries   []Entry // by code
	templates map[string]*parse.Tree
}

// load reads the files when the first text is wanted. They are part of the program, and a
// test executes every section: an error is a mistake in them.
var load = sync.OnceValue(func() *catalogue {
	c := &catalogue{templates: map[string]*parse.Tree{}}
	names, err := fs.Glob(texts, "text/*.txt")
	for _, name := range names {
		if err == nil {
			err = c.read(name)
		}
	}
	if err != nil {
		panic(fmt.Sprintf("catalogue: %v", err))
	}
	slices.SortFunc(c.entries, func(a, b Entry) int { return strings.Compare(string(a.Code), string(b.Code)) })
	return c
})

// read takes a file's codes and sections.
func (c *catalogue) read(name string) error {
	b, err := texts.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	var of, section string // the code, and its section
	var body []string
	add := func() (err error) {
		of, err = c.add(of, section, strings.Join(body, "\n"))
		return err
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '\t':
			body = append(body, line[1:])
		default:
			if err := add(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			section, body = line, nil
		}
	}
	if err := add(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// add takes a heading with what stands below it, and gives the code that the next is of.
func (c *catalogue) add(of, heading, body string) (string, error) {
	if heading == "" { // the beginning of the file
		return of, nil
	}
	if note, ok := strings.CutPrefix(heading, "note "); ok {
		return note, nil
	}
	if code, title, ok := strings.Cut(heading, " "); ok && strings.HasPrefix(code, "PST") {
		c.entries = append(c.entries, Entry{Code: Code(code), Title: title})
		return code, nil
	}
	path, isPart := strings.CutPrefix(heading, "part ")
	if !isPart {
		path = of + "/" + heading
		switch e := &c.entries[max(0, len(c.entries)-1)]; heading {
		case "found":
			e.Found = strings.ReplaceAll(body, "\n", " ")
			return of, nil
		case "consider":
			e.Consider = strings.ReplaceAll(body, "\n", " ")
			return of, nil
		case "severity":
			e.severity = api.Outcome(body)
			return of, nil
		}
	}
	if c.templates[path] != nil {
		return of, fmt.Errorf("%q is there twice", path)
	}
	t, err := parse.New(path).Parse(body, "", "", c.templates, words)
	if err != nil {
		return of, fmt.Errorf("%s: %w", path, err)
	}
	c.templates[path] = t
	return of, nil
}

func (c *catalogue) find(code Code) (int, bool) {
	return slices.BinarySearchFunc(c.entries, code, func(e Entry, c Code) int { return strings.Compare(string(e.Code), string(c)) })
}

// section is the section that is for the place where it is read; nil without one.
func (c *catalogue) section(name string, v *view) *parse.Tree {
	for _, place := range v.places() {
		if t := c.templates[string(v.Code)+"/"+name+place]; t != nil {
			return t
		}
	}
	return nil
}

// text is that of a template, on one line.
func (c *catalogue) text(t *parse.Tree, v *view) string {
	var words []string
	for _, l := range c.lines(t, v) {
		words = append(words, l.mark+l.text)
	}
	return strings.Join(words, " ")
}

func (c *catalogue) lines(t *parse.Tree, v *view) []line {
	if t == nil {
		return nil
	}
	lines, err := c.execute(t, v)
	if err != nil {
		return []line{{text: fmt.Sprintf("the texts of %s have a mistake (%v): please report it", v.Code, err)}}
	}
	return lines
}
