package command

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/tools/bench"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
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
	c := a.verb("ablation STORE",
		"Measure training with one optimisation of loading after another, from each placement",
		`Ablation measures epochs of training, without validation, for each model and number of hops, loaded in
each of the ways of hopfeed bench load (baseline, fused, double-buffer, chunk). It prints times, speedups over
baseline, what an epoch waits for and the bytes it moves: figures 5, 9 and 14 and appendix I of the paper on
pre-propagation GNNs. It leaves out what does not fit into memory. With -o it also draws the figures:
`+strings.Join(bench.AblationFiles(), ", ")+".", o.do)
	f := c.Flags()
	a.declareDevices(f)
	f.StringSliceVar(&o.models, "models", []string{"sgc", "sign"}, "models to train, separated by commas")
	f.IntSliceVar(&o.hops, "hops", nil,
		"numbers of hops to use, separated by commas (default 2 and all above that the store has)")
	o.settings = declareModelSettings(f)
	f.StringVar(&o.placement, "placement", "all", "where the input lives: device, host, storage or all")
	f.IntVar(&o.BatchRows, "batch", 8000, batchUsage)
	f.IntVar(&o.ChunkRows, "chunk-rows", 0, chunkRowsUsage)
	f.IntVar(&o.Rounds, "rounds", 3, roundsUsage)
	f.IntVar(&o.Epochs, "epochs", 2, "epochs measured in a round, between a first and a last one that do not count")
	f.StringVarP(&o.output, "output", "o", "", "directory for charts and figures")
	atLeast(f, 1, "batch", "rounds", "epochs")
	atLeast(f, 0, "chunk-rows")
	return c
}

func (o *benchAblationOptions) validate() (err error) {
	if o.Placements, err = benchPlacements(o.placement); err != nil {
		return err
	}
	if len(o.models) == 0 {
		return usagef("--models: want at least one model")
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
	return nil
}

func (o *benchAblationOptions) do(ctx context.Context, a *app, args []string) (_ result, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := a.checkOutputs(o.output, bench.AblationFiles()); err != nil {
		return nil, err
	}
	storageAlone := slices.Equal(o.Placements, []loader.Placement{loader.Storage})
	var r *bench.Ablation
	err = a.measureStore(ctx, args[0], "bench ablation", &o.Options, storageAlone, func(m session.Machine) (err error) {
		target, columns := training.TargetOf(&o.Store.Manifest)
		if columns == 0 {
			return usagef("%s has no labels to train on", args[0])
		}
		layout := o.Store.Layout()
		spec := trainer.Spec{Features: layout.Features, Widths: layout.Widths, Classes: columns, Target: target,
			Settings: o.settings}
		o.Machine = a.describeMachine()
		if err := o.FindCases(m, spec, o.models, o.hops); err != nil {
			return err
		}
		r, err = bench.Ablate(ctx, o.AblationOptions)
		return err
	})
	if err != nil {
		return nil, err
	}
	files, err := r.Files()
	if err == nil {
		err = a.writeOutputs(o.output, bench.AblationFiles(), files...)
	}
	r.Output = o.output
	return r, err
}

// measureStore opens a store and a device for measurements of loading, and sets them and the common flags in the
// options. Where it fromStorage, chunks must have a size that storage can give.
func (a *app) measureStore(ctx context.Context, dir, verb string, o *bench.Options, fromStorage bool,
	measure func(m session.Machine) error) (err error) {
	if o.Store, err = a.openKind(dir, verb, false); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Store.Close()) }()
	if err := bench.CheckStore(o.Store, o.ChunkRows, fromStorage); err != nil {
		return err
	}
	m := a.machine(ctx)
	opened, err := m.Devices.Open(1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, devices.Close(opened)) }()
	o.Device, o.Threads, o.Seed, o.Progress = opened[0], a.threads, a.seed, a.progress()
	err = measure(m)
	if why := o.Device.Usage().NotLocked; why != "" {
		a.note("pinned memory is not all locked: %s", why)
	}
	return err
}

// describeMachine names the processor and the emulated device.
func (a *app) describeMachine() string {
	text := fmt.Sprintf("%s/%s (%s), %s", runtime.GOOS, runtime.GOARCH, kernel.Name(),
		units.Count(int64(a.threads), "thread"))
	if a.emulate.GPUs > 0 {
		text += fmt.Sprintf(", as an emulated card of %s", a.emulate.Memory)
		if a.emulate.Link > 0 {
			text += fmt.Sprintf(" behind a link of %s", a.emulate.Link)
		}
	}
	return text
}
