package config

import (
	"fmt"
	"sort"
	"strings"
)

// Source is where a value came from.
type Source string

// Sources, highest precedence first.
const (
	FromFlag    Source = "flag"
	FromEnv     Source = "env"
	FromFile    Source = "file"
	FromDefault Source = "default"
)

// Origin says where a value was set.
type Origin struct {
	Source Source
	// Name of the flag, variable or file; empty for a default.
	Name string
	// Line in the file, from 1.
	Line int
}

// String returns the form for people: "--mtu", "POSTERN_MTU", "edge.yaml:14" or "default".
func (o Origin) String() string {
	switch o.Source {
	case FromFlag:
		return "--" + o.Name
	case FromEnv:
		return o.Name
	case FromFile:
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	}
	return string(FromDefault)
}

// Problem is one mistake in a configuration. Its text is one line.
type Problem struct {
	Origin Origin
	// Path of the field, such as spec.peers[0].publicKey; empty for the document.
	Path    string
	Message string
}

// Error names the place, the field, what is wrong and what to do.
func (p Problem) Error() string {
	s := p.Origin.String() + ": "
	if p.Path != "" && p.Origin.Source == FromFile {
		s += p.Path + ": "
	}
	return s + p.Message
}

// Problems are all mistakes in a configuration, by line. It is an error if it is not empty.
type Problems []Problem

// Error joins the problems with newlines.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// sorted sorts by line; flags and variables, which have none, come first.
func (ps Problems) sorted() Problems {
	sort.SliceStable(ps, func(i, j int) bool { return ps[i].Origin.Line < ps[j].Origin.Line })
	return ps
}

// origin returns where a field was set or, if it was not, where the nearest enclosing field starts.
func origin(origins map[string]Origin, path string) Origin {
	for {
		if o, ok := origins[path]; ok || path == "" {
			return o
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
}

// ProblemAt reports a mistake that only running could show, such as a port in use, like Load would.
func (r *Resolved) ProblemAt(path, message string) Problem {
	return Problem{Origin: origin(r.origins, path), Path: path, Message: oneLine(message)}
}

// Blame attributes a failure to a field of the configuration. The error is a [Problem], and also
// err.
func (r *Resolved) Blame(path string, err error) error {
	return &blamed{r.ProblemAt(path, err.Error()), err}
}

type blamed struct {
	problem Problem
	cause   error
}

// Error returns the problem's message.
func (b *blamed) Error() string { return b.problem.Error() }

// Unwrap returns the problem and its cause.
func (b *blamed) Unwrap() []error { return []error{b.problem, b.cause} }
