package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/kubeconfig"
	"github.com/postern-dev/postern/control/kube/remote"
	"github.com/postern-dev/postern/control/kube/secrets"
	"github.com/postern-dev/postern/tui"
)

// copyStateTimeout bounds the requests of a backup, or of its restoration.
const copyStateTimeout = 30 * time.Second

func (a *app) stateCommand() *cobra.Command {
	return group("state", "Back up and restore the state of a gateway in a cluster", a.reaching(a.stateBackup(), a.stateRestore())...)
}

func (a *app) stateBackup() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "backup",
		Short: "Back up the state of a gateway in a cluster (a secret)",
		Long: "Write the Secrets in which a gateway in a cluster keeps its private key, its peers and the rest of its " +
			"state, as YAML. Owner references are removed: otherwise the garbage collector would delete the restored " +
			"Secrets. The gateway may be running. Anyone who has the file can impersonate the gateway: protect it " +
			"like the private key. For a gateway on a machine, copy its state directory instead.",
		Example: "  postern state backup -n postern -f postern-state.yaml",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if _, ok := terminal(a.stdout); ok && (file == "" || file == "-") {
				return usagef("redirect it, or use -f FILE", "state backup: a private key must not go to a terminal")
			}
			ctx, cancel := context.WithTimeout(c.Context(), copyStateTimeout)
			defer cancel()
			state, err := a.stateCopy()
			if errors.Is(err, kubeconfig.ErrConfig) {
				return usagef("for a gateway on a machine, copy its state directory instead", "state backup: %w", err)
			}
			if err != nil {
				return err
			}
			data, err := state.Backup(ctx)
			if err != nil {
				return fmt.Errorf("state backup: %w", err)
			}
			if file == "" || file == "-" {
				_, err = a.stdout.Write(data)
				return err
			}
			return writeAtomically(file, data)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "write to `FILE` (mode 0600) instead of stdout")
	return c
}

func (a *app) stateRestore() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:   "restore FILE|-",
		Short: "Restore the state of a gateway in a cluster from a backup",
		Long: "Replace the release's state with what `postern state backup` wrote, or create it before the release is " +
			"installed. A running gateway notices within 30 s and restarts with the restored state. Tickets are not " +
			"restored: one that was used after the backup would be open again. If the existing " +
			"state has a different private key, restoring needs --force, and that key is lost. Never run two gateways " +
			"with the same key.",
		Example: "  postern state restore -n postern postern-state.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			backup, err := a.readBackup(args[0])
			if err != nil {
				return usagef("", "state restore: %w", err)
			}
			ctx, cancel := context.WithTimeout(c.Context(), copyStateTimeout)
			defer cancel()
			state, err := a.stateCopy()
			if err != nil {
				return err
			}
			switch err := state.Restore(ctx, backup, force); {
			case errors.Is(err, secrets.ErrNoBackup):
				return usagef("", "state restore: %w", err)
			case errors.Is(err, secrets.ErrOtherKey):
				return failedf("first save it with `postern state backup -f FILE`; then --force replaces it", "state restore: %w", err)
			case err != nil:
				return fmt.Errorf("state restore: %w", err)
			}
			fmt.Fprintf(a.stderr, "postern: the state of release %s is restored; a running gateway restarts with it within 30 s, and one whose start failed starts again by itself\n",
				tui.Printable(a.release()))
			return nil
		},
	}
	c.Flags().BoolVar(&force, "force", false, "replace state that has a different private key")
	return c
}

// release returns the command line's release.
func (a *app) release() string { return cmp.Or(a.cluster.release, remote.DefaultRelease) }

// stateCopy returns a Copy of the state of the command line's release.
func (a *app) stateCopy() (secrets.Copy, error) {
	cluster, err := kube.ConnectContext(a.cluster.chosen, "postern/"+buildVersion().Version)
	if err != nil {
		return secrets.Copy{}, err
	}
	return secrets.NewCopy(cluster, a.release())
}

// readBackup reads a file, or stdin for "-".
func (a *app) readBackup(path string) ([]byte, error) {
	in := a.stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, secrets.MaxBackup+1))
	if err == nil && len(data) > secrets.MaxBackup {
		err = fmt.Errorf("%s is larger than %d bytes", path, secrets.MaxBackup)
	}
	return data, err
}
