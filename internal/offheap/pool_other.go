//go:build !linux

package offheap

import "context"

// ofMachine is for Linux alone.
func ofMachine(context.Context, string, int64, int64, func(*Buffer) error) (*Buffer, error) {
	return nil, ErrUnshared
}
