// Package catalogue contains the codes of all faults and their texts in English: the cause and the
// steps of the fix.
//
// A code's texts are templates in the folder text, in the language of text/template. They use only
// typed parameters ([Params]). So gateways exchange parameters instead of sentences, and each
// writes the text itself. To add a code:
//
//  1. Add a name and a number in codes.go.
//  2. Write its texts in the file of its range in the folder text.
//  3. Use it where the fault is found.
//
// docs/troubleshooting.md is generated from the same files.
//
// # Format
//
// A file is a sequence of codes. Each has a line "PSTnnnn title" and sections. A section is a line
// with its name, followed by lines indented by a tab. These are joined with spaces to one line,
// except in a fix. A line that begins with # is a comment. A line "note NAME" begins the texts of a
// note, which is no fault but the reason why there is no verdict.
//
//	cause          what is wrong
//	fix            what to do, one step per line
//	place          where the fault is, shown after "where:", if the code says more than the path on
//	               which it was found
//	part NAME      a template for others: {{template "NAME" .}}
//	severity       warning for faults that do not by themselves make a peer unreachable; without it
//	               a check of this gateway that finds the fault ends with an error
//	found          how the fault is found, in Markdown, for the page
//	consider       what else to consider when fixing it, likewise
//
// The lines of a fix begin with their kind. Empty lines are ignored:
//
//	TEXT           a step
//	or TEXT        an alternative to the step before
//	$ COMMAND      the command of the step above, to be typed at this gateway. It is the one of the
//	               fix that is offered to be copied, unless it has a word to be replaced
//	> COMMAND      another command of the step above: for elsewhere, or one of several
//	<tab>          continues the line above
//
// The same fault is read at different places. The first of these sections that exists applies:
//
//	cause direct     the service was tried outside the tunnel (Params.Direct)
//	cause own        about this gateway alone (Inbound, without a Peer)
//	cause inbound    at the gateway that offers the service, as the Peer reports (Inbound)
//	cause outbound   at the gateway that uses the service of the Peer
//	cause            anywhere
//
// Templates see a [Params], and the functions and methods in the tables words and methods.
//
// # Files
//
//   - catalogue.go: reading the texts; causes and fixes of a code
//   - codes.go: all codes
//   - params.go: the values in texts, and which may be told or used in a fix
//   - clean.go: what others' values are allowed
//   - told.go: values that gateways share
//   - kinds.go: the form that each such value must have
//   - execute.go: executing a text's template
//   - steps.go: the steps of a fix
//   - view.go: what templates can ask
//   - viewnet.go: what they can ask about addresses, ports and the sizes of packets
//   - candidates.go: addresses in texts
//   - rules.go: firewall rules in fixes
//   - kube.go: kubectl and helm in fixes
//   - words.go: durations, sizes, lists, NATs in words
//   - reason.go: errors in texts
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
	// Found and Consider say in Markdown how the fault is found and what else to consider.
	Found, Consider string
	severity        api.Outcome
}

// Codes returns the catalogue in order of codes.
func Codes() []Entry { return slices.Clone(load().entries) }

// Severity returns the outcome of a check of this gateway that ends with a code.
func Severity(c Code) api.Outcome {
	if i, ok := load().find(c); ok && load().entries[i].severity != "" {
		return load().entries[i].severity
	}
	return api.Error
}

// Title says in a few words what a code means; "" for an unknown code.
func Title(c Code) string {
	if i, ok := load().find(c); ok {
		return load().entries[i].Title
	}
	return ""
}

// Render returns the cause and the fix of a code for its parameters. An unknown code (from a newer
// peer's report) is named as such. Of a peer's parameters, only those that the schema marks go into
// the fix.
func Render(c Code, p Params) (cause string, fix api.Steps) {
	if root := p.comesAndGoes(c); root != "" {
		cause, fix = Render(root, p)
		v := viewOf(c, p)
		return load().text(load().section("cause", v), v) + ": " + cause, fix
	}
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
	for _, more := range []string{"beside", "recent"} {
		cause += all.text(all.templates[more], v)
	}
	return all.text(all.section("cause", v), v) + cause, all.steps(all.section("fix", known), known)
}

// comesAndGoes returns the code that [Intermittent] quotes; empty for other codes.
func (p Params) comesAndGoes(c Code) Code {
	if _, is := load().find(p.RootCode); c != Intermittent || p.RootCode == Intermittent || !is {
		return ""
	}
	return p.RootCode
}

// Place describes where a fault is, if its code says so; "" if only the path on which it was found
// does.
func Place(c Code, p Params) string {
	if root := p.comesAndGoes(c); root != "" {
		c = root
	}
	v := viewOf(c, p)
	return load().text(load().section("place", v), v)
}

// catalogue is the content of the files.
type catalogue struct {
	entries   []Entry // by code
	templates map[string]*parse.Tree
}

// load reads the files when the first text is needed. They are part of the program, and a test
// executes every section: an error is a mistake in them.
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

// read reads a file's codes and sections.
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

// add stores a heading's content, and returns the code to which the next heading belongs.
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

// section returns the section for the place where it is read, or nil.
func (c *catalogue) section(name string, v *view) *parse.Tree {
	for _, place := range v.places() {
		if t := c.templates[string(v.Code)+"/"+name+place]; t != nil {
			return t
		}
	}
	return nil
}

// text returns a template's output on one line.
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
