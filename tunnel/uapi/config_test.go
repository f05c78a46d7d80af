package uapi

import (
	"errors"

	"github.com/postern-dev/postern/tunnel/peer"
)

// ParseConfig parses a "set" message as a device does. Unknown keys are an error, as on a device.
// Errors name the line but never its value, which may be a secret.
func ParseConfig(text string) (Config, error) {
	var c Config
	var p *PeerConfig
	err := eachLine(text, func(key, value string) error {
		if key == "public_key" {
			k, err := parseKey(value)
			if err != nil {
				return err
			}
			c.Peers = append(c.Peers, PeerConfig{PublicKey: peer.PublicKey(k)})
			p = &c.Peers[len(c.Peers)-1]
			return nil
		}
		if p == nil {
			return c.set(key, value)
		}
		return p.set(key, value)
	})
	if err != nil {
		return Config{}, err
	}
	return c, nil
}

var errUnknownKey = errors.New("unknown key")

func (c *Config) set(key, value string) error {
	switch key {
	case "private_key":
		k, err := parseKey(value)
		if err != nil {
			return err
		}
		c.PrivateKey = new(peer.PrivateKey)
		if k != [peer.KeySize]byte{} { // All zero means "none" and must not be clamped into a key.
			*c.PrivateKey = peer.PrivateKeyFromBytes(k)
		}
		return nil
	case "listen_port":
		c.ListenPort = new(uint16)
		return parseUint(value, 16, c.ListenPort)
	case "fwmark":
		c.FirewallMark = new(uint32)
		return parseUint(value, 32, c.FirewallMark)
	case "replace_peers":
		return parseTrue(value, &c.ReplacePeers)
	}
	return errUnknownKey
}

func (p *PeerConfig) set(key, value string) error {
	if p.Remove {
		return errors.New("the peer was removed above")
	}
	switch key {
	case "update_only":
		return parseTrue(value, &p.UpdateOnly)
	case "remove":
		if p.PresharedKey != nil || p.Endpoint != "" || p.Keepalive != nil || p.ReplaceAllowedIPs || len(p.AllowedIPs) > 0 {
			return errors.New("the peer was changed above")
		}
		return parseTrue(value, &p.Remove)
	case "preshared_key":
		k, err := parseKey(value)
		if err != nil {
			return err
		}
		psk := peer.PresharedKeyFromBytes(k)
		p.PresharedKey = &psk
		return nil
	case "endpoint":
		return parseEndpoint(value, &p.Endpoint)
	case "persistent_keepalive_interval":
		p.Keepalive = new(uint16)
		return parseUint(value, 16, p.Keepalive)
	case "replace_allowed_ips":
		if len(p.AllowedIPs) > 0 {
			return errors.New("it must stand before the first allowed_ip")
		}
		return parseTrue(value, &p.ReplaceAllowedIPs)
	case "allowed_ip":
		return parsePrefix(value, &p.AllowedIPs)
	case "protocol_version":
		return parseVersion(value)
	}
	return errUnknownKey
}

func parseTrue(value string, out *bool) error {
	if value != "true" {
		return errors.New("the only value is true")
	}
	*out = true
	return nil
}
