package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/units"
)

// Text prints the figures as tables.
func (a *Ablation) Text(w io.Writer) {
	fmt.Fprintf(w, "%s\n%s\n", units.Printable(a.Work()), a.On())
	fmt.Fprintln(w, "\nmodel\thops\tfrom\tloading\tepoch\tspeedup\tload\tforward\tbackward\toptimizer"+
		"\tfetching\tassembling")
	for _, m := range a.Results {
		s, l := m.StepSeconds, m.LoaderSeconds
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%.4f s\t%.2f%s\t%.4f s\t%.4f s\t%.4f s\t%.4f s\t%.4f s\t%.4f s\n", m.Model,
			m.Hops, m.Placement, m.Variant,
			m.EpochSeconds, m.Speedup, noiseMark(m.WithinNoise), s["load"], s["forward"], s["backward"], s["optimizer"],
			l["wait"], l["assemble"])
	}
	if slices.ContainsFunc(a.Results, func(m AblationResult) bool { return m.WithinNoise }) {
		fmt.Fprintln(w, "\n~ its epochs overlap the reference's (speedup 1): the difference may be noise")
	}
	fmt.Fprintln(w, "\nmodel\thops\tfrom\tloading\tby formula\tfrom storage\tassembled by the host\tcopied to the "+
		"device")
	for _, m := range a.Results {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Model, m.Hops, m.Placement, m.Variant,
			units.Bytes(m.InputBytes),
			units.Bytes(m.StorageBytes), units.Bytes(m.AssembledBytes), units.Bytes(m.CopiedInBytes))
	}
	fmt.Fprintf(w, "\nFigure 9: %s\n", a.Figure9.About())
	barsText(w, a.Figure9.Bars, AblationVariants(), func(b Way) string { return b.Variant })
	fmt.Fprintf(w, "\nFigure 14: %s\n", a.Figure14.About())
	barsText(w, a.Figure14.Bars, LoadShuffles(), func(b Way) string { return b.Shuffle })
	for _, l := range a.LeftOut {
		fmt.Fprintf(w, "left out: %s, hops %d, %s from %s: %s\n", l.Model, l.Hops, l.Variant, l.Placement, l.Reason)
	}
	if a.Output != "" {
		fmt.Fprintf(w, "drawn in %s\n", a.Output)
	}
}

// barsText is a line for each model and placement.
func barsText(w io.Writer, bars []AblationBar, columns []string, column func(Way) string) {
	fmt.Fprintf(w, "model\tfrom\t%s\n", strings.Join(columns, "\t"))
	for i, b := range bars {
		same := func(other AblationBar) bool { return other.Model == b.Model && other.Placement == b.Placement }
		if i > 0 && same(bars[i-1]) {
			continue
		}
		fmt.Fprintf(w, "%s\t%s", b.Model, b.Placement)
		for _, name := range columns {
			cell := ""
			if at := slices.IndexFunc(bars, func(other AblationBar) bool {
				return same(other) && column(other.Way) == name
			}); at >= 0 {
				cell = fmt.Sprintf("%.3f", bars[at].Normalized)
			}
			fmt.Fprintf(w, "\t%s", cell)
		}
		fmt.Fprintln(w)
	}
}
