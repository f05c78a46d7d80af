package main

import (
	"fmt"
	"time"

	"github.com/postern-dev/postern/cmd/postern/deploy/vex/linked"
)

// absence says that the code of a vulnerability is not in the program although its module is
// listed there.
type absence struct {
	id      string
	aliases []string
	module  string
	// code are the beginnings of the names of the functions that are vulnerable, or that all
	// use of them goes through. None of them may be linked.
	code []string
	why  string
}

// absences are the statements made of every build.
var absences = []absence{{
	id:      "GO-2026-4479",
	aliases: []string{"CVE-2026-26014", "GHSA-9f3f-wv7r-qc8r"},
	module:  "github.com/pion/dtls/v2",
	code:    []string{"github.com/pion/dtls/v2.(*Conn)", "github.com/pion/dtls/v2/pkg/crypto/ciphersuite."},
	why: "The module is there because a file of github.com/pion/stun/v2 that is not used imports it. " +
		"Only the codec of STUN messages is used; no DTLS connection and no DTLS cipher is linked.",
}}

// document is an OpenVEX document (https://github.com/openvex/spec, version 0.2.0).
type document struct {
	Context    string      `json:"@context"`
	ID         string      `json:"@id"`
	Author     string      `json:"author"`
	Timestamp  time.Time   `json:"timestamp"`
	Version    int         `json:"version"`
	Statements []statement `json:"statements"`
}

type statement struct {
	Vulnerability   vulnerability `json:"vulnerability"`
	Products        []product     `json:"products"`
	Status          string        `json:"status"`
	Justification   string        `json:"justification"`
	ImpactStatement string        `json:"impact_statement"`
}

type vulnerability struct {
	Name    string   `json:"name"`
	Aliases []string `json:"aliases,omitempty"`
}

type product struct {
	ID            string      `json:"@id"`
	Subcomponents []component `json:"subcomponents,omitempty"`
}

type component struct {
	ID string `json:"@id"`
}

// about makes the document of a program. A statement that is not true of it is an error; one
// about a module that is not there is left out.
func about(p *linked.Program, list []absence, version string, at time.Time) (document, error) {
	d := document{
		Context:   "https://openvex.dev/ns/v0.2.0",
		ID:        "https://" + p.Module + "/vex/" + version,
		Author:    "The postern maintainers",
		Timestamp: at.UTC(), Version: 1, Statements: []statement{},
	}
	for _, a := range list {
		has := p.Has(a.module)
		if has == "" {
			continue
		}
		for _, code := range a.code {
			if f := p.Function(code); f != "" {
				return d, fmt.Errorf("the program has the code of %s: %s is linked (update %s, or find out what uses it now: go mod why, go tool nm)", a.id, f, a.module)
			}
		}
		d.Statements = append(d.Statements, statement{
			Vulnerability: vulnerability{a.id, a.aliases},
			Products: []product{{
				ID:            "pkg:golang/" + p.Module + "@" + version,
				Subcomponents: []component{{"pkg:golang/" + a.module + "@" + has}},
			}},
			Status: "not_affected", Justification: "vulnerable_code_not_present", ImpactStatement: a.why,
		})
	}
	return d, nil
}
