//go:build !amd64 || noasm

package kernel

func available() []*implementation { return []*implementation{&portable} }
