package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/version"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// maxThreads is more than machines have. The runtime sets up each thread that may
// run, and a million of them take it minutes.
const maxThreads = 4096

// app is what every verb works with: files, output, and the common flags.
type app struct {
	fs             vfs.FS
	stdout, stderr io.Writer
	terminal       bool // stderr is one

	threads     int
	memory      units.Bytes // 0: the default
	seed        uint64
	emulate     host.Emulation
	json, quiet bool

	running bool // a verb has begun: what fails now is not the command line's fault
}

// result is what a verb has found: an object as JSON, text for people.
type result interface {
	text(w io.Writer)
}

func newRoot(a *app) *cobra.Command {
	cobra.EnableCommandSorting = false // they follow the way of the data
	root := &cobra.Command{
		Use:   "hopfeed",
		Short: "Propagate node features once, store them, train from wherever they fit",
		Long: "Hopfeed computes hop-wise propagated node features once, stores them as chunked Arrow\n" +
			"files, and feeds training from device memory, host memory or storage.\n\n" +
			"To see it work: hopfeed demo\n\nThe way of the data:\n\n" +
			"  hopfeed import npy SRC -o GRAPH\n" +
			"  hopfeed propagate GRAPH -o STORE --hops 3 --operator sym\n" +
			"  hopfeed verify STORE\n" +
			"  hopfeed train STORE --model sign --run RUN\n" +
			"  hopfeed evaluate --checkpoint RUN STORE\n\n" + exitHelp,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	flags := root.PersistentFlags()
	flags.SortFlags = false
	flags.IntVar(&a.threads, "threads", 0, "threads to use (0: CPU affinity and quota)")
	flags.Var(&a.memory, "memory", "memory to use (default 80 % of what is available or the cgroup limit)")
	flags.Lookup("memory").DefValue = ""
	flags.Var(&a.emulate, "emulate", "compute on emulated devices, such as gpu=1,mem=2GiB,link=12GiB/s")
	flags.Uint64Var(&a.seed, "seed", 0, "seed of everything random")
	flags.BoolVar(&a.json, "json", false, "print one JSON object on stdout, logs on stderr")
	flags.BoolVar(&a.quiet, "quiet", false, "print no progress and no notes")

	root.AddCommand(
		newDemoCommand(a), newImportCommand(a), newGenerateCommand(a), newPropagateCommand(a), newStatusCommand(a), newRepairCommand(a), newPlanCommand(a), newTrainCommand(a),
		newEvaluateCommand(a), newInspectCommand(a), newVerifyCommand(a), newExportCommand(a), newBenchCommand(a),
	)
	for _, c := range append(root.Commands(), root) {
		c.Version = version.Version
		c.SetVersionTemplate("hopfeed {{.Version}}\n")
		c.Flags().SortFlags = false
	}
	return root
}

// verb runs a verb with the common flags in force, and prints its result, which
// may come with an error.
func (a *app) verb(run func(ctx context.Context, args []string) (result, error)) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		if err := a.useThreads(); err != nil {
			return err
		}
		if o := c.Flags().Lookup("output"); o != nil && (o.Changed || o.DefValue != "") {
			if info, err := a.fs.Stat(o.Value.String()); o.Value.String() == "" || err == nil && !info.IsDir() {
				return usagef("--output %q: want a directory", o.Value)
			}
		}
		a.running = true
		r, err := run(c.Context(), args)
		if r != nil {
			if printErr := a.print(r); err == nil {
				err = printErr
			}
		}
		return err
	}
}

// useThreads puts --threads in force.
func (a *app) useThreads() error {
	if a.threads < 0 {
		return usagef("--threads %d: must not be negative", a.threads)
	}
	if a.threads > maxThreads {
		return usagef("--threads %d: must be at most %d", a.threads, maxThreads)
	}
	if a.threads == 0 {
		a.threads = machine.Threads()
	}
	runtime.GOMAXPROCS(a.threads)
	return nil
}

// refuseWithin refuses an output somewhere below a graph or store, where it would
// be what the manifest does not list, which verify finds bad.
func (a *app) refuseWithin(output string) error {
	at, err := a.fs.Resolve(output)
	if err != nil {
		return err
	}
	for at != filepath.Dir(at) {
		at = filepath.Dir(at)
		_, noManifest := a.fs.Stat(filepath.Join(at, "manifest.json"))
		_, noIndex := a.fs.Stat(filepath.Join(at, "index.arrow"))
		if noManifest == nil && noIndex == nil {
			return usagef("%s: %s is a graph or store, which nothing may be added to: give another directory", output, at)
		}
	}
	return nil
}

// refuseInside refuses an output in a folder that is read, or in its place.
func (a *app) refuseInside(output, source string) error {
	out, err := a.fs.Resolve(output)
	if err != nil {
		return err
	}
	in, err := a.fs.Resolve(source)
	if err != nil {
		return err
	}
	if rel, err := filepath.Rel(in, out); err == nil && filepath.IsLocal(rel) {
		return usagef("%s: lies in %s, which is read: give another directory", output, source)
	}
	return nil
}

// count is a number of things, in words.
func count(n int64, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case strings.HasSuffix(thing, "s"):
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func (a *app) print(r result) error {
	if a.json {
		return json.NewEncoder(a.stdout).Encode(r)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	r.text(w)
	return w.Flush()
}

// note tells the user something on the way.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.stderr, format+"\n", args...)
	}
}

func (a *app) progress() progress.Reporter {
	if a.quiet {
		return progress.Silent
	}
	return progress.New(a.stderr, a.terminal)
}

// budget is the memory that the run may use, and what set it.
func (a *app) budget() (bytes units.Bytes, by string) {
	if a.memory > 0 {
		return a.memory, "--memory"
	}
	m := machine.Memory()
	return m.Bytes / 5 * 4, "80 % of " + m.By
}
