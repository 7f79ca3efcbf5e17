package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/bench"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

type benchAblationOptions struct {
	bench.AblationOptions
	models    []string
	hops      []int
	settings  trainer.Values // that are not the models'
	placement string         // or "all"
	output    string
}

func newBenchAblationCommand(a *app) *cobra.Command {
	var o benchAblationOptions
	c := &cobra.Command{
		Use:   "ablation STORE",
		Short: "Measure training with one optimisation of loading after another, from each placement",
		Long: "Ablation measures epochs of training, without validation, of each model with each number of hops, loaded in\n" +
			"each of the ways of hopfeed bench load (baseline, fused, double-buffer, chunk). It prints the times, the\n" +
			"speedup over baseline, what an epoch waits for, and the bytes that it moves: figures 5, 9 and 14 and appendix\n" +
			"I of the paper on pre-propagation GNNs. It leaves out what does not fit into memory.\n" +
			"With -o, it also draws the figures: " + fmt.Sprint(bench.AblationFiles()) + ".",
		Args: cobra.ExactArgs(1),
		RunE: a.verb(func(ctx context.Context, args []string) (result, error) { return runBenchAblation(ctx, a, args[0], o) }),
	}
	f := c.Flags()
	a.declareDevices(f)
	f.StringSliceVar(&o.models, "models", []string{"sgc", "sign"}, "models to train, separated by commas")
	f.IntSliceVar(&o.hops, "hops", nil, "numbers of hops to use, separated by commas (default 2 and all above that the store has)")
	o.settings = declareModelSettings(f)
	f.StringVar(&o.placement, "placement", "all", "where the input lives: device, host, storage or all")
	f.IntVar(&o.BatchRows, "batch", 8000, batchUsage)
	f.IntVar(&o.ChunkRows, "chunk-rows", 0, chunkRowsUsage)
	f.IntVar(&o.Rounds, "rounds", 3, roundsUsage)
	f.IntVar(&o.Epochs, "epochs", 2, "epochs that are measured in a round, between a first and a last one that are not")
	f.StringVarP(&o.output, "output", "o", "", "directory for charts and figures")
	return c
}

func (o *benchAblationOptions) validate() (err error) {
	if o.Placements, err = benchPlacements(o.placement); err != nil {
		return err
	}
	names, _ := trainer.Models()
	names = slices.DeleteFunc(names, func(model string) bool {
		aggregation, _ := trainer.AggregationOf(model)
		return aggregation != "" // reads a graph
	})
	for _, model := range o.models {
		if err := oneOf("models", model, names...); err != nil {
			return err
		}
	}
	if o.Rounds < 1 || o.Epochs < 1 || o.BatchRows < 1 || o.ChunkRows < 0 {
		return usagef("--rounds %d, --epochs %d, --batch %d, --chunk-rows %d: want 1 or more, and no negative ones",
			o.Rounds, o.Epochs, o.BatchRows, o.ChunkRows)
	}
	return nil
}

func runBenchAblation(ctx context.Context, a *app, dir string, o benchAblationOptions) (_ result, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := a.checkNoFiles(o.output, bench.AblationFiles()); err != nil {
		return nil, err
	}
	store, err := a.openStore(dir, "bench ablation")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := checkLabels(&store.Manifest, dir); err != nil {
		return nil, err
	}
	if err := checkBenchStore(store, o.ChunkRows, slices.Equal(o.Placements, []loader.Placement{loader.Storage})); err != nil {
		return nil, err
	}
	if err := a.checkWritable(o.output, bench.AblationFiles()[0]); err != nil {
		return nil, err
	}
	m := a.machine(ctx)
	opened, err := m.Devices.Open(1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, devices.Close(opened)) }()
	o.Device, o.Machine, o.Store, o.Region = opened[0], a.describeMachine(), store, format.RegionTrain
	o.Threads, o.Seed, o.Progress = a.threads, a.seed, a.progress()
	if o.Cases, err = ablationCases(m, store, &o); err != nil {
		return nil, err
	}
	r, err := bench.Ablate(ctx, o.AblationOptions)
	if why := o.Device.Usage().NotLocked; why != "" {
		a.note("pinned memory is not all locked: %s", why)
	}
	if err != nil {
		return nil, err
	}
	if o.output != "" {
		files, err := r.Files()
		if err == nil {
			err = a.writeFiles(o.output, bench.AblationFiles(), files)
		}
		if err != nil {
			return nil, err
		}
	}
	return ablationResult{r, o.output}, nil
}

// describeMachine names the processor and the emulated device.
func (a *app) describeMachine() string {
	text := fmt.Sprintf("%s/%s (%s), %s", runtime.GOOS, runtime.GOARCH, kernel.Name(), count(int64(a.threads), "thread"))
	if a.emulate.GPUs > 0 {
		text += fmt.Sprintf(", as an emulated card of %s", a.emulate.Memory)
		if a.emulate.Link > 0 {
			text += fmt.Sprintf(" behind a link of %s", a.emulate.Link)
		}
	}
	return text
}

// ablationCases lists each model with each number of hops, and its possible placements.
func ablationCases(machine session.Machine, store *format.Dir, o *benchAblationOptions) ([]bench.AblationCase, error) {
	m := &store.Manifest
	target, columns := targetOf(m)
	if len(o.hops) == 0 {
		o.hops = hopNumbers(m.Operators)
	}
	region, _ := store.Region(o.Region)
	f := machine.Facts()
	f.Devices = 1
	var cases []bench.AblationCase
	possible, fewest := false, units.Bytes(0)
	var refused error // where nothing is possible: what needs least
	for _, model := range slices.Compact(slices.Sorted(slices.Values(o.models))) {
		for _, hops := range slices.Compact(slices.Sorted(slices.Values(o.hops))) {
			if hops < 0 {
				return nil, usagef("--hops %d: must not be negative", hops)
			}
			matrices, err := trainer.Matrices(model, store.Matrices(), nil, []int{hops})
			if err != nil {
				return nil, usagef("--hops: %s: %s", store.Path(), err)
			}
			spec := trainer.Spec{
				Model: model, Matrices: matrices, Features: m.Features, Classes: columns, Target: target,
				Settings: o.settings,
			}
			needs, err := session.Options{
				Matrices: matrices, Rows: []loader.Rows{{Region: region.Name}}, Train: true,
				BatchRows: o.BatchRows, ChunkRows: o.ChunkRows, Model: spec,
			}.Needs(store, f.Devices)
			if err != nil {
				return nil, err
			}
			// Only the alternatives are used, not the choice.
			d, _ := placement.Choose(f, needs, placement.Override{Placement: placement.Auto, Shuffle: placement.Auto})
			for _, p := range o.Placements {
				asked := placement.Override{Placement: string(p)}
				_, err := placement.Choose(f, needs, asked)
				if err == nil {
					possible = true
				} else if least := needs.Least(f, asked); refused == nil || least < fewest {
					refused, fewest = err, least
				}
			}
			cases = append(cases, bench.AblationCase{Spec: spec, Hops: hops, Alternatives: d.Alternatives})
		}
	}
	if !possible {
		return nil, refused
	}
	return cases, nil
}

// hopNumbers lists the numbers of hops from 2 to what all operators have, or that number if it is less.
func hopNumbers(operators []format.Operator) []int {
	last := 0
	for i, op := range operators {
		if i == 0 || op.Hops < last {
			last = op.Hops
		}
	}
	hops := []int{min(last, 2)}
	for h := 3; h <= last; h++ {
		hops = append(hops, h)
	}
	return hops
}
