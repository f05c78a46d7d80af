package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui"
	"github.com/postern-dev/postern/tunnel/peer"
)

func (a *app) keyCommand() *cobra.Command {
	return group("key", "Generate keys, and rotate the gateway's key", a.keyGen(), a.keyPub(), a.reaching(a.keyRotate())[0])
}

func (a *app) keyGen() *cobra.Command {
	return &cobra.Command{
		Use:     "gen",
		Short:   "Print a new private key (a secret), as wg genkey does",
		Example: "  umask 077; postern key gen > private.key",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			k, err := peer.NewPrivateKey()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.stdout, k.Base64())
			return err
		},
	}
}

func (a *app) keyPub() *cobra.Command {
	return &cobra.Command{
		Use:   "pub [KEY|-]",
		Short: "Print the public key of a private key, as wg pubkey does",
		Long: "Print the public key of a private key that is read from stdin. If you pass the key as an argument, every " +
			"user of this machine can see it while the command runs, and it stays in the shell's history.",
		Example: "  postern key pub < private.key",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			from := "the argument"
			if len(args) == 0 || args[0] == "-" {
				args, from = []string{"-"}, "stdin"
			}
			text, err := a.secretArgument(args, "private key")
			if err != nil {
				return err
			}
			words := strings.Fields(text) // the last, as of the line "PrivateKey = …"
			k, err := peer.ParsePrivateKey(words[len(words)-1])
			if err != nil {
				return usagef("", "key pub: %s is %w", from, err)
			}
			_, err = fmt.Fprintln(a.stdout, k.Public())
			return err
		},
	}
}

func (a *app) keyRotate() *cobra.Command {
	var r api.KeyRotateRequest
	var wait time.Duration
	var format string
	c := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the gateway's key without losing a peer",
		Long: "Generate a new key, send it to every peer through the tunnel together with a new preshared key, and " +
			"switch to it once all peers have it. The gateway then restarts, which ends open connections; peers do " +
			"not have to join again. If a peer does not answer or cannot learn the new key, nothing changes and the " +
			"command names the peer. Repeat the command when the peer is back, or use --force and enrol that peer " +
			"again. Do not rotate while a copy of this gateway uses the same key (PST0113): stop the copy first.",
		Example: "  postern key rotate\n  postern key rotate --wait 2m -o json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			r.Wait = api.Duration(wait)
			out, err := a.client().KeyRotate(c.Context(), r)
			if err != nil {
				return err
			}
			if format == formatJSON {
				err = a.print(formatJSON, "KeyRotation", out)
			} else {
				err = a.printRotation(out)
			}
			if err == nil && !out.Rotated {
				err = failedf("the old key stays in force; repeat the command when they are back, or use --force", "key rotate: not every peer knows the next key")
			}
			return err
		},
	}
	outputFlag(c, &format, formatTable, formatJSON)
	c.Flags().DurationVar(&wait, "wait", 30*time.Second, "how long to keep trying peers that do not answer")
	c.Flags().BoolVar(&r.Force, "force", false, "switch even if some peers do not know the new key")
	return c
}

// printRotation says which peers know the new key, and what is left to do.
func (a *app) printRotation(r api.KeyRotateResponse) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PEER\tNEXT KEY")
	for _, name := range r.Told {
		fmt.Fprintf(w, "%s\tknown\n", tui.Printable(name))
	}
	for _, u := range r.Untold {
		fmt.Fprintf(w, "%s\tnot known: %s\n", tui.Printable(u.Peer), tui.Printable(u.Reason))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, text := range r.Warnings {
		fmt.Fprintf(a.stderr, "warning: %s\n", tui.Printable(text))
	}
	if r.Rotated {
		_, err := fmt.Fprintf(a.stdout, "the gateway's key is now %s; it restarts\n", tui.Printable(r.PublicKey))
		return err
	}
	return nil
}

// readSecretFile reads a small file, or stdin for "-", without surrounding white space.
func (a *app) readSecretFile(path, what string) (string, error) {
	in := a.stdin
	if path != "-" {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return "", usagef("correct the path", "read the %s: %s does not exist", what, path)
		}
		if err != nil {
			return "", usagef("", "read the %s: %w", what, err)
		}
		defer f.Close()
		in = f
	}
	data, err := readAllBounded(in)
	if err != nil {
		return "", usagef("", "read the %s: %w", what, err)
	}
	return strings.TrimSpace(string(data)), nil
}
