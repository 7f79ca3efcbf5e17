//go:build !linux

package offheap

import "errors"

func adviseHuge([]byte) {}

func populate([]byte) error { return errors.ErrUnsupported }
