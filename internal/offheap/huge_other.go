//go:build !linux

package offheap

func adviseHuge([]byte) {}

func populate([]byte) error { return nil }
