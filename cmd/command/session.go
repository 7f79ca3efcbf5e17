package command

import (
	"cmp"
	"context"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

// machine holds the threads, memory and devices that the command may use.
func (a *app) machine(ctx context.Context) session.Machine {
	return session.ThisMachine(ctx, a.budget, a.threads, devices.Options{Emulate: a.emulate, TF32: a.tf32})
}

// openInputOf opens what a model reads: a hop store or, if it passes messages, a graph; of a typed one, the nodes of
// the target (format.Dir.Typed).
func (a *app) openInputOf(dir, model string) (*format.Dir, error) {
	readsGraph, err := (&training.Request{Model: model}).ReadsGraph()
	switch {
	case err != nil:
		return nil, err
	case trainer.ReadsRelations(model) && format.IsTyped(a.fs, dir):
		return format.OpenTarget(a.fs, dir)
	}
	return a.openKind(dir, model, readsGraph)
}

// openAny opens a hop store or a graph; of a typed one, the nodes of the target.
func (a *app) openAny(dir string) (*format.Dir, error) {
	if format.IsTyped(a.fs, dir) {
		return format.OpenTarget(a.fs, dir)
	}
	return format.OpenAny(a.fs, dir)
}

// openKind opens a graph or a hop store. For the other kind, the error says what to do.
func (a *app) openKind(dir, reader string, graph bool) (*format.Dir, error) {
	if format.IsTyped(a.fs, dir) {
		what := "a graph of one type (rgcn and sage read typed ones)"
		if !graph {
			what = "a hop store: run hopfeed propagate " + dir + " -o STORE first (--dry-run prints its plan)"
		}
		return nil, usagef("%s is a typed graph, and %s reads %s", dir, reader, what)
	}
	d, err := format.OpenAny(a.fs, dir)
	if err != nil {
		return nil, err
	}
	switch is := d.Manifest.Kind == format.KindGraph; {
	case is && !graph:
		err = usagef("%s is a graph, and %s reads a hop store: run hopfeed propagate %[1]s -o STORE first", dir, reader)
	case !is && graph:
		err = usagef("%s is a hop store, and %s reads the graph that it was made of: give that", dir, reader)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// resolve completes the options of a training on an input.
func (a *app) resolve(ctx context.Context, dir *format.Dir, o *trainOptions) (training.Options, error) {
	to, err := o.Resolve(ctx, dir, a.machine(ctx), a.seed)
	to.Stages, to.Mapped, to.Scratch = a.emulate.Stages, a.mapped, a.scratch
	return to, err
}

// notePlacement prints where the input of a session is read from, and why.
func (a *app) notePlacement(s *session.Session) {
	a.note("input from %s%s", s.Plan.Placement, shuffleText(s.Plan.Shuffle))
	tell := a.detail
	if len(s.Devices) > 1 || s.Plan.Placement != placement.Device || a.emulate.GPUs > 1 {
		tell = a.note // the input is not where it is read fastest, or shared
	}
	for _, reason := range s.Plan.Reasons {
		tell("  %s", reason)
	}
	var pinned, locked units.Bytes
	notLocked := ""
	for _, d := range s.Devices {
		if u := d.Usage(); !d.Info().Unified {
			pinned, locked = pinned+units.Bytes(u.PinnedInUse), locked+units.Bytes(u.PinnedLocked)
			notLocked = cmp.Or(notLocked, u.NotLocked)
		}
	}
	if notLocked != "" {
		a.note("  only %[2]s of %[1]s of pinned memory is locked: %[3]s", pinned, locked, notLocked)
	}
	if s.Plan.ComputeSeconds > 0 {
		a.note("  an epoch should take %.3g s", s.Plan.EpochSeconds)
	}
}

// noteInput prints where an input is read from, and why.
func (a *app) noteInput(in training.Input) {
	switch in := in.(type) {
	case training.Store:
		a.notePlacement(in.Session)
	default:
		r := in.Report()
		a.note("features from %s", r.Placement)
		for _, reason := range r.Reasons {
			a.detail("  %s", reason)
		}
		if graph, ok := in.(*training.Graph); ok && !a.verbose && graph.SlowValidation() != "" {
			a.note("  %s (--eval-every N validates less often)", graph.SlowValidation())
		}
	}
}

// chooseSchedule chooses who prepares the batches of a graph, and says so.
func (a *app) chooseSchedule(ctx context.Context, graph *training.Graph, o *trainOptions) error {
	if o.Schedule.IsOff(a.machine(ctx).Devices.Info) {
		a.note("schedule: the processor prepares all batches, as the device is the processor")
	}
	notes, err := graph.ChooseSchedule(ctx)
	for _, n := range notes {
		a.tell(n)
	}
	if err == nil && graph.Queues != nil {
		o.Options.Queues = graph.Queues.Training()
	}
	return err
}
