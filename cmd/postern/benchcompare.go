package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/bench"
)

func (a *app) benchCompareCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "compare BEFORE.json AFTER.json",
		Short: "Compare two reports, and show which changes exceed the noise",
		Long: "Compare two reports of `postern bench run -o json` cell by cell. Show both medians, their ratio, and " +
			"whether the difference exceeds the spread of the runs (Mann-Whitney U test). Make both reports on the " +
			"same machine, shortly after each other: different conditions alone change the figures.",
		Example: "  postern bench compare yesterday.json today.json",
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			before, err := readReport(args[0])
			if err != nil {
				return err
			}
			after, err := readReport(args[1])
			if err != nil {
				return err
			}
			comparison := bench.Compare(before, after)
			if format == formatJSON {
				return a.print(format, bench.ComparisonKind, comparison)
			}
			return comparison.WriteTable(a.stdout)
		},
	}
	outputFlag(c, &format, formatTable, formatJSON)
	return c
}

// readReport reads a file of `bench run -o json`.
func readReport(path string) (*bench.Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, usagef("postern bench run -o json >"+path+" makes one", "bench: %w", err)
	}
	defer f.Close()
	r, err := bench.ReadReport(f)
	if err != nil {
		return nil, usagef("postern bench run -o json makes one", "bench: %s is not a report: %w", path, err)
	}
	return r, nil
}
