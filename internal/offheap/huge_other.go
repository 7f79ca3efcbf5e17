//go:build !linux

package offheap

func adviseHuge([]byte) {}
