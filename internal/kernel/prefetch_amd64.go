//go:build !noasm

package kernel

// prefetch asks for the cache lines of n bytes at p.
//
//go:noescape
func prefetch(p *byte, n int)
