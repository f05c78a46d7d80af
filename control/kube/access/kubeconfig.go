package access

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/postern-dev/postern/control/api"
)

// Keys of a kubeconfig's Secret.
const (
	keyKubeconfig  = "kubeconfig"
	keyToken       = "token"
	keyCA          = "ca.crt"
	keyCertificate = "tls.crt"
	keyKey         = "tls.key"
)

// kubeconfig returns the data of a peer's Secret; nil while the peer has not described its API
// server, or has issued no identity. direct is for an API server that is reached outside the
// tunnel: no Service leads there.
func (k *Keeper) kubeconfig(ctx context.Context, peer string, direct bool) map[string][]byte {
	how, err := k.o.Gateway.Kubeconfig(ctx, peer)
	if err != nil {
		return nil
	}
	credential, err := k.o.Gateway.Credential(ctx, peer)
	if err != nil {
		return nil
	}
	server := fmt.Sprintf("https://%s.%s.svc:%d", serviceName(peer), k.o.Namespace, portAPIServer)
	if direct {
		server = how.Server
	}
	data, err := secretData(server, how, credential)
	if err != nil {
		k.log.Error("failed to write the kubeconfig for a peer", "peer", peer, "error", err)
		return nil
	}
	return data
}

// secretData returns a kubeconfig with the files that it names: paths in it are relative to the
// file, so that it works wherever the Secret is mounted, and clients reload a renewed token by
// themselves.
func secretData(server string, how api.Kubeconfig, c api.Credential) (map[string][]byte, error) {
	cluster := map[string]any{"server": server}
	if how.ServerName != "" {
		cluster["tls-server-name"] = how.ServerName
	}
	data := map[string][]byte{}
	if how.CAData != "" {
		cluster["certificate-authority"], data[keyCA] = keyCA, []byte(how.CAData)
	}
	user := map[string]any{}
	if c.ClientCertificate != "" {
		user["client-certificate"], data[keyCertificate] = keyCertificate, []byte(c.ClientCertificate)
		user["client-key"], data[keyKey] = keyKey, []byte(c.ClientKey)
	}
	if c.Token != "" {
		user["tokenFile"], data[keyToken] = keyToken, []byte(c.Token)
	}
	named := func(what string, v any) []any { return []any{map[string]any{"name": how.Peer, what: v}} }
	// JSON is YAML, and its order is stable.
	text, err := json.MarshalIndent(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": how.Peer,
		"clusters": named("cluster", cluster), "users": named("user", user),
		"contexts": named("context", map[string]any{"cluster": how.Peer, "user": how.Peer}),
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the kubeconfig: %w", err)
	}
	data[keyKubeconfig] = append(text, '\n')
	return data, nil
}
