//go:build linux

package kube

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Version is the default version of Kubernetes; bundle/go.mod pins it.
const Version = "v1.37.2"

// OlderVersions are the other versions that BinariesOf supports; bundle/VERSION.mod pins each.
var OlderVersions = []string{"v1.36.3", "v1.35.4"}

// assetsVariable names a folder that already contains the programs, as in controller-runtime's
// envtest.
const assetsVariable = "KUBEBUILDER_ASSETS"

// bundleName is the program that is built; links to it have the components' names.
const bundleName = "bundle"

// The programs of the bundle: those that Start and Kubectl need, and the further ones of
// StartNode.
var (
	components     = []string{"etcd", "kube-apiserver", "kubectl"}
	nodeComponents = []string{"kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"}
)

// Binaries returns the folder with etcd, kubectl and the Kubernetes components. That is the one
// in KUBEBUILDER_ASSETS, if set (it need not have the programs that only StartNode uses), else a
// folder in the user's cache. If that is missing it is built, which takes minutes; progress goes
// to log. The folder's name contains the version and a hash of the bundle's sources. Concurrent
// processes build it once.
func Binaries(ctx context.Context, log io.Writer) (string, error) {
	if dir := os.Getenv(assetsVariable); dir != "" {
		if err := holds(dir, components); err != nil {
			return "", fmt.Errorf("%s names %s, which %w", assetsVariable, dir, err)
		}
		return dir, nil
	}
	return BinariesOf(ctx, Version, log)
}

// BinariesOf is Binaries for a version of Kubernetes. It ignores KUBEBUILDER_ASSETS: set that to
// the result to make tests use it.
func BinariesOf(ctx context.Context, version string, log io.Writer) (string, error) {
	b := bundle{version: version, modFile: version + ".mod"}
	if version == Version {
		b.modFile = "go.mod"
	} else if !slices.Contains(OlderVersions, version) {
		return "", fmt.Errorf("there is no bundle of Kubernetes %q, only of %s and %s", version, Version, strings.Join(OlderVersions, ", "))
	}
	return b.folder(ctx, log)
}

// bundle is a build of package bundle for one version.
type bundle struct{ version, modFile string }

// folder returns the folder of the programs, built if missing.
func (b bundle) folder(ctx context.Context, log io.Writer) (string, error) {
	source, err := sourceFolder(ctx, "kube/bundle")
	if err != nil {
		return "", err
	}
	sum, err := b.hash(source)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder to keep the Kubernetes programs in: %w", err)
	}
	dir := filepath.Join(cache, "postern", "kube-"+b.version+"-"+sum)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the folder for the Kubernetes programs: %w", err)
	}
	unlock, err := lockFolder(dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	if holds(dir, allComponents()) == nil {
		return dir, nil
	}
	return dir, b.build(ctx, source, dir, log)
}

// sourceFolder returns a folder below testenv in the source tree that the caller runs in. Each
// such folder is a module.
func sourceFolder(ctx context.Context, name string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/postern-dev/postern")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find postern's source tree (run from inside it, or set %s): %w", assetsVariable, withStderr(err))
	}
	return filepath.Join(strings.TrimSpace(string(out)), "testenv", filepath.FromSlash(name)), nil
}

// hash returns a hash of the bundle's sources.
func (b bundle) hash(source string) (string, error) {
	files, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil {
		return "", fmt.Errorf("list the bundle's sources: %w", err)
	}
	mod := filepath.Join(source, b.modFile)
	h := sha256.New()
	for _, file := range append(files, mod, strings.TrimSuffix(mod, ".mod")+".sum") {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read the bundle's sources: %w", err)
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.Base(file), len(content), content)
	}
	fmt.Fprint(h, b.flags())
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

// lockFolder locks a folder until unlock is called or the process ends.
func lockFolder(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the Kubernetes programs: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the Kubernetes programs: %w", err)
	}
	return func() { f.Close() }, nil
}

// allComponents returns all names under which the bundle can be called.
func allComponents() []string { return slices.Concat(components, nodeComponents) }

// holds returns an error that names the missing program, if any.
func holds(dir string, programs []string) error {
	for _, name := range programs {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("holds no %s: %w", name, err)
		}
	}
	return nil
}

// build builds the bundle in dir. An interrupted build leaves no program behind.
func (b bundle) build(ctx context.Context, source, dir string, log io.Writer) error {
	fmt.Fprintf(log, "building etcd and Kubernetes %s (minutes, once) in %s\n", b.version, dir)
	partial := filepath.Join(dir, bundleName+".partial")
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-C", source}, b.flags(), []string{"-o", partial, "."})...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", source, err, out.Bytes())
	}
	if err := os.Rename(partial, filepath.Join(dir, bundleName)); err != nil {
		return fmt.Errorf("keep the built programs: %w", err)
	}
	for _, name := range allComponents() {
		if err := os.Symlink(bundleName, filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("keep the built programs: %w", err)
		}
	}
	return nil
}

// flags are the build flags: stripped, and with the version that tools such as helm ask for.
func (b bundle) flags() []string {
	ldflags := "-s -w"
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		ldflags += " -X " + pkg + ".gitVersion=" + b.version
	}
	return []string{"-modfile", b.modFile, "-trimpath", "-ldflags", ldflags}
}

// withStderr adds a failed program's standard error.
func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return err
}
