package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/control/kube"
)

// MaxBackup bounds the size of a backup, in bytes: more than five full Secrets in base64.
const MaxBackup = 16 << 20

const (
	keyFile     = "private.key"
	ticketsPart = "tickets"
)

var (
	// ErrNoState: there is nothing to back up.
	ErrNoState = errors.New("the release has no state")
	// ErrNoBackup: the input is not a backup.
	ErrNoBackup = errors.New("this is no backup of a gateway's state")
	// ErrOtherKey: restoring would replace another gateway's key.
	ErrOtherKey = errors.New("the release has another gateway's private key")
)

// list is a backup: a v1 List of Secrets, which kubectl accepts as well.
type list struct {
	metav1.TypeMeta `json:",inline"`
	Items           []corev1.Secret `json:"items"`
}

// Copy backs up and restores the state of one release, for an operator.
type Copy struct {
	api     objects
	release string
}

// NewCopy returns a Copy. It sends no request yet.
func NewCopy(c *kube.Cluster, release string) (Copy, error) {
	api, err := newRemote(c)
	return Copy{api, release}, err
}

// Backup returns the Secrets of the release as YAML, without anything that ties them to this
// cluster: the owner, with which the garbage collector would delete them, and the writer.
func (s Copy) Backup(ctx context.Context) ([]byte, error) {
	out := list{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	for _, part := range parts {
		have, err := s.api.get(ctx, s.name(part))
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("read the Secret %s: %w", s.name(part), err)
		case have.Type != Type:
			return nil, fmt.Errorf("read the Secret %s: %w", s.name(part), foreign(have))
		case len(have.Data) > 0:
			out.Items = append(out.Items, s.bare(part, have.Data))
		}
	}
	if len(out.Items) == 0 {
		return nil, fmt.Errorf("%w: it has none of the Secrets %s", ErrNoState, strings.Join(Names(s.release), ", "))
	}
	if !slices.ContainsFunc(out.Items, func(x corev1.Secret) bool { return len(x.Data[keyFile]) > 0 }) {
		return nil, fmt.Errorf("%w: the Secret %s with the private key is missing or empty, without which a backup is of no use", ErrNoState, s.name("key"))
	}
	return yaml.Marshal(out)
}

func (s Copy) name(part string) string { return s.release + "-state-" + part }

// bare returns a Secret without owner and writer: it fences a running gateway.
func (s Copy) bare(part string, data map[string][]byte) corev1.Secret {
	return corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: s.name(part), Labels: labels(s.release)},
		Type:       Type, Data: data,
	}
}

// Restore replaces the release's state with a backup, which may be of another release. Files that
// are not in the backup become empty, and so do the tickets: one that was used since would be open
// again, for whoever has a copy of it. A running gateway restarts with the backup. Another private
// key is only replaced with force.
func (s Copy) Restore(ctx context.Context, backup []byte, force bool) error {
	wanted, err := s.read(backup)
	if err != nil {
		return err
	}
	wanted[ticketsPart] = nil
	if !force {
		if err := s.sameKey(ctx, wanted["key"][keyFile]); err != nil {
			return err
		}
	}
	for _, part := range parts {
		if err := s.replace(ctx, s.bare(part, wanted[part])); err != nil {
			return fmt.Errorf("write the Secret %s: %w", s.name(part), err)
		}
	}
	return nil
}

// read returns the files of a backup by part.
func (s Copy) read(backup []byte) (map[string]map[string][]byte, error) {
	var l list
	if err := yaml.Unmarshal(backup, &l); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoBackup, err)
	}
	out := map[string]map[string][]byte{}
	for i := range l.Items {
		x := &l.Items[i]
		part := x.Name[strings.LastIndex(x.Name, "-")+1:]
		if x.Type != Type || !strings.HasSuffix(x.Name, "-state-"+part) || !slices.Contains(parts, part) || out[part] != nil {
			return nil, fmt.Errorf("%w: it has %q of type %q (postern state backup makes one)", ErrNoBackup, x.Name, x.Type)
		}
		out[part] = map[string][]byte{}
		for file, data := range x.Data {
			if places[file] != part {
				return nil, fmt.Errorf("%w: %q has a file %q", ErrNoBackup, x.Name, file)
			}
			out[part][file] = data
		}
	}
	if len(out["key"][keyFile]) == 0 {
		return nil, fmt.Errorf("%w: it has no private key (postern state backup makes one)", ErrNoBackup)
	}
	return out, nil
}

// sameKey refuses to replace a private key by another.
func (s Copy) sameKey(ctx context.Context, key []byte) error {
	have, err := s.api.get(ctx, s.name("key"))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read the Secret %s: %w", s.name("key"), err)
	}
	if now := have.Data[keyFile]; len(now) > 0 && !bytes.Equal(bytes.TrimSpace(now), bytes.TrimSpace(key)) {
		return fmt.Errorf("%w: its peers would not know the one of the backup", ErrOtherKey)
	}
	return nil
}

// replace creates an object, or replaces the contents of an existing one.
func (s Copy) replace(ctx context.Context, x corev1.Secret) (err error) {
	for range tries {
		var have *corev1.Secret
		switch have, err = s.api.get(ctx, x.Name); {
		case apierrors.IsNotFound(err):
			_, err = s.api.create(ctx, &x)
		case err != nil:
			return err
		case have.Type != Type:
			return foreign(have)
		default:
			delete(have.Annotations, WriterAnnotation)
			if have.Labels == nil {
				have.Labels = map[string]string{}
			}
			maps.Copy(have.Labels, x.Labels)
			have.Data = x.Data
			_, err = s.api.update(ctx, have)
		}
		if err == nil || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return err
}
