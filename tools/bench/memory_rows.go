package bench

import (
	"context"
	"fmt"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/training"
)

// Rows of the table of schedules that are epochs by gpu with rows and adjacency lists in device memory: those of a
// cache (DUCATI), or all.
const (
	DucatiRow  = "ducati" // or ducati:SIZE
	PreloadRow = "preload"
)

// IsMemoryRow tells the name of such a row.
func IsMemoryRow(name string) bool {
	return name == PreloadRow || name == DucatiRow || strings.HasPrefix(name, DucatiRow+":")
}

// MemoryRowOptions are the options of the row's training, from those of the other rows.
func MemoryRowOptions(name string, graph *format.Dir, to training.Options) training.Options {
	to.Schedule.Name = "gpu"
	switch to.Placement = placement.Host; name {
	case PreloadRow:
		to.Sampling.Cache, to.Placement = "", placement.Device
	case DucatiRow:
		to.Sampling.Cache = quarterCache(&graph.Manifest, graph.Layout())
	default:
		to.Sampling.Cache = name
	}
	return to
}

// quarterCache is a ducati cache of a quarter of rows and lists, or of a row.
func quarterCache(m *format.Manifest, l format.Layout) string {
	row := gds.Bytes(1, l.Features, l.DType)
	return fmt.Sprintf("%s:%d", DucatiRow, max((m.Nodes*row+sampling.ListBytes(m))/4, row))
}

// MemoryRow trains on an epoch with MemoryRowOptions. The error wraps machine.ErrDoesNotFit where device memory lacks
// room for all rows and lists.
func (s *Schedules) MemoryRow(ctx context.Context, name string) (*ScheduleRow, error) {
	if name == PreloadRow && !s.Graph.Preloaded() {
		return nil, fmt.Errorf("%w: lists and rows in device memory, beside a model", machine.ErrDoesNotFit)
	}
	return s.RunAs(ctx, "gpu", name)
}
