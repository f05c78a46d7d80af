package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/tunnel/peer"
)

func (a *app) keyCommand() *cobra.Command {
	return group("key", "Make keys", a.keyGen(), a.keyPub())
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
		Use:     "pub",
		Short:   "Read a private key from stdin and print its public key, as wg pubkey does",
		Example: "  postern key pub < private.key",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := a.secretArgument("-", "private key")
			if err != nil {
				return err
			}
			k, err := peer.ParsePrivateKey(text)
			if err != nil {
				return usagef("", "key pub: stdin is %w", err)
			}
			_, err = fmt.Fprintln(a.stdout, k.Public())
			return err
		},
	}
}

// readSecretFile reads a small file, or stdin for "-", without the white space around.
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
