package command

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/tools/session"
)

type propagateOptions struct {
	preprop.Options
	output           string
	operators        string
	tolerance        float64
	dtype            string
	hardware, device string
	task             string
}

const deviceUsage = "device that propagates: auto, cpu, or one of hopfeed devices, such as cuda:0"

func newPropagateCommand(a *app) *cobra.Command {
	var o propagateOptions
	c := a.verb("propagate GRAPH -o STORE --hops R --operator LIST",
		"Compute propagated features and write a hop store",
		`Propagate computes B^r X for the features X of GRAPH, each operator B and each hop r from 1 to R. It
writes X and these matrices to STORE: the rows that training reads, in the order in which it reads them.

Operators, where A is the adjacency matrix and D has the degrees of A+I on its diagonal:
  sym             D^-1/2 (A+I) D^-1/2
  rw              D^-1 (A+I)
  col             (A+I) D^-1, with the out-degrees
  ppr:alpha=0.15  personalized PageRank, a series of powers of sym
  heat:t=3        heat kernel, a series of powers of sym
Append :reverse to turn all edges round, :undirected to have edges in both directions, and :noloops to add no
self-loops. ppr and heat leave out terms whose coefficients add up to --tolerance at most.

With --label-hops L, the matrices have further columns: the labels of the training nodes of --split, a column
a class with zeros and ones, propagated over up to L hops. A node's own label is left out of its row, so that a
model cannot read it there. Columns of labels are 0 in hop 0 and in hops beyond L.

If the matrices do not fit into --memory, propagate computes some columns at a time (a panel), and keeps results
in scratch files until all panels are finished.

A job that was killed, or that --max-time ended, goes on when the same command is run again; --memory and
--threads may differ. 'hopfeed status STORE' tells how far it is.

With --tasks K, the work is divided into up to K tasks of each kind (cut, hops, write) and the tasks rows and
publish, for machines that share STORE, a folder or a URL. Without --task it lists them, with what each needs. With
--task NAME it does one of them, to the same bytes, whoever does it, and however often. See docs/cluster.md.

The flags say what the store shall have. If STORE is complete, propagate adds the hops and operators that it
lacks, and never removes any. Flags that are left out are then as in the store.

With --device cuda:0, the products are computed on a GPU, to the same bytes. Matrices and topology stay in its
memory where they fit, and come in parts where not. By default a GPU is used if there is one, the job fits, and
it takes more than a second.

With --from STORE, rows that are the same as in STORE, the store of an earlier graph, are copied, and the others
computed: those within r hops of a change in hop r. The result is the same. Flags that are left out are then as
in STORE. Where most rows change, all are computed.

Of a typed graph (see 'hopfeed import npy --help'), features travel along relations: the store gets the target's
features, and a matrix for each metapath of up to --hops relations to the target from a type with features, or
for those that --metapaths names: with 'paper<author<paper', features of papers go to their authors, and from
these to their papers. --operator is rw (the mean over a relation, the default) or sym (D^-1/2 A D^-1/2, with
the degrees of either side). With --relations-subsets K (NARS) there are matrices for each of K subsets of the
relations, each relation with its reverse: hop r, up to --hops, is the mean of hop r-1 over the in-neighbours by
all relations of the subset, and 'paper<author-paper<venue=2<paper' is what hop 2 brings of papers' features.
With --label-hops L, labels travel along the metapaths of up to L relations from the target back to it.

--dry-run prints the plan and stops; with --hardware FILE it plans for the machine that FILE describes. For a
graph that does not exist yet, see 'hopfeed plan --edges'.`, o.do)
	f := c.Flags()
	f.StringVarP(&o.output, "output", "o", "", "hop store to write")
	_ = c.MarkFlagRequired("output")
	f.IntVar(&o.Hops, "hops", 2, "hops of each operator that the store shall have")
	declareTypedStore(f, &o.Options)
	f.StringVar(&o.operators, "operator", "sym", "operators that the store shall have, separated by commas")
	f.Float64Var(&o.tolerance, "tolerance", operator.DefaultTolerance,
		"sum of the coefficients of ppr and heat that may be left out; all add up to 1")
	f.StringVar(&o.Rows, "rows", "", "rows to store: labeled (nodes with a label or in a split; the default) or all")
	among(f, "rows", format.RowsLabeled, format.RowsAll)
	f.StringVar(&o.dtype, "dtype", "", dtypeUsage+" (default the graph's)")
	f.IntVar(&o.ChunkRows, "chunk-rows", 0,
		"rows of a chunk, the unit of reading (default 1000, fewer if rows are long)")
	f.IntVar(&o.Split, "split", 0, "number of the split, from 0, by which the store is divided into regions")
	f.StringVar(&o.device, "device", session.AutoDevice, deviceUsage)
	a.declareEmulate(f)
	f.BoolVar(&o.Force, "force", false, forceUsage)
	f.BoolVar(&o.DryRun, "dry-run", false, "print the plan and write nothing")
	f.StringVar(&o.hardware, "hardware", "", hardwareUsage)
	f.StringVar(&o.Scratch, "scratch", "", scratchUsage+" (default: within STORE)")
	f.DurationVar(&o.MaxTime, "max-time", 0, "stop after this time, such as 3h30m; the same command goes on later")
	atLeast(f, 0, "max-time")
	f.StringVar(&o.From, "from", "", "store of an earlier graph, from which rows that did not change are taken")
	f.StringVar(&o.FromGraph, "from-graph", "",
		"graph that the store of --from was made of (default: the one that GRAPH was updated from)")
	f.IntVar(&o.Tasks, "tasks", 0, "divide the work into this many tasks of each kind, and list them")
	atLeast(f, 0, "tasks")
	f.StringVar(&o.task, "task", "", "do one of the tasks: rows, cut-I, hops-I, write-I or publish, with I from 0 to K-1")
	return c
}

// declareTypedStore adds flags that say what the store of a typed graph shall have; --label-hops is of all graphs.
func declareTypedStore(f *pflag.FlagSet, o *preprop.Options) {
	f.StringSliceVar(&o.Metapaths, "metapaths", nil,
		"metapaths of a typed graph, separated by commas, such as 'paper<author<paper' (default: all of --hops)")
	f.IntVar(&o.RelationsSubsets, "relations-subsets", 0,
		"draw this many subsets of the relations of a typed graph, by --seed, instead of metapaths (NARS)")
	f.IntVar(&o.LabelHops, "label-hops", 0,
		"propagate the labels of training nodes too, up to this hop; 0: features alone")
	atLeast(f, 0, "relations-subsets", "label-hops")
}

// propagated is the result of propagate.
type propagated struct {
	*preprop.Result
	PeakRSSBytes int64 `json:"peak_rss_bytes"`

	dryRun, verbose bool
}

func (p *propagated) Text(w io.Writer) {
	if len(p.Beyond) > 0 {
		defer fmt.Fprintf(w, "\tthe store also has what was not asked for: %s\n", strings.Join(p.Beyond, ", "))
	}
	if p.AlreadyComplete {
		fmt.Fprintf(w, "%s\thas all that was asked for: nothing was done\n", p.Output)
		return
	}
	if p.Metapaths != nil {
		p.metapaths(w)
	} else {
		p.matrices(w)
	}
	if p.dryRun {
		for _, line := range p.Plan.Lines(units.Bytes(p.MemoryBudgetBytes)) {
			fmt.Fprintf(w, "\t%s\n", line)
		}
		return
	}
	if p.Resumed {
		fmt.Fprintln(w, "\tcontinued an earlier run")
	}
	if p.From != nil && p.From.Fresh == "" {
		fmt.Fprintf(w, "\ttook rows from %s; computed of each matrix: %s\n", p.From.Store,
			strings.Trim(fmt.Sprint(p.From.Computed), "[]"))
	}
	fmt.Fprintf(w, "\tin %.1f s; %s read, %s written, at most %s of memory\n",
		p.Seconds, units.Bytes(p.BytesRead), units.Bytes(p.BytesWritten), units.Bytes(p.PeakRSSBytes))
	if p.TransferredBytes > 0 {
		fmt.Fprintf(w, "\ton %s: %s to it and back, in %.1f s beside the hops\n", p.Plan.Device.Name,
			units.Bytes(p.TransferredBytes), p.Time.Transfers)
	}
	for _, m := range p.Metapaths {
		if m.DeviceReason != "" {
			fmt.Fprintf(w, "\t%s on the processor: %s\n", m.Name, m.DeviceReason)
		}
	}
	if p.verbose {
		p.account(w)
	}
}

// matrices says what the store of a graph of one type has.
func (p *propagated) matrices(w io.Writer) {
	fmt.Fprintf(w, "%s\t%s of %s (%s): the input", p.Output, units.Count(p.Rows, "row"),
		units.Count(int64(p.Features), "feature"), p.DType)
	if p.Hops > 0 {
		fmt.Fprintf(w, ", and %s", p.hopsText())
	}
	fmt.Fprintln(w)
	if p.LabelHops > 0 {
		fmt.Fprintf(w, "\t%s of labels of training nodes beside the features, up to hop %d\n",
			units.Count(int64(p.LabelColumns), "column"), p.LabelHops)
	}
	for i, operator := range p.Operators {
		products, off := p.ProductsPerHop[i], p.TruncationErrors[i]
		switch {
		case off > 0:
			fmt.Fprintf(w, "\t%s: %d products a hop, the error of hop r is at most r * %.2g\n", operator, products, off)
		case p.dryRun:
			fmt.Fprintf(w, "\t%s: %d product a hop\n", operator, products)
		}
	}
}

// metapaths says what the store of a typed graph has.
func (p *propagated) metapaths(w io.Writer) {
	hops := 0
	for _, m := range p.Metapaths {
		if m.IsHop() {
			hops++
		}
	}
	var made []string
	if hops > 0 {
		made = append(made, fmt.Sprintf("%s of %s of relations", units.Count(int64(hops), "hop"),
			units.Count(int64(p.RelationsSubsets), "subset")))
	}
	if paths := len(p.Metapaths) - hops; paths > 0 || hops == 0 {
		made = append(made, units.Count(int64(paths), "metapath"))
	}
	fmt.Fprintf(w, "%s\t%s (%s): %s of the target, and %s\n", p.Output, units.Count(p.Rows, "row"), p.DType,
		units.Count(int64(p.Features), "feature"), strings.Join(made, " and "))
	if p.dryRun {
		for _, m := range p.Metapaths {
			fmt.Fprintf(w, "\t%s\n", m)
		}
	}
}

// leastAccountSeconds is the time from which on it matters what would make a job faster.
const leastAccountSeconds = 10

// account says where the time went, and how files were read and written.
func (p *propagated) account(w io.Writer) {
	operators := p.Operators
	if p.Metapaths != nil { // their products are in another order
		operators = nil
	}
	k := 0
	for i, operator := range operators {
		for hop := 1; hop <= p.OperatorHops[i]; hop++ {
			if p.EdgesProcessed[k] > 0 {
				fmt.Fprintf(w, "\t%s hop %d: %.2f s, %s\n", operator, hop, p.HopSeconds[k],
					units.Count(p.EdgesProcessed[k], "edge"))
			}
			k++
		}
	}
	t, faster := p.Time, ""
	if p.Seconds >= leastAccountSeconds {
		faster = map[string]string{"disk": " (more bytes a second of disk would help most)",
			"cores": " (more cores would help most)", "memory": " (more memory would help most)"}[t.Faster]
	}
	fmt.Fprintf(w, "\t%.1f s were predicted; %.1f s planning, %.1f s topology, %.1f s reading, %.1f s first use of "+
		"memory, %.1f s hops, %.1f s waiting for %.1f s of writes, %.1f s publishing%s\n",
		p.Plan.Seconds, t.Planning, t.Preparing, t.Reading, t.FirstUse, t.Hops, t.Waiting, t.Writing, t.Publishing,
		faster)
	for _, line := range p.Paths.Lines() {
		fmt.Fprintf(w, "\t%s\n", line)
	}
}

// hopsText lists how many hops of each operator the store has.
func (p *propagated) hopsText() string {
	var list []string
	for i, operator := range p.Operators {
		if i == 0 || p.OperatorHops[i] != p.OperatorHops[i-1] {
			list = append(list, units.Count(int64(p.OperatorHops[i]), "hop")+" of "+operator)
		} else {
			list = append(list, operator)
		}
	}
	return strings.Join(list, ", ")
}

func (o *propagateOptions) do(ctx context.Context, a *app, args []string) (_ result, err error) {
	o.Defaulted = preprop.Defaulted{Hops: !a.given("hops"), Operators: !a.given("operator"),
		Split: !a.given("split"), Seed: !a.given("seed"), LabelHops: !a.given("label-hops")}
	if o.Operators, err = operator.ParseList(o.operators, o.tolerance); err != nil {
		return nil, usagef("%s", err)
	}
	if o.DType, err = parseDType(o.dtype); err != nil {
		return nil, err
	}
	if o.FromGraph != "" && o.From == "" {
		return nil, usagef("--from-graph: it is the graph that the store of --from was made of: give --from too")
	}
	if err := a.refuseWithin(o.output); err != nil {
		return nil, err
	}
	o.Seed, o.Threads, o.MemoryBytes, o.Progress = a.seed, a.threads, int64(a.budget.Bytes), a.progress()
	o.Note = a.tell
	o.Planned = func(p *preprop.Plan) {
		for _, line := range p.Lines(a.budget.Bytes) {
			if p.Seconds >= leastAccountSeconds || p.Device != nil && p.Device.Name != preprop.CPU {
				a.tell(line)
			} else {
				a.detail("%s", line)
			}
		}
	}
	o.MetapathsPlanned = func(all []preprop.Metapath) {
		for _, m := range all {
			a.detail("%s", m)
		}
	}
	if err := a.planFor(ctx, &o.Options, o.hardware, o.device); err != nil {
		return nil, err
	}
	if o.Tasks > 0 || o.task != "" {
		return o.doTasks(ctx, a, args[0])
	}
	r, err := preprop.Propagate(ctx, a.fs, args[0], o.output, o.Options)
	if err != nil {
		return nil, err
	}
	return &propagated{Result: r, PeakRSSBytes: machine.PeakRSS(), dryRun: o.DryRun, verbose: a.verbose}, nil
}

// planFor sets options to plan for the machine that the file hardware describes, if one is named, and for a device.
func (a *app) planFor(ctx context.Context, options *preprop.Options, hardware, device string) (err error) {
	if options.Device, err = session.PropagationDevice(ctx, a.budget, a.threads,
		devices.Options{Emulate: a.emulate}, device); err != nil || hardware == "" {
		return err
	}
	h, err := machine.ReadHardware(a.fs, hardware)
	if err != nil {
		return err
	}
	options.Device = session.DescribedDevice(&h, device)
	options.Hardware, options.Threads = &h, h.Cores
	if a.memory == 0 {
		options.MemoryBytes = int64(h.Memory)
	}
	return nil
}
