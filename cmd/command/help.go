package command

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/trainer"
)

// helpAllFlag shows all flags of a command with many, and the details in its annotation of the same name.
const helpAllFlag = "help-all"

// manyFlags is from how many flags on help shows the most used alone.
const manyFlags = 20

// plannedGroup is the group of flags of commands that plan for other machines.
const plannedGroup = "Machine and data to plan for"

type flagGroup struct{ title, flags string }

// flagGroups are the flags of commands with many, in the order in which help shows them. Settings of models are with
// the model; other flags come first.
var flagGroups = []flagGroup{
	{"Model", "model operator hops standardize"},
	{"Input", "split splits normalize-features features-in-place undirected directed self-loops duplicates name dtype"},
	{plannedGroup, "hardware devices dataset nodes edges features classes labeled split-shares"},
	{"Sampling of a graph", "sampler fanout cache bias debias replace partitions partition-file workers buffers"},
	{"Optimisation", "batch batch-per-device lr weight-decay optimizer lr-schedule warm-up clip-norm loss " +
		"class-weights runs"},
	{"Stopping", "epochs patience eval-every metric max-time"},
	{"Placement and schedule",
		"placement device shuffle chunk-rows schedule cpu-share profile-batches queue gradients sync-every updates map " +
			"scratch emulate tf32"},
	{"Search", "grid tune max-memory min-accuracy min-throughput weights budget search surrogate throughput space " +
		"trial-epochs"},
	{"Output", "output run save-every config force"},
}

// usualFlags are the flags that the help of a command with many flags shows.
var usualFlags = strings.Fields("model operator hops hidden layers dropout batch lr epochs patience placement " +
	"sampler fanout run config output rows dry-run from max-time " +
	"budget max-memory min-accuracy hardware dataset nodes edges " +
	"cpu-batch dma gpu-batch training schedules rounds " +
	"ids undirected node-table features labels source-column destination-column label-column")

// groupFlags makes help of a command with many flags show the usual ones, and all, in groups, with --help-all.
func groupFlags(c *cobra.Command, a *app) {
	local := c.LocalNonPersistentFlags()
	local.SortFlags = false
	n := 0
	local.VisitAll(func(*pflag.Flag) { n++ })
	if n < manyFlags {
		return
	}
	c.Flags().Bool(helpAllFlag, false, "help with all flags, in groups")
	long := c.Long
	c.SetHelpFunc(func(c *cobra.Command, _ []string) {
		if c.Long = long; a.helpAll {
			c.Long += c.Annotations[helpAllFlag]
		}
		fmt.Fprintf(c.OutOrStdout(), "%s\n\n", c.Long)
		_ = c.Usage()
	})
	c.SetUsageFunc(func(c *cobra.Command) error {
		w := c.OutOrStdout()
		fmt.Fprintf(w, "Usage:\n  %s\n", c.UseLine())
		if c.HasExample() {
			fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
		}
		if !a.helpAll {
			shown := writeFlags(w, "Flags", local, usualFlags)
			fmt.Fprintf(w, "\n%s --%s shows %d more flags, in groups.\n", c.CommandPath(), helpAllFlag, n-shown)
			return nil
		}
		groups, grouped := flagGroups, []string(nil)
		if local.Lookup("hardware") == nil { // nodes and features are of the input
			groups = slices.DeleteFunc(slices.Clone(groups), func(g flagGroup) bool { return g.title == plannedGroup })
		}
		for _, g := range groups {
			grouped = append(grouped, namesOf(g.title, g.flags)...)
		}
		var others []string
		local.VisitAll(func(f *pflag.Flag) {
			if !slices.Contains(grouped, f.Name) && f.Name != helpAllFlag && f.Name != "help" {
				others = append(others, f.Name)
			}
		})
		writeFlags(w, "Flags", local, others)
		for _, g := range groups {
			writeFlags(w, g.title, local, namesOf(g.title, g.flags))
		}
		fmt.Fprintf(w, "\nGlobal Flags:\n%s", c.InheritedFlags().FlagUsages())
		return nil
	})
}

// namesOf are the flags of a group.
func namesOf(title, flags string) []string {
	names := strings.Fields(flags)
	if title == "Model" {
		for _, s := range trainer.ModelSettings() {
			names = append(names, s.Name)
		}
	}
	return names
}

// writeFlags writes the flags with these names that there are, below a title, and returns how many.
func writeFlags(w io.Writer, title string, from *pflag.FlagSet, names []string) (written int) {
	some := pflag.NewFlagSet("", pflag.ContinueOnError)
	some.SortFlags = false
	for _, name := range names {
		if f := from.Lookup(name); f != nil {
			some.AddFlag(f)
			written++
		}
	}
	if written > 0 {
		fmt.Fprintf(w, "\n%s:\n%s", title, some.FlagUsages())
	}
	return written
}
