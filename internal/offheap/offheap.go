// Package offheap allocates large buffers outside of the Go heap, where the
// garbage collector neither scans nor counts them.
package offheap
