package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/version"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/internal/vfs/bucket"
)

// maxThreads is more than machines have. The runtime sets up each thread that may
// run, and a million of them take it minutes.
const maxThreads = 4096

// app holds what every command needs: files, output, and the common flags.
type app struct {
	fs             vfs.FS
	stdout, stderr io.Writer
	terminal       bool  // stderr is one
	call           *Call // by a program; nil: from a command line

	threads     int
	memory      units.Bytes    // 0: the default
	cache       bucket.Options // CacheDir alone
	cacheSize   units.Bytes
	seed        uint64
	emulate     host.Emulation
	tf32        bool
	mapped      bool   // map the topologies of graphs
	scratch     string // folder; "": none
	json, quiet bool
	helpAll     bool // print all flags of a command in its help
	verbose     bool // print what is planned, why, and what it took, in detail

	keep    func(result)   // takes the result instead of printing it; nil: print
	budget  machine.Limit  // host memory that the command may use: --memory, or what the machine has
	command *cobra.Command // that runs
	running bool           // a verb has begun: what fails now is not the command line's fault
}

// result is the result of a command, printed as text or, with --json, as a JSON object.
type result interface {
	Text(w io.Writer)
}

type namedVerb struct {
	name string
	make func(*app) *cobra.Command
}

// verbs are the commands below the root, in the order of use.
func verbs() []namedVerb {
	return []namedVerb{
		{"demo", newDemoCommand},
		{"import", newImportCommand},
		{"generate", newGenerateCommand},
		{"update", newUpdateCommand},
		{"propagate", newPropagateCommand},
		{"status", newStatusCommand},
		{"repair", newRepairCommand},
		{"plan", newPlanCommand},
		{"train", newTrainCommand},
		{"tune", newTuneCommand},
		{"evaluate", newEvaluateCommand},
		{"predict", newPredictCommand},
		{"report", newReportCommand},
		{"inspect", newInspectCommand},
		{"verify", newVerifyCommand},
		{"export", newExportCommand},
		{"sample", newSampleCommand},
		{"bench", newBenchCommand},
		{"devices", newDevicesCommand},
		{"version", newVersionCommand},
	}
}

// newRoot makes the command with the verb of this name alone, or with all verbs if there is none.
func newRoot(a *app, name string) *cobra.Command {
	cobra.EnableCommandSorting = false // they are in the order of use
	root := &cobra.Command{
		Use:   "hopfeed",
		Short: "Propagate node features once, store them, and train from device memory, host memory or storage",
		Long: "Hopfeed computes hop-wise propagated node features once, stores them as chunked Arrow\n" +
			"files, and feeds training from device memory, host memory or storage.\n\n" +
			"To see it work: hopfeed demo\n\nThe usual steps:\n\n" +
			"  hopfeed import npy SRC -o GRAPH\n" +
			"  hopfeed propagate GRAPH -o STORE --hops 3 --operator sym\n" +
			"  hopfeed verify STORE\n" +
			"  hopfeed train STORE --model sign --run RUN\n" +
			"  hopfeed evaluate --checkpoint RUN STORE\n" +
			"  hopfeed predict --checkpoint RUN STORE -o OUT.parquet\n\n" + exitHelp,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	flags := root.PersistentFlags()
	flags.SortFlags = false
	flags.IntVar(&a.threads, "threads", 0, "threads to use (0: CPU affinity and quota)")
	within(flags, 0, maxThreads, "threads")
	flags.Var(&a.memory, "memory", "memory to use (default 80 % of what is available or the cgroup limit)")
	flags.Lookup("memory").DefValue = ""
	flags.StringVar(&a.cache.CacheDir, "cache-dir", "", "folder that keeps what is read from buckets (default hopfeed "+
		"in the user's folder for caches)")
	flags.Var(&a.cacheSize, cacheSizeFlag, "largest size of that folder; 0: keep nothing (default half of what is free)")
	flags.Lookup(cacheSizeFlag).DefValue = ""
	flags.Uint64Var(&a.seed, "seed", 0, "number that all random draws derive from")
	flags.BoolVar(&a.json, "json", false, "print one JSON object on stdout, logs on stderr")
	flags.BoolVar(&a.quiet, "quiet", false, "print no progress and no notes")
	flags.BoolVar(&a.verbose, "verbose", false, "print in detail what is planned, why, and what it took")

	known := slices.ContainsFunc(verbs(), func(v namedVerb) bool { return v.name == name })
	for _, v := range verbs() {
		if !known || v.name == name {
			root.AddCommand(v.make(a))
		}
	}
	refuseUnknown(root)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return flagError(c, err) })
	for _, c := range append(root.Commands(), root) {
		c.Version = version.Version
		c.SetVersionTemplate("hopfeed {{.Version}}\n")
		c.Flags().SortFlags = false
		for _, below := range c.Commands() {
			groupFlags(below, a)
		}
	}
	return root
}

// refuseUnknown makes a command that only has commands below it print its help, and
// refuse a word that is none of them with status 2.
func refuseUnknown(c *cobra.Command) {
	c.DisableFlagsInUseLine = true
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var names []string
		for _, below := range c.Commands() {
			names = append(names, below.Name())
		}
		return usagef("unknown command %q%s", args[0], didYouMean(args[0], "", names))
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
}

// flagError says once what is wrong with a flag, and what an unknown one may have been meant to be.
func flagError(c *cobra.Command, err error) error {
	var wrong *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &wrong) && strings.HasPrefix(wrong.Unwrap().Error(), "--"):
		return usagef("%s", wrong.Unwrap())
	case errors.As(err, &wrong):
		want := map[string]string{"int": "a whole number", "int64": "a whole number",
			"uint64":  "a whole number, not negative",
			"float64": "a number", "float": "a number", "bool": "true or false",
			"duration":     "a time such as 90s or 3h30m",
			"intSlice":     "whole numbers, separated by commas",
			"float64Slice": "numbers, separated by commas"}[wrong.GetFlag().Value.Type()]
		if want != "" {
			return usagef("--%s %q: want %s", wrong.GetFlag().Name, wrong.GetValue(), want)
		}
		return usagef("--%s %q: %s", wrong.GetFlag().Name, wrong.GetValue(), wrong.Unwrap())
	case errors.As(err, &unknown) && len(unknown.GetSpecifiedName()) > 1:
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return usagef("%s%s", err, didYouMean(unknown.GetSpecifiedName(), "--", names))
	}
	return err
}

// didYouMean follows an unknown word where a name is spelt much like it, or begins alike. Dashes come before the name.
func didYouMean(word, dashes string, names []string) string {
	like, least := "", 3 // edits that are too many for a slip
	for _, name := range names {
		n := edits(word, name)
		if len(word) > 2 && (strings.HasPrefix(name, word) || strings.HasPrefix(word, name)) {
			n = min(n, 2)
		}
		if n < least && n < len(word) {
			like, least = name, n
		}
	}
	if like == "" {
		return ""
	}
	return ": did you mean " + dashes + like + "?"
}

// edits is the Levenshtein distance of a and b.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before, row[j+1] = row[j+1], min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// declareDevices adds the flags of devices to a command that computes on them.
func (a *app) declareDevices(flags *pflag.FlagSet) {
	flags.BoolVar(&a.tf32, "tf32", false,
		"let GPUs multiply matrices in TF32: faster, with factors rounded to 10 bits of fraction")
	a.declareEmulate(flags)
}

// declareGraphMemory adds the flags that keep parts of a graph out of memory, to a command that opens one for a model.
func (a *app) declareGraphMemory(flags *pflag.FlagSet) {
	flags.BoolVar(&a.mapped, mapFlag, false, mapUsage)
	flags.StringVar(&a.scratch, scratchFlag, "", scratchUsage+" (default: outputs of layers of all nodes of a graph "+
		"stay in memory)")
}

const (
	mapFlag     = "map"
	mapUsage    = "map the topology of a graph from disk instead of loading it"
	scratchFlag = "scratch"
)

// declareEmulate adds the flag of emulated devices.
func (a *app) declareEmulate(flags *pflag.FlagSet) {
	flags.Var(&a.emulate, "emulate", "compute on emulated devices, such as gpu=1,mem=2GiB,link=12GiB/s")
}

// verb makes a command that runs with the common flags in force, and prints its result, which may come with an error.
// The usage line says how many arguments there are.
func (a *app) verb(use, short, long string,
	run func(ctx context.Context, a *app, args []string) (result, error)) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: long, Args: arguments(use)}
	c.RunE = func(c *cobra.Command, args []string) error {
		a.command = c
		a.openBuckets(c.Context())
		if err := a.useThreads(); err != nil {
			return err
		}
		if o := c.Flags().Lookup("output"); o != nil && o.Annotations[fileOutput] == nil && (o.Changed ||
			o.DefValue != "") {
			if info, err := a.fs.Stat(o.Value.String()); o.Value.String() == "" || err == nil && !info.IsDir() {
				return usagef("--output %q: want a directory", o.Value)
			}
		}
		if o := c.Flags().Lookup("output"); o != nil && o.Value.String() != "" {
			output, err := a.followLink(o.Value.String())
			if err == nil {
				err = o.Value.Set(output)
			}
			if err != nil {
				return err
			}
		}
		a.running = true
		defer a.limitProcess(0)
		if err := a.useMemory(); err != nil {
			return err
		}
		r, err := run(c.Context(), a, args)
		a.noteTraffic()
		if r != nil {
			if printErr := a.print(r); err == nil {
				err = printErr
			}
		}
		return err
	}
	return c
}

// given tells whether a flag of the running command was set, on the command line or by --config.
func (a *app) given(flag string) bool { return a.command.Flags().Changed(flag) }

// arguments checks the number of arguments that a usage line has: [ARGUMENT] may be left out, and ARGUMENT... repeated.
func arguments(use string) cobra.PositionalArgs {
	words := strings.Fields(use)[1:]
	least, most := 0, 0
	for i := 0; i < len(words); i++ {
		switch word := words[i]; {
		case strings.HasPrefix(word, "-"):
			i++ // with its value
		case strings.HasSuffix(word, "..."):
			return cobra.MinimumNArgs(least + 1)
		default:
			if most++; word[0] != '[' {
				least++
			}
		}
	}
	switch {
	case most == 0:
		return cobra.NoArgs
	case least == most:
		return cobra.ExactArgs(least)
	}
	return cobra.MaximumNArgs(most)
}

// useThreads puts --threads in force.
func (a *app) useThreads() error {
	if a.quiet && a.verbose {
		return usagef("--quiet and --verbose exclude each other: give one of them")
	}
	if a.threads == 0 {
		a.threads = machine.Threads()
	}
	parallel.SetThreads(a.threads)
	return nil
}

// useMemory puts --memory in force, or what the machine has: the budget of the command. Limits of the system
// that have no room for any are an error.
func (a *app) useMemory() error {
	if err := machine.CheckLimits(a.threads); err != nil {
		return err
	}
	if a.memory > 0 && a.memory < machine.ProgramBytes {
		return fmt.Errorf("--memory %s %w: the program alone needs %s at least", a.memory, machine.ErrDoesNotFit,
			machine.ProgramBytes)
	}
	a.budget = machine.BudgetOf(machine.Limit{Bytes: a.memory, By: "--memory"})
	a.limitProcess(int64(a.budget.Bytes))
	return nil
}

// limitProcess limits the memory of the process; 0 ends that.
func (a *app) limitProcess(bytes int64) {
	if a.call != nil {
		a.call.Limit(bytes, a.memory == 0)
		return
	}
	offheap.LimitProcess(bytes)
}

func (a *app) print(r result) error {
	if a.keep != nil {
		a.keep(r)
		return nil
	}
	if a.json {
		return json.NewEncoder(a.stdout).Encode(r)
	}
	// Names of one line are escaped where they are printed; here what a terminal would obey is, wherever it comes from.
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	r.Text(w)
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(a.stdout, units.PrintableLines(text.String()))
	return err
}

// note tells the user something on the way.
func (a *app) note(format string, args ...any) {
	text := units.Printable(fmt.Sprintf(format, args...))
	switch {
	case a.quiet:
	case a.call != nil:
		a.call.Note(text)
	default:
		fmt.Fprintln(a.stderr, text)
	}
}

// tell is note for a text that is no format.
func (a *app) tell(text string) { a.note("%s", text) }

// detail tells the user something that only --verbose asks for.
func (a *app) detail(format string, args ...any) {
	if a.verbose {
		a.note(format, args...)
	}
}

func (a *app) progress() progress.Reporter {
	switch {
	case a.quiet:
		return progress.Silent
	case a.call != nil:
		return a.call.Progress
	}
	return progress.New(a.stderr, a.terminal)
}
