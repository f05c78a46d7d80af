package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/bench"
)

// partSubcommand makes this program a part of a run, as a separate process.
const partSubcommand = "bench-part"

// The parts. Each takes an argument.
const (
	partRun   = "run"
	partRelay = "relay"
)

// benchPartCommand runs a part; the program starts itself with it.
func (a *app) benchPartCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:    partSubcommand + " PART WHAT",
		Short:  "Be a part of a benchmark's run",
		Args:   cobra.ExactArgs(2),
		Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			// The program that started a part removes the files of a killed one.
			if err := os.Setenv("TMPDIR", dir); err != nil {
				return fmt.Errorf("name the folder for files: %w", err)
			}
			switch args[0] {
			case partRun:
				return bench.Own().Main(c.Context(), args[1], a.stdout)
			case partRelay:
				return bench.ServeRelay(args[1], a.stdin)
			}
			return usagef("", "there is no part %q", args[0])
		},
	}
	c.Flags().StringVar(&dir, "dir", os.TempDir(), "for files")
	return c
}
