package plan

import (
	"fmt"
	"time"

	"github.com/hopfeed/hopfeed/internal/units"
)

// OnlyProcessor is the reason for the processor where there is nothing else, which need not be said.
const OnlyProcessor = "there is no GPU: this program was built without CUDA"

// Lines describes the plan in words, and how much memory may be used.
func (p *Plan) Lines(budget units.Bytes) []string {
	needs := fmt.Sprintf("%s of memory (%s may be used), %s of disk for the store, up to %s for scratch files until it "+
		"is complete",
		units.Bytes(p.MemoryBytes), budget, units.Bytes(p.StoreBytes), units.Bytes(p.ScratchBytes))
	if p.Work == nil { // it is of several jobs, one after another
		return []string{needs, fmt.Sprintf("%s to read, %s to write: %s", units.Bytes(p.ReadBytes),
			units.Bytes(p.WrittenBytes), duration(p.Seconds))}
	}
	lines := []string{"plan: all columns at once"}
	if p.Panels > 1 {
		lines[0] = fmt.Sprintf("plan: %d panels of up to %s", p.Panels, units.Count(int64(p.PanelColumns), "column"))
	}
	switch {
	case p.InputFiles:
		lines[0] += fmt.Sprintf(", the input cut into %s", units.Count(int64(p.InputPasses*p.Panels), "column file"))
	case p.InputPasses > 1:
		lines[0] += fmt.Sprintf(", %d passes over the input", p.InputPasses)
	}
	if p.TopologyInMemory {
		lines[0] += ", topology in memory"
	} else {
		lines[0] += fmt.Sprintf(", %d passes over the topology on disk", p.TopologyPasses)
	}
	if p.FactorsByEdge {
		lines[0] += ", coefficients listed by edge"
	}
	if p.HeldBytes > 0 {
		lines[0] += fmt.Sprintf(" (%s of these in memory)", units.Bytes(p.HeldBytes))
	}
	if p.CutBeside {
		lines[0] += ", topology prepared while the input is read"
	}
	lines = append(lines, p.deviceLines()...)
	return append(lines, needs,
		fmt.Sprintf("%s to read at %s/s, %s to write at %s/s, rows to add at %.0f million/s: %s",
			units.Bytes(p.ReadBytes), units.Bytes(p.Rates.Read), units.Bytes(p.WrittenBytes),
			units.Bytes(p.Rates.Write), p.RowsPerSecond()/1e6, duration(p.Seconds)))
}

// duration is about how long that many seconds are.
func duration(seconds float64) string {
	if seconds < 60 {
		return fmt.Sprintf("about %.1f s", seconds)
	}
	return "about " + time.Duration(seconds*float64(time.Second)).Round(time.Second).String()
}

// deviceLines says what computes the products, and why.
func (p *Plan) deviceLines() []string {
	d := p.Device
	switch {
	case d == nil, d.Name == CPU && d.Reason == OnlyProcessor:
		return nil
	case d.Name == CPU:
		return []string{"products on the processor: " + d.Reason}
	}
	stays := func(yes bool) string {
		if yes {
			return "stays on it"
		}
		return "comes in parts"
	}
	columns := "all columns of a panel at once"
	if d.Columns < p.PanelColumns {
		columns = units.Count(int64(d.Columns), "column") + " at a time"
	}
	matrices := "matrices come for each product"
	if d.MatricesOnDevice {
		matrices = "matrices stay on it"
	}
	return []string{
		fmt.Sprintf("products on %s: %s", d.Name, d.Reason),
		fmt.Sprintf("%s, %s, the topology %s: %s of its memory, %s of pinned memory", columns, matrices,
			stays(d.TopologyOnDevice), units.Bytes(d.Bytes), units.Bytes(d.PinnedBytes)),
	}
}
