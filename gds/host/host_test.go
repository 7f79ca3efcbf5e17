package host_test

import (
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/gdstest"
	"github.com/hopfeed/hopfeed/gds/host"
)

func TestHost(t *testing.T) {
	gdstest.Run(t, func(t *testing.T) gds.Device {
		d, err := host.New(host.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return d
	})
}
