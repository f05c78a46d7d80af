// Command image builds postern's container image without a container engine: one static
// binary on an empty base, for several architectures, as one OCI archive. The same
// sources and the same Go toolchain give the same digest, wherever it is built.
//
//	go run ./cmd/postern/deploy/image -o dist/postern.tar --arch amd64,arm64 --version v1.0.0
//
// It prints the image's name and digest. The archive goes to a registry or a cluster with
// any tool that reads OCI archives: `ctr -n k8s.io images import`, `k3s ctr images
// import`, `podman load`, `docker load`, `kind load image-archive`, `skopeo copy
// oci-archive:…`.
//
// SOURCE_DATE_EPOCH (seconds since 1970) sets the time of everything in the image;
// without it that is 1970-01-01.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/postern-dev/postern/cmd/postern/deploy/image/scratch"
)

// program is where the binary is in the image.
const program = "/postern"

// epochVariable is the reproducible-builds.org convention for the time of what is built.
const epochVariable = "SOURCE_DATE_EPOCH"

// options are what the command line asks for.
type options struct {
	out, name, version string
	arches             []string
	created            time.Time
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:], os.Getenv, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(ctx, o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

// parse reads the command line and the environment.
func parse(args []string, env func(string) string, usage io.Writer) (options, error) {
	var o options
	var arches string
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&o.out, "o", "", "archive to write (required)")
	flags.StringVar(&arches, "arch", "amd64,arm64", "architectures, as GOARCH names them, separated by commas")
	flags.StringVar(&o.version, "version", "devel", "version that the binary tells, and the image's tag")
	flags.StringVar(&o.name, "name", "", "the image's name (default localhost/postern:VERSION)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: all options are flags", flags.Arg(0))
	}
	if o.out == "" {
		return o, errors.New("where shall the archive go? Say -o FILE")
	}
	if o.name == "" {
		o.name = "localhost/postern:" + o.version
	}
	for _, a := range strings.Split(arches, ",") {
		if a = strings.TrimSpace(a); a != "" {
			o.arches = append(o.arches, a)
		}
	}
	if text := env(epochVariable); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return o, fmt.Errorf("%s is %q: it must be a number of seconds since 1970", epochVariable, text)
		}
		o.created = time.Unix(seconds, 0)
	}
	return o, nil
}

// run builds the image and says what it built.
func run(ctx context.Context, o options, out io.Writer) error {
	dir, err := os.MkdirTemp("", "postern-image-")
	if err != nil {
		return fmt.Errorf("make a folder for the binaries: %w", err)
	}
	defer os.RemoveAll(dir)
	image := scratch.Image{Name: o.name, Created: o.created, Labels: labels(o.version)}
	for _, arch := range o.arches {
		binary := filepath.Join(dir, arch)
		source := scratch.Program{Package: "github.com/postern-dev/postern/cmd/postern", Version: o.version}
		if err := scratch.Compile(ctx, source, arch, binary); err != nil {
			return err
		}
		image.Platforms = append(image.Platforms, scratch.Platform{
			Arch: arch, Programs: map[string]string{program: binary}, Entrypoint: program,
		})
	}
	digests, err := scratch.WriteFile(o.out, image)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s %s\n", o.name, digests[0])
	return nil
}

// labels tell people and registries what the image is.
func labels(version string) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "postern",
		"org.opencontainers.image.description": "WireGuard gateway in userspace between two Kubernetes clusters",
		"org.opencontainers.image.version":     version,
		"org.opencontainers.image.source":      "https://github.com/postern-dev/postern",
	}
}
