package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/tune"
)

// Text prints the front.
func (t *Tuning) Text(w io.Writer) {
	fmt.Fprintf(w, "input\t%s\n", units.Printable(t.Dataset))
	fmt.Fprintf(w, "trials\t%d of %d combinations, %d failed, %.0f s; search by %s with seed %d\n",
		t.Trials, t.Combinations, t.Failed, t.Seconds, t.Search, t.Seed)
	fmt.Fprintf(w, "reproducible\t%s\n", t.Reproducible)
	if len(t.Surrogates) > 0 {
		var words []string
		for _, f := range t.Surrogates {
			if f.R2 != nil {
				words = append(words, fmt.Sprintf("%s %.2f", f.Figure, *f.R2))
			}
		}
		fmt.Fprintf(w, "predictable\tR2 of trials that a Gaussian process has not seen: %s\n",
			cmp.Or(strings.Join(words, ", "), "too few trials"))
	}
	if len(t.Front) == 0 {
		return
	}
	fmt.Fprintf(w, "front\trows/s (%s)\tmemory (%s)\t%s\tsettings\n", t.Throughput, t.Memory, t.Metric)
	for _, p := range t.Front {
		name := fmt.Sprintf("trial %d", p.Trial)
		if roles := t.Roles(p.Trial); roles != "" {
			name += ", " + roles
		}
		var settings []string
		for _, key := range slices.Sorted(maps.Keys(p.Settings)) {
			settings = append(settings, key+" "+short(p.Settings[key]))
		}
		fmt.Fprintf(w, "%s\t%.0f\t%s\t%s\t%s\n", name, p.RowsPerSecond, units.Bytes(p.MemoryBytes), t.valid(p.Valid),
			strings.Join(settings, ", "))
	}
	fmt.Fprintf(w, "saved\t%s: %s (balanced), %s, %s, %s for train --config; %s\n", t.Output,
		tune.BalancedConfig, tune.FastestConfig, tune.SmallestConfig, tune.AccurateConfig, tune.PageFile)
}
