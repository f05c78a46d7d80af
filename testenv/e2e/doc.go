// Package e2e tests what users can do with the program: gateways as processes in network
// namespaces with the kernel's NAT between them, and a real kube-apiserver, kubectl, curl and
// stock WireGuard as their users. The tests have the build tag e2e, need root and run with `make
// e2e`. README.md says what each file shows.
package e2e
