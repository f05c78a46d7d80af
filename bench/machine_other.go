//go:build !linux

package bench

func processorModel() string { return "" }

func kernelRelease() string { return "" }
