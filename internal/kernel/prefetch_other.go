//go:build !amd64 || noasm

package kernel

func prefetch(*byte, int) {}
