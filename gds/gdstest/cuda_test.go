//go:build cuda && cgo && linux

package gdstest

import (
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/cuda"
)

// Without a driver there is nothing to test: .ci/cuda builds one in software.
func init() {
	opened := 0 // so that peers are on another device where there is one
	kinds = map[string]func() (gds.Device, error){"cuda": func() (gds.Device, error) {
		n, err := cuda.Count()
		if err != nil {
			return nil, err
		}
		opened++
		return cuda.Open(opened%n, cuda.Options{})
	}}
}
