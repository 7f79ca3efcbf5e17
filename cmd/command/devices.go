package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/session"
)

func newDevicesCommand(a *app) *cobra.Command {
	c := a.verb("devices", "List the devices that training can compute on, and why there are no others",
		`Devices lists the kinds of devices that this program knows, in the order in which training prefers them,
with their number and memory, or why there is none of a kind. Training uses the first kind that is
there.`, func(ctx context.Context, a *app, _ []string) (result, error) {
			var r devicesResult
			for _, k := range session.Devices(ctx, a.budget, a.threads,
				devices.Options{Emulate: a.emulate, TF32: a.tf32}) {
				r.Devices = append(r.Devices, deviceKind{
					Kind: k.Name, Count: k.Count, Name: k.Info.Name, Unified: k.Info.Unified, Products: k.Info.Products,
					Storage:     k.Info.Storage,
					MemoryBytes: k.Info.MemoryBytes, FreeBytes: k.FreeBytes, WhyNone: k.WhyNone,
				})
			}
			return r, nil
		})
	a.declareDevices(c.Flags())
	return c
}

// devicesResult is the result of devices.
type devicesResult struct {
	Devices []deviceKind `json:"devices"` // all kinds
}

type deviceKind struct {
	Kind        string `json:"kind"`
	Count       int    `json:"count"`
	Name        string `json:"name,omitempty"`
	Unified     bool   `json:"unified"` // its memory is the host's
	MemoryBytes int64  `json:"memory_bytes"`
	FreeBytes   int64  `json:"free_bytes"`
	Products    string `json:"products,omitempty"` // what multiplies matrices
	Storage     string `json:"storage,omitempty"`  // how files are read into its memory, and why
	WhyNone     string `json:"why_none,omitempty"` // why count is 0
}

func (r devicesResult) Text(w io.Writer) {
	for _, d := range r.Devices {
		if d.Count == 0 {
			fmt.Fprintf(w, "%s\tnone: %s\n", d.Kind, d.WhyNone)
			continue
		}
		memory := "memory of its own"
		if d.Unified {
			memory = "memory of the host"
		}
		fmt.Fprintf(w, "%s\t%d, %s, %s: %s, %s free; matrices are multiplied by %s\n",
			d.Kind, d.Count, d.Name, memory, units.Bytes(d.MemoryBytes), units.Bytes(d.FreeBytes), d.Products)
		if d.Storage != "" {
			fmt.Fprintf(w, "\tfiles are read: %s\n", d.Storage)
		}
	}
}
