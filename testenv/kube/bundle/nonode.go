//go:build controlplane

package main

// nodeComponents are left out.
var nodeComponents map[string]component
