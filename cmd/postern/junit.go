package main

import (
	"encoding/xml"
	"fmt"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui"
)

// The format of continuous-integration systems: a suite for this gateway and one for each peer, a
// case for each check. Warnings are passed cases with a system-out.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Skipped  int          `xml:"skipped,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name      string      `xml:"name,attr"`
		Tests     int         `xml:"tests,attr"`
		Failures  int         `xml:"failures,attr"`
		Skipped   int         `xml:"skipped,attr"`
		Timestamp string      `xml:"timestamp,attr"`
		Cases     []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		Time    string        `xml:"time,attr"` // seconds
		Failure *junitOutcome `xml:"failure,omitempty"`
		Skipped *junitOutcome `xml:"skipped,omitempty"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitOutcome struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

func (a *app) printJUnit(r api.CheckReport) error {
	data, err := xml.MarshalIndent(junit(r), "", "  ")
	if err != nil {
		return fmt.Errorf("write the report as JUnit XML: %w", err)
	}
	_, err = fmt.Fprintf(a.stdout, "%s%s\n", xml.Header, data)
	return err
}

func junit(r api.CheckReport) junitSuites {
	all := junitSuites{Name: "postern check " + tui.Printable(r.Gateway)}
	for _, c := range r.Checks {
		name := "this gateway"
		if c.Peer != "" {
			name = "peer " + tui.Printable(c.Peer)
		}
		if n := len(all.Suites); n == 0 || all.Suites[n-1].Name != name {
			all.Suites = append(all.Suites, junitSuite{Name: name, Timestamp: r.At.UTC().Format("2006-01-02T15:04:05")})
		}
		s := &all.Suites[len(all.Suites)-1]
		one := junitOf(c)
		s.Cases = append(s.Cases, one)
		s.Tests, all.Tests = s.Tests+1, all.Tests+1
		if one.Failure != nil {
			s.Failures, all.Failures = s.Failures+1, all.Failures+1
		}
		if one.Skipped != nil {
			s.Skipped, all.Skipped = s.Skipped+1, all.Skipped+1
		}
	}
	return all
}

func junitOf(c api.Check) junitCase {
	class := "postern." + c.Direction
	if c.Peer != "" {
		class = "postern." + tui.Printable(c.Peer) + "." + c.Direction
	}
	out := junitCase{Name: c.Name, Class: class}
	var took float64
	for _, s := range c.Stages {
		took += s.Seconds
	}
	out.Time = fmt.Sprintf("%.3f", took)
	cause := tui.Printable(c.Cause)
	text := fmt.Sprintf("stage: %s\ncause: %s\nfix: %s\n", c.Stage, cause, tui.Printable(c.Fix))
	switch c.Verdict.Verdict {
	case api.Error:
		out.Failure = &junitOutcome{Message: c.Code + ": " + cause, Type: c.Code, Text: text}
	case api.Warning:
		out.Out = c.Code + "\n" + text
	case api.Unknown, api.Off:
		out.Skipped = &junitOutcome{Message: string(c.Verdict.Verdict) + ": " + cause}
	}
	return out
}
