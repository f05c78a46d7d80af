package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionDocument is the output of `version -o json`.
type versionDocument struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildVersion() versionDocument {
	v := versionDocument{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if v.Version == "devel" && info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  postern version -o json | jq -r .version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if format == formatJSON {
				return a.print(format, "Version", buildVersion())
			}
			return a.printVersion()
		},
	}
	outputFlag(c, &format, formatText, formatJSON)
	return c
}

// printVersion prints the version on one line.
func (a *app) printVersion() error {
	v := buildVersion()
	line := fmt.Sprintf("postern %s (%s, %s", v.Version, v.Go, v.Platform)
	if v.Commit != "" {
		line += ", commit " + v.Commit
	}
	_, err := fmt.Fprintln(a.stdout, line+")")
	return err
}
