package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
)

// execAPIVersion is the API version of kubectl's credential plugins (client-go v1.22 and later).
const execAPIVersion = "client.authentication.k8s.io/v1"

// kubeconfigPrefix is the prefix of every name in our kubeconfigs, which distinguishes them from
// the user's own.
const kubeconfigPrefix = "postern-"

// The written parts of a kubeconfig (apiVersion v1, kind Config).
type (
	kubeconfigFile struct {
		APIVersion     string         `yaml:"apiVersion"`
		Kind           string         `yaml:"kind"`
		CurrentContext string         `yaml:"current-context"`
		Clusters       []namedCluster `yaml:"clusters"`
		Contexts       []namedContext `yaml:"contexts"`
		Users          []namedUser    `yaml:"users"`
	}
	namedCluster struct {
		Name    string  `yaml:"name"`
		Cluster cluster `yaml:"cluster"`
	}
	cluster struct {
		Server        string `yaml:"server"`
		CAData        string `yaml:"certificate-authority-data,omitempty"`
		TLSServerName string `yaml:"tls-server-name,omitempty"`
	}
	namedContext struct {
		Name    string      `yaml:"name"`
		Context kubeContext `yaml:"context"`
	}
	kubeContext struct {
		Cluster string `yaml:"cluster"`
		User    string `yaml:"user"`
	}
	namedUser struct {
		Name string `yaml:"name"`
		User user   `yaml:"user"`
	}
	user struct {
		Exec execPlugin `yaml:"exec"`
	}
	execPlugin struct {
		APIVersion         string         `yaml:"apiVersion"`
		Command            string         `yaml:"command"`
		Args               []string       `yaml:"args"`
		Env                []execVariable `yaml:"env,omitempty"`
		InteractiveMode    string         `yaml:"interactiveMode"`
		ProvideClusterInfo bool           `yaml:"provideClusterInfo"`
		InstallHint        string         `yaml:"installHint"`
	}
	execVariable struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
	}
)

func (a *app) kubeconfigCommand() *cobra.Command {
	var (
		file  string
		force bool
	)
	c := &cobra.Command{
		Use:   "kubeconfig PEER",
		Short: "Print a kubeconfig for the peer's API server",
		Long: "Print a kubeconfig that leads to the peer's API server through the local listener. It contains no secret " +
			"and does not expire: kubectl runs `postern credential PEER` to get the current identity. If the gateway " +
			"runs in a cluster, its listener is in its pod, and the command that forwards a port to it is printed on " +
			"stderr. Pods mount the Secret postern-PEER-kubeconfig instead.",
		Example:           "  postern kubeconfig cloud -f cloud.kubeconfig\n  kubectl --kubeconfig cloud.kubeconfig get ns",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completePeer,
		RunE: func(c *cobra.Command, args []string) error {
			if file != "" && file != "-" && !force {
				if err := mayReplace(file); err != nil {
					return err
				}
			}
			k, err := soon(c.Context(), func() (api.Kubeconfig, error) { return a.client().Kubeconfig(c.Context(), args[0]) })
			if err != nil {
				return err
			}
			plugin, err := a.credentialPlugin(args[0])
			if err != nil {
				return err
			}
			if a.inCluster() {
				if err := a.forwarded(c.Context(), &k, &plugin); err != nil {
					return err
				}
			}
			data, err := renderKubeconfig(args[0], k, plugin)
			if err != nil {
				return err
			}
			if p, err := a.status(c.Context(), args[0]); err == nil {
				a.warnUnoffered(&p.Peers[0], api.ServiceAPIServer)
			}
			if file == "" || file == "-" {
				_, err = a.stdout.Write(data)
				return err
			}
			return writeAtomically(file, data)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "write to `FILE` (mode 0600) instead of stdout")
	c.Flags().BoolVar(&force, "force", false, "overwrite FILE even if postern did not write it")
	return c
}

// credentialPlugin returns the command with which kubectl gets the current identity.
func (a *app) credentialPlugin(name string) (execPlugin, error) {
	binary, err := os.Executable()
	if err != nil {
		return execPlugin{}, fmt.Errorf("find the path of this program: %w", err)
	}
	args := []string{"credential", name}
	if socket := a.socketPath(); socket != config.DefaultSocket && !a.inCluster() {
		if socket, err = filepath.Abs(socket); err != nil {
			return execPlugin{}, fmt.Errorf("find the path of the socket: %w", err)
		}
		args = append(args, "--socket", socket)
	}
	return execPlugin{
		APIVersion: execAPIVersion, Command: binary, Args: args, InteractiveMode: "Never",
		InstallHint: "postern must be at " + binary + "; write this file again with postern kubeconfig " + name,
	}, nil
}

func renderKubeconfig(name string, k api.Kubeconfig, plugin execPlugin) ([]byte, error) {
	id := kubeconfigPrefix + name
	doc := kubeconfigFile{
		APIVersion: "v1", Kind: "Config", CurrentContext: id,
		Clusters: []namedCluster{{id, cluster{Server: k.Server, TLSServerName: k.ServerName}}},
		Contexts: []namedContext{{id, kubeContext{id, id}}},
		Users:    []namedUser{{id, user{plugin}}},
	}
	if k.CAData != "" {
		doc.Clusters[0].Cluster.CAData = base64.StdEncoding.EncodeToString([]byte(k.CAData))
	}
	data, err := yaml.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("write the kubeconfig: %w", err)
	}
	return data, nil
}

// mayReplace refuses to overwrite a file that is not one of our kubeconfigs.
func mayReplace(path string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return usagef("", "write the kubeconfig: %w", err)
	}
	var doc kubeconfigFile
	foreign := func(u namedUser) bool { return !strings.HasPrefix(u.Name, kubeconfigPrefix) }
	if yaml.Unmarshal(data, &doc) != nil || doc.Kind != "Config" || len(doc.Users) == 0 || slices.ContainsFunc(doc.Users, foreign) {
		return usagef("choose another file, or overwrite it with --force", "write the kubeconfig: %s exists and was not written by postern", path)
	}
	return nil
}

// writeAtomically replaces a file completely or not at all.
func writeAtomically(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // Mode 0600.
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// execCredential is the output that kubectl expects from a credential plugin.
type execCredential struct {
	APIVersion string               `json:"apiVersion"`
	Kind       string               `json:"kind"`
	Status     execCredentialStatus `json:"status"`
}

type execCredentialStatus struct {
	ExpirationTimestamp   *time.Time `json:"expirationTimestamp,omitempty"`
	Token                 string     `json:"token,omitempty"`
	ClientCertificateData string     `json:"clientCertificateData,omitempty"`
	ClientKeyData         string     `json:"clientKeyData,omitempty"`
}

func (a *app) credentialCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "credential PEER",
		Short: "Print the identity for the peer's API server (a secret), for kubectl",
		Long: "Act as the credential plugin that postern's kubeconfigs name (ExecCredential, " + execAPIVersion + "). Right " +
			"after a join it waits a few seconds for the identity.",
		Example:           "  postern credential cloud | jq -r .status.expirationTimestamp",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completePeer,
		RunE: func(c *cobra.Command, args []string) error {
			got, err := soon(c.Context(), func() (api.Credential, error) { return a.client().Credential(c.Context(), args[0]) })
			if err != nil {
				return err
			}
			out := execCredential{APIVersion: execAPIVersion, Kind: "ExecCredential", Status: execCredentialStatus{
				Token: got.Token, ClientCertificateData: got.ClientCertificate, ClientKeyData: got.ClientKey,
			}}
			if !got.NotAfter.IsZero() {
				at := got.NotAfter.UTC().Truncate(time.Second)
				out.Status.ExpirationTimestamp = &at
			}
			return json.NewEncoder(a.stdout).Encode(out)
		},
	}
}
