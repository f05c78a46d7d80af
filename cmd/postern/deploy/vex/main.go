// Command vex writes an OpenVEX 0.2.0 document about a built postern program: for each
// vulnerability that a scanner finds in the modules listed in it, and that does not affect it,
// the statement that says so. A statement is made only while it is true: the command reads the
// program, and fails when it holds the vulnerable code.
//
//	go run ./cmd/postern/deploy/vex -o dist/postern.openvex.json --version v1.0.0 bin/postern
//
// SOURCE_DATE_EPOCH (seconds since 1970) is the document's time, so that a release can be
// reproduced; without it that is 1970-01-01.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/postern-dev/postern/cmd/postern/deploy/epoch"
	"github.com/postern-dev/postern/cmd/postern/deploy/vex/linked"
)

func main() {
	flags := flag.NewFlagSet("vex", flag.ExitOnError)
	out := flags.String("o", "", "document to write (required)")
	version := flags.String("version", "devel", "version of the program")
	_ = flags.Parse(os.Args[1:]) // which ends the program on an error
	if err := run(*out, *version, flags.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "vex: %v\n", err)
		os.Exit(1)
	}
}

func run(out, version string, programs []string) error {
	if out == "" || len(programs) != 1 {
		return errors.New("usage: vex -o FILE [-version V] PROGRAM")
	}
	at, err := epoch.Time()
	if err != nil {
		return err
	}
	p, err := linked.Read(programs[0])
	if err != nil {
		return err
	}
	d, err := about(p, absences, version, at)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(text, '\n'), 0o644)
}
