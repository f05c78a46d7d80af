package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Any public keys would do; these are RFC 7748's.
const (
	aliceKey     = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
	bobKey       = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="
	alicePrivate = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo="
)

const head = "apiVersion: postern.dev/v1alpha1\nkind: Gateway\nmetadata: {name: edge}\n"

// peerHead is followed by the entry's fields, from line 8.
const peerHead = head + "spec:\n  stateDir: DIR/state\n  peers:\n  - name: cloud\n"

// imports is followed by local's fields, from line 10.
const imports = peerHead + "    services: {import: [shop]}\n    local:\n"

// secretFiles creates the secret files in a test's directory.
func secretFiles(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	cert, key := authority(t, true)
	leaf, leafKey := authority(t, false)
	for name, f := range map[string]struct {
		mode    fs.FileMode
		content string
	}{
		"good.key":    {0o600, alicePrivate + "\n"},
		"group.key":   {0o640, alicePrivate + "\n"},
		"open.key":    {0o644, alicePrivate + "\n"},
		"bad.key":     {0o600, "not a key\n"},
		"ca.crt":      {0o644, cert},
		"ca.key":      {0o600, key},
		"ca-open.key": {0o604, key},
		"leaf.crt":    {0o644, leaf},
		"leaf.key":    {0o600, leafKey},
		"nothing.pem": {0o644, "hello\n"},
		"damaged.pem": {0o644, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}))},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(f.content), f.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, f.mode); err != nil { // Whatever the umask.
			t.Fatal(err)
		}
	}
	return dir
}

func authority(t *testing.T, isCA bool) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: isCA, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	pk, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pk}))
}

// Every mistake results in one line that names file, line, field, what is wrong and what to do. DIR
// represents the file's directory, both in the file and in the wanted line.
func TestMistakesAreNamedWithLineAndField(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"empty":                {"", "1: the file is empty (want apiVersion: postern.dev/v1alpha1, kind: Gateway, metadata and spec)"},
		"no YAML":              {head + "spec: [\n", "4: not YAML: did not find expected node content (check indentation and quotes)"},
		"tab":                  {head + "spec:\n\tmtu: 0\n", "5: indented with a tab, but YAML allows only spaces (replace the tab by spaces)"},
		"tab after spaces":     {head + "spec:\n  listen:\n  \tport: 1\n", "6: indented with a tab, but YAML allows only spaces (replace the tab by spaces)"},
		"two documents":        {head + "---\n" + head, "4: a second document begins here (one file holds one gateway; put it into its own)"},
		"a list":               {"- a\n", `1: want a mapping of fields, got a list`},
		"alias":                {"apiVersion: &v postern.dev/v1alpha1\nkind: Gateway\nmetadata: {name: *v}\n", "3: metadata.name: aliases are not accepted (write the value out)"},
		"unknown field":        {head + "spec:\n  listn: {port: 1}\n", "5: spec.listn: unknown field (did you mean listen?)"},
		"unknown, far":         {head + "spec:\n  listen: {fortytwo: 1}\n", "5: spec.listen.fortytwo: unknown field (known here: port)"},
		"unknown, case":        {head + "spec:\n  statedir: /x\n", "5: spec.statedir: unknown field (did you mean stateDir?)"},
		"escape in field":      {head + "spec:\n  \"\\e[2J\": 1\n", `5: spec."\x1b[2J": unknown field (known here: admin, discovery, http, kubernetes, limits, listen, mtu, peers, privateKeyFile, proxy, services, stateDir)`},
		"field twice":          {head + "spec:\n  mtu: 1400\n  mtu: 1300\n", "6: spec.mtu: given twice, first in line 5 (remove one)"},
		"text for number":      {head + "spec:\n  mtu: many\n", `5: spec.mtu: want a whole number, got the text "many"`},
		"number for text":      {head + "spec:\n  stateDir: 5\n", `5: spec.stateDir: want a text, got the number "5" (put it in quotes)`},
		"text for list":        {head + "spec:\n  peers: cloud\n", `5: spec.peers: want a list, got the text "cloud"`},
		"list for map":         {head + "spec:\n  listen: [1]\n", "5: spec.listen: want a mapping of fields, got a list"},
		"text for bool":        {peerHead + "    stock: maybe\n", `8: spec.peers[0].stock: want true or false, got the text "maybe"`},
		"label name":           {peerHead + "    labels: {\"no name\": eu}\n", `8: spec.peers[0].labels: "no name" is no name of a label (such as region, or example.com/region; at most 63 characters behind the slash)`},
		"label value":          {peerHead + "    labels: {region: \"e u\"}\n", `8: spec.peers[0].labels: "e u" is no value of a label (letters, digits and inner hyphens, dots and underscores; at most 63)`},
		"no namespace":         {peerHead + "    services: {export: [shop, \"shop/*\"]}\n", `8: spec.peers[0].services.export[1]: "shop/*" means no namespace (want at most 63 lower-case letters, digits and hyphens, and * for any characters)`},
		"no port of a service": {imports + `      services: {"shop/web": "127.0.0.1:8080"}` + "\n", `10: spec.peers[0].local.services."shop/web": "shop/web" is no port of a service (want NAMESPACE/NAME:PORT, such as shop/web:80, shop/dns:53/UDP or, of one pod, shop/db:5432@db-0)`},
		"not imported":         {imports + `      services: {"bank/web:80": "127.0.0.1:8080"}` + "\n", `10: spec.peers[0].local.services."bank/web:80": nothing of the namespace bank is imported from the peer (add it to spec.peers[0].services.import)`},
		"other protocol":       {imports + `      services: {"shop/dns:53/UDP": "127.0.0.1:5353"}` + "\n", `10: spec.peers[0].local.services."shop/dns:53/UDP": 127.0.0.1:5353 is not one port of UDP (want IP:PORT, with /UDP appended for UDP)`},
		"range for one port":   {imports + `      services: {"shop/web:80": "127.0.0.1:8080-8081"}` + "\n", `10: spec.peers[0].local.services."shop/web:80": 127.0.0.1:8080-8081 is not one port of TCP (want IP:PORT, with /UDP appended for UDP)`},
		"no address of import": {imports + `      services: {"shop/web:80": "8080"}` + "\n", `10: spec.peers[0].local.services."shop/web:80": "8080" is not IP:port to listen on (such as 127.0.0.1:7443)`},
		"listeners overlap": {imports + "      named: {media: \"127.0.0.1:6000-6010/UDP\"}\n      services: {\"shop/dns:53/UDP\": \"0.0.0.0:6010/UDP\"}\n",
			"11: spec.peers[0].local.services.\"shop/dns:53/UDP\": 0.0.0.0:6010/UDP is already the listener of spec.peers[0].local.named.media (choose another port)"},
		"the gateway's port": {imports + `      services: {"shop/dns:53/UDP": "127.0.0.1:51820/UDP"}` + "\n", `10: spec.peers[0].local.services."shop/dns:53/UDP": 127.0.0.1:51820/UDP is already the listener of spec.listen.port (choose another port)`},
		"the metrics' port":  {head + "spec:\n  http: {address: \":9090\"}\n  peers:\n  - name: cloud\n    local: {named: {web: \"127.0.0.1:9090\"}}\n", `8: spec.peers[0].local.named.web: 127.0.0.1:9090 is already the listener of spec.http.address (choose another port)`},
		"no name to export":  {head + "spec:\n  services:\n    named: [{name: web, port: 8080, address: \"10.0.0.5:80\", export: web}]\n", `6: spec.services.named[0].export: "web" is no name of a service (want NAMESPACE/NAME, such as shop/web)`},
		"exported twice too much": {head + "spec:\n  services:\n    named:\n    - {name: a, ports: 6000-6039, address: \"10.0.0.5:80\", export: shop/media}\n    - {name: b, ports: 7000-7039, address: \"10.0.0.5:80\", export: shop/media}\n",
			`8: spec.services.named[1].export: shop/media has 80 ports with this, and a service of clusters has at most 64 (export fewer, or as several services)`},
		"stock services": {peerHead + "    stock: true\n    publicKey: " + bobKey + "\n    allowedIPs: [10.9.0.2]\n    services: {import: [shop]}\n", `11: spec.peers[0].services: a stock WireGuard peer does not support services of clusters (remove services)`},
		"port too large": {head + "spec:\n  listen: {port: 70000}\n", "5: spec.listen.port: 70000 is not a number from 0 to 65535"},

		"no apiVersion":    {"kind: Gateway\nmetadata: {name: edge}\n", "1: apiVersion: missing (add apiVersion: postern.dev/v1alpha1)"},
		"other apiVersion": {"apiVersion: postern.dev/v9\nkind: Gateway\nmetadata: {name: edge}\n", `1: apiVersion: "postern.dev/v9" is not known to this version (want postern.dev/v1alpha1)`},
		"not ours at all":  {"services:\n  web: {image: nginx}\n", "1: apiVersion: missing (add apiVersion: postern.dev/v1alpha1)\nDIR/edge.yaml:1: kind: missing (add kind: Gateway)"},
		"null apiVersion":  {"apiVersion:\nkind: Gateway\n", "1: apiVersion: missing (add apiVersion: postern.dev/v1alpha1)"},
		"newer fields":     {"apiVersion: postern.dev/v1\nkind: Gateway\nspec: {tunnels: []}\n", `1: apiVersion: "postern.dev/v1" is not known to this version (want postern.dev/v1alpha1)`},
		"other kind":       {"apiVersion: postern.dev/v1alpha1\nkind: Peer\nmetadata: {name: edge}\n", `2: kind: "Peer" is no configuration of a gateway (want Gateway)`},
		"no name":          {"apiVersion: postern.dev/v1alpha1\nkind: Gateway\n", "1: metadata.name: missing (name this cluster, as its peers will call it)"},
		"bad name":         {"apiVersion: postern.dev/v1alpha1\nkind: Gateway\nmetadata: {name: Edge_1}\n", `3: metadata.name: name "Edge_1" is not a DNS label (lower-case letters, digits and inner hyphens)`},
		"rate below zero":  {head + "spec:\n  limits: {connectionsPerSecond: -1}\n", "5: spec.limits.connectionsPerSecond: -1 is outside 0 to 100000 (0 is 50)"},
		"mtu too small":    {head + "spec:\n  mtu: 1200\n", "5: spec.mtu: 1200 is outside 1280 to 9000 (0 lets the gateway choose)"},
		"socket too long":  {head + "spec:\n  admin:\n    socket: /" + strings.Repeat("s", 107) + "\n", `6: spec.admin.socket: "/` + strings.Repeat("s", 107) + `" is 108 bytes long, and a socket's path holds 107 (choose a shorter one)`},
		"http address":     {head + "spec:\n  http: {address: nine}\n", `5: spec.http.address: "nine" has no port (want nine:PORT)`},

		"no key file":      {head + "spec:\n  privateKeyFile: none.key\n", "5: spec.privateKeyFile: DIR/none.key does not exist (create it, or correct the path)"},
		"a directory":      {head + "spec:\n  privateKeyFile: DIR\n", "5: spec.privateKeyFile: DIR has mode 0755: every user may read it (chmod 600 DIR)"},
		"readable key":     {head + "spec:\n  privateKeyFile: open.key\n", "5: spec.privateKeyFile: DIR/open.key has mode 0644: every user may read it (chmod 600 DIR/open.key)"},
		"bad key file":     {head + "spec:\n  privateKeyFile: bad.key\n", "5: spec.privateKeyFile: DIR/bad.key holds no private key (make one: postern key gen > DIR/bad.key)"},
		"advertise":        {head + "spec:\n  discovery:\n    advertise:\n    - 203.0.113.8:1\n    - 203.0.113.8\n", `8: spec.discovery.advertise[1]: "203.0.113.8" has no port (want 203.0.113.8:PORT)`},
		"smart quotes":     {head + "spec:\n  stateDir: “/var/lib/postern”\n", `5: spec.stateDir: "“/var/lib/postern”" has typographic quotes, which YAML takes for letters (use " or ')`},
		"advertise IPv6":   {head + "spec:\n  discovery: {advertise: [\"2001:db8::8\"]}\n", `5: spec.discovery.advertise[0]: "2001:db8::8" has no port (want [2001:db8::8]:PORT)`},
		"advertise what":   {head + "spec:\n  discovery: {advertise: [\"a:b:c\"]}\n", `5: spec.discovery.advertise[0]: "a:b:c" is not host:port (IPv6 addresses go in brackets: "[2001:db8::1]:443")`},
		"advertise 0":      {head + "spec:\n  discovery: {advertise: [\"203.0.113.8:0\"]}\n", `5: spec.discovery.advertise[0]: "203.0.113.8:0" has port 0 (want 1 to 65535)`},
		"stun server":      {head + "spec:\n  discovery: {stunServers: [\"1.2.3:3478\"]}\n", `5: spec.discovery.stunServers[0]: "1.2.3:3478" has neither an IP address nor a host name before the port`},
		"proxy":            {head + "spec:\n  proxy: {url: \"socks5://p:1\"}\n", "5: spec.proxy.url: not a proxy's URL (want http://HOST:PORT or https://HOST:PORT; the user goes into username and passwordFile)"},
		"proxy with user":  {head + "spec:\n  proxy: {url: \"http://u:hunter2@p:1\"}\n", "5: spec.proxy.url: not a proxy's URL (want http://HOST:PORT or https://HOST:PORT; the user goes into username and passwordFile)"},
		"no proxy":         {head + "spec:\n  proxy: {noProxy: [10.0.0.0/8]}\n", "5: spec.proxy.url: missing (want http://HOST:PORT or https://HOST:PORT; neither the file nor HTTPS_PROXY has it)"},
		"proxy password":   {head + "spec:\n  proxy: {url: \"http://p:1\", username: u, passwordFile: open.key}\n", "5: spec.proxy.passwordFile: DIR/open.key has mode 0644: every user may read it (chmod 600 DIR/open.key)"},
		"proxy user":       {head + "spec:\n  proxy: {url: \"http://p:1\", passwordFile: good.key}\n", "5: spec.proxy.username: missing (the proxy wants the name that the password is for)"},
		"turn password":    {head + "spec:\n  discovery:\n    turnServers:\n    - {address: \"t:1\", username: u, passwordFile: open.key}\n", "7: spec.discovery.turnServers[0].passwordFile: DIR/open.key has mode 0644: every user may read it (chmod 600 DIR/open.key)"},
		"turn user":        {head + "spec:\n  discovery:\n    turnServers: [{address: \"t:1\", passwordFile: good.key}]\n", "6: spec.discovery.turnServers[0].username: missing (the server wants the name that the password is for)"},
		"turn no password": {head + "spec:\n  discovery:\n    turnServers: [{address: \"t:1\", username: u}]\n", `6: spec.discovery.turnServers[0].passwordFile: missing (the file that holds the password of "u")`},
		"turn transport":   {head + "spec:\n  discovery:\n    turnServers: [{address: \"t:1\", transport: dtls}]\n", `6: spec.discovery.turnServers[0].transport: "dtls" is not a transport (want auto, udp, tcp or tls)`},
		"turn CA":          {head + "spec:\n  discovery:\n    turnServers: [{address: \"t:1\", caFile: nothing.pem}]\n", "6: spec.discovery.turnServers[0].caFile: DIR/nothing.pem: no PEM certificate in it (want BEGIN CERTIFICATE)"},
		"many relays":      {head + "spec:\n  discovery:\n    turnServers: [{address: \"a:1\"}, {address: \"b:1\"}, {address: \"c:1\"}, {address: \"d:1\"}, {address: \"e:1\"}]\n", "6: spec.discovery.turnServers: 5 servers, and at most 4 are used (name the nearest)"},
		"exclude":          {head + "spec:\n  discovery: {exclude: [10.244.0.0]}\n", `5: spec.discovery.exclude[0]: "10.244.0.0" is not a range such as 10.244.0.0/16`},
		"exclude all":      {head + "spec:\n  discovery: {exclude: [0.0.0.0/0]}\n", `5: spec.discovery.exclude[0]: "0.0.0.0/0" excludes every address (name the ranges of pods and Services)`},
		"keepalive":        {head + "spec:\n  discovery: {keepalive: 5m}\n", "5: spec.discovery.keepalive: 5m0s is outside 1s to 1m0s (NAT mappings end after as little as 30s)"},
		"portMapping mode": {head + "spec:\n  discovery: {portMapping: {mode: on}}\n", `5: spec.discovery.portMapping.mode: "on" is not a mode (want auto or off)`},
		"loopback router":  {head + "spec:\n  discovery: {portMapping: {router: 127.0.0.1}}\n", `5: spec.discovery.portMapping.router: "127.0.0.1" is not a router's address (want that of the router in front of this gateway, as 192.168.1.1)`},
		"router":           {head + "spec:\n  discovery: {portMapping: {router: fritz.box}}\n", `5: spec.discovery.portMapping.router: "fritz.box" is not an IP address`},

		"apiServer":        {head + "spec:\n  services:\n    apiServer: {}\n", "6: spec.services.apiServer.address: missing (want host:port)"},
		"server name":      {head + "spec:\n  services:\n    apiServer: {address: \"a:1\", serverName: \"a b\"}\n", `6: spec.services.apiServer.serverName: "a b" is neither a host name nor an IP address`},
		"no certificate":   {head + "spec:\n  services:\n    apiServer: {address: \"a:1\", caFile: nothing.pem}\n", "6: spec.services.apiServer.caFile: DIR/nothing.pem: no PEM certificate in it (want BEGIN CERTIFICATE)"},
		"auth out-of-band": {head + "spec:\n  services:\n    auth:\n      outOfBand: {}\n", "7: spec.services.auth.outOfBand.listen: missing (want host:port or :port)"},
		"no issuer":        {head + "spec:\n  services:\n    auth:\n      issuer: {}\n", "7: spec.services.auth.issuer: names no issuer (want serviceAccount, csr or localCA, or leave issuer out to issue no identities)"},
		"two issuers":      {head + "spec:\n  services:\n    auth:\n      issuer:\n        csr: {}\n        localCA: {certFile: ca.crt, keyFile: ca.key}\n", "7: spec.services.auth.issuer: names several issuers: localCA, csr (keep one)"},
		"namespace":        {head + "spec:\n  services:\n    auth:\n      issuer: {serviceAccount: {namespace: Peers}}\n", `7: spec.services.auth.issuer.serviceAccount.namespace: "Peers" is not a valid namespace name (want at most 63 lower-case letters, digits and hyphens)`},
		"system namespace": {head + "spec:\n  services:\n    auth:\n      issuer: {serviceAccount: {namespace: kube-system}}\n", "7: spec.services.auth.issuer.serviceAccount.namespace: kube-system has accounts of others, and the gateway could make tokens for them all (make a namespace only for this)"},
		"short token":      {head + "spec:\n  services:\n    auth:\n      issuer: {serviceAccount: {ttl: 9m}}\n", "7: spec.services.auth.issuer.serviceAccount.ttl: 9m0s is shorter than 10m0s, the shortest that Kubernetes grants"},
		"zero token":       {head + "spec:\n  services:\n    auth:\n      issuer: {serviceAccount: {ttl: 0s}}\n", "7: spec.services.auth.issuer.serviceAccount.ttl: 0s is shorter than 10m0s, the shortest that Kubernetes grants"},
		"long token":       {head + "spec:\n  services:\n    auth:\n      issuer: {serviceAccount: {ttl: 25h}}\n", "7: spec.services.auth.issuer.serviceAccount.ttl: 25h0m0s is longer than 24h0m0s (identities are renewed, so keep them short)"},
		"csr":              {head + "spec:\n  services:\n    auth:\n      issuer: {csr: {ttl: 5m}}\n", "7: spec.services.auth.issuer.csr.ttl: 5m0s is shorter than 10m0s, the shortest that Kubernetes grants"},
		"long ttl":         {head + "spec:\n  services:\n    auth:\n      issuer:\n        localCA: {certFile: ca.crt, keyFile: ca.key, ttl: 25h}\n", "8: spec.services.auth.issuer.localCA.ttl: 25h0m0s is longer than 24h0m0s (identities are renewed, so keep them short)"},
		"zero ttl":         {head + "spec:\n  services:\n    auth:\n      issuer:\n        localCA: {certFile: ca.crt, keyFile: ca.key, ttl: 0s}\n", "8: spec.services.auth.issuer.localCA.ttl: 0s is shorter than 1m0s"},
		"no duration":      {head + "spec:\n  services:\n    auth:\n      issuer:\n        localCA: {certFile: ca.crt, keyFile: ca.key, ttl: 24}\n", `8: spec.services.auth.issuer.localCA.ttl: "24" is not a duration such as 90s or 24h`},
		"readable CA key":  {head + "spec:\n  services:\n    auth:\n      issuer:\n        localCA: {certFile: ca.crt, keyFile: ca-open.key}\n", "8: spec.services.auth.issuer.localCA.keyFile: DIR/ca-open.key has mode 0604: every user may read it (chmod 600 DIR/ca-open.key)"},
		"other CA key":     {head + "spec:\n  services:\n    auth:\n      issuer:\n        localCA: {certFile: ca.crt, keyFile: leaf.key}\n", "8: spec.services.auth.issuer.localCA.keyFile: DIR/leaf.key is not the key of DIR/ca.crt: tls: private key does not match public key"},
		"no CA":            {head + "spec:\n  services:\n    auth:\n      issuer:\n        localCA: {certFile: leaf.crt, keyFile: leaf.key}\n", "8: spec.services.auth.issuer.localCA.certFile: DIR/leaf.crt is not a CA certificate (want basicConstraints CA:TRUE; make a CA only for this)"},

		"service name":     {head + "spec:\n  services:\n    named: [{name: Reg, port: 1, address: \"a:1\"}]\n", `6: spec.services.named[0].name: name "Reg" is not a DNS label (lower-case letters, digits and inner hyphens)`},
		"reserved service": {head + "spec:\n  services:\n    named: [{name: auth, port: 1, address: \"a:1\"}]\n", `6: spec.services.named[0].name: "auth" is a service of every gateway (choose another name)`},
		"service twice":    {head + "spec:\n  services:\n    named:\n    - {name: r, port: 1, address: \"a:1\"}\n    - {name: r, port: 2, address: \"a:1\"}\n", `8: spec.services.named[1].name: "r" is the name of two services (rename one)`},
		"service port 0":   {head + "spec:\n  services:\n    named: [{name: r, port: 0, address: \"a:1\"}]\n", "6: spec.services.named[0].port: 0 is no port to offer a service at (want 1 to 65535)"},
		"no service port":  {head + "spec:\n  services:\n    named: [{name: r, address: \"a:1\"}]\n", "6: spec.services.named[0].port: missing (want the port inside the tunnel, 1 to 65535, or ports: FIRST-LAST)"},
		"port of auth":     {head + "spec:\n  services:\n    named: [{name: r, port: 80, address: \"a:1\"}]\n", "6: spec.services.named[0].port: 80 is the port of auth inside the tunnel (choose another)"},
		"port of apiServer": {head + "spec:\n  services:\n    named: [{name: r, port: 6443, address: \"a:1\"}]\n",
			"6: spec.services.named[0].port: 6443 is the port of apiServer inside the tunnel (choose another)"},
		"port twice": {head + "spec:\n  services:\n    named:\n    - {name: r, port: 1, address: \"a:1\"}\n    - {name: s, port: 1, address: \"a:1\"}\n",
			"8: spec.services.named[1].port: 1 is the port of r inside the tunnel (choose another)"},
		"proxy protocol":        {head + "spec:\n  services:\n    named: [{name: r, port: 1, address: \"a:1\", proxyProtocol: v1}]\n", `6: spec.services.named[0].proxyProtocol: "v1" is no version of the PROXY protocol that is spoken (want v2)`},
		"proxy protocol of UDP": {head + "spec:\n  services:\n    named: [{name: r, protocol: UDP, port: 1, address: \"a:1\", proxyProtocol: v2}]\n", "6: spec.services.named[0].proxyProtocol: is for TCP, and this service is of UDP (leave it out)"},
		"range in a range": {head + "spec:\n  services:\n    named:\n    - {name: r, ports: 5000-5010, address: \"a:1\"}\n    - {name: s, port: 5010, address: \"a:1\"}\n",
			"8: spec.services.named[1].port: 5010 is the port of r inside the tunnel (choose another)"},
		"range of one name": {head + "spec:\n  services:\n    named: [{name: r, ports: 75-85, address: \"a:1\"}]\n",
			"6: spec.services.named[0].ports: 75-85 is the port of auth inside the tunnel (choose another)"},
		"port and ports":     {head + "spec:\n  services:\n    named: [{name: r, port: 1, ports: 1-2, address: \"a:1\"}]\n", "6: spec.services.named[0].ports: port is given as well (keep one)"},
		"too many ports":     {head + "spec:\n  services:\n    named: [{name: r, ports: 1000-2024, address: \"a:1\"}]\n", "6: spec.services.named[0].ports: 1000-2024 has 1025 ports, and a service has at most 1024"},
		"backward range":     {head + "spec:\n  services:\n    named: [{name: r, ports: 2-1, address: \"a:1\"}]\n", "6: spec.services.named[0].ports: 2-1 is no range of ports (want the lower one first, from 1)"},
		"no range":           {head + "spec:\n  services:\n    named: [{name: r, ports: all, address: \"a:1\"}]\n", `6: spec.services.named[0].ports: "all" is neither a port nor a range of ports (want such as 5000 or 5000-5010)`},
		"protocol in ports":  {head + "spec:\n  services:\n    named: [{name: r, ports: 1-2/UDP, address: \"a:1\"}]\n", `6: spec.services.named[0].ports: "1-2/UDP" has a protocol (put it into protocol)`},
		"protocol":           {head + "spec:\n  services:\n    named: [{name: r, protocol: udp, port: 1, address: \"a:1\"}]\n", `6: spec.services.named[0].protocol: "udp" is no protocol of a service (want TCP or UDP)`},
		"ports beyond all":   {head + "spec:\n  services:\n    named: [{name: r, ports: 1-3, address: \"a:65534\"}]\n", "6: spec.services.named[0].address: 3 ports from 65534 are more than there are (give the first of them)"},
		"listeners' ranges":  {peerHead + "    local:\n      named: {r: 127.0.0.1:1-5, s: 127.0.0.1:5, t: 127.0.0.1:5/UDP}\n", "9: spec.peers[0].local.named.s: 127.0.0.1:5 is already the listener of spec.peers[0].local.named.r (choose another port)"},
		"API server's ports": {peerHead + "    local: {apiServer: \"127.0.0.1:1/UDP\"}\n", "8: spec.peers[0].local.apiServer: 127.0.0.1:1/UDP: an API server has one TCP port"},

		"peer without name":  {head + "spec:\n  peers:\n  - publicKey: " + aliceKey + "\n", "6: spec.peers[0].name: missing (name the peer, as commands will call it)"},
		"peer's name twice":  {peerHead + "  - name: cloud\n", `8: spec.peers[1].name: "cloud" is already the name of spec.peers[0] in line 7 (rename one)`},
		"peer's key twice":   {peerHead + "    publicKey: " + aliceKey + "\n  - name: other\n    publicKey: " + aliceKey + "\n", "10: spec.peers[1].publicKey: the same key as spec.peers[0] in line 8 (every peer has its own)"},
		"bad peer key":       {peerHead + "    publicKey: abc\n", "8: spec.peers[0].publicKey: not a WireGuard key (want 44 characters of base64, as `postern key gen` and `wg genkey` print)"},
		"own key":            {strings.Replace(peerHead, "spec:\n", "spec:\n  privateKeyFile: good.key\n", 1) + "    publicKey: " + aliceKey + "\n", "9: spec.peers[0].publicKey: this gateway's own key (give the peer's, as `postern status` shows it there)"},
		"psk without key":    {peerHead + "    presharedKeyFile: good.key\n", "8: spec.peers[0].presharedKeyFile: needs a publicKey (peers that join by ticket agree on a preshared key themselves)"},
		"bad psk":            {peerHead + "    publicKey: " + aliceKey + "\n    presharedKeyFile: bad.key\n", "9: spec.peers[0].presharedKeyFile: DIR/bad.key holds no preshared key (make one for both sides: postern key gen)"},
		"readable psk":       {peerHead + "    publicKey: " + aliceKey + "\n    presharedKeyFile: open.key\n", "9: spec.peers[0].presharedKeyFile: DIR/open.key has mode 0644: every user may read it (chmod 600 DIR/open.key)"},
		"endpoint":           {peerHead + "    endpoints: [\"198.51.100.7\"]\n", `8: spec.peers[0].endpoints[0]: "198.51.100.7" is neither IP:port nor host:port (IPv6 addresses go in brackets)`},
		"endpoint of digits": {peerHead + "    endpoints: [\"10.0.0:51820\"]\n", `8: spec.peers[0].endpoints[0]: "10.0.0:51820" is neither IP:port nor host:port (IPv6 addresses go in brackets)`},
		"overlay endpoint":   {peerHead + "    endpoints: [\"[fd00::1]:51820\"]\n", `8: spec.peers[0].endpoints[0]: "[fd00::1]:51820" is an overlay address: it leads into the tunnel, not to the peer's gateway`},
		"endpoint port 0":    {peerHead + "    endpoints: [\"198.51.100.7:0\"]\n", `8: spec.peers[0].endpoints[0]: "198.51.100.7:0" has port 0 (want 1 to 65535)`},
		"endpoint any":       {peerHead + "    endpoints: [\"[::]:1\"]\n", `8: spec.peers[0].endpoints[0]: "[::]:1" is not an address that can be dialled`},
		"OutOfBand":          {peerHead + "    mode: OutOfBand\n    outOfBand: {authURL: \"https://a\"}\n", "9: spec.peers[0].outOfBand.apiServerURL: missing with mode OutOfBand (want where the peer's API server answers: https://host:port)"},
		"other mode":         {peerHead + "    mode: inband\n", `8: spec.peers[0].mode: "inband" is not a mode (want InBand or OutOfBand)`},
		"outOfBand scheme":   {peerHead + "    outOfBand: {authURL: \"http://a\"}\n", "8: spec.peers[0].outOfBand.authURL: \"http://a\" is not an https URL (want https://host:port)"},
		"outOfBand password": {peerHead + "    outOfBand: {apiServerURL: \"https://u:p@a\"}\n", "8: spec.peers[0].outOfBand.apiServerURL: a URL with a user name or password in it (put the token into tokenFile)"},
		"outOfBand token":    {peerHead + "    outOfBand: {authURL: \"https://a\", tokenFile: none}\n", "8: spec.peers[0].outOfBand.tokenFile: DIR/none does not exist (create it, or correct the path)"},
		"unknown grant":      {peerHead + "    allow: [auth, registry]\n", `8: spec.peers[0].allow[1]: "registry" is not a service of this gateway (there are: auth, apiServer)`},
		"listener":           {peerHead + "    local: {apiServer: \":7443\"}\n", `8: spec.peers[0].local.apiServer: ":7443" is not IP:port to listen on (such as 127.0.0.1:7443)`},
		"listener's name":    {peerHead + "    local: {named: {apiServer: \"127.0.0.1:1\"}}\n", `8: spec.peers[0].local.named.apiServer: "apiServer" is not the name of a named service`},
		"listener twice":     {peerHead + "    local:\n      apiServer: 127.0.0.1:1\n      named: {r: 127.0.0.1:1}\n", "10: spec.peers[0].local.named.r: 127.0.0.1:1 is already the listener of spec.peers[0].local.apiServer (choose another port)"},
		"allowedIPs":         {peerHead + "    publicKey: " + aliceKey + "\n    allowedIPs: [10.9.0.2/32]\n", "9: spec.peers[0].allowedIPs: only for stock peers; others have their overlay address and no other (remove it, or add stock: true)"},
		"stock, no key":      {peerHead + "    stock: true\n    allowedIPs: [10.9.0.2/32]\n", "7: spec.peers[0].publicKey: missing (a stock peer cannot join by ticket)"},
		"stock, no IPs":      {peerHead + "    publicKey: " + aliceKey + "\n    stock: true\n", "7: spec.peers[0].allowedIPs: missing (a stock peer needs the addresses it may send from)"},
		"stock in overlay":   {peerHead + "    publicKey: " + aliceKey + "\n    stock: true\n    allowedIPs: [\"fd12::/16\"]\n", `10: spec.peers[0].allowedIPs[0]: "fd12::/16" overlaps the overlay fd00::/8, whose addresses belong to keys (choose other addresses, or at most a /48)`},
		"stock everything":   {peerHead + "    publicKey: " + aliceKey + "\n    stock: true\n    allowedIPs: [\"::/0\"]\n", `10: spec.peers[0].allowedIPs[0]: "::/0" overlaps the overlay fd00::/8, whose addresses belong to keys (choose other addresses, or at most a /48)`},
		"stock host bits":    {peerHead + "    publicKey: " + aliceKey + "\n    stock: true\n    allowedIPs: [10.9.0.2/24]\n", `10: spec.peers[0].allowedIPs[0]: "10.9.0.2/24" has bits set beyond its length (want 10.9.0.0/24)`},
		"stock listener":     {peerHead + "    publicKey: " + aliceKey + "\n    stock: true\n    allowedIPs: [10.9.0.2]\n    local: {apiServer: \"127.0.0.1:1\"}\n", "11: spec.peers[0].local: a stock WireGuard peer offers no services to listen for (remove local)"},
		"stock overlap": {peerHead + "    publicKey: " + aliceKey + "\n    stock: true\n    allowedIPs: [10.9.0.0/24]\n  - {name: b, stock: true, publicKey: " + bobKey + ", allowedIPs: [10.9.0.7]}\n",
			"11: spec.peers[1].allowedIPs[0]: 10.9.0.7/32 overlaps an address of spec.peers[0] (an address leads to one peer)"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := secretFiles(t)
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "edge.yaml")
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(tc.in, "DIR", dir)), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(file, Overrides{})
			if err == nil {
				t.Fatalf("accepted, want %s", tc.want)
			}
			if !errors.As(err, new(Problems)) {
				t.Errorf("the error is a %T, want Problems", err)
			}
			if got, want := err.Error(), file+":"+strings.ReplaceAll(tc.want, "DIR", dir); got != want {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
		})
	}
}
