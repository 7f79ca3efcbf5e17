//go:build !linux

package vfs

import "golang.org/x/sys/unix"

// ring stands for the queue of reads and writes that Linux has: see ring_linux.go.
type ring struct{}

func acquireRing() *ring { return nil }
func releaseRing(*ring)  {}

func (*ring) read(fd int, p []byte, offset int64) (int, error) { return unix.Pread(fd, p, offset) }

func (*ring) write(fd int, p []byte, offset int64) (int, error) { return unix.Pwrite(fd, p, offset) }
